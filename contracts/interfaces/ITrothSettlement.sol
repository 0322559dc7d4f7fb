// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Opening, Outcome, Task, VrfProof} from "./TrothTypes.sol";

/// @title Sample, reveal, compare, pay and slash
/// @dev VeriLLM sections 5.7 and Appendix E.
interface ITrothSettlement {
    /// @param segmentOutcomes per segment: Accepted, Rejected or Indeterminate
    /// @param verdicts per segment: bit v is set if verifier v revealed the verdict true
    /// @param clusters per segment: bit v is set if verifier v is in the proper cluster
    /// @param valid per segment: bit v is set if verifier v revealed a verdict that its own trace does not contradict; zero
    ///        if the inferencer revealed nothing
    event TaskSettled(
        bytes32 indexed taskId,
        Outcome outcome,
        uint8[] segmentOutcomes,
        uint8[] verdicts,
        uint8[] clusters,
        uint8[] valid
    );

    /// @notice Exact classes are not sampled.
    error ExactClass(bytes32 executionClass);

    /// @notice Scheduler: derives the sample of a tolerant task, at least one block after the commitments.
    function sample(bytes32 taskId, Task calldata task, VrfProof calldata proof) external;

    /// @notice Anyone: decides the task, pays and slashes.
    /// @param proof sampling proof, used if the class is tolerant and the task is not sampled yet
    /// @param openings per segment 1 + k, the inferencer's first; verifiers' tiles are XORed with the inferencer's
    ///        (plain if that is absent); those that were revealed by their own call carry no siblings
    function settle(bytes32 taskId, Task calldata task, VrfProof calldata proof, Opening[] calldata openings) external;
}
