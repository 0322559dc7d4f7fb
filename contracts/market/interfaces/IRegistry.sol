// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    Ask,
    DrawRequest,
    Entry,
    NodeRegistration,
    Role,
    Rules,
    SchedulerRegistration,
    Segment
} from "./MarketTypes.sol";
import {Fault} from "./Proceedings.sol";

/// @title Parties, asks, slices, groups and seats, at any past block
/// @notice A change in block b counts for reference blocks from b on, and reference blocks lie in the past, so that the
///         members of a past block never change. A node is in at most two groups. Its seats are its stake (what is
///         locked included) over the class's seat, at most the class's cap.
interface IRegistry {
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
    event Convicted(
        address indexed operator, Fault fault, bytes32 subject, uint64 voidFrom, uint64 voidUntil, uint256 index
    );
    event Deregistered(address indexed operator, uint40 exitBlock);
    event StakeWithdrawn(address indexed operator, uint96 amount);

    error NotAuthorised(address caller);
    error UnknownClass(bytes32 executionClass);
    error ClassKnown(bytes32 executionClass);
    error ZeroAddress();
    error OperatorKnown(address operator);
    error UnknownOperator(address operator);
    error WrongRole(address operator, Role role);
    error NotOwner(address operator, address caller);
    error NotOwnerOrOperator(address operator, address caller);
    error InvalidConsent(address operator, address signer);
    error InvalidVrfKey(uint256 vrfX, uint256 vrfY);
    error StakeTooLow(uint256 stake, uint256 least);
    error InvalidSlice(uint8 first, uint8 end, uint16 layers);
    error SegmentOutsideSlice(uint8 first, uint8 end, uint8 sliceFirst, uint8 sliceEnd);
    error InvalidSegmentCount(uint256 segments, uint256 asks);
    error SegmentTwice(uint8 first, uint8 end);
    error NotInSegment(address operator, uint8 first, uint8 end);
    error SliceChangedLately(uint256 keptUntil, uint256 blockNumber);
    error AlreadyExiting(address operator, uint40 exitBlock);
    error NotExiting(address operator);
    error StillUnbonding(uint40 exitBlock, uint256 blockNumber);
    error StakeLocked(address operator, uint256 locked);
    error NothingToEvict(address operator);
    /// @notice Draws are over past blocks alone, whose members never change.
    error BlockNotPast(uint256 requested, uint256 blockNumber);
    error GroupEmpty(bytes32 group, uint256 blockNumber);
    error DrawExhausted(bytes32 group, uint256 found, uint256 count);

    /// @notice Classes: takes up a class that it found sound.
    function admitClass(bytes32 executionClass, Rules calldata rules) external;

    /// @param consent the operator's signature of Consent(owner, operator)
    function registerNode(NodeRegistration calldata registration, bytes calldata consent) external payable;
    function registerScheduler(SchedulerRegistration calldata registration, bytes calldata consent) external payable;

    /// @notice Owner or operator: changes the ask of a segment that the node is in.
    function setAsk(address operator, uint8 first, uint8 end, Ask calldata ask) external;
    /// @notice Owner or operator: hosts other layers; leaves and joins groups in this block, once per reference age.
    function changeSlice(address operator, uint8 first, uint8 end, Segment[] calldata segments, Ask[] calldata asks)
        external;
    function setEndpoint(address operator, string calldata endpoint, bytes32 tlsKeyHash) external;
    function setPayout(address operator, address payout) external;
    /// @notice Anyone: adds stake. Called by the owner or the operator the seats follow it and the new ones begin to
    ///         season; by anybody else they stay, so that a gift does not make somebody's youngest seats start again.
    function topUp(address operator, uint96 amount) external payable;
    /// @notice Owner or operator: leaves all groups in this block; slashable until the exit block, inclusive.
    function deregister(address operator) external;
    /// @notice Anyone, after the exit block, with nothing locked: stake to the operator's credit.
    function withdrawStake(address operator) external;
    /// @notice Anyone: takes away the seats that a node's stake no longer covers, and it out of its groups below one
    ///         seat.
    function evict(address operator) external;

    /// @notice Court: no seats until `restore`; false if one case suspended the node less than the pause ago.
    function suspend(address operator, bytes32 caseId) external returns (bool suspended);
    /// @notice Court: seats as the stake says.
    function restore(address operator, bytes32 caseId) external;
    /// @notice Court, Summons, Evidence, after the stake was taken: voids leaves from `lag` before the offence until
    ///         now, and takes a node below one seat out of all draws at once.
    function convict(address operator, Fault fault, bytes32 subject, uint64 offenceBlock) external;
    /// @notice Evidence: a convict's offence was in this block; voids from `lag` before it until the last conviction.
    function date(address operator, Fault fault, bytes32 subject, uint64 offenceBlock) external;

    /// @notice The seats drawn, as operators; see DrawRequest. Reverts if they cannot be found in 256 + 128 * count
    ///         tries.
    /// @dev Hints (library History): four bytes, big-endian, for each look-up whose latest word is younger than the
    ///      block: the block by which the word that was in force had been replaced. In order: the group's size; then
    ///      for each try its entry and, if that was accepted in every other respect, its ask.
    function draw(DrawRequest calldata request) external view returns (address[] memory drawn);
    /// @notice The same by search, with the hints that `draw` needs: for reads, since it walks the changes since.
    function search(DrawRequest calldata request) external view returns (address[] memory drawn, bytes memory hints);

    // ---- reads

    function groupId(bytes32 executionClass, uint8 first, uint8 end) external pure returns (bytes32);
    function rulesOf(bytes32 executionClass) external view returns (Rules memory);
    /// @notice Who checks and judges in a class: one slot of its rules.
    function committeeOf(bytes32 executionClass) external view returns (bool exact, uint8 verifiers, uint8 reviewers);
    function roleOf(address operator) external view returns (Role role, address owner, uint40 exitBlock);
    /// @notice What a conviction looks at; `penalty` is L of a node's class, 0 for who is none.
    function bondOf(address operator) external view returns (Role role, uint40 exitBlock, uint96 penalty);
    function ownerOf(address operator) external view returns (address);
    function payoutOf(address account) external view returns (address);
    function classOf(address operator) external view returns (bytes32);
    function vrfKeyOf(address scheduler) external view returns (uint256 x, uint256 y);
    function sizeAt(bytes32 group, uint256 blockNumber) external view returns (uint256);
    function entryAt(bytes32 group, uint256 place, uint256 blockNumber) external view returns (Entry memory);
    function askAt(bytes32 group, address operator, uint256 blockNumber) external view returns (Ask memory);
    /// @notice The layers that a node hosts, and its memberships: first << 40 | end << 32 | place, zero for none.
    function sliceOf(address operator) external view returns (uint8 first, uint8 end, uint48 one, uint48 two);
    /// @notice The case that suspends a node now (zero: none), and the block of its last suspension.
    function suspensionOf(address operator) external view returns (bytes32 caseId, uint40 blockNumber);
    function convictionCount(address operator) external view returns (uint256);
    /// @notice Whether a leaf of an order with this reference block is void by a conviction: all of an operator's void
    ///         ranges are one, from the earliest beginning to the latest end, so that no conviction of oneself hides
    ///         another.
    function isVoidByAny(address operator, uint64 referenceBlock) external view returns (bool);
}
