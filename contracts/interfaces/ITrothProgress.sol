// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Phase} from "./TrothTypes.sol";

/// @title What all calls on a live task share
interface ITrothProgress {
    event TaskCommitted(
        bytes32 indexed taskId,
        uint8 attempt,
        uint32 positions,
        bytes32 outputHash,
        address[] inferencers,
        bytes32[] posts
    );

    error NotScheduler(address expected, address caller);
    /// @notice The state does not hash to what is stored for the task.
    error StateMismatch(bytes32 taskId, bytes32 stored, bytes32 given);
    error WrongPhase(bytes32 taskId, Phase phase);
    /// @notice A review has its own calls for this.
    error IsReview(bytes32 reviewId);
    error TooLate(uint256 currentBlock, uint256 lastBlock);
    error TooEarly(uint256 currentBlock, uint256 firstBlock);
    error QuorumMissing(uint256 segment, uint256 commitments, uint256 quorum);
    error RootMissing(uint256 segment);
    error SegmentOutOfRange(uint256 segment, uint256 segments);
    /// @notice A trace has at least one row.
    error ZeroPositions(bytes32 taskId);
    /// @notice Only the last segment's inferencer, and it always, names the output.
    error InvalidOutputHash(uint256 segment, bytes32 outputHash);
}
