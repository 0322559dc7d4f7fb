// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothSettlement} from "../interfaces/ITrothSettlement.sol";
import {Phase, Progress, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {Openings} from "./Openings.sol";
import {OwnPosts} from "./OwnPosts.sol";

/// @title Which tiles are opened (VeriLLM section 5.7)
abstract contract Sampling is ITrothSettlement, Openings, OwnPosts {
    /// @inheritdoc ITrothSettlement
    function sample(bytes32 taskId, Task calldata task, VrfProof calldata proof) external {
        Case memory opened = _load(taskId, task);
        if (msg.sender != opened.terms.scheduler) revert NotScheduler(opened.terms.scheduler, msg.sender);
        if (opened.rules.exact) revert ExactClass(opened.terms.executionClass);
        _requirePhase(taskId, opened.progress, Phase.Committed);
        _sample(opened, proof);
        _store(taskId, opened.termsHash, opened.progress);
    }

    /// @dev Moves a committed task on to Sampled; the caller stores the state.
    function _sample(Case memory task, VrfProof calldata proof) internal {
        Progress memory progress = task.progress;
        _requireAfter(progress.phaseBlock);
        _requireNotAfter(progress.phaseBlock + SAMPLE_WINDOW);
        bytes32 seed = _sampleSeed(task, proof);
        progress.seed = seed;
        progress.phase = Phase.Sampled;
        progress.phaseBlock = uint40(block.number);
        emit TaskSampled(task.taskId, seed, proof.proof);
    }
}
