// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {NodeRegistration, Role, SchedulerRegistration, Segment} from "./TrothTypes.sol";

/// @title Who takes part: owners, operators, payouts, stakes, groups and their history
/// @dev VeriLLM section 5.2. Stake stays slashable up to and including the exit block.
interface ITrothRegistry {
    event NodeRegistered(
        address indexed operator,
        address indexed owner,
        bytes32 indexed executionClass,
        address payout,
        uint8 first,
        uint8 end,
        string endpoint,
        bytes32 tlsKeyHash,
        uint96 stake
    );
    event SchedulerRegistered(
        address indexed operator,
        address indexed owner,
        address payout,
        uint256 vrfX,
        uint256 vrfY,
        string endpoint,
        bytes32 tlsKeyHash,
        uint96 stake
    );
    event SlotFilled(
        bytes32 indexed group,
        address indexed operator,
        bytes32 executionClass,
        uint8 first,
        uint8 end,
        uint32 slot,
        uint40 fromBlock
    );
    event SlotVacated(bytes32 indexed group, address indexed operator, uint32 slot, uint40 toBlock);
    /// @notice SlotVacated events before it say which groups the node left, SlotFilled events after it which it joined.
    event SliceChanged(address indexed operator, uint8 first, uint8 end);
    event EndpointChanged(address indexed operator, string endpoint, bytes32 tlsKeyHash);
    event PayoutChanged(address indexed operator, address oldPayout, address newPayout);
    event StakeAdded(address indexed operator, uint96 amount, uint96 stake);
    event Deregistered(address indexed operator, uint40 exitBlock);
    event Withdrawn(address indexed operator, address indexed payout, uint96 stake, uint96 credit);
    event Claimed(address indexed operator, address indexed payout, uint96 amount);
    event Evicted(address indexed operator);

    /// @notice An operator address can be registered once in its life.
    error OperatorKnown(address operator);
    error UnknownOperator(address operator);
    error NotOwner(address operator, address caller);
    error NotOwnerOrOperator(address operator, address caller);
    /// @notice The consent was signed by somebody else than the operator.
    error InvalidConsent(address operator, address signer);
    error EndpointNotHttps(string endpoint);
    error StakeTooLow(uint256 stake, uint256 minimum);
    /// @notice The slice is empty or exceeds the model's layers.
    error InvalidSlice(uint8 first, uint8 end, uint16 layers);
    error SegmentOutsideSlice(uint8 first, uint8 end, uint8 sliceFirst, uint8 sliceEnd);
    /// @notice A node joins 1 to 16 groups.
    error InvalidSegmentCount(uint256 segments);
    /// @notice A slice that was changed stays for 200 blocks.
    error SliceChangedLately(uint40 keptUntil, uint256 currentBlock);
    error AlreadyEnrolled(bytes32 group, address operator);
    error WrongRole(address operator, Role role);
    /// @notice The operator has deregistered.
    error AlreadyExiting(address operator, uint40 exitBlock);
    error NotExiting(address operator);
    /// @notice Withdrawal is possible after the exit block only.
    error StillUnbonding(uint40 exitBlock, uint256 currentBlock);
    /// @notice Only a node whose stake fell under the minimum can be evicted.
    error StakeSufficient(uint96 stake, uint96 minimum);
    error NothingToEvict(address operator);
    error NothingToClaim(address operator);
    error InvalidVrfKey(uint256 vrfX, uint256 vrfY);

    /// @notice Registers a node; the caller becomes its owner, the value its stake.
    /// @param consent EIP-712 signature of the operator over Consent(owner, operator)
    function registerNode(NodeRegistration calldata registration, bytes calldata consent) external payable;

    /// @notice Registers a scheduler; the caller becomes its owner, the value its stake.
    /// @param consent EIP-712 signature of the operator over Consent(owner, operator)
    function registerScheduler(SchedulerRegistration calldata registration, bytes calldata consent) external payable;

    /// @notice Owner: joins one more group inside the node's slice, or joins again after an eviction.
    function enroll(address operator, uint8 first, uint8 end) external;

    /// @notice Owner or operator: a node hosts other layers from now on, with the same stake and class.
    /// @dev It leaves all its groups in this block and is a member of the new ones from the next block on; a group that
    ///      is among both misses it for this one block. Who it was a member of before stays true: it can be drawn for orders
    ///      whose reference block is earlier, and slashed for them.
    ///      A changed slice stays for as long as an order's reference block may lie back. So no order sees more than two
    ///      slices of a node, and a node cannot follow the orders it would like from group to group. The first change after
    ///      the registration needs no wait.
    /// @param segments 1 to 16, each inside the slice; the slice may stay as it is, for other segments of it
    function changeSlice(address operator, uint8 first, uint8 end, Segment[] calldata segments) external;

    /// @notice Owner or operator: changes where the party is reached.
    function setEndpoint(address operator, string calldata endpoint, bytes32 tlsKeyHash) external;

    /// @notice Owner: changes where money is paid out.
    function setPayout(address operator, address payout) external;

    /// @notice Adds to the stake of a bonded party.
    function topUp(address operator) external payable;

    /// @notice Owner or operator: leaves all groups now and starts the unbonding period.
    function deregister(address operator) external;

    /// @notice Pays stake and credit out after the exit block.
    function withdraw(address operator) external;

    /// @notice Pays credit out; to the payout address of an operator, to itself for any other address.
    function claim(address account) external;

    /// @notice Takes a node whose stake fell under its class's minimum out of its groups. It may top up and enroll again.
    function evict(address operator) external;
}
