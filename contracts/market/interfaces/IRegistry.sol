// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    Ask,
    DrawRequest,
    Entry,
    ExecutionClass,
    Fault,
    ModelDescriptor,
    NodeRegistration,
    Role,
    Rules,
    SchedulerRegistration,
    Segment
} from "./MarketTypes.sol";

/// @title Parties, models, classes, asks, slices, groups and seats, at any past block
/// @notice A change in block b counts for reference blocks from b on, and reference blocks lie in the past, so that the
///         members of a past block never change. A node is in at most two groups. Its seats are its stake (what is locked
///         included) over the class's seat, at most the class's cap.
interface IRegistry {
    event ModelRegistered(bytes32 indexed model, ModelDescriptor descriptor);
    event ClassRegistered(bytes32 indexed executionClass, bytes32 indexed model, ExecutionClass class);
    event NodeRegistered(
        address indexed operator,
        address indexed owner,
        bytes32 indexed executionClass,
        address payout,
        uint8 first,
        uint8 end,
        string endpoint,
        bytes32 tlsKeyHash
    );
    event SchedulerRegistered(
        address indexed operator,
        address indexed owner,
        address payout,
        uint256 vrfX,
        uint256 vrfY,
        string endpoint,
        bytes32 tlsKeyHash
    );
    event EndpointChanged(address indexed operator, string endpoint, bytes32 tlsKeyHash);
    event PayoutChanged(address indexed operator, address oldPayout, address payout);
    event AskChanged(address indexed operator, uint8 first, uint8 end, Ask ask);
    event SliceChanged(address indexed operator, uint8 first, uint8 end);
    /// @notice The entry at `place` of a group from this block on; operator zero: the array ends before it.
    event EntryChanged(bytes32 indexed group, uint32 place, Entry entry, uint32 size);
    event Suspended(address indexed operator, bytes32 caseId);
    event Restored(address indexed operator, bytes32 caseId);
    event Evicted(address indexed operator);
    /// @notice Leaves of orders with reference block in [voidFrom, voidUntil] are void.
    event Convicted(address indexed operator, Fault fault, bytes32 subject, uint64 voidFrom, uint64 voidUntil, uint256 index);
    event Deregistered(address indexed operator, uint40 exitBlock);
    event StakeWithdrawn(address indexed operator, uint96 amount);

    function registerModel(ModelDescriptor calldata descriptor) external returns (bytes32 model);

    /// @notice Refuses a class whose penalty is below 1.5 g (1 - p) / p (library Economy), whose seat does not cover two
    ///         penalties, a case's gas and reward, or whose largest call would not fit a transaction.
    function registerClass(ExecutionClass calldata class) external returns (bytes32 executionClass);

    /// @param consent the operator's signature of Consent(owner, operator)
    function registerNode(NodeRegistration calldata registration, bytes calldata consent) external payable;
    function registerScheduler(SchedulerRegistration calldata registration, bytes calldata consent) external payable;

    /// @notice Owner or operator: changes the ask of a segment that the node is in.
    function setAsk(address operator, uint8 first, uint8 end, Ask calldata ask) external;
    /// @notice Owner or operator: hosts other layers; leaves and joins groups in this block, once per reference age.
    function changeSlice(address operator, uint8 first, uint8 end, Segment[] calldata segments, Ask[] calldata asks) external;
    function setEndpoint(address operator, string calldata endpoint, bytes32 tlsKeyHash) external;
    function setPayout(address operator, address payout) external;
    /// @notice Anyone: adds stake; the new seats begin to season.
    function topUp(address operator, uint96 amount) external payable;
    /// @notice Owner or operator: leaves all groups in this block; slashable until the exit block, inclusive.
    function deregister(address operator) external;
    /// @notice Anyone, after the exit block, with nothing locked: stake to the operator's credit.
    function withdrawStake(address operator) external;
    /// @notice Anyone: takes a node below one seat out of its groups.
    function evict(address operator) external;

    /// @notice Court: no seats until `restore`; false if one case suspended the node less than the pause ago.
    function suspend(address operator, bytes32 caseId) external returns (bool suspended);
    /// @notice Court: seats as the stake says.
    function restore(address operator, bytes32 caseId) external;
    /// @notice Court, Summons, Evidence, after the stake was taken: voids leaves from `lag` before the offence until now, and
    ///         takes a node below one seat out of all draws at once.
    function convict(address operator, Fault fault, bytes32 subject, uint64 offenceBlock) external;

    /// @notice The seats drawn, as operators; see DrawRequest. Reverts if they cannot be found in 64 + 32 * count tries.
    function draw(DrawRequest calldata request) external view returns (address[] memory drawn);

    // ---- reads

    function groupId(bytes32 executionClass, uint8 first, uint8 end) external pure returns (bytes32);
    function rulesOf(bytes32 executionClass) external view returns (Rules memory);
    function roleOf(address operator) external view returns (Role role, address owner, uint40 exitBlock);
    function ownerOf(address operator) external view returns (address);
    function payoutOf(address account) external view returns (address);
    function classOf(address operator) external view returns (bytes32);
    function vrfKeyOf(address scheduler) external view returns (uint256 x, uint256 y);
    function sizeAt(bytes32 group, uint256 blockNumber) external view returns (uint256);
    function entryAt(bytes32 group, uint256 place, uint256 blockNumber) external view returns (Entry memory);
    function askAt(bytes32 group, address operator, uint256 blockNumber) external view returns (Ask memory);
    function suspensionOf(address operator) external view returns (bytes32 caseId, uint40 blockNumber);
    function convictionCount(address operator) external view returns (uint256);
    /// @notice Whether a leaf of an order with this reference block is void by conviction number `index`.
    function isVoid(address operator, uint256 index, uint64 referenceBlock) external view returns (bool);
    /// @notice Whether it is void by any of the last eight convictions.
    function isVoidByAny(address operator, uint64 referenceBlock) external view returns (bool);
}
