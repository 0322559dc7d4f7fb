// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEndings} from "../interfaces/ITrothEndings.sol";
import {Outcome, Phase, Progress, SlashReason, Task} from "../interfaces/TrothTypes.sol";
import {Compensation} from "./Compensation.sol";

/// @title What is done about those who do not go on
abstract contract Endings is ITrothEndings, Compensation {
    /// @inheritdoc ITrothEndings
    function seal(bytes32 taskId, Task calldata task) external {
        Case memory opened = _load(taskId, task);
        Progress memory progress = opened.progress;
        _requirePhase(taskId, progress, Phase.Assigned);
        _requireAfter(progress.phaseBlock + COMMIT_WINDOW / 2);
        _requireNotAfter(progress.phaseBlock + COMMIT_WINDOW);
        if (progress.posts.length == 0) revert RootMissing(0);
        for (uint256 s = 0; s < progress.segments; ++s) {
            _requireSealable(progress, s);
        }
        _enterCommitted(taskId, progress);
        _store(taskId, opened.termsHash, progress);
    }

    /// @inheritdoc ITrothEndings
    function abort(bytes32 taskId, Task calldata task) external {
        Case memory given = _load(taskId, task);
        if (msg.sender != given.terms.scheduler) revert NotScheduler(given.terms.scheduler, msg.sender);
        _requireNoReview(taskId, given.terms);
        if (given.progress.phase > Phase.Assigned) revert WrongPhase(taskId, given.progress.phase);
        _requireNotAfter(given.progress.phaseBlock + COMMIT_WINDOW);
        if (_sealable(given.progress)) revert AlreadySealable(taskId);
        _finish(taskId, Outcome.Aborted);
        emit TaskAborted(taskId);
        _release(taskId, given.terms.client, given.terms.fee);
    }

    /// @inheritdoc ITrothEndings
    function close(bytes32 taskId, Task calldata task) external {
        Case memory late = _load(taskId, task);
        _requireNoReview(taskId, late.terms);
        Progress memory progress = late.progress;
        bool sampleDue = progress.phase == Phase.Committed && !late.rules.exact;
        if (progress.phase > Phase.Assigned && !sampleDue) revert WrongPhase(taskId, progress.phase);
        _requireAfter(progress.phaseBlock + (sampleDue ? SAMPLE_WINDOW : COMMIT_WINDOW));
        bytes32 evidence = _tasks[taskId];
        _finish(taskId, Outcome.Expired);
        emit TaskExpired(taskId, progress.phase);
        uint256 penalty = late.rules.unit * SCHEDULER_PENALTY * progress.segments;
        uint256 taken = _slash(taskId, late.terms.scheduler, penalty, SlashReason.SchedulerLate, evidence);
        uint256 paid = sampleDue ? _compensate(taskId, progress, taken) : 0;
        _credit(taskId, RESERVE, taken - paid);
        _release(taskId, late.terms.client, late.terms.fee);
    }
}
