// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothTasks} from "../interfaces/ITrothTasks.sol";
import {CommitSubmission, Order, Phase, Progress, Rules, Task, Terms, VrfProof} from "../interfaces/TrothTypes.sol";
import {Tasks} from "./Tasks.sol";

/// @title Roots and salted commitments, all at once or each party's own (VeriLLM sections 5.5 to 5.7)
abstract contract Commitments is Tasks {
    uint256 private constant SIGNATURE_BYTES = 65;

    /// @inheritdoc ITrothTasks
    function openAndCommit(
        Order calldata order,
        bytes32 ends,
        bytes calldata signature,
        VrfProof[] calldata proofs,
        CommitSubmission calldata submission
    ) external returns (bytes32 taskId) {
        Terms memory terms;
        Progress memory progress;
        Rules memory rules;
        (taskId, terms, progress, rules) = _open(order, ends, signature);
        progress.parties = _assign(taskId, terms, progress.segments, proofs, rules);
        _commit(taskId, progress, submission);
        _store(taskId, _termsHash(terms), progress);
    }

    /// @inheritdoc ITrothTasks
    function commit(
        bytes32 taskId,
        Task calldata task,
        VrfProof[] calldata proofs,
        CommitSubmission calldata submission
    ) external {
        (Terms memory terms, Progress memory progress, bytes32 termsHash) = _load(taskId, task);
        if (progress.phase > Phase.Assigned) revert WrongPhase(taskId, progress.phase);
        _requireNotAfter(progress.phaseBlock + COMMIT_WINDOW);
        if (progress.phase == Phase.Opened) {
            progress.parties = _assign(taskId, terms, progress.segments, proofs, _rulesOf(terms.executionClass));
        } else if (proofs.length != 0) {
            revert WrongProofCount(proofs.length, 0);
        }
        _commit(taskId, progress, submission);
        _store(taskId, termsHash, progress);
    }

    /// @inheritdoc ITrothTasks
    function commitInference(
        bytes32 taskId,
        bytes32 terms,
        Progress memory progress,
        uint8 segment,
        uint8 attempt,
        uint32 positions,
        bytes32 root,
        bytes32 outputHash
    ) external {
        uint256 slot = _requireOwnPost(taskId, terms, progress, segment, 0, root);
        uint256 first = _firstParty(progress, segment);
        _seat(progress, segment, first, _find(progress, first, first + progress.candidates));
        if (progress.parties[first] != msg.sender) revert NotCandidate(segment, msg.sender);
        if (positions == 0) revert ZeroPositions(taskId);
        if (progress.positions == 0) {
            progress.attempt = attempt;
            progress.positions = positions;
        } else if (attempt != progress.attempt || positions != progress.positions) {
            revert AttemptMismatch(attempt, progress.attempt, positions, progress.positions);
        }
        bool last = segment + 1 == progress.segments;
        if ((outputHash != 0) != last) revert InvalidOutputHash(segment, outputHash);
        if (last) progress.outputHash = outputHash;
        progress.posts[slot] = root;
        emit InferenceCommitted(taskId, msg.sender, segment, attempt, positions, root, outputHash);
        _advanceIfComplete(taskId, progress);
        _store(taskId, terms, progress);
    }

    /// @inheritdoc ITrothTasks
    function commitVerification(
        bytes32 taskId,
        bytes32 terms,
        Progress memory progress,
        uint8 segment,
        bytes32 commitment
    ) external {
        uint256 first = 0;
        uint256 slot = _requireOwnPost(taskId, terms, progress, segment, 1, commitment);
        progress.posts[slot] = commitment;
        emit VerificationCommitted(taskId, msg.sender, segment, commitment);
        _advanceIfComplete(taskId, progress);
        _store(taskId, terms, progress);
    }
}
