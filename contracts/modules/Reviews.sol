// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {Opening, Outcome, Phase, Progress, Settled, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {ReviewPayment} from "./ReviewPayment.sol";
import {SignedPosts} from "./SignedPosts.sol";

/// @title How a review goes on and ends
abstract contract Reviews is ReviewPayment, SignedPosts {
    /// @inheritdoc ITrothDisputes
    function assignReview(bytes32 reviewId, Task calldata review, VrfProof calldata proof) external {
        Case memory due = _load(reviewId, review);
        _requirePhase(reviewId, due.progress, Phase.Disputed);
        _drawReviewers(due, proof);
        _store(reviewId, due.termsHash, due.progress);
    }

    /// @inheritdoc ITrothDisputes
    function commitReview(
        bytes32 reviewId,
        Task calldata review,
        VrfProof[] calldata proofs,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) external {
        Case memory due = _load(reviewId, review);
        Progress memory progress = due.progress;
        bool drawn = progress.phase != Phase.Disputed;
        if (proofs.length != (drawn ? 0 : 1)) revert WrongProofCount(proofs.length, drawn ? 0 : 1);
        if (!drawn) _drawReviewers(due, proofs[0]);
        _requirePhase(reviewId, progress, Phase.Assigned);
        if (due.terms.ends[0] != 0) revert NotReview(reviewId);
        _requireNotAfter(progress.phaseBlock + COMMIT_WINDOW);
        uint256 expected = progress.posts.length - 1;
        if (commitments.length != expected) revert WrongPostCount(commitments.length, expected);
        bytes32[] memory own = progress.posts;
        progress.posts = new bytes32[](own.length);
        progress.posts[0] = own[0];
        for (uint256 v = 0; v < expected; ++v) {
            progress.posts[1 + v] = commitments[v];
        }
        uint256 used = _checkSignatures(reviewId, progress, 0, 1, signatures, 0);
        if (used != signatures.length) revert WrongSignatureCount(signatures.length, used);
        // What a reviewer posted itself stays, unless it signed something else since: nobody's vote can be left out.
        bool complete = true;
        for (uint256 v = 1; v <= expected; ++v) {
            if (progress.posts[v] == 0) progress.posts[v] = own[v];
            if (progress.posts[v] == 0) complete = false;
        }
        _requireSealable(progress, 0);
        if (!complete) _requireAfter(progress.phaseBlock + COMMIT_WINDOW * 3 / 4);
        _enterCommitted(reviewId, progress);
        _store(reviewId, due.termsHash, progress);
    }

    /// @inheritdoc ITrothDisputes
    function settleReview(
        bytes32 taskId,
        Task calldata task,
        Settled calldata settled,
        uint8 segment,
        Task calldata review,
        VrfProof calldata proof,
        Opening[] calldata openings
    ) external {
        bytes32 reviewId = _reviewId(taskId, segment);
        Case memory due = _load(reviewId, review);
        Case memory ended = _loadSettled(taskId, task, settled);
        if (due.progress.phase == Phase.Committed && !due.rules.exact) _sample(due, proof);
        _requireRevealing(due);
        if (openings.length != due.progress.posts.length) {
            revert WrongOpeningCount(openings.length, due.progress.posts.length);
        }
        Finding memory finding = _judge(due, 0, openings);
        _finish(reviewId, finding.outcome);
        (Outcome before, Outcome now_) = _restate(taskId, Outcome(settled.outcomes[segment]), finding.outcome);
        emit ReviewSettled(taskId, reviewId, segment, finding.outcome, now_, finding.verdicts, finding.cluster);
        _pay(ended, settled, segment, due, finding, before == Outcome.Accepted && now_ != before);
    }

    /// @inheritdoc ITrothDisputes
    function closeReview(bytes32 reviewId, Task calldata review) external {
        Case memory late = _load(reviewId, review);
        Progress memory progress = late.progress;
        if (late.terms.ends[0] != 0) revert NotReview(reviewId);
        bool sampleDue = progress.phase == Phase.Committed && !late.rules.exact;
        bool undrawn = progress.phase == Phase.Disputed;
        if (!undrawn && !sampleDue) _requirePhase(reviewId, progress, Phase.Assigned);
        uint256 window = sampleDue ? SAMPLE_WINDOW : COMMIT_WINDOW;
        _requireAfter(undrawn ? _drawDeadline(progress) : progress.phaseBlock + window);
        bytes32 evidence = _tasks[reviewId];
        _finish(reviewId, Outcome.Expired);
        emit ReviewExpired(reviewId, progress.phase);
        if (!undrawn || _reviewersIn(_reviewGroup(late), late) == late.rules.reviewers) {
            uint256 taken = _fineScheduler(late, evidence);
            if (sampleDue) _credit(reviewId, RESERVE, taken - _compensate(reviewId, progress, taken));
            else _payWronged(late, taken);
        }
        _returnBond(late);
    }

    /// @dev Notes a segment's new outcome in the task's slot.
    /// @return before how the task stood
    /// @return now_ how it stands
    function _restate(bytes32 taskId, Outcome first, Outcome second) private returns (Outcome before, Outcome now_) {
        unchecked {
            uint256 slot = uint256(_tasks[taskId]);
            uint256 notAccepted = slot >> 8 & 0xff;
            before = Outcome(slot & 0xff);
            now_ = before;
            if (second == Outcome.Indeterminate || second == first) return (before, now_);
            if (second == Outcome.Accepted) {
                if (--notAccepted == 0) now_ = Outcome.Accepted;
            } else {
                now_ = Outcome.Rejected;
                if (first == Outcome.Accepted) ++notAccepted;
            }
            _tasks[taskId] = bytes32(slot & ~uint256(0xffff) | notAccepted << 8 | uint256(now_));
        }
    }
}
