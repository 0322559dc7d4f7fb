// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothOwnPosts} from "../interfaces/ITrothOwnPosts.sol";
import {Phase, Progress} from "../interfaces/TrothTypes.sol";
import {Posts} from "./Posts.sol";
import {TaskCodec} from "./TaskCodec.sol";

/// @title Each party posts for itself, should the scheduler not do it
abstract contract OwnPosts is ITrothOwnPosts, Posts {
    /// @inheritdoc ITrothOwnPosts
    function commitInference(
        bytes32 taskId,
        bytes32 terms,
        Progress calldata given,
        uint8 segment,
        uint8 attempt,
        uint32 positions,
        bytes32 root,
        bytes32 outputHash
    ) external {
        Progress memory progress = TaskCodec.read(given);
        _requireOwnPost(taskId, terms, progress, segment, root);
        uint256 first = _firstParty(progress, segment);
        uint256 place = _find(progress, first, progress.candidates);
        if (place == progress.candidates) revert NotCandidate(segment, msg.sender);
        uint256 slot = segment * (progress.posts.length / progress.segments);
        if (progress.posts[slot] != 0) revert AlreadyPosted(segment, progress.parties[first]);
        if (positions == 0) revert ZeroPositions(taskId);
        if (progress.positions != 0 && (attempt != progress.attempt || positions != progress.positions)) {
            revert AttemptMismatch(attempt, progress.attempt, positions, progress.positions);
        }
        bool last = segment + 1 == progress.segments;
        if ((outputHash != 0) != last) revert InvalidOutputHash(segment, outputHash);
        progress.attempt = attempt;
        progress.positions = positions;
        if (last) progress.outputHash = outputHash;
        progress.posts[slot] = root;
        _seat(progress, first, first + place);
        emit InferenceCommitted(taskId, msg.sender, segment, attempt, positions, root, outputHash);
        _afterPost(taskId, terms, progress);
    }

    /// @inheritdoc ITrothOwnPosts
    function commitVerification(
        bytes32 taskId,
        bytes32 terms,
        Progress calldata given,
        uint8 segment,
        bytes32 commitment
    ) external {
        Progress memory progress = TaskCodec.read(given);
        _requireOwnPost(taskId, terms, progress, segment, commitment);
        uint256 verifiers = _verifiers(progress);
        uint256 verifier = _find(progress, _firstParty(progress, segment) + progress.candidates, verifiers);
        if (verifier == verifiers) revert NotVerifier(segment, msg.sender);
        uint256 slot = segment * (1 + verifiers) + 1 + verifier;
        if (progress.posts[slot] != 0) revert AlreadyPosted(segment, msg.sender);
        // Before that, a root of another attempt or length could follow, and the commitment would not open.
        if (progress.posts[segment * (1 + verifiers)] == 0) revert RootMissing(segment);
        progress.posts[slot] = commitment;
        emit VerificationCommitted(taskId, msg.sender, segment, commitment);
        _afterPost(taskId, terms, progress);
    }

    function _requireOwnPost(bytes32 taskId, bytes32 terms, Progress memory progress, uint256 segment, bytes32 post)
        private
        view
    {
        _requireState(taskId, terms, progress);
        _requirePhase(taskId, progress, Phase.Assigned);
        _requireNotAfter(progress.phaseBlock + COMMIT_WINDOW);
        if (segment >= progress.segments) revert SegmentOutOfRange(segment, progress.segments);
        if (post == 0) revert ZeroCommitment(segment);
        if (progress.posts.length == 0) progress.posts = new bytes32[](_postCount(progress));
    }

    /// @dev Index of the caller among `count` parties from `first` on; `count` if it is not there.
    function _find(Progress memory progress, uint256 first, uint256 count) private view returns (uint256 index) {
        while (index < count && progress.parties[first + index] != msg.sender) ++index;
    }

    /// @dev The commit phase ends early once nothing is missing.
    function _afterPost(bytes32 taskId, bytes32 terms, Progress memory progress) private {
        uint256 missing = 0;
        for (uint256 i = 0; i < progress.posts.length; ++i) {
            if (progress.posts[i] == 0) ++missing;
        }
        if (missing == 0) _enterCommitted(taskId, progress);
        _store(taskId, terms, progress);
    }
}
