// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Account, Parameters, Rules} from "./TrothTypes.sol";

/// @title What anyone may ask
interface ITrothReads {
    /// @notice The code for disputes was deployed with other parameters, or is none.
    error WrongReviewPath(address reviewPath);
    /// @notice Parameters that no contract could work with.
    error InvalidParameters(Parameters parameters);

    /// @notice The parameters fixed at deployment.
    function parametersOf() external view returns (Parameters memory);

    /// @notice The EIP-712 domain separator.
    function domainSeparator() external view returns (bytes32);

    /// @notice Where the code of the rarer calls lives; it works on this contract's storage and never changes.
    function coldPath() external view returns (address);

    /// @notice Where the code for disputes lives; it works on this contract's storage and never changes.
    function reviewPath() external view returns (address);

    /// @notice Layers of a model; 0 if it is unknown.
    function layersOf(bytes32 model) external view returns (uint16);

    /// @notice What settlement knows of a class; reverts if it is unknown.
    function rulesOf(bytes32 executionClass) external view returns (Rules memory);

    /// @notice Wei a node needs to join a group of the class.
    function minimumStakeOf(bytes32 executionClass) external view returns (uint96);

    /// @notice What a task of this class with so many segments costs: unit * 6 * ((1 + k) * segments + 1), in wei.
    function feeOf(bytes32 executionClass, uint256 segments) external view returns (uint96);

    /// @notice Stake, credit, exit block and role of an address.
    function accountOf(address operator) external view returns (Account memory);

    /// @notice The owner that registered an operator; zero if it never was.
    function ownerOf(address operator) external view returns (address);

    /// @notice Where an operator is paid.
    function payoutOf(address operator) external view returns (address);

    /// @notice Class and layers [first, end) of a node, and the first block in which it may change them again.
    function sliceOf(address operator)
        external
        view
        returns (bytes32 executionClass, uint8 first, uint8 end, uint40 keptUntil);

    /// @notice The P-256 VRF key of a scheduler.
    function vrfKeyOf(address scheduler) external view returns (uint256 x, uint256 y);

    /// @notice keccak256(abi.encode(executionClass, first, end)).
    function groupId(bytes32 executionClass, uint8 first, uint8 end) external pure returns (bytes32);

    /// @notice Member in a slot at a block; zero if it was empty.
    function memberAt(bytes32 group, uint256 slot, uint256 blockNumber) external view returns (address);

    /// @notice Number of slots, filled or empty, at a block.
    function groupSizeAt(bytes32 group, uint256 blockNumber) external view returns (uint256);

    /// @notice Free balance of a client, in wei; fees of live tasks are not part of it.
    function escrowOf(address client) external view returns (uint96);
}
