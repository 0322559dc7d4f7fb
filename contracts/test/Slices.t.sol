// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {Account as Standing, Outcome, Role, Row, Segment} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title A node that hosts other layers than before: what changes, what stays, and what it must not gain by it
contract SlicesTest is TaskTest {
    uint256 private constant KEPT = 200;

    address private node;
    address private stranger = makeAddr("stranger");
    bytes32 private whole;
    bytes32 private lower;
    bytes32 private upper;

    function setUp() public override {
        super.setUp();
        node = nodeAddress(0);
        whole = troth.groupId(tolerant, 0, 4);
        lower = troth.groupId(tolerant, 0, 2);
        upper = troth.groupId(tolerant, 2, 4);
    }

    function one(uint8 first, uint8 end) private pure returns (Segment[] memory segments) {
        segments = new Segment[](1);
        segments[0] = Segment({first: first, end: end});
    }

    function move(uint8 first, uint8 end) private {
        vm.prank(node);
        troth.changeSlice(node, first, end, one(first, end));
    }

    function refused(address sender, address operator, bytes memory error_) private {
        vm.prank(sender);
        vm.expectRevert(error_);
        troth.changeSlice(operator, 2, 4, one(2, 4));
    }

    function test_LeavesItsGroupsAndJoinsTheNewOnes() public {
        uint40 now_ = uint40(vm.getBlockNumber());
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SlotVacated(upper, node, 0, now_);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SlotVacated(lower, node, 0, now_);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SlotVacated(whole, node, 0, now_);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SliceChanged(node, 2, 4);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SlotFilled(upper, node, tolerant, 2, 4, 0, now_ + 1);
        move(2, 4);
        (bytes32 class, uint8 first, uint8 end, uint40 keptUntil) = troth.sliceOf(node);
        assertEq(class, tolerant);
        assertEq(first, 2);
        assertEq(end, 4);
        assertEq(keptUntil, now_ + KEPT);
    }

    function test_WhatItWasBeforeStaysTrue() public {
        uint256 now_ = vm.getBlockNumber();
        move(2, 4);
        pass(5);
        assertEq(troth.memberAt(whole, 0, now_ - 1), node);
        assertEq(troth.memberAt(lower, 0, now_ - 1), node);
        assertEq(troth.memberAt(upper, 0, now_ - 1), node);
        assertEq(troth.memberAt(whole, 0, now_), address(0));
        assertEq(troth.memberAt(upper, 0, now_), address(0));
        assertEq(troth.memberAt(whole, 0, now_ + 1), address(0));
        assertEq(troth.memberAt(lower, 0, now_ + 1), address(0));
        assertEq(troth.memberAt(upper, 0, now_ + 1), node);
        assertEq(troth.groupSizeAt(upper, now_ + 1), NODES);
    }

    function test_StakeCreditAndOwnerStay() public {
        Standing memory before = troth.accountOf(node);
        move(2, 4);
        assertEq(abi.encode(troth.accountOf(node)), abi.encode(before));
        assertEq(troth.ownerOf(node), owner);
        assertEq(troth.payoutOf(node), payout);
        assertSolvent(0);
    }

    function test_OwnerAndOperatorMayNobodyElse() public {
        refused(stranger, node, abi.encodeWithSelector(ITrothRegistry.NotOwnerOrOperator.selector, node, stranger));
        refused(
            nodeAddress(1),
            node,
            abi.encodeWithSelector(ITrothRegistry.NotOwnerOrOperator.selector, node, nodeAddress(1))
        );
        refused(stranger, stranger, abi.encodeWithSelector(ITrothRegistry.UnknownOperator.selector, stranger));
        vm.prank(owner);
        troth.changeSlice(nodeAddress(1), 0, 2, one(0, 2));
        move(0, 2);
    }

    function test_OnlyBondedNodesWithEnoughStakeMay() public {
        refused(owner, scheduler, abi.encodeWithSelector(ITrothRegistry.WrongRole.selector, scheduler, Role.Scheduler));
        slashAll(NODE_KEY + 1);
        refused(owner, nodeAddress(1), abi.encodeWithSelector(ITrothRegistry.StakeTooLow.selector, 0, NODE_STAKE));
        vm.startPrank(owner);
        troth.deregister(node);
        uint256 exitBlock = vm.getBlockNumber() + UNBONDING_PERIOD;
        vm.stopPrank();
        refused(node, node, abi.encodeWithSelector(ITrothRegistry.AlreadyExiting.selector, node, exitBlock));
        vm.roll(exitBlock + 1);
        troth.withdraw(node);
        refused(node, node, abi.encodeWithSelector(ITrothRegistry.UnknownOperator.selector, node));
    }

    function test_RefusesSlicesAndSegments() public {
        vm.startPrank(node);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.InvalidSlice.selector, 2, 2, 4));
        troth.changeSlice(node, 2, 2, one(2, 2));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.InvalidSlice.selector, 3, 2, 4));
        troth.changeSlice(node, 3, 2, one(2, 3));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.InvalidSlice.selector, 1, 5, 4));
        troth.changeSlice(node, 1, 5, one(1, 4));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.InvalidSegmentCount.selector, 0));
        troth.changeSlice(node, 2, 4, new Segment[](0));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.SegmentOutsideSlice.selector, 1, 4, 2, 4));
        troth.changeSlice(node, 2, 4, one(1, 4));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.SegmentOutsideSlice.selector, 3, 3, 2, 4));
        troth.changeSlice(node, 2, 4, one(3, 3));
        Segment[] memory twice = new Segment[](2);
        twice[0] = twice[1] = Segment({first: 2, end: 4});
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.AlreadyEnrolled.selector, upper, node));
        troth.changeSlice(node, 2, 4, twice);
        vm.stopPrank();
        (, uint8 first, uint8 end, uint40 keptUntil) = troth.sliceOf(node);
        assertEq(first, 0);
        assertEq(end, 4);
        assertEq(keptUntil, 0);
        assertEq(troth.memberAt(whole, 0, vm.getBlockNumber() + 1), node);
    }

    function test_AChangedSliceStaysFor200Blocks() public {
        move(2, 4);
        uint256 until = vm.getBlockNumber() + KEPT;
        bytes memory lately = abi.encodeWithSelector(ITrothRegistry.SliceChangedLately.selector, until, until - KEPT);
        refused(node, node, lately);
        vm.roll(until - 1);
        refused(owner, node, abi.encodeWithSelector(ITrothRegistry.SliceChangedLately.selector, until, until - 1));
        vm.roll(until);
        move(0, 2);
        (, uint8 first, uint8 end, uint40 keptUntil) = troth.sliceOf(node);
        assertEq(first, 0);
        assertEq(end, 2);
        assertEq(keptUntil, until + KEPT);
    }

    function test_EnrollingFollowsTheNewSlice() public {
        move(2, 4);
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.SegmentOutsideSlice.selector, 0, 4, 2, 4));
        troth.enroll(node, 0, 4);
        troth.enroll(node, 3, 4);
        vm.stopPrank();
        assertEq(troth.memberAt(troth.groupId(tolerant, 3, 4), 0, vm.getBlockNumber() + 1), node);
    }

    function test_AnEvictedNodeReturnsWithItsStakeOnly() public {
        slashAll(NODE_KEY);
        troth.evict(node);
        refused(node, node, abi.encodeWithSelector(ITrothRegistry.StakeTooLow.selector, 0, NODE_STAKE));
        vm.deal(stranger, NODE_STAKE);
        vm.prank(stranger);
        troth.topUp{value: NODE_STAKE}(node);
        move(2, 4);
        assertEq(troth.memberAt(upper, 0, vm.getBlockNumber() + 1), node);
        assertEq(troth.memberAt(whole, 0, vm.getBlockNumber() + 1), address(0));
    }

    /// @dev Attack: a node that was drawn hosts something else by the time it is found out.
    function test_MovingAwayDoesNotSaveADrawnNodeFromItsSlash() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        play.conducts[0].data = FALSE_DATA;
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
        }
        address inferencer = partyOf(play, 0, 0);
        vm.prank(inferencer);
        troth.changeSlice(inferencer, 2, 4, one(2, 4));
        commit(play);
        pass(1);
        settle(play);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Rejected));
        assertEq(stakeOf(inferencer), NODE_STAKE - (2 + 3 * 6) * UNIT);
        assertSolvent(0);
    }

    /// @dev Attack: the order's reference block is public before the order is opened; who was a member then stays drawn.
    function test_MovingAwayAfterTheReferenceBlockDoesNotChangeTheDraw() public {
        Play memory play = newPlay(tolerant, WHOLE);
        (, address[] memory expected) = assignment(play);
        address first = expected[0];
        vm.prank(first);
        troth.changeSlice(first, 2, 4, one(2, 4));
        pass(KEPT - 1);
        play.task.progress.parties = new address[](0);
        open(play);
        assign(play);
        assertEq(abi.encode(play.task.progress.parties), abi.encode(expected));
    }

    /// @dev Attack: a node that has seen an order and its reference block moves into the group that is paid for it.
    function test_MovingInAfterTheReferenceBlockIsTooLate() public {
        address late = registerNode(0xf00d, tolerant, NODE_STAKE);
        vm.prank(late);
        troth.changeSlice(late, 2, 4, one(2, 4));
        pass(KEPT + 1);
        Play memory play = newPlay(tolerant, WHOLE);
        (, address[] memory expected) = assignment(play);
        vm.prank(late);
        troth.changeSlice(late, 0, 4, one(0, 4));
        pass(3);
        open(play);
        assign(play);
        assertEq(abi.encode(play.task.progress.parties), abi.encode(expected));
        for (uint256 i = 0; i < expected.length; ++i) {
            assertNotEq(expected[i], late);
        }
    }

    /// @dev Attack: hopping in and out makes groups, whose empty slots every draw walks over, larger and larger.
    function test_MovingToAndFroDoesNotGrowAGroup() public {
        for (uint256 i = 0; i < 6; ++i) {
            if (i % 2 == 0) move(2, 4);
            else move(0, 2);
            pass(KEPT);
        }
        assertEq(troth.groupSizeAt(lower, vm.getBlockNumber()), NODES);
        assertEq(troth.groupSizeAt(upper, vm.getBlockNumber()), NODES);
    }

    /// @dev Attack: within the age of an order's reference block a node serves three slices, and answers for none.
    function testFuzz_NoOrderSeesMoreThanTwoSlices(uint256 seed) public {
        uint256 start = vm.getBlockNumber();
        for (uint256 step = 0; step < 12; ++step) {
            uint256 draw = uint256(keccak256(abi.encode(seed, step)));
            bool toUpper = draw % 2 == 0;
            Segment[] memory there = toUpper ? one(2, 4) : one(0, 2);
            vm.prank(node);
            try troth.changeSlice(node, there[0].first, there[0].end, there) {} catch {}
            pass(1 + (draw >> 8) % 120);
        }
        // Where the node is: 2 the lower half, 4 the upper half, 0 nowhere, in the block of a change.
        uint256 changes = 0;
        uint256 latest = 0;
        for (uint256 block_ = start; block_ < vm.getBlockNumber(); ++block_) {
            uint256 slices = (troth.memberAt(whole, 0, block_) == node ? 1 : 0)
                | (troth.memberAt(lower, 0, block_) == node ? 2 : 0) | (troth.memberAt(upper, 0, block_) == node ? 4 : 0);
            assertTrue(slices == 0 || slices == 2 || slices == 4, "in two slices at once");
            if (slices != 0) continue;
            if (latest != 0) assertGe(block_, latest + KEPT, "three slices within one reference age");
            latest = block_;
            ++changes;
        }
        assertGt(changes, 0, "nothing was changed");
    }

    function slashAll(uint256 key) private {
        Row memory a = Row({
            taskId: keccak256("task"),
            segment: 0,
            attempt: 0,
            position: 1,
            rowHash: keccak256("row"),
            previous: 0
        });
        Row memory b = abi.decode(abi.encode(a), (Row));
        b.rowHash = keccak256("another row");
        troth.proveEquivocation(a, signed(key, rowHash(a)), b, signed(key, rowHash(b)));
    }

    function rowHash(Row memory row) private pure returns (bytes32) {
        bytes32 typeHash = keccak256(
            "Row(bytes32 taskId,uint8 segment,uint8 attempt,uint32 position,bytes32 rowHash,bytes32 previous)"
        );
        return keccak256(abi.encode(typeHash, row));
    }
}
