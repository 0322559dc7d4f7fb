// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {IRegistry} from "../interfaces/IRegistry.sol";
import {DrawRequest, Tab} from "../interfaces/MarketTypes.sol";
import {Opinion, Result, Signature, SignedOrder, Verdict, Word} from "../interfaces/Signed.sol";
import {Messages} from "./Messages.sol";

/// @title What summons, evidence and cases check alike: orders, results, the scheduler's words, verdicts of who was
/// drawn
/// @notice An order's tab id holds client, scheduler and key, and its digest holds the tab id, so that whoever signed
///         something over the digest named all of them: nothing in a SignedOrder is free once its tab fits.
library Orders {
    /// @notice The order is of another tab than that of its client, scheduler and key.
    error ForeignTab(bytes32 tab, bytes32 expected);
    error InvalidOrder(bytes32 order, address key);
    /// @notice Ends must rise, be zero after the last, and there is at least one.
    error InvalidEnds(bytes32 ends);
    error UnknownSegment(uint256 segment, bytes32 ends);
    error WrongCount(uint256 given, uint256 expected);
    /// @notice A message names another order or segment than the one it is shown for.
    error WrongPlace(bytes32 order, uint256 segment, bytes32 expectedOrder, uint256 expectedSegment);
    /// @notice What a segment read is not what the one before it gave, or they ran over different numbers of positions.
    error HeadsApart(uint256 segment);
    error WrongSigner(address signer, address expected);
    /// @notice What is shown is not what was signed: results, nodes, a place.
    error Mismatch(bytes32 given, bytes32 expected);
    error NotDrawn(address signer);
    error JudgedTwice(address signer);
    /// @notice A verifier accepts, rejects or cannot tell; a word over another result has another signer.
    error WrongOpinion(uint256 index, uint8 opinion);

    /// @notice Which leaf is checked: one segment of an order.
    struct Leaf {
        bytes32 order;
        bytes32 executionClass;
        bytes32 ends;
        uint64 referenceBlock;
        uint8 segment;
    }

    /// @notice The order's digest, once its tab is that of client, scheduler and key. No signature is looked at.
    function digestOf(bytes32 domain, SignedOrder memory signed) internal pure returns (bytes32 order) {
        bytes32 tab = Messages.tabId(Tab({payer: signed.client, payee: signed.scheduler, key: signed.key}));
        if (signed.order.tab != tab) revert ForeignTab(signed.order.tab, tab);
        return Messages.digest(domain, Messages.hash(signed.order));
    }

    /// @notice The same for an order in the calldata, hashed where it lies.
    function digestAt(bytes32 domain, SignedOrder calldata signed) internal pure returns (bytes32 order) {
        bytes32 tab = Messages.tabId(Tab({payer: signed.client, payee: signed.scheduler, key: signed.key}));
        if (signed.order.tab != tab) revert ForeignTab(signed.order.tab, tab);
        return Messages.digest(domain, Messages.hashOf(signed.order));
    }

    /// @notice The same for an order that its tab key signed.
    function verified(bytes32 domain, SignedOrder memory signed) internal view returns (bytes32 order) {
        order = digestOf(domain, signed);
        requireKey(order, signed.key, signed.signature);
    }

    /// @notice Reverts unless a tab key (an account, or a contract by EIP-1271) signed this digest.
    /// @dev An account's own signature counts whether it has code or not: by EIP-7702 it could take code on afterwards
    /// that denies what it signed.
    function requireKey(bytes32 order, address key, bytes memory signature) internal view {
        (address signer, ECDSA.RecoverError fault,) = ECDSA.tryRecover(order, signature);
        if (fault == ECDSA.RecoverError.NoError && signer == key) return;
        if (!SignatureChecker.isValidERC1271SignatureNow(key, order, signature)) revert InvalidOrder(order, key);
    }

    /// @notice Who signed a message; operators sign by ECDSA, 65 bytes, low s.
    function signerOf(bytes32 domain, bytes32 structHash, bytes memory signature) internal pure returns (address) {
        return ECDSA.recover(Messages.digest(domain, structHash), signature);
    }

    /// @notice Reverts unless `expected` signed this message.
    function requireSigner(bytes32 domain, bytes32 structHash, bytes memory signature, address expected) internal pure {
        address signer = signerOf(domain, structHash, signature);
        if (signer != expected) revert WrongSigner(signer, expected);
    }

    /// @notice How many segments an order has.
    function segmentCount(bytes32 ends) internal pure returns (uint256 count) {
        uint256 rest = uint256(ends);
        uint256 last = 0;
        unchecked {
            // 32 ends at most, since what is shifted in is zero.
            for (uint256 end = rest >> 248; end != 0; end = rest >> 248) {
                if (end <= last) revert InvalidEnds(ends);
                last = end;
                rest <<= 8;
                ++count;
            }
        }
        if (count == 0 || rest != 0) revert InvalidEnds(ends);
    }

    /// @notice Layers [first, end) of a segment.
    function layersOf(bytes32 ends, uint256 segment) internal pure returns (uint8 first, uint8 end) {
        if (segment >= 32 || ends[segment] == 0) revert UnknownSegment(segment, ends);
        end = uint8(ends[segment]);
        if (segment > 0) first = uint8(ends[segment - 1]);
    }

    /// @notice All results of an order with their signers: one per segment, in order, whose heads meet.
    function resultsOf(
        bytes32 domain,
        bytes32 order,
        bytes32 ends,
        Result[] memory results,
        bytes[] memory signatures
    ) internal pure returns (bytes32[] memory hashes, address[] memory signers) {
        uint256 count = segmentCount(ends);
        if (results.length != count) revert WrongCount(results.length, count);
        if (signatures.length != count) revert WrongCount(signatures.length, count);
        hashes = new bytes32[](count);
        signers = new address[](count);
        for (uint256 s = 0; s < count; ++s) {
            requirePlace(results[s].order, results[s].segment, order, s);
            if (s > 0 && !meet(results[s - 1], results[s])) revert HeadsApart(s);
            hashes[s] = Messages.hash(results[s]);
            signers[s] = signerOf(domain, hashes[s], signatures[s]);
        }
    }

    /// @notice The same for results in the calldata, read where they lie, and signatures of 64 bytes.
    function resultsAt(
        bytes32 domain,
        bytes32 order,
        bytes32 ends,
        Result[] calldata results,
        Signature[] calldata signatures
    ) internal pure returns (bytes32[] memory hashes, address[] memory signers) {
        uint256 count = segmentCount(ends);
        if (results.length != count) revert WrongCount(results.length, count);
        if (signatures.length != count) revert WrongCount(signatures.length, count);
        hashes = new bytes32[](count);
        signers = new address[](count);
        for (uint256 s = 0; s < count; ++s) {
            Result calldata result = results[s];
            requirePlace(result.order, result.segment, order, s);
            if (s > 0 && !meet(results[s - 1], result)) revert HeadsApart(s);
            hashes[s] = Messages.hashOf(result);
            bytes32 digest = Messages.digest(domain, hashes[s]);
            signers[s] = ECDSA.recover(digest, signatures[s].r, signatures[s].vs);
        }
    }

    /// @notice Whether the next segment read what this one gave, over as many positions (each has its own cache).
    function meet(Result memory result, Result memory next) internal pure returns (bool) {
        return result.outputHead == next.inputHead && result.written == next.written
            && uint256(result.prompt) + result.cached == uint256(next.prompt) + next.cached;
    }

    function requireEqual(bytes32 given, bytes32 expected) internal pure {
        if (given != expected) revert Mismatch(given, expected);
    }

    function requirePlace(bytes32 order, uint256 segment, bytes32 expectedOrder, uint256 expectedSegment)
        internal
        pure
    {
        if (order != expectedOrder || segment != expectedSegment) {
            revert WrongPlace(order, segment, expectedOrder, expectedSegment);
        }
    }

    /// @notice The draw of a segment's verifiers: seasoned seats, without owners of inferencers and of who stayed
    ///         silent.
    /// @param silent nodes that a summons replaced (Summons.silentOf)
    function verifiersRequest(
        IRegistry registry,
        Leaf memory leaf,
        bytes32 seed,
        address[] memory inferencers,
        address[] memory silent,
        bytes memory hints
    ) internal view returns (DrawRequest memory request) {
        request.executionClass = leaf.executionClass;
        (request.first, request.end) = layersOf(leaf.ends, leaf.segment);
        request.blockNumber = leaf.referenceBlock;
        request.seed = Messages.segmentSeed(seed, leaf.segment);
        (, request.count,) = registry.committeeOf(leaf.executionClass);
        request.seasoned = true;
        request.excluded = ownersOf(registry, inferencers, silent);
        request.hints = hints;
    }

    /// @notice Owners of two lists of operators.
    function ownersOf(IRegistry registry, address[] memory operators, address[] memory more)
        internal
        view
        returns (address[] memory owners)
    {
        owners = new address[](operators.length + more.length);
        for (uint256 i = 0; i < operators.length; ++i) owners[i] = registry.ownerOf(operators[i]);
        for (uint256 i = 0; i < more.length; ++i) owners[operators.length + i] = registry.ownerOf(more[i]);
    }

    /// @notice What each drawn seat says: words over `result`, one per distinct node; None where there is none.
    function opinionsOf(
        bytes32 domain,
        bytes32 order,
        uint8 segment,
        bytes32 result,
        address[] memory drawn,
        Word[] calldata words
    ) internal pure returns (uint8[] memory opinions) {
        opinions = new uint8[](drawn.length);
        Verdict memory verdict;
        (verdict.order, verdict.segment, verdict.result) = (order, segment, result);
        for (uint256 i = 0; i < words.length; ++i) {
            Word calldata word = words[i];
            uint8 opinion = word.opinion;
            if (opinion < uint8(Opinion.Accept) || opinion > uint8(Opinion.CannotTell)) revert WrongOpinion(i, opinion);
            (verdict.commitment, verdict.opinion, verdict.locks) = (word.commitment, opinion, word.locks);
            bytes32 digest = Messages.digest(domain, Messages.hash(verdict));
            _give(opinions, drawn, ECDSA.recover(digest, word.signature.r, word.signature.vs), opinion);
        }
    }

    /// @dev One opinion for all seats of a drawn node.
    function _give(uint8[] memory opinions, address[] memory drawn, address signer, uint8 opinion) private pure {
        bool found = false;
        for (uint256 seat = 0; seat < drawn.length; ++seat) {
            if (drawn[seat] != signer) continue;
            if (opinions[seat] != 0) revert JudgedTwice(signer);
            opinions[seat] = opinion;
            found = true;
        }
        if (!found) revert NotDrawn(signer);
    }
}
