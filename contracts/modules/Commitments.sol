// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothTasks} from "../interfaces/ITrothTasks.sol";
import {CommitSubmission, Order, Phase, Progress, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {Posts} from "./Posts.sol";
import {Tasks} from "./Tasks.sol";

/// @title All roots and commitments in one call, each with its maker's signature
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and positions in calldata are small.
abstract contract Commitments is Tasks, Posts {
    uint256 private constant SIGNATURE_BYTES = 65;

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
                used = _checkSegment(taskId, progress, s, submission.signatures, used);
            }
            if (used != submission.signatures.length) revert WrongSignatureCount(submission.signatures.length, used);
            _enterCommitted(taskId, progress);
        }
    }

    /// @dev Checks one segment's signatures, from byte `used` on.
    /// @return the first byte after them
    function _checkSegment(
        bytes32 taskId,
        Progress memory progress,
        uint256 segment,
        bytes calldata signatures,
        uint256 used
    ) private view returns (uint256) {
        unchecked {
            uint256 width = progress.posts.length / progress.segments;
            bytes32 judged = _judgedHash(taskId, progress, segment, progress.posts[segment * width]);
            for (uint256 party = 0; party < width; ++party) {
                bytes32 post = progress.posts[segment * width + party];
                if (post == 0) continue;
                bytes32 structHash =
                    party == 0 ? judged : _verdictHash(taskId, segment, progress.attempt, post, judged);
                uint256 end = used + SIGNATURE_BYTES;
                if (end > signatures.length) revert WrongSignatureCount(signatures.length, end);
                address signer = ECDSA.recoverCalldata(_hashTypedDataV4(structHash), signatures[used:end]);
                address expected = _partyOf(progress, segment, party);
                if (signer != expected) revert WrongSigner(segment, expected, signer);
                used = end;
            }
            return used;
        }
    }

    function _judgedHash(bytes32 taskId, Progress memory progress, uint256 segment, bytes32 root)
        private
        pure
        returns (bytes32)
    {
        unchecked {
            bytes32 outputHash = segment + 1 == progress.segments ? progress.outputHash : bytes32(0);
            return _traceRootHash(taskId, segment, progress.attempt, progress.positions, root, outputHash);
        }
    }
}
