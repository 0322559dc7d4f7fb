// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Phase, Task} from "./TrothTypes.sol";

/// @title How a commit phase ends early, and how a task ends without a result
interface ITrothEndings {
    event TaskAborted(bytes32 indexed taskId);
    event TaskExpired(bytes32 indexed taskId, Phase phase);

    /// @notice The posts suffice to close the commit phase, so the task can no longer be given up.
    error AlreadySealable(bytes32 taskId);

    /// @notice Anyone, after half the commit window: closes the commit phase with a quorum of commitments.
    function seal(bytes32 taskId, Task calldata task) external;

    /// @notice Scheduler, within the commit window: gives up a task whose posts do not suffice to seal it; the client
    ///         gets its fee back.
    function abort(bytes32 taskId, Task calldata task) external;

    /// @notice Anyone: ends a task whose scheduler missed the commit or the sample window; the client gets its fee
    ///         back, the scheduler is slashed.
    function close(bytes32 taskId, Task calldata task) external;
}
