// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Consent, Tab, TabConsent, Voucher} from "../interfaces/MarketTypes.sol";
import {SummonsKind} from "../interfaces/Proceedings.sol";
import {
    Admission,
    Draw,
    Inclusion,
    Order,
    Promise,
    Result,
    ReviewCommitment,
    Row,
    TraceCommitment,
    Verdict
} from "../interfaces/Signed.sol";

/// @title What parties sign (EIP-712), and the hashes that are made of it
/// @notice All messages are flat, so that hashStruct is keccak256(abi.encode(type hash, message)). The domain is that of
///         the Bank: name "Troth", version "2".
/// @dev The same rules are `troth.protocol.market.messages`; a differential test holds the two together.
library Messages {
    bytes32 private constant DOMAIN_TYPE =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 internal constant CONSENT_TYPE = keccak256("Consent(address owner,address operator)");
    bytes32 internal constant TAB_CONSENT_TYPE = keccak256("TabConsent(address payer,address payee)");
    bytes32 internal constant VOUCHER_TYPE = keccak256(
        "Voucher(bytes32 tab,uint96 spent,uint96 authorised,uint64 sequence,uint64 acknowledgedThrough,uint256 exceptions)"
    );
    bytes32 internal constant ORDER_TYPE = keccak256(
        "Order(bytes32 tab,uint64 sequence,bytes32 executionClass,bytes32 requestHash,bytes32 ends,uint64 promptPrice,uint64 cachedPrice,uint64 writtenPrice,uint16 nodeShare,uint96 maxFee,uint32 checkRate,uint64 deadline,uint64 referenceBlock,bytes32 drawHash,bytes32 tilesHash,bytes32 replyKey)"
    );
    bytes32 internal constant ADMISSION_TYPE =
        keccak256("Admission(bytes32 order,bytes32 nodes,uint64 blockNumber)");
    bytes32 internal constant PROMISE_TYPE = keccak256(
        "Promise(bytes32 tab,uint64 sequence,bytes32 order,uint8 segment,uint8 work,uint64 referenceBlock,uint64 promptAsk,uint64 cachedAsk,uint64 writtenAsk,uint96 price)"
    );
    bytes32 internal constant ROW_TYPE =
        keccak256("Row(bytes32 order,uint8 segment,uint32 position,bytes32 rowHash,bytes32 previous)");
    bytes32 internal constant RESULT_TYPE = keccak256(
        "Result(bytes32 order,uint8 segment,bytes32 inputHead,bytes32 outputHead,uint32 prompt,uint32 cached,uint32 written,bytes32 traceCommitment,bytes32 outputHash)"
    );
    bytes32 internal constant DRAW_TYPE =
        keccak256("Draw(bytes32 order,bytes32 results,bytes32 beta,uint64 blockNumber)");
    bytes32 internal constant TRACE_COMMITMENT_TYPE =
        keccak256("TraceCommitment(bytes32 order,uint8 segment,bytes32 result,bytes32 commitment)");
    bytes32 internal constant VERDICT_TYPE = keccak256(
        "Verdict(bytes32 order,uint8 segment,bytes32 result,bytes32 commitment,uint8 opinion,bool locks)"
    );
    bytes32 internal constant INCLUSION_TYPE = keccak256("Inclusion(bytes32 order,bytes32 leaf,uint64 entry)");
    bytes32 internal constant REVIEW_COMMITMENT_TYPE =
        keccak256("ReviewCommitment(bytes32 caseId,bytes32 commitment)");

    bytes32 private constant INFER_TAG = keccak256("troth/market/infer/1");
    bytes32 private constant DRAW_TAG = keccak256("troth/market/draw/1");
    bytes32 private constant CHECK_TAG = keccak256("troth/market/check/1");
    bytes32 private constant COURT_TAG = keccak256("troth/market/court/1");
    bytes32 private constant TILES_TAG = keccak256("troth/market/tiles/1");
    bytes32 private constant HEARING_TAG = keccak256("troth/market/hearing/1");

    /// @notice keccak256 of the EIP-712 domain; `bank` is its verifying contract.
    function separator(address bank) internal view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPE, keccak256("Troth"), keccak256("2"), block.chainid, bank));
    }

    /// @notice A Doubt over segment s has the id of segment DOUBTS + s: no Doubt keeps a rejection out of the court.
    uint256 internal constant DOUBTS = 128;

    /// @notice What is signed: keccak256(0x1901 ‖ separator ‖ struct hash).
    function digest(bytes32 domain, bytes32 structHash) internal pure returns (bytes32) {
        return _packed(0x1901, domain, structHash);
    }

    function hash(Consent memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(CONSENT_TYPE, pointer, 2);
    }

    function hash(TabConsent memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(TAB_CONSENT_TYPE, pointer, 2);
    }

    function hash(Voucher memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(VOUCHER_TYPE, pointer, 6);
    }

    function hash(Order memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(ORDER_TYPE, pointer, 16);
    }

    function hash(Admission memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(ADMISSION_TYPE, pointer, 3);
    }

    function hash(Promise memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(PROMISE_TYPE, pointer, 10);
    }

    function hash(Row memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(ROW_TYPE, pointer, 5);
    }

    function hash(Result memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(RESULT_TYPE, pointer, 9);
    }

    function hash(Draw memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(DRAW_TYPE, pointer, 4);
    }

    function hash(TraceCommitment memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(TRACE_COMMITMENT_TYPE, pointer, 4);
    }

    function hash(Verdict memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(VERDICT_TYPE, pointer, 6);
    }

    function hash(Inclusion memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(INCLUSION_TYPE, pointer, 3);
    }

    function hash(ReviewCommitment memory message) internal pure returns (bytes32) {
        uint256 pointer;
        assembly ("memory-safe") {
            pointer := message
        }
        return _hashStruct(REVIEW_COMMITMENT_TYPE, pointer, 2);
    }

    /// @dev keccak256(abi.encode(type hash, message)) of so many fields: a flat struct of value types lies in memory just as
    ///      abi.encode would copy it, field by field and masked once more.
    function _hashStruct(bytes32 typeHash, uint256 pointer, uint256 fields) private pure returns (bytes32 structHash) {
        assembly ("memory-safe") {
            let encoded := mload(0x40)
            let size := shl(5, fields)
            mstore(encoded, typeHash)
            mcopy(add(encoded, 0x20), pointer, size)
            structHash := keccak256(encoded, add(size, 0x20))
        }
    }

    /// @notice The same for a message at a position of the calldata. Its words are taken as they are: one with dirty bits has
    ///         another hash, which nobody signed.
    function hashAt(bytes32 typeHash, uint256 position, uint256 fields) internal pure returns (bytes32 structHash) {
        assembly ("memory-safe") {
            let encoded := mload(0x40)
            let size := shl(5, fields)
            mstore(encoded, typeHash)
            calldatacopy(add(encoded, 0x20), position, size)
            structHash := keccak256(encoded, add(size, 0x20))
        }
    }

    /// @notice The same for an order in the calldata.
    function hashOf(Order calldata message) internal pure returns (bytes32) {
        uint256 position;
        assembly ("memory-safe") {
            position := message
        }
        return hashAt(ORDER_TYPE, position, 16);
    }

    /// @notice The same for a result in the calldata.
    function hashOf(Result calldata message) internal pure returns (bytes32) {
        uint256 position;
        assembly ("memory-safe") {
            position := message
        }
        return hashAt(RESULT_TYPE, position, 9);
    }

    /// @notice The same for a draw in the calldata.
    function hashOf(Draw calldata message) internal pure returns (bytes32) {
        uint256 position;
        assembly ("memory-safe") {
            position := message
        }
        return hashAt(DRAW_TYPE, position, 4);
    }

    /// @notice The same for a verdict in the calldata.
    function hashOf(Verdict calldata message) internal pure returns (bytes32) {
        uint256 position;
        assembly ("memory-safe") {
            position := message
        }
        return hashAt(VERDICT_TYPE, position, 6);
    }

    /// @dev keccak256(prefix ‖ a ‖ b) with a prefix of two bytes, over no memory that is anybody's.
    function _packed(uint256 prefix, bytes32 a, bytes32 b) private pure returns (bytes32 hashed) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, shl(240, prefix))
            mstore(add(free, 2), a)
            mstore(add(free, 0x22), b)
            hashed := keccak256(free, 0x42)
        }
    }

    /// @dev keccak256(abi.encode(a, b)).
    function _hash(bytes32 a, bytes32 b) private pure returns (bytes32 hashed) {
        assembly ("memory-safe") {
            mstore(0, a)
            mstore(0x20, b)
            hashed := keccak256(0, 0x40)
        }
    }

    /// @dev keccak256(abi.encode(a, b, c, d)), or of the first words of it.
    function _hash(bytes32 a, bytes32 b, bytes32 c, bytes32 d, uint256 words) private pure returns (bytes32 hashed) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, a)
            mstore(add(free, 0x20), b)
            mstore(add(free, 0x40), c)
            mstore(add(free, 0x60), d)
            hashed := keccak256(free, shl(5, words))
        }
    }

    /// @notice A tab's id.
    function tabId(Tab memory tab) internal pure returns (bytes32) {
        return keccak256(abi.encode(tab));
    }

    /// @notice keccak256 over the struct hashes of all results, in order of segments: what a Draw names.
    function resultsHash(bytes32[] memory structHashes) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(structHashes));
    }

    /// @notice keccak256 over the inferencer of each segment, a word each: what an Admission names.
    function nodesHash(address[] memory nodes) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(nodes));
    }

    /// @notice VRF input from which inferencers follow; `order` is the order's digest.
    function inferAlpha(bytes32 order) internal pure returns (bytes32) {
        return _hash(INFER_TAG, order);
    }

    /// @notice VRF input of the lottery.
    function drawAlpha(bytes32 order) internal pure returns (bytes32) {
        return _hash(DRAW_TAG, order);
    }

    /// @notice From which a checked leaf's verifiers follow, one seed for all segments (segmentSeed).
    /// @dev The scheduler fixed beta (its VRF over the order) and the results by its signature before it knew the client's secret,
    ///      and the client its secret before it knew beta or results: neither side alone picks them, and one VRF proof serves for
    ///      lottery and verifiers. Together they could sign another beta: the court asks for its proof.
    function checkSeed(bytes32 order, bytes32 secret, bytes32 beta, bytes32 results) internal pure returns (bytes32) {
        return keccak256(abi.encode(CHECK_TAG, order, secret, beta, results));
    }

    /// @notice Seed of a segment's draw, under the VRF's output for inferencers or under checkSeed.
    function segmentSeed(bytes32 beta, uint256 segment) internal pure returns (bytes32) {
        return _hash(beta, bytes32(segment));
    }

    /// @notice Seed of the draw of reviewers.
    function courtSeed(bytes32 case_, uint256 round, bytes32 randao) internal pure returns (bytes32) {
        return _hash(COURT_TAG, case_, bytes32(round), randao, 4);
    }

    /// @notice Seed of a case's tiles.
    function tilesSeed(bytes32 case_, bytes32[] memory commitments, bytes32 randao) internal pure returns (bytes32) {
        bytes32 packed;
        // Words lie in memory as abi.encodePacked would copy them.
        assembly ("memory-safe") {
            packed := keccak256(add(commitments, 0x20), shl(5, mload(commitments)))
        }
        return _hash(TILES_TAG, case_, packed, randao, 4);
    }

    /// @notice One round of a case: what reviewers' commitments name.
    function hearing(bytes32 case_, uint256 round) internal pure returns (bytes32) {
        return _hash(HEARING_TAG, case_, bytes32(round), 0, 3);
    }

    /// @notice The id of a case: one per order and segment; that of a Doubt counts the segment from DOUBTS on.
    function caseId(bytes32 order, uint256 segment) internal pure returns (bytes32) {
        return _hash(order, bytes32(segment));
    }

    /// @notice The id of a summons.
    function summonsId(bytes32 order, SummonsKind kind, uint256 segment) internal pure returns (bytes32) {
        return _hash(order, bytes32(uint256(kind)), bytes32(segment), 0, 3);
    }

    /// @notice Whether the client's secret hits: keccak256(secret ‖ beta) below q of all values.
    /// @param checkRate q in millionths
    function hits(bytes32 secret, bytes32 beta, uint256 checkRate) internal pure returns (bool) {
        if (checkRate >= 1_000_000) return true;
        return uint256(keccak256(abi.encodePacked(secret, beta))) / (type(uint256).max / 1_000_000) < checkRate;
    }
}
