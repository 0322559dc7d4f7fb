// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title How much a node's seats weigh in draws: a seam for reputation
interface IWeights {
    /// @notice Weight at the end of a past block, basis points; values above 10,000 count as 10,000.
    /// @dev Must never change for a past block, and must cost the same whatever the history.
    function weightAt(address operator, uint256 blockNumber) external view returns (uint256);
}
