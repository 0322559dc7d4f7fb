// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title The sample, and what is wrong with an opening
interface ITrothOpenings {
    event TaskSampled(bytes32 indexed taskId, bytes32 seed, bytes proof);

    error WrongOpeningCount(uint256 given, uint256 expected);
    error RevealMismatch(uint256 segment, uint256 party, bytes32 given, bytes32 revealed);
    /// @notice Before the reveal deadline every opening of a committed party is needed.
    error OpeningMissing(uint256 segment, uint256 party, uint256 lastBlock);
    /// @notice The party made no commitment that could be opened.
    error NothingCommitted(uint256 segment, uint256 party);
    error RootMismatch(uint256 segment, bytes32 given, bytes32 posted);
    error CommitmentMismatch(uint256 segment, uint256 party, bytes32 opened, bytes32 posted);
    /// @notice The tiles do not lead to the root that the party committed to, or an exact opening carries tiles.
    error InvalidOpening(uint256 segment, uint256 party, bytes32 proven, bytes32 claimed);
}
