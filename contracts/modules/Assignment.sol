// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Rules, Terms, VrfProof} from "../interfaces/TrothTypes.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {Permutation} from "../libraries/Permutation.sol";
import {Registry} from "./Registry.sol";
import {TaskStore} from "./TaskStore.sol";

/// @title Who infers and who verifies (VeriLLM section 5.3)
abstract contract Assignment is Registry, TaskStore {
    using Permutation for Permutation.Walk;

    bytes32 private constant ASSIGNMENT_TAG = keccak256("troth/assignment/1");
    bytes32 private constant SAMPLE_TAG = keccak256("troth/sample/1");

    /// @dev Draws every segment's parties: c candidates, then k verifiers, per segment.
    function _assign(bytes32 taskId, Terms memory terms, uint256 segments, VrfProof[] calldata proofs, Rules memory rules)
        internal
        returns (address[] memory parties)
    {
        if (proofs.length != segments) revert WrongProofCount(proofs.length, segments);
        uint256 width = uint256(rules.candidates) + rules.verifiers;
        VrfKey memory key = _vrfKeys[terms.scheduler];
        bytes32[] memory betas = new bytes32[](segments);
        bytes[] memory pis = new bytes[](segments);
        parties = new address[](segments * width);
        uint8 first = 0;
        for (uint256 s = 0; s < segments; ++s) {
            uint8 end = uint8(terms.ends[s]);
            bytes32 group = groupId(terms.executionClass, first, end);
            uint256 size = groupSizeAt(group, terms.referenceBlock);
            bytes32 alpha = keccak256(
                abi.encode(ASSIGNMENT_TAG, block.chainid, address(this), taskId, s, size, terms.referenceBlock)
            );
            betas[s] = EcVrf.verify(key.x, key.y, alpha, proofs[s].proof, proofs[s].hints);
            pis[s] = proofs[s].proof;
            _draw(parties, s * width, width, group, size, terms.referenceBlock, betas[s]);
            first = end;
        }
        emit TaskAssigned(taskId, parties, betas, pis);
    }

    /// @dev The VRF output over all posts and the hash of the block in which they were completed: neither the holder
    ///      of the VRF key nor the block producer can choose it alone.
    function _sampleSeed(
        bytes32 taskId,
        address scheduler,
        bytes32[] memory posts,
        uint256 commitBlock,
        VrfProof calldata proof
    ) internal view returns (bytes32) {
        VrfKey memory key = _vrfKeys[scheduler];
        bytes32 alpha = keccak256(
            abi.encode(
                SAMPLE_TAG,
                block.chainid,
                address(this),
                taskId,
                keccak256(abi.encode(posts)),
                blockhash(commitBlock)
            )
        );
        return EcVrf.verify(key.x, key.y, alpha, proof.proof, proof.hints);
    }

    /// @dev Walks the shuffled slots, passing over empty ones, until a segment's parties are complete.
    function _draw(
        address[] memory parties,
        uint256 from,
        uint256 needed,
        bytes32 group,
        uint256 size,
        uint256 referenceBlock,
        bytes32 beta
    ) private view {
        Permutation.Walk memory walk = Permutation.start(beta, size);
        uint256 found = 0;
        while (found < needed) {
            if (!walk.hasNext()) revert GroupTooSmall(group, found, needed);
            address member = memberAt(group, walk.next(), referenceBlock);
            if (member != address(0)) parties[from + found++] = member;
        }
    }
}
