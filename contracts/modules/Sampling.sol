// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Phase, Progress, VrfProof} from "../interfaces/TrothTypes.sol";
import {Assignment} from "./Assignment.sol";
import {Openings} from "./Openings.sol";

/// @title Which tiles are opened (VeriLLM section 5.7)
abstract contract Sampling is Assignment, Openings {
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
