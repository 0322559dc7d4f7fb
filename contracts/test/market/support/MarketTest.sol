// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {DrawRequest, Rules} from "../../../market/interfaces/MarketTypes.sol";
import {
    Admission,
    Draw,
    Order,
    Result,
    Signature,
    SignedOrder,
    Verdict,
    VrfProof,
    Word
} from "../../../market/interfaces/Signed.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {Prices} from "../../../market/libraries/Prices.sol";
import {P256Prover} from "../../support/P256Prover.sol";
import {MarketStage} from "./MarketStage.sol";

/// @title Orders, results, draws and words on a whole deployment, as their parties sign them
abstract contract MarketTest is MarketStage {
    // ---- messages

    function drawSecret(uint64 sequence) internal pure returns (bytes32) {
        return keccak256(abi.encode("draw", sequence));
    }

    function tilesSecret(uint64 sequence) internal pure returns (bytes32) {
        return keccak256(abi.encode("tiles", sequence));
    }

    /// @dev The client's order number `sequence`, checked always.
    function newOrder(bytes32 class, bytes32 ends, uint64 sequence) internal view returns (Order memory order) {
        order.tab = Messages.tabId(clientTab());
        order.sequence = sequence;
        order.executionClass = class;
        order.requestHash = keccak256(abi.encode("request", sequence));
        order.ends = ends;
        (order.promptPrice, order.cachedPrice, order.writtenPrice) = (PRICE, PRICE, PRICE);
        order.nodeShare = 8000;
        order.maxFee = FEE_CAP;
        order.checkRate = 1_000_000;
        order.deadline = uint64(vm.getBlockTimestamp() + 600);
        order.referenceBlock = last();
        order.drawHash = keccak256(abi.encode(drawSecret(sequence)));
        order.tilesHash = keccak256(abi.encode(tilesSecret(sequence)));
        order.replyKey = keccak256("x25519");
    }

    function signOrder(Order memory order) internal view returns (SignedOrder memory) {
        return SignedOrder({
            order: order,
            client: client,
            scheduler: scheduler,
            key: tabKey,
            signature: sign(TAB_KEY, Messages.hash(order))
        });
    }

    /// @dev The order's id everywhere.
    function orderId(Order memory order) internal view returns (bytes32) {
        return digest(Messages.hash(order));
    }

    /// @dev A result of 20 positions computed, 4 from a cache and 8 written, whose heads meet its neighbours'.
    function result(Order memory order, uint8 segment) internal view returns (Result memory made) {
        made.order = orderId(order);
        made.segment = segment;
        made.inputHead = segment == 0 ? order.requestHash : keccak256(abi.encode("head", made.order, segment));
        made.outputHead = keccak256(abi.encode("head", made.order, segment + 1));
        (made.prompt, made.cached, made.written) = (20, 4, 8);
        made.traceCommitment = keccak256(abi.encode(traceRoot(segment), traceSalt(segment)));
        if (uint8(order.ends[segment]) == LAYERS) made.outputHash = keccak256(abi.encode("answer", made.order));
    }

    function traceRoot(uint8 segment) internal pure returns (bytes32) {
        return keccak256(abi.encode("trace", segment));
    }

    function traceSalt(uint8 segment) internal pure returns (bytes32) {
        return keccak256(abi.encode("salt", segment));
    }

    /// @dev Results of all segments, as honest nodes sign them.
    function results(Order memory order, address[] memory nodes)
        internal
        view
        returns (Result[] memory made, bytes[] memory signatures, bytes32 resultsHash)
    {
        made = new Result[](nodes.length);
        signatures = new bytes[](nodes.length);
        bytes32[] memory hashes = new bytes32[](nodes.length);
        for (uint8 s = 0; s < nodes.length; ++s) {
            made[s] = result(order, s);
            hashes[s] = Messages.hash(made[s]);
            signatures[s] = signAs(nodes[s], hashes[s]);
        }
        resultsHash = Messages.resultsHash(hashes);
    }

    /// @dev A scheduler's VRF over 32 bytes.
    function prove(address scheduler_, bytes32 alpha) internal view returns (VrfProof memory proof, bytes32 beta) {
        (proof, beta) = P256Prover.prove(vrfSecrets[scheduler_], alpha);
    }

    // ---- draws

    function segmentsOf(bytes32 ends) internal pure returns (uint256 count) {
        while (count < 32 && ends[count] != 0) ++count;
    }

    function segmentAt(bytes32 ends, uint256 segment) internal pure returns (uint8 first, uint8 end) {
        return (segment == 0 ? 0 : uint8(ends[segment - 1]), uint8(ends[segment]));
    }

    /// @dev Candidates of a segment, of whom the first serves in this stage.
    function inferencersRequest(Order memory order, bytes32 beta, uint256 segment)
        internal
        view
        returns (DrawRequest memory request)
    {
        (request.first, request.end) = segmentAt(order.ends, segment);
        request.executionClass = order.executionClass;
        request.blockNumber = order.referenceBlock;
        request.seed = Messages.segmentSeed(beta, segment);
        Rules memory rules = registry.rulesOf(order.executionClass);
        request.count = rules.candidates;
        request.distinct = true;
        request.bound = Prices.bound(order, request.end - request.first, rules.layers);
    }

    /// @dev Who infers: the first candidate of each segment.
    function inferencers(Order memory order) internal view returns (address[] memory nodes) {
        (, bytes32 beta) = prove(scheduler, Messages.inferAlpha(orderId(order)));
        nodes = new address[](segmentsOf(order.ends));
        for (uint256 s = 0; s < nodes.length; ++s) {
            (address[] memory drawn,) = lens.draw(inferencersRequest(order, beta, s));
            nodes[s] = drawn[0];
        }
    }

    function ownersOf(address[] memory nodes) internal view returns (address[] memory owners) {
        owners = new address[](nodes.length);
        for (uint256 i = 0; i < nodes.length; ++i) {
            owners[i] = registry.ownerOf(nodes[i]);
        }
    }

    /// @dev The k seats that check a segment, with the proof and hints that the contracts want.
    function verifiers(Order memory order, address[] memory nodes, bytes32 resultsHash, uint256 segment)
        internal
        view
        returns (address[] memory seats, VrfProof memory proof, bytes memory hints)
    {
        bytes32 beta;
        (proof, beta) = prove(scheduler, Messages.drawAlpha(orderId(order)));
        DrawRequest memory request;
        (request.first, request.end) = segmentAt(order.ends, segment);
        request.executionClass = order.executionClass;
        request.blockNumber = order.referenceBlock;
        bytes32 seed = Messages.checkSeed(orderId(order), drawSecret(order.sequence), beta, resultsHash);
        request.seed = Messages.segmentSeed(seed, segment);
        request.count = registry.rulesOf(order.executionClass).verifiers;
        request.seasoned = true;
        request.excluded = ownersOf(nodes);
        (seats, hints) = lens.draw(request);
    }

    /// @dev The scheduler's word over results.
    function signDraw(Order memory order, bytes32 resultsHash)
        internal
        view
        returns (Draw memory draw, bytes memory signature)
    {
        (, bytes32 beta) = prove(scheduler, Messages.drawAlpha(orderId(order)));
        draw = Draw({order: orderId(order), results: resultsHash, beta: beta, blockNumber: last()});
        signature = sign(SCHEDULER_KEY, Messages.hash(draw));
    }

    /// @dev The scheduler takes an order, served by these nodes.
    function signAdmission(Order memory order, address[] memory nodes)
        internal
        view
        returns (Admission memory admission, bytes memory signature)
    {
        admission = Admission({order: orderId(order), nodes: Messages.nodesHash(nodes), blockNumber: last()});
        signature = sign(SCHEDULER_KEY, Messages.hash(admission));
    }

    /// @dev Verdicts as a summons' answer shows them.
    function wordsOf(Verdict[] memory verdicts, bytes[] memory signatures) internal pure returns (Word[] memory words) {
        words = new Word[](verdicts.length);
        for (uint256 i = 0; i < words.length; ++i) {
            words[i] =
                Word(verdicts[i].commitment, verdicts[i].opinion, verdicts[i].locks, compact(signatures[i]));
        }
    }

    function compacted(bytes[] memory signatures) internal pure returns (Signature[] memory short) {
        short = new Signature[](signatures.length);
        for (uint256 i = 0; i < short.length; ++i) short[i] = compact(signatures[i]);
    }

    /// @dev A signature as EIP-2098 writes it.
    function compact(bytes memory signature) internal pure returns (Signature memory) {
        (bytes32 r, bytes32 vs) = (bytes32(0), bytes32(0));
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            vs := mload(add(signature, 0x40))
        }
        if (signature[64] == 0x1c) vs |= bytes32(uint256(1) << 255);
        return Signature(r, vs);
    }

    /// @dev Each place once, in the order in which they were drawn.
    function distinct(address[] memory seats) internal pure returns (address[] memory nodes) {
        nodes = new address[](seats.length);
        uint256 count;
        for (uint256 i = 0; i < seats.length; ++i) {
            bool known = false;
            for (uint256 j = 0; j < count; ++j) {
                if (nodes[j] == seats[i]) known = true;
            }
            if (!known) nodes[count++] = seats[i];
        }
        assembly ("memory-safe") {
            mstore(nodes, count)
        }
    }
}
