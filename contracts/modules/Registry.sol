// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {Account, NodeRegistration, Role, SchedulerRegistration, Segment} from "../interfaces/TrothTypes.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {Memberships} from "./Memberships.sol";
import {Money} from "./Money.sol";
import {TypedData} from "./TypedData.sol";

/// @title Registration, standing and exit (VeriLLM section 5.2)
abstract contract Registry is ITrothRegistry, Memberships, Money, TypedData {
    uint256 private constant MAXIMUM_SEGMENTS = 16;

    /// @inheritdoc ITrothRegistry
    function registerNode(NodeRegistration calldata registration, bytes calldata consent) external payable {
        uint96 minimum = _minimumStakes[registration.executionClass];
        _admit(registration.operator, registration.payout, registration.endpoint, consent, minimum, Role.Node);
        Slice storage slice = _slices[registration.operator];
        slice.executionClass = registration.executionClass;
        emit NodeRegistered(
            registration.operator,
            msg.sender,
            registration.executionClass,
            registration.payout,
            registration.first,
            registration.end,
            registration.endpoint,
            registration.tlsKeyHash,
            uint96(msg.value)
        );
        _host(registration.operator, slice, registration.first, registration.end, registration.segments);
    }

    /// @inheritdoc ITrothRegistry
    function registerScheduler(SchedulerRegistration calldata registration, bytes calldata consent) external payable {
        if (!EcVrf.isOnCurve(registration.vrfX, registration.vrfY)) {
            revert InvalidVrfKey(registration.vrfX, registration.vrfY);
        }
        _admit(
            registration.operator,
            registration.payout,
            registration.endpoint,
            consent,
            MINIMUM_SCHEDULER_STAKE,
            Role.Scheduler
        );
        _vrfKeys[registration.operator] = VrfKey({x: registration.vrfX, y: registration.vrfY});
        emit SchedulerRegistered(
            registration.operator,
            msg.sender,
            registration.payout,
            registration.vrfX,
            registration.vrfY,
            registration.endpoint,
            registration.tlsKeyHash,
            uint96(msg.value)
        );
    }

    /// @inheritdoc ITrothRegistry
    function enroll(address operator, uint8 first, uint8 end) external {
        _requireOwner(operator);
        _fill(operator, _sliceOfStaked(operator), first, end);
    }

    /// @inheritdoc ITrothRegistry
    function changeSlice(address operator, uint8 first, uint8 end, Segment[] calldata segments) external {
        _requireOwnerOrOperator(operator);
        Slice storage slice = _sliceOfStaked(operator);
        if (block.number < slice.keptUntil) revert SliceChangedLately(slice.keptUntil, block.number);
        slice.keptUntil = uint40(block.number + REFERENCE_AGE);
        _vacate(operator);
        emit SliceChanged(operator, first, end);
        _host(operator, slice, first, end, segments);
    }

    /// @inheritdoc ITrothRegistry
    function setEndpoint(address operator, string calldata endpoint, bytes32 tlsKeyHash) external {
        _requireOwnerOrOperator(operator);
        _bonded(operator);
        _requireHttps(endpoint);
        emit EndpointChanged(operator, endpoint, tlsKeyHash);
    }

    /// @inheritdoc ITrothRegistry
    function setPayout(address operator, address payout) external {
        _requireOwner(operator);
        if (payout == address(0)) revert ZeroAddress();
        address oldPayout = _payouts[operator];
        _payouts[operator] = payout;
        emit PayoutChanged(operator, oldPayout, payout);
    }

    /// @inheritdoc ITrothRegistry
    function topUp(address operator) external payable {
        uint96 amount = _value();
        if (amount == 0) revert ZeroAmount();
        uint96 stake = _bonded(operator).stake + amount;
        _accounts[operator].stake = stake;
        emit StakeAdded(operator, amount, stake);
    }

    /// @inheritdoc ITrothRegistry
    function deregister(address operator) external {
        _requireOwnerOrOperator(operator);
        _bonded(operator);
        uint40 exitBlock = uint40(block.number + UNBONDING_PERIOD);
        _accounts[operator].exitBlock = exitBlock;
        emit Deregistered(operator, exitBlock);
        _vacate(operator);
    }

    /// @inheritdoc ITrothRegistry
    function evict(address operator) external {
        Slice storage slice = _slices[operator];
        if (slice.memberships.length == 0) revert NothingToEvict(operator);
        uint96 stake = _accounts[operator].stake;
        uint96 minimum = _minimumStakes[slice.executionClass];
        if (stake >= minimum) revert StakeSufficient(stake, minimum);
        emit Evicted(operator);
        _vacate(operator);
    }

    /// @inheritdoc ITrothRegistry
    function claim(address account) external nonReentrant {
        uint96 amount = _accounts[account].credit;
        if (amount == 0) revert NothingToClaim(account);
        _accounts[account].credit = 0;
        address payout = _payouts[account];
        if (payout == address(0)) payout = account;
        emit Claimed(account, payout, amount);
        _pay(payout, amount);
    }

    /// @inheritdoc ITrothRegistry
    function withdraw(address operator) external nonReentrant {
        Account memory account = _accounts[operator];
        if (account.role == Role.None) revert UnknownOperator(operator);
        if (account.exitBlock == 0) revert NotExiting(operator);
        if (block.number <= account.exitBlock) revert StillUnbonding(account.exitBlock, block.number);
        delete _accounts[operator];
        address payout = _payouts[operator];
        emit Withdrawn(operator, payout, account.stake, account.credit);
        _pay(payout, uint256(account.stake) + account.credit);
    }

    function _admit(
        address operator,
        address payout,
        string calldata endpoint,
        bytes calldata consent,
        uint96 minimum,
        Role role
    ) private {
        if (operator == address(0) || payout == address(0)) revert ZeroAddress();
        if (_owners[operator] != address(0)) revert OperatorKnown(operator);
        _requireHttps(endpoint);
        address signer = ECDSA.recoverCalldata(_consentDigest(msg.sender, operator), consent);
        if (signer != operator) revert InvalidConsent(operator, signer);
        uint96 stake = _value();
        if (stake < minimum) revert StakeTooLow(stake, minimum);
        _owners[operator] = msg.sender;
        _payouts[operator] = payout;
        // Credit may have come before the registration, as a reporter's reward.
        _accounts[operator].stake = stake;
        _accounts[operator].role = role;
    }

    function _host(address operator, Slice storage slice, uint8 first, uint8 end, Segment[] calldata segments) private {
        uint16 layers = _rulesOf(slice.executionClass).layers;
        if (first >= end || end > layers) revert InvalidSlice(first, end, layers);
        if (segments.length == 0) revert InvalidSegmentCount(0);
        slice.first = first;
        slice.end = end;
        for (uint256 i = 0; i < segments.length; ++i) {
            _fill(operator, slice, segments[i].first, segments[i].end);
        }
    }

    function _fill(address operator, Slice storage slice, uint8 first, uint8 end) private {
        if (first >= end || first < slice.first || end > slice.end) {
            revert SegmentOutsideSlice(first, end, slice.first, slice.end);
        }
        bytes32 executionClass = slice.executionClass;
        bytes32 group = _groupId(executionClass, first, end);
        uint256 held = slice.memberships.length;
        if (held >= MAXIMUM_SEGMENTS) revert InvalidSegmentCount(held + 1);
        for (uint256 i = 0; i < held; ++i) {
            if (slice.memberships[i].group == group) revert AlreadyEnrolled(group, operator);
        }
        (uint32 slot, uint40 fromBlock) = _join(group, operator);
        slice.memberships.push(Membership({group: group, slot: slot}));
        emit SlotFilled(group, operator, executionClass, first, end, slot, fromBlock);
    }

    function _vacate(address operator) private {
        Membership[] storage memberships = _slices[operator].memberships;
        for (uint256 i = memberships.length; i > 0; --i) {
            Membership memory membership = memberships[i - 1];
            memberships.pop();
            uint40 toBlock = _leave(membership.group, membership.slot);
            emit SlotVacated(membership.group, operator, membership.slot, toBlock);
        }
    }

    /// @dev The slice of a node that may join groups.
    function _sliceOfStaked(address operator) private view returns (Slice storage slice) {
        Account memory account = _bonded(operator);
        if (account.role != Role.Node) revert WrongRole(operator, account.role);
        slice = _slices[operator];
        uint96 minimum = _minimumStakes[slice.executionClass];
        if (account.stake < minimum) revert StakeTooLow(account.stake, minimum);
    }

    function _bonded(address operator) private view returns (Account memory account) {
        account = _accounts[operator];
        if (account.role == Role.None) revert UnknownOperator(operator);
        if (account.exitBlock != 0) revert AlreadyExiting(operator, account.exitBlock);
    }

    function _requireOwner(address operator) private view {
        address owner = _owners[operator];
        if (owner == address(0)) revert UnknownOperator(operator);
        if (msg.sender != owner) revert NotOwner(operator, msg.sender);
    }

    function _requireOwnerOrOperator(address operator) private view {
        address owner = _owners[operator];
        if (owner == address(0)) revert UnknownOperator(operator);
        if (msg.sender != owner && msg.sender != operator) revert NotOwnerOrOperator(operator, msg.sender);
    }

    function _requireHttps(string calldata endpoint) private pure {
        bytes calldata text = bytes(endpoint);
        if (text.length <= 8 || bytes8(text[:8]) != "https://") revert EndpointNotHttps(endpoint);
        _requirePlain(endpoint);
    }
}
