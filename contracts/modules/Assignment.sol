// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothAssignment} from "../interfaces/ITrothAssignment.sol";
import {VrfProof} from "../interfaces/TrothTypes.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {Permutation} from "../libraries/Permutation.sol";
import {Groups} from "./Groups.sol";
import {TaskStore} from "./TaskStore.sol";

/// @title Who infers and who verifies (VeriLLM section 5.3)
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and positions in calldata are small.
abstract contract Assignment is ITrothAssignment, Groups, TaskStore {
    using Permutation for Permutation.Walk;

    bytes32 private constant ASSIGNMENT_TAG = keccak256("troth/assignment/1");
    bytes32 private constant SAMPLE_TAG = keccak256("troth/sample/1");

    /// @dev Draws every segment's parties: c candidates, then k verifiers, per segment.
    function _assign(Case memory task, VrfProof[] calldata proofs) internal {
        unchecked {
            uint256 segments = task.progress.segments;
            if (proofs.length != segments) revert WrongProofCount(proofs.length, segments);
            VrfKey memory key = _vrfKeys[task.terms.scheduler];
            bytes32[] memory betas = new bytes32[](segments);
            bytes[] memory pis = new bytes[](segments);
            task.progress.parties =
                new address[](segments * (uint256(task.rules.candidates) + task.rules.verifiers));
            uint8 first = 0;
            for (uint256 s = 0; s < segments; ++s) {
                uint8 end = uint8(task.terms.ends[s]);
                betas[s] = _assignSegment(task, s, _groupId(task.terms.executionClass, first, end), key, proofs[s]);
                pis[s] = proofs[s].proof;
                first = end;
            }
            emit TaskAssigned(task.taskId, task.progress.parties, betas, pis);
        }
    }

    /// @dev The VRF output over all posts and the hash of the block in which they were completed: neither the holder
    ///      of the VRF key nor the block producer can choose it alone.
    function _sampleSeed(Case memory task, VrfProof calldata proof) internal view returns (bytes32) {
        VrfKey memory key = _vrfKeys[task.terms.scheduler];
        bytes32 alpha = keccak256(
            abi.encode(
                SAMPLE_TAG,
                block.chainid,
                address(this),
                task.taskId,
                keccak256(abi.encode(task.progress.posts)),
                blockhash(task.progress.phaseBlock)
            )
        );
        return EcVrf.verify(key.x, key.y, alpha, proof.proof, proof.hints);
    }

    function _assignSegment(
        Case memory task,
        uint256 segment,
        bytes32 group,
        VrfKey memory key,
        VrfProof calldata proof
    ) private view returns (bytes32 beta) {
        uint256 referenceBlock = task.terms.referenceBlock;
        uint256 size = _groupSizeAt(group, referenceBlock);
        bytes32 alpha = keccak256(
            abi.encode(ASSIGNMENT_TAG, block.chainid, address(this), task.taskId, segment, size, referenceBlock)
        );
        beta = EcVrf.verify(key.x, key.y, alpha, proof.proof, proof.hints);
        _draw(task, segment, group, Permutation.start(beta, size));
    }

    /// @dev Walks the shuffled slots, passing over empty ones, until a segment's parties are complete.
    function _draw(Case memory task, uint256 segment, bytes32 group, Permutation.Walk memory walk) private view {
        unchecked {
            address[] memory parties = task.progress.parties;
            uint256 needed = parties.length / task.progress.segments;
            uint256 found = 0;
            while (found < needed) {
                if (!walk.hasNext()) revert GroupTooSmall(group, found, needed);
                address member = _memberAt(group, walk.next(), task.terms.referenceBlock);
                if (member != address(0)) parties[segment * needed + found++] = member;
            }
        }
    }
}
