// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {Outcome, Phase, Progress, Rules, Task, Terms} from "../interfaces/TrothTypes.sol";
import {Money} from "./Money.sol";
import {TaskCodec} from "./TaskCodec.sol";

/// @title One storage slot per task
abstract contract TaskStore is ITrothProgress, Money {
    /// @dev A task that a call works on, with the rules of its class.
    struct Case {
        bytes32 taskId;
        bytes32 termsHash;
        Terms terms;
        Progress progress;
        Rules rules;
    }

    function _load(bytes32 taskId, Task calldata task) internal view returns (Case memory loaded) {
        loaded.taskId = taskId;
        loaded.terms = TaskCodec.read(task.terms);
        loaded.progress = TaskCodec.read(task.progress);
        loaded.termsHash = TaskCodec.hash(loaded.terms);
        _requireState(taskId, loaded.termsHash, loaded.progress);
        loaded.rules = _rulesOf(loaded.terms.executionClass);
        // A review has more verifiers than the class says.
        if (loaded.progress.parties.length != 0) loaded.rules.verifiers = uint8(_verifiers(loaded.progress));
    }

    function _requireNoReview(bytes32 taskId, Terms memory terms) internal pure {
        if (terms.ends[0] == 0) revert IsReview(taskId);
    }

    function _requireState(bytes32 taskId, bytes32 terms, Progress memory progress) internal view {
        bytes32 stored = _tasks[taskId];
        bytes32 given = TaskCodec.hash(terms, progress);
        if (stored != given) revert StateMismatch(taskId, stored, given);
    }

    function _requirePhase(bytes32 taskId, Progress memory progress, Phase phase) internal pure {
        if (progress.phase != phase) revert WrongPhase(taskId, progress.phase);
    }

    function _store(bytes32 taskId, bytes32 terms, Progress memory progress) internal {
        _tasks[taskId] = TaskCodec.hash(terms, progress);
    }

    function _finish(bytes32 taskId, Outcome outcome) internal {
        _tasks[taskId] = bytes32(uint256(outcome));
    }

    function _requireNotAfter(uint256 lastBlock) internal view {
        if (block.number > lastBlock) revert TooLate(block.number, lastBlock);
    }

    function _requireAfter(uint256 blockNumber) internal view {
        if (block.number <= blockNumber) revert TooEarly(block.number, blockNumber + 1);
    }

    /// @dev Number of verifiers per segment of an assigned task.
    function _verifiers(Progress memory progress) internal pure returns (uint256) {
        return progress.parties.length / progress.segments - progress.candidates;
    }

    /// @dev Where a segment's parties begin.
    function _firstParty(Progress memory progress, uint256 segment) internal pure returns (uint256) {
        return segment * (progress.parties.length / progress.segments);
    }
}
