// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ISummons} from "../../market/interfaces/ISummons.sol";
import {Tab} from "../../market/interfaces/MarketTypes.sol";
import {Opinion, Order, Promise, Verdict, Work} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Orders} from "../../market/libraries/Orders.sol";
import {SummonsTest} from "./support/SummonsTest.sol";

contract SummonsPassOnTest is SummonsTest {
    bytes private stored;
    address[] private seats;
    bytes private hints;

    function setUp() public override {
        super.setUp();
        Play memory made = play(exact, WHOLE, 1);
        stored = abi.encode(made);
        summonCheck(made, 0);
        redraw();
    }

    /// @dev The order of these tests, as it was served.
    function load() private view returns (Play memory) {
        return abi.decode(stored, (Play));
    }

    function redraw() private {
        (seats, hints) = seatsOf(load(), 0, summons.silentOf(summonsId));
    }

    function passOn(address node) private {
        Promise memory promised = promiseOf(load(), node, 0, Work.Check);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        uint256 deposit = summons.passDepositFor(block.basefee);
        Tab memory tab = nodeTab(node);
        vm.recordLogs();
        vm.prank(scheduler);
        summons.passOnCheck{value: deposit}(
            summonsId, state, load().results, compacted(load().resultSignatures), tab, promised, signature, hints
        );
        read();
    }

    function passFails(address node, bytes memory failure) private {
        Promise memory promised = promiseOf(load(), node, 0, Work.Check);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        uint256 deposit = summons.passDepositFor(block.basefee);
        Tab memory tab = nodeTab(node);
        vm.expectRevert(failure);
        vm.prank(scheduler);
        summons.passOnCheck{value: deposit}(
            summonsId, state, load().results, compacted(load().resultSignatures), tab, promised, signature, hints
        );
    }

    function respond(address node, bytes memory word) private {
        vm.recordLogs();
        vm.prank(node);
        summons.respond(summonsId, state, word);
        read();
    }

    function silence() private {
        vm.roll(state.deadline + 1);
        convict(stranger);
        redraw();
    }

    /// @dev Verdicts of all drawn nodes but one.
    function without(address node) private view returns (Check memory check) {
        check = checkOf(load(), 0, Opinion.Accept, summons.silentOf(summonsId));
        address[] memory nodes = distinct(check.seats);
        uint256 kept = 0;
        for (uint256 i = 0; i < nodes.length; ++i) {
            if (nodes[i] == node) continue;
            (check.verdicts[kept], check.signatures[kept]) = (check.verdicts[i], check.signatures[i]);
            ++kept;
        }
        (Verdict[] memory verdicts, bytes[] memory signatures) = (check.verdicts, check.signatures);
        assembly ("memory-safe") {
            mstore(verdicts, kept)
            mstore(signatures, kept)
        }
    }

    function test_ASilentVerifierPaysAndIsReplacedByTheNextOfTheDraw() public {
        address silent = seats[0];
        passOn(silent);
        assertEq(creditOf(silent), summons.passDepositFor(block.basefee));
        uint256 credit = creditOf(scheduler);
        silence();
        assertEq(state.passedTo, address(0));
        assertEq(state.deadline, vm.getBlockNumber() + parameters().summonsWindow);
        assertEq(summons.silentOf(summonsId).length, 1);
        for (uint256 i = 0; i < seats.length; ++i) assertTrue(seats[i] != silent);
        assertGt(creditOf(scheduler), credit + summons.passDepositFor(block.basefee));
        uint256 paid = creditOf(scheduler) - credit + creditOf(stranger);
        assertEq(NODE_STAKE - stakeOf(silent), paid + FEE_CAP / 3);
        assertEq(registry.convictionCount(silent), 0);
        answerCheck(load(), checkOf(load(), 0, Opinion.Accept, summons.silentOf(summonsId)));
        assertEq(status(), ANSWERED);
    }

    /// @dev A bound above the class's cap is not what an order costs.
    function test_SilenceCostsNoMoreThanAThirdOfTheCap() public {
        Order memory order = newOrder(exact, WHOLE, 2);
        order.maxFee = 9 * FEE_CAP;
        Play memory made = play(order);
        stored = abi.encode(made);
        summonCheck(made, 0);
        redraw();
        address silent = seats[0];
        passOn(silent);
        uint256 credit = creditOf(scheduler);
        silence();
        uint256 paid = creditOf(scheduler) - credit + creditOf(stranger);
        assertEq(NODE_STAKE - stakeOf(silent), paid + FEE_CAP / 3);
    }

    function test_ASilentNodesSeatsFollowItsStake() public {
        address silent = seats[0];
        bytes32 group = registry.groupId(exact, 0, LAYERS);
        passOn(silent);
        silence();
        (,, uint48 membership,) = registry.sliceOf(silent);
        // Four seats of stake less the fine are three.
        assertEq(registry.entryAt(group, uint32(membership), vm.getBlockNumber()).seats, 3);
    }

    function test_AVerifierThatOnlyRespondsCountsAsCannotTell() public {
        address present = seats[0];
        Check memory rest = without(present);
        vm.expectRevert(abi.encodeWithSelector(ISummons.VerdictMissing.selector, present));
        answerCheck(load(), rest);
        passOn(present);
        vm.expectEmit(address(summons));
        state.passedTo = address(0);
        emit ISummons.Responded(summonsId, present, state, "nothing was given to me");
        state.passedTo = present;
        respond(present, "nothing was given to me");
        assertEq(stakeOf(present), NODE_STAKE);
        uint8[] memory opinions = new uint8[](seats.length);
        for (uint256 i = 0; i < seats.length; ++i) {
            opinions[i] = uint8(seats[i] == present ? Opinion.CannotTell : Opinion.Accept);
        }
        vm.expectEmit(address(summons));
        emit ISummons.SummonsAnswered(summonsId, address(this), keccak256(abi.encode(seats, opinions)));
        answerCheck(load(), rest);
    }

    function test_WhoRespondedIsNotPassedOnToAgain() public {
        address present = seats[0];
        passOn(present);
        passFails(present, abi.encodeWithSelector(ISummons.AlreadyPassedOn.selector, present));
        respond(present, "");
        passFails(present, abi.encodeWithSelector(ISummons.AlreadyPassedOn.selector, present));
    }

    function test_AFriendWhoWasNotDrawnCannotBeNamedToShutItsOwnerOut() public {
        address outsider = load().nodes[0];
        passFails(outsider, abi.encodeWithSelector(Orders.NotDrawn.selector, outsider));
    }

    function test_TheSchedulerStillLosesLAfterItsNodeSpoke() public {
        passOn(seats[0]);
        respond(seats[0], "");
        vm.roll(state.deadline + 1);
        convict(stranger);
        assertEq(status(), UNANSWERED);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - PENALTY);
    }

    function test_AnAnswerCountsWhileANodeIsAsked() public {
        passOn(seats[0]);
        answerCheck(load(), checkOf(load(), 0, Opinion.Reject));
        assertEq(status(), ANSWERED);
        assertEq(stakeOf(seats[0]), NODE_STAKE);
    }

    function test_AfterSixPassesTheSchedulerMustAnswer() public {
        for (uint256 i = 0; i < 6; ++i) {
            passOn(seats[0]);
            silence();
        }
        passFails(seats[0], abi.encodeWithSelector(ISummons.PassedOnTooOften.selector, 6));
        answerCheck(load(), checkOf(load(), 0, Opinion.Accept, summons.silentOf(summonsId)));
        assertEq(status(), ANSWERED);
    }

    function test_APromiseForAnotherSegmentIsNotPassedOn() public {
        Promise memory promised = promiseOf(load(), seats[0], 1, Work.Check);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        uint256 deposit = summons.passDepositFor(block.basefee);
        Tab memory tab = nodeTab(seats[0]);
        vm.expectPartialRevert(ISummons.WrongPromise.selector);
        vm.prank(scheduler);
        summons.passOnCheck{value: deposit}(
            summonsId, state, load().results, compacted(load().resultSignatures), tab, promised, signature, hints
        );
    }

    function test_ANodeWithoutStakePaysNothingAndIsReplaced() public {
        address silent = seats[0];
        slash(silent, NODE_STAKE);
        registry.evict(silent);
        redraw();
        passOn(silent);
        silence();
        assertEq(summons.silentOf(summonsId)[0], silent);
        assertEq(creditOf(stranger), 0);
    }

    function test_NobodyPassesOnTooLate() public {
        vm.roll(state.deadline + 1);
        passFails(
            seats[0], abi.encodeWithSelector(ISummons.TooLate.selector, state.deadline, uint256(state.deadline) + 1)
        );
    }
}
