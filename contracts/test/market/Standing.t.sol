// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Member} from "../../market/interfaces/ILens.sol";
import {Entry, NodeRegistration, PotKind, Role, Segment} from "../../market/interfaces/MarketTypes.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {Coolness, StandingStage} from "./support/StandingStage.sol";

/// @title Seats, suspension, conviction and exit
contract StandingTest is StandingStage {
    // ---- seats

    function test_GiftsBringNoSeats() public {
        NodeRegistration memory made = registration(2 * SEAT - 1);
        registerNode(NEW_KEY, owner, made);
        pass(parameters().seasoning - 1);
        vm.prank(stranger);
        registry.topUp{value: 1}(newcomer, 1);
        Entry memory entry = entryOf(newcomer, group());
        assertEq(entry.seats, 1);
        assertEq(entry.since, last() + 2 - parameters().seasoning);
        vm.deal(owner, 1);
        vm.prank(owner);
        registry.topUp{value: 1}(newcomer, 1);
        assertEq(entryOf(newcomer, group()).seats, 2);
    }

    function test_AddedSeatsSeasonAndTheOldOnesStaySeasoned() public {
        address node = exactNode(0);
        slash(node, 2 * SEAT);
        registry.evict(node);
        pass(1);
        vm.deal(node, SEAT);
        vm.prank(node);
        registry.topUp{value: SEAT}(node, SEAT);
        Member[] memory page;
        pass(parameters().seasoning);
        (, page) = lens.members(exact, 0, LAYERS, last(), 0, 1);
        assertEq(page[0].entry.seats, 3);
        assertEq(page[0].seasoned, 2);
        (, page) = lens.members(exact, 0, LAYERS, vm.getBlockNumber(), 0, 1);
        assertEq(page[0].seasoned, 3);
    }

    function test_LocksDoNotChangeSeats() public {
        address node = exactNode(0);
        move(PotKind.Stake, idOf(node), PotKind.Locked, idOf(node), 3 * SEAT);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NothingToEvict.selector, node));
        registry.evict(node);
        move(PotKind.Locked, idOf(node), PotKind.Burnt, 0, SEAT);
        registry.evict(node);
        assertEq(entryOf(node, group()).seats, 3);
    }

    function test_SlicesChangeOncePerReferenceAge() public {
        address node = exactNode(0);
        NodeRegistration memory halves = nodeRegistration(node, exact, true, SEAT);
        vm.prank(node);
        registry.changeSlice(node, 0, LAYERS, halves.segments, halves.asks);
        assertEq(registry.sizeAt(group(), vm.getBlockNumber()), 2);
        assertEq(registry.sizeAt(group(), last()), 3);
        uint256 kept = vm.getBlockNumber() + parameters().referenceAge;
        pass(parameters().referenceAge - 1);
        vm.prank(node);
        vm.expectRevert(
            abi.encodeWithSelector(IRegistry.SliceChangedLately.selector, kept, vm.getBlockNumber())
        );
        registry.changeSlice(node, 0, LAYERS, halves.segments, halves.asks);
        pass(1);
        // A group that stays keeps its seasoning; a new one begins.
        NodeRegistration memory mixed = nodeRegistration(node, exact, true, SEAT);
        mixed.segments[1] = Segment(1, 3);
        uint256 joined = entryOf(node, registry.groupId(exact, 0, HALF)).since;
        vm.prank(node);
        registry.changeSlice(node, 0, LAYERS, mixed.segments, mixed.asks);
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).since, joined);
        assertEq(entryOf(node, registry.groupId(exact, 1, 3)).since, vm.getBlockNumber());
        assertEq(entryOf(node, registry.groupId(exact, HALF, LAYERS)).operator, address(0));
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.WrongRole.selector, scheduler, Role.Scheduler));
        registry.changeSlice(scheduler, 0, LAYERS, mixed.segments, mixed.asks);
    }

    // ---- suspension

    function test_ASuspensionTakesAllSeatsAndGivesThemBackSeasoned() public {
        address node = halfNode(0);
        Entry memory before = entryOf(node, registry.groupId(exact, 0, HALF));
        vm.startPrank(address(court));
        assertTrue(registry.suspend(node, CASE));
        assertFalse(registry.suspend(node, keccak256("another")));
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).seats, 0);
        assertEq(entryOf(node, registry.groupId(exact, HALF, LAYERS)).seats, 0);
        pass(10);
        registry.restore(node, keccak256("another"));
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).seats, 0);
        registry.restore(node, CASE);
        vm.stopPrank();
        Entry memory restored = entryOf(node, registry.groupId(exact, 0, HALF));
        assertEq(restored.seats, before.seats);
        assertEq(restored.since, before.since);
        (bytes32 by, uint40 blockNumber) = registry.suspensionOf(node);
        assertEq(by, 0);
        assertEq(blockNumber, vm.getBlockNumber() - 10);
    }

    function test_OneCaseADaySuspends() public {
        vm.startPrank(address(court));
        assertTrue(registry.suspend(exactNode(0), CASE));
        registry.restore(exactNode(0), CASE);
        pass(parameters().suspensionPause - 1);
        assertFalse(registry.suspend(exactNode(0), CASE));
        pass(1);
        assertTrue(registry.suspend(exactNode(0), CASE));
        vm.stopPrank();
    }

    /// @dev What it served is worth nothing, and stays so: it comes back under another key.
    function test_WhoHasNoPenaltyLeftTakesNoStake() public {
        address node = exactNode(0);
        slash(node, NODE_STAKE - PENALTY);
        registry.topUp{value: 1}(node, 1);
        slash(node, 2);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StakeTooLow.selector, PENALTY - 1, PENALTY));
        registry.topUp{value: SEAT}(node, SEAT);
        assertEq(stakeOf(node), PENALTY - 1, "what was sent came back");
        slash(scheduler, SCHEDULER_STAKE);
        registry.topUp{value: 1}(scheduler, 1);
        assertEq(stakeOf(scheduler), 1, "a scheduler has no class");
    }

    /// @dev Neither stake that is added nor another slice makes young seats old during a suspension, or ends it.
    function test_ASuspensionIsNoWayRoundTheSeasoning() public {
        NodeRegistration memory made = registration(SEAT);
        registerNode(NEW_KEY, owner, made);
        pass(parameters().seasoning);
        vm.prank(address(court));
        registry.suspend(newcomer, CASE);
        vm.deal(owner, 3 * SEAT);
        vm.startPrank(owner);
        registry.topUp{value: 3 * SEAT}(newcomer, 3 * SEAT);
        registry.changeSlice(newcomer, 0, LAYERS, made.segments, made.asks);
        vm.stopPrank();
        assertEq(entryOf(newcomer, group()).seats, 0);
        pass(10);
        vm.prank(address(court));
        registry.restore(newcomer, CASE);
        (, Member[] memory page) = lens.members(exact, 0, LAYERS, vm.getBlockNumber(), 3, 1);
        assertEq(page[0].entry.seats, 4);
        assertEq(page[0].seasoned, 1);
    }

    function test_WhoLostItsStakeWhileSuspendedDoesNotComeBack() public {
        address node = exactNode(0);
        vm.prank(address(court));
        registry.suspend(node, CASE);
        slash(node, NODE_STAKE - PENALTY);
        vm.startPrank(address(court));
        registry.convict(node, Fault.FalseResult, CASE, last());
        registry.restore(node, CASE);
        vm.stopPrank();
        assertEq(entryOf(node, group()).operator, address(0));
        // It comes back by its owner's stake, under the rules of a newcomer.
        vm.deal(node, SEAT);
        vm.startPrank(node);
        registry.topUp{value: SEAT}(node, SEAT);
        NodeRegistration memory made = nodeRegistration(node, exact, false, SEAT);
        registry.changeSlice(node, 0, LAYERS, made.segments, made.asks);
        assertEq(entryOf(node, group()).seats, 1);
        assertEq(entryOf(node, group()).since, vm.getBlockNumber());
    }

    function test_WhoRejoinedWithoutStakeIsStillEvicted() public {
        address node = exactNode(0);
        vm.prank(address(court));
        registry.suspend(node, CASE);
        slash(node, NODE_STAKE - PENALTY);
        registry.evict(node);
        vm.deal(node, SEAT);
        vm.startPrank(node);
        registry.topUp{value: SEAT}(node, SEAT);
        NodeRegistration memory made = nodeRegistration(node, exact, false, SEAT);
        registry.changeSlice(node, 0, LAYERS, made.segments, made.asks);
        vm.stopPrank();
        assertEq(entryOf(node, group()).seats, 0);
        slash(node, SEAT);
        registry.evict(node);
        assertEq(entryOf(node, group()).operator, address(0));
    }

    // ---- convictions

    function test_AConvictionEvictsInTheSameCall() public {
        address node = halfNode(0);
        slash(node, NODE_STAKE - SEAT + 1);
        vm.expectEmit(address(registry));
        emit IRegistry.Convicted(
            node, Fault.TwoResults, CASE, uint64(last() - parameters().lag), last() + 1, 0
        );
        vm.prank(address(evidence));
        registry.convict(node, Fault.TwoResults, CASE, last());
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).operator, address(0));
        assertEq(entryOf(node, registry.groupId(exact, HALF, LAYERS)).operator, address(0));
        assertEq(registry.sizeAt(registry.groupId(exact, 0, HALF), vm.getBlockNumber()), 2);
        assertEq(registry.sizeAt(registry.groupId(exact, 0, HALF), last()), 3);
        assertEq(lens.profileOf(node).segments.length, 0);
    }

    function test_GasOfAConvictionFromTwoGroups() public {
        slash(halfNode(0), NODE_STAKE);
        Coolness(address(vm)).cool(address(registry));
        Coolness(address(vm)).cool(address(bank));
        vm.prank(address(evidence));
        uint256 start = gasleft();
        registry.convict(halfNode(0), Fault.TwoResults, CASE, last());
        uint256 gas = start - gasleft();
        emit log_named_uint("conviction with eviction from two groups", gas);
        assertLe(gas, 150_000);
    }

    function test_APartialSlashTakesTheNewestSeats() public {
        slash(exactNode(1), SEAT + 1);
        vm.prank(address(summons));
        registry.convict(exactNode(1), Fault.Unanswered, CASE, last());
        assertEq(entryOf(exactNode(1), group()).seats, 2);
    }

    function test_ConvictionsVoidWhatWasNotAcknowledged() public {
        pass(200);
        uint64 offence = last();
        pass(5);
        assertFalse(registry.isVoidByAny(scheduler, offence));
        vm.prank(address(summons));
        registry.convict(scheduler, Fault.Unanswered, CASE, offence);
        assertFalse(registry.isVoidByAny(scheduler, offence - parameters().lag - 1));
        assertTrue(registry.isVoidByAny(scheduler, offence - parameters().lag));
        assertTrue(registry.isVoidByAny(scheduler, uint64(vm.getBlockNumber())));
        assertFalse(registry.isVoidByAny(scheduler, uint64(vm.getBlockNumber() + 1)));
        // One may convict oneself as often as one likes: nothing becomes payable again.
        for (uint256 i = 0; i < 10; ++i) {
            pass(100);
            vm.prank(address(evidence));
            registry.convict(scheduler, Fault.TwoDraws, bytes32(i), last());
        }
        assertTrue(registry.isVoidByAny(scheduler, offence));
        assertEq(registry.convictionCount(scheduler), 11);
        vm.prank(address(evidence));
        registry.convict(scheduler, Fault.TwoDraws, CASE, 3);
        assertTrue(registry.isVoidByAny(scheduler, 0));
        address node = exactNode(0);
        vm.prank(address(evidence));
        registry.convict(node, Fault.TwoRows, CASE, type(uint64).max);
        assertTrue(registry.isVoidByAny(node, uint64(vm.getBlockNumber()) - parameters().lag));
        vm.prank(address(evidence));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownOperator.selector, stranger));
        registry.convict(stranger, Fault.TwoDraws, CASE, 3);
    }

    // ---- exit

    function test_StakeLeavesAfterUnbondingWithNothingLocked() public {
        address node = exactNode(0);
        vm.prank(ownerOf(node));
        registry.deregister(node);
        uint40 exitBlock = uint40(vm.getBlockNumber() + parameters().unbonding);
        assertEq(lens.profileOf(node).exitBlock, exitBlock);
        assertEq(entryOf(node, group()).operator, address(0));
        move(PotKind.Stake, idOf(node), PotKind.Locked, idOf(node), 1);
        pass(parameters().unbonding);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StillUnbonding.selector, exitBlock, exitBlock));
        registry.withdrawStake(node);
        pass(1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StakeLocked.selector, node, 1));
        registry.withdrawStake(node);
        move(PotKind.Locked, idOf(node), PotKind.Stake, idOf(node), 1);
        registry.withdrawStake(node);
        assertEq(creditOf(node), NODE_STAKE);
        bank.withdraw(node);
        assertEq(ownerOf(node).balance, NODE_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotExiting.selector, exactNode(1)));
        registry.withdrawStake(exactNode(1));
    }

    function test_WhoLeavesIsSlashableAndDoesNotComeBack() public {
        address node = exactNode(0);
        vm.startPrank(node);
        registry.deregister(node);
        uint40 exitBlock = lens.profileOf(node).exitBlock;
        NodeRegistration memory made = nodeRegistration(node, exact, false, SEAT);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyExiting.selector, node, exitBlock));
        registry.changeSlice(node, 0, LAYERS, made.segments, made.asks);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyExiting.selector, node, exitBlock));
        registry.deregister(node);
        vm.stopPrank();
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyExiting.selector, node, exitBlock));
        registry.topUp{value: 1}(node, 1);
        pass(parameters().unbonding);
        slash(node, SEAT);
        vm.prank(address(court));
        registry.convict(node, Fault.FalseResult, CASE, last());
        assertEq(registry.convictionCount(node), 1);
    }

    function test_JoiningAndLeavingInOneBlockLeavesNothing() public {
        uint256 size = registry.sizeAt(group(), vm.getBlockNumber());
        registerNode(NEW_KEY, owner, registration(SEAT));
        vm.prank(owner);
        registry.deregister(newcomer);
        registerNode(NEW_KEY + 1, owner, nodeRegistration(vm.addr(NEW_KEY + 1), exact, false, SEAT));
        pass(1);
        assertEq(registry.sizeAt(group(), last()), size + 1);
        assertEq(registry.entryAt(group(), size, last()).operator, vm.addr(NEW_KEY + 1));
        assertEq(registry.sizeAt(group(), last() - 1), size);
    }
}
