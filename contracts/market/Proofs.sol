// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Encoded} from "../libraries/Encoded.sol";
import {ExactNumbers} from "../libraries/ExactNumbers.sol";
import {PublicNoise} from "../libraries/PublicNoise.sol";
import {WeightsTree} from "../libraries/WeightsTree.sol";
import {IDeployment} from "./interfaces/IDeployment.sol";
import {IProofs, ShownRow, TokenProof} from "./interfaces/IProofs.sol";
import {IProver} from "./interfaces/IProver.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {ExecutionClass} from "./interfaces/MarketTypes.sol";
import {Result} from "./interfaces/Signed.sol";
import {Messages} from "./libraries/Messages.sol";
import {Orders} from "./libraries/Orders.sol";
import {ShownAnswers} from "./libraries/ShownAnswers.sol";

/// @title Checks proofs of arithmetic; it holds no money, keeps no state and convicts nobody by itself
contract Proofs is IProofs, IProver {
    bytes32 private constant HEAD_TAG = keccak256("troth/market/head/1");
    bytes private constant NAMED_HEAD = "/head:";
    /// @dev A slack of 2^-24 at least: above what float64 loses in the noise and in its sum, and float32 below its smallest
    ///      normal number.
    uint256 private constant LEAST_SLACK_BITS = 24;
    /// @dev Units of the noise.
    uint256 private constant NOISE_BITS = 120;
    /// @dev Bytes of a call of `wrongToken` whose strings and arrays are empty.
    uint256 private constant EMPTY = 3652;
    /// @dev Words of a TokenProof in which offsets stand; its result has nine words.
    uint256 private constant CLASS = 1;
    uint256 private constant MODEL = 2;
    uint256 private constant SIGNATURE = 12;
    uint256 private constant REQUEST = 13;
    uint256 private constant DRAW = 14;
    uint256 private constant TOKEN = 15;
    uint256 private constant STATE = 16;
    uint256 private constant HEAD = 18;
    uint256 private constant CLAIMED = 19;
    uint256 private constant BETTER = 20;

    address private immutable BANK;
    IRegistry private immutable REGISTRY;
    uint256 private immutable CHAIN;
    bytes32 private immutable DOMAIN;

    constructor() {
        BANK = IDeployment(msg.sender).contracts().bank;
        REGISTRY = IRegistry(IDeployment(msg.sender).contracts().registry);
        CHAIN = block.chainid;
        DOMAIN = Messages.separator(BANK);
    }

    /// @inheritdoc IProver
    function proven(bytes calldata evidence)
        external
        view
        returns (address party, uint64 offenceBlock, bytes32 subject)
    {
        bytes4 selector = bytes4(evidence);
        if (selector != IProofs.wrongToken.selector) revert NoSuchProof(selector);
        TokenProof calldata proof;
        // Read where it lies, as the compiler reads an argument: behind the selector is its offset. Wherever the offsets in
        // it lead, what is there must have the hashes that were signed.
        assembly ("memory-safe") {
            let arguments := add(evidence.offset, 4)
            proof := add(arguments, and(calldataload(arguments), 0xffffffff))
        }
        uint256 words;
        assembly ("memory-safe") {
            words := proof
        }
        uint256 needed = _lengthOf(words);
        if (evidence.length != needed) revert SurplusEvidence(evidence.length, needed);
        return _weigh(proof);
    }

    /// @dev Bytes of the call of `wrongToken` with this proof, by what its parts say of their lengths. All of them but the
    ///      draw are read before anybody is convicted, where the compiler looks whether they are as long.
    function _lengthOf(uint256 proof) private pure returns (uint256) {
        uint256 head = Encoded.partOf(proof, HEAD);
        uint256 state = Encoded.partOf(proof, STATE);
        uint256 claimed = Encoded.partOf(proof, CLAIMED);
        uint256 better = Encoded.partOf(proof, BETTER);
        uint256 shown = ShownAnswers.lengthOf(
            Encoded.partOf(proof, CLASS), Encoded.partOf(proof, MODEL), Encoded.partOf(proof, DRAW)
        );
        // Some lengths below 2^32.
        unchecked {
            uint256 named = Encoded.padded(Encoded.lengthOf(head, 0)) + Encoded.padded(Encoded.lengthOf(head, 1))
                + Encoded.padded(Encoded.lengthOf(Encoded.partOf(proof, REQUEST), 0))
                + Encoded.padded(Encoded.lengthOf(proof, SIGNATURE));
            uint256 rows = Encoded.padded(Encoded.lengthOf(state, 3)) + Encoded.padded(Encoded.lengthOf(claimed, 0))
                + Encoded.padded(Encoded.lengthOf(better, 0));
            uint256 words = Encoded.lengthOf(Encoded.partOf(proof, TOKEN), 3) + Encoded.lengthOf(state, 4)
                + Encoded.lengthOf(head, 6) + Encoded.lengthOf(claimed, 1) + Encoded.lengthOf(better, 1);
            return EMPTY + shown + named + rows + 32 * words;
        }
    }

    /// @inheritdoc IProofs
    function wrongToken(TokenProof calldata proof)
        external
        view
        returns (address party, uint64 offenceBlock, bytes32 subject)
    {
        return _weigh(proof);
    }

    function _weigh(TokenProof calldata proof)
        private
        view
        returns (address party, uint64 offenceBlock, bytes32 subject)
    {
        bytes32 domain = _domain();
        bytes32 order = Orders.digestAt(domain, proof.order);
        subject = Messages.hashOf(proof.result);
        party = ECDSA.recover(Messages.digest(domain, subject), proof.signature);
        offenceBlock = proof.order.order.referenceBlock;
        uint256 segments = ShownAnswers.requireLast(proof.result, proof.order.order.ends, order);
        _requireNames(proof);
        _requireNamed(proof.executionClass.name, proof.head.name);
        ShownAnswers.Choice memory choice = ShownAnswers.choiceOf(proof.request, proof.order.order);
        ShownAnswers.requireToken(proof.result, proof.token);
        _requireState(proof, order, segments == 1);
        _requireHead(proof);
        _requireBeaten(proof, choice, order);
    }

    // ------------------------------------------------------------------------------------------- what the node signed

    /// @dev The order names the class, and the class the model.
    function _requireNames(TokenProof calldata proof) private pure {
        ExecutionClass calldata class = proof.executionClass;
        Orders.requireEqual(Encoded.hashOf(class), proof.order.order.executionClass);
        Orders.requireEqual(Encoded.hashOf(proof.model), class.model);
    }

    /// @dev The row is in the chain that the node signed, at the position whose logits choose this token.
    function _requireState(TokenProof calldata proof, bytes32 order, bool bindsToken) private pure {
        ShownRow calldata state = proof.state;
        uint256 behind = proof.result.written - 1 - proof.token.index;
        if (state.later.length != behind) revert ExactNumbers.WrongLength(state.later.length, behind);
        bytes32 rowHash =
            bindsToken ? keccak256(abi.encodePacked(state.read, state.row)) : keccak256(state.row);
        bytes32 link = _link(proof.result, ShownAnswers.positionOf(proof.result, proof.token), rowHash, state);
        Orders.requireEqual(
            keccak256(abi.encodePacked(HEAD_TAG, order, state.headSalt, link)), proof.result.outputHead
        );
    }

    /// @dev The chain's last link: struct hashes of rows, each with the one before.
    function _link(Result calldata result, uint256 position, bytes32 rowHash, ShownRow calldata state)
        private
        pure
        returns (bytes32 link)
    {
        bytes32 typeHash = Messages.ROW_TYPE;
        (bytes32 order, uint256 segment, bytes32 previous) = (result.order, result.segment, state.previous);
        bytes32[] calldata later = state.later;
        assembly ("memory-safe") {
            let row := mload(0x40)
            mstore(row, typeHash)
            mstore(add(row, 0x20), order)
            mstore(add(row, 0x40), segment)
            mstore(add(row, 0x60), position)
            mstore(add(row, 0x80), rowHash)
            mstore(add(row, 0xa0), previous)
            link := keccak256(row, 0xc0)
            for { let i := 0 } lt(i, later.length) { i := add(i, 1) } {
                mstore(add(row, 0x60), add(position, add(i, 1)))
                mstore(add(row, 0x80), calldataload(add(later.offset, shl(5, i))))
                mstore(add(row, 0xa0), link)
                link := keccak256(row, 0xc0)
            }
        }
    }

    // --------------------------------------------------------------------------------------------------- the head

    /// @dev A class says of itself that logits are products with this tensor, and nothing else.
    function _requireNamed(string calldata name, string calldata tensor) private pure {
        bytes memory ending = bytes.concat(NAMED_HEAD, bytes(tensor));
        bytes calldata whole = bytes(name);
        if (
            whole.length < ending.length || keccak256(whole[whole.length - ending.length:]) != keccak256(ending)
        ) revert HeadNotNamed(name, tensor);
    }

    function _requireHead(TokenProof calldata proof) private pure {
        // The matrix may be padded beyond the vocabulary, whose tokens alone are chosen.
        if (proof.rival >= proof.model.vocabulary) revert NoSuchToken(proof.rival, proof.model.vocabulary);
        bytes32 rows =
            WeightsTree.rowsRoot(proof.head, proof.token.token, proof.claimed.row, proof.claimed.siblings);
        Orders.requireEqual(
            WeightsTree.rowsRoot(proof.head, proof.rival, proof.better.row, proof.better.siblings), rows
        );
        Orders.requireEqual(
            WeightsTree.weightsRoot(proof.head, proof.model.hiddenSize, rows), proof.model.weightsRoot
        );
    }

    function _stateFormat(TokenProof calldata proof) private pure returns (ExactNumbers.Format) {
        return proof.executionClass.dtype == 0 ? ExactNumbers.Format.Float32 : ExactNumbers.Format.BFloat16;
    }

    /// @dev Which numbers the file holds: an engine of this class has them exactly, or rounds them once.
    function _weightFormat(TokenProof calldata proof) private pure returns (ExactNumbers.Format) {
        bytes32 dtype = keccak256(bytes(proof.head.dtype));
        if (dtype == keccak256("F32")) return ExactNumbers.Format.Float32;
        if (dtype == keccak256("BF16")) return ExactNumbers.Format.BFloat16;
        revert UnknownNumbers(proof.head.dtype, proof.executionClass.dtype);
    }

    // ----------------------------------------------------------------------------------------------- the arithmetic

    function _requireBeaten(TokenProof calldata proof, ShownAnswers.Choice memory choice, bytes32 order) private view {
        ExactNumbers.Logits memory found = _logits(proof);
        // A row with a number of 2^40 and more, an infinity or NaN is no state; no honest node signs one.
        if (!found.isState) return;
        int256 likelier = found.others - found.own;
        uint256 slack = (1 << proof.unitBits - LEAST_SLACK_BITS)
            + ExactNumbers.slack(found, proof.model.hiddenSize, proof.executionClass.dtype != 0);
        int256 ahead = likelier;
        if (choice.temperature != 0) {
            bytes32 seed = ShownAnswers.seedOf(REGISTRY, proof.order.scheduler, order, proof.draw);
            uint256 position = ShownAnswers.positionOf(proof.result, proof.token);
            int256 noise = PublicNoise.gumbel(seed, position, proof.rival)
                - PublicNoise.gumbel(seed, position, proof.token.token);
            ahead += noise * int256(choice.temperature) / int256(ShownAnswers.MILLION) >> NOISE_BITS - proof.unitBits;
        }
        // top_p, top_k and min_p leave the likeliest: what is likelier than a token is left wherever the token is.
        bool holds = ahead > int256(slack) && (!choice.cut || likelier > int256(slack));
        if (!holds) revert TokenStands(likelier, ahead, slack);
    }

    function _logits(TokenProof calldata proof) private pure returns (ExactNumbers.Logits memory) {
        return ExactNumbers.logits(
            proof.state.row,
            _stateFormat(proof),
            proof.claimed.row,
            proof.better.row,
            _weightFormat(proof),
            proof.model.hiddenSize,
            proof.executionClass.dtype != 0,
            proof.unitBits
        );
    }

    function _domain() private view returns (bytes32) {
        // A fork that changes the chain's number gets a domain of its own.
        return block.chainid == CHAIN ? DOMAIN : Messages.separator(BANK);
    }
}
