// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothTasks} from "../interfaces/ITrothTasks.sol";
import {CommitSubmission, Order, Phase, Progress, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {SignedPosts} from "./SignedPosts.sol";
import {Tasks} from "./Tasks.sol";

/// @title All roots and commitments in one call, each with its maker's signature
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and positions in calldata are small.
abstract contract Commitments is Tasks, SignedPosts {
    /// @inheritdoc ITrothTasks
    function openAndCommit(
        Order calldata order,
        bytes calldata signature,
        VrfProof[] calldata proofs,
        CommitSubmission calldata submission
    ) external returns (bytes32 taskId) {
        Case memory opened = _open(order, signature);
        _assign(opened, proofs);
        _commit(opened.taskId, opened.progress, submission);
        _store(opened.taskId, opened.termsHash, opened.progress);
        return opened.taskId;
    }

    /// @inheritdoc ITrothTasks
    function commit(
        bytes32 taskId,
        Task calldata task,
        VrfProof[] calldata proofs,
        CommitSubmission calldata submission
    ) external {
        unchecked {
            Case memory opened = _load(taskId, task);
            Phase phase = opened.progress.phase;
            if (phase > Phase.Assigned) revert WrongPhase(taskId, phase);
            _requireNoReview(taskId, opened.terms);
            _requireNotAfter(opened.progress.phaseBlock + COMMIT_WINDOW);
            if (phase == Phase.Opened) _assign(opened, proofs);
            else if (proofs.length != 0) revert WrongProofCount(proofs.length, 0);
            _commit(taskId, opened.progress, submission);
            _store(taskId, opened.termsHash, opened.progress);
        }
    }

    function _commit(bytes32 taskId, Progress memory progress, CommitSubmission calldata submission) private {
        unchecked {
            uint256 expected = _postCount(progress);
            if (submission.posts.length != expected) revert WrongPostCount(submission.posts.length, expected);
            if (submission.positions == 0) revert ZeroPositions(taskId);
            if (submission.outputHash == 0) revert InvalidOutputHash(progress.segments - 1, 0);
            progress.attempt = submission.attempt;
            progress.positions = submission.positions;
            progress.outputHash = submission.outputHash;
            progress.posts = submission.posts;
            uint256 used = 0;
            for (uint256 s = 0; s < progress.segments; ++s) {
                uint256 candidate = uint8(submission.inferencers[s]);
                if (candidate >= progress.candidates) revert CandidateOutOfRange(s, candidate, progress.candidates);
                uint256 first = _firstParty(progress, s);
                _seat(progress, first, first + candidate);
                _requireSealable(progress, s);
                used = _checkSignatures(taskId, progress, s, 0, submission.signatures, used);
            }
            if (used != submission.signatures.length) revert WrongSignatureCount(submission.signatures.length, used);
            _enterCommitted(taskId, progress);
        }
    }
}
