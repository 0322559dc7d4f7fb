// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IRegistry} from "../interfaces/IRegistry.sol";
import {ISummons} from "../interfaces/ISummons.sol";
import {DrawRequest, Tab} from "../interfaces/MarketTypes.sol";
import {SummonsState} from "../interfaces/Proceedings.sol";
import {Promise, Result, Signature, Work} from "../interfaces/Signed.sol";
import {Messages} from "./Messages.sol";
import {Orders} from "./Orders.sol";

/// @title What a summons asks for, and whether this is it
/// @dev What it is told stands in the state, which the Summons compared with the hash that it keeps.
library SummonedWork {
    /// @notice keccak256(abi.encode(state)): its 18 fields are a word each in memory, too.
    function hashOf(SummonsState memory state) internal pure returns (bytes32 stateHash) {
        assembly ("memory-safe") {
            stateHash := keccak256(state, 0x240)
        }
    }

    /// @notice The order is drawn: reverts where the secret is another one, or misses.
    function requireHit(bytes32 drawHash, bytes32 secret, bytes32 beta, uint32 checkRate) internal pure {
        Orders.requireEqual(keccak256(abi.encode(secret)), drawHash);
        if (!Messages.hits(secret, beta, checkRate)) revert ISummons.SecretMisses(secret, beta, checkRate);
    }

    /// @notice These are the nodes that the admission names.
    function requireNodes(SummonsState memory state, address[] memory nodes) internal pure {
        Orders.requireEqual(Messages.nodesHash(nodes), state.named);
    }

    /// @notice The hash of results by the nodes that the scheduler admitted.
    function admittedResults(
        bytes32 domain,
        SummonsState memory state,
        address[] memory nodes,
        Result[] calldata results,
        Signature[] calldata signatures
    ) internal pure returns (bytes32) {
        requireNodes(state, nodes);
        (bytes32[] memory hashes, address[] memory signers) =
            Orders.resultsAt(domain, state.order, state.ends, results, signatures);
        for (uint256 s = 0; s < signers.length; ++s) {
            if (signers[s] != nodes[s]) revert Orders.WrongSigner(signers[s], nodes[s]);
        }
        return Messages.resultsHash(hashes);
    }

    /// @notice The drawn verifiers of a summoned check, and the result that they judge. Not possible: the group of that
    ///      block has too few seats for this draw, which the scheduler could not know when it admitted the order.
    /// @param silent nodes whose owners have no part in it any more
    function verifiersOf(
        IRegistry registry,
        bytes32 domain,
        SummonsState memory state,
        address[] memory silent,
        Result[] calldata results,
        Signature[] calldata signatures,
        bytes memory hints
    ) internal view returns (bool possible, address[] memory drawn, bytes32 result) {
        (bytes32[] memory hashes, address[] memory signers) =
            Orders.resultsAt(domain, state.order, state.ends, results, signatures);
        Orders.requireEqual(Messages.resultsHash(hashes), state.results);
        result = hashes[state.segment];
        bytes32 seed = Messages.checkSeed(state.order, state.secret, state.named, state.results);
        (possible, drawn) = _draw(
            registry,
            Orders.verifiersRequest(registry, _leafOf(state), seed, signers, silent, hints)
        );
    }

    /// @notice The promise is the scheduler's, to this node, for this order: the node knows what its work earns.
    function requirePromise(
        bytes32 domain,
        SummonsState memory state,
        Tab memory tab,
        Promise memory promised,
        bytes memory signature,
        Work work
    ) internal pure {
        Orders.requireEqual(promised.tab, Messages.tabId(tab));
        if (
            promised.order != state.order || promised.work != uint8(work)
                || promised.referenceBlock != state.referenceBlock
        ) revert ISummons.WrongPromise(promised.order, promised.segment, promised.work, promised.referenceBlock);
        if (tab.key != state.scheduler) revert Orders.WrongSigner(tab.key, state.scheduler);
        Orders.requireSigner(domain, Messages.hash(promised), signature, state.scheduler);
    }

    function _draw(IRegistry registry, DrawRequest memory request)
        private
        view
        returns (bool possible, address[] memory drawn)
    {
        try registry.draw(request) returns (address[] memory found) {
            return (true, found);
        } catch (bytes memory reason) {
            if (bytes4(reason) == IRegistry.DrawExhausted.selector) return (false, drawn);
            assembly ("memory-safe") {
                revert(add(reason, 0x20), mload(reason))
            }
        }
    }

    function _leafOf(SummonsState memory state) private pure returns (Orders.Leaf memory) {
        return Orders.Leaf({
            order: state.order,
            executionClass: state.executionClass,
            ends: state.ends,
            referenceBlock: state.referenceBlock,
            segment: state.segment
        });
    }
}
