// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ISummons} from "../../market/interfaces/ISummons.sol";
import {Tab} from "../../market/interfaces/MarketTypes.sol";
import {SummonsKind} from "../../market/interfaces/Proceedings.sol";
import {Promise, Result, Work} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Orders} from "../../market/libraries/Orders.sol";
import {SummonsTest} from "./support/SummonsTest.sol";

contract SummonsResultsTest is SummonsTest {
    bytes private stored;

    function halfNodes() internal pure override returns (uint256) {
        return 6;
    }

    function setUp() public override {
        super.setUp();
        stored = abi.encode(play(exact, HALVES, 1));
    }

    /// @dev The order of these tests, as it was served.
    function load() private view returns (Play memory) {
        return abi.decode(stored, (Play));
    }

    /// @dev From this block on an admitted order without results is summoned.
    function due(Play memory made) private pure returns (uint256) {
        return uint256(made.admission.blockNumber) + 10;
    }

    function summonNow() private returns (Play memory made) {
        made = load();
        vm.roll(due(made));
        summonResults(made);
        made.draw.blockNumber = last() + 1;
        signAgain(made);
    }

    function test_ResultsAreSummonedOnceTheyAreDueAndNotAfterTheLag() public {
        Play memory made = load();
        uint256 deposit = summons.depositFor(SummonsKind.Results, block.basefee);
        vm.roll(due(made) - 1);
        vm.expectRevert(abi.encodeWithSelector(ISummons.TooEarly.selector, due(made), due(made) - 1));
        summons.summonResults{value: deposit}(made.order, made.admission, made.admissionSignature);
        uint256 until = uint256(made.admission.blockNumber) + parameters().lag;
        vm.roll(until + 1);
        vm.expectRevert(abi.encodeWithSelector(ISummons.TooLate.selector, until, until + 1));
        summons.summonResults{value: deposit}(made.order, made.admission, made.admissionSignature);
        vm.roll(until);
        summonResults(made);
        assertEq(state.named, made.admission.nodes);
        assertEq(summonsId, summons.summonsIdOf(made.id, SummonsKind.Results, 0));
        vm.expectRevert(abi.encodeWithSelector(ISummons.AlreadySummoned.selector, summonsId));
        summons.summonResults{value: deposit}(made.order, made.admission, made.admissionSignature);
    }

    function test_OnlyAnAdmissionOfThisOrderByItsSchedulerSummons() public {
        Play memory made = load();
        vm.roll(due(made));
        uint256 deposit = summons.depositFor(SummonsKind.Results, block.basefee);
        bytes memory signature = sign(TAB_KEY, Messages.hash(made.admission));
        vm.expectRevert(abi.encodeWithSelector(Orders.WrongSigner.selector, tabKey, scheduler));
        summons.summonResults{value: deposit}(made.order, made.admission, signature);
        signature = foreign(SCHEDULER_KEY, Messages.hash(made.admission));
        vm.expectPartialRevert(Orders.WrongSigner.selector);
        summons.summonResults{value: deposit}(made.order, made.admission, signature);
        made.admission.order = keccak256("another");
        signAgain(made);
        vm.expectPartialRevert(Orders.WrongPlace.selector);
        summons.summonResults{value: deposit}(made.order, made.admission, made.admissionSignature);
    }

    function test_ResultsByTheAdmittedNodesWithAFreshDrawAnswer() public {
        Play memory made = summonNow();
        signAgain(made);
        vm.expectEmit(address(summons));
        emit ISummons.SummonsAnswered(summonsId, address(this), made.resultsHash);
        answerResults(made);
        assertEq(status(), ANSWERED);
    }

    function test_ADrawOlderThanTheSummonsDoesNotAnswer() public {
        Play memory made = summonNow();
        made.draw.blockNumber = uint64(vm.getBlockNumber() - 1);
        signAgain(made);
        vm.expectPartialRevert(ISummons.TooLate.selector);
        answerResults(made);
        made.draw.blockNumber = uint64(vm.getBlockNumber() + 1);
        signAgain(made);
        vm.expectPartialRevert(ISummons.TooEarly.selector);
        answerResults(made);
    }

    function test_AnotherDrawOrSignerDoesNotAnswer() public {
        Play memory made = summonNow();
        made.drawSignature = sign(CLIENT_KEY, Messages.hash(made.draw));
        vm.expectPartialRevert(Orders.WrongSigner.selector);
        answerResults(made);
        made.draw.results = keccak256("others");
        signAgain(made);
        vm.expectPartialRevert(Orders.Mismatch.selector);
        answerResults(made);
        made.draw.order = keccak256("another");
        signAgain(made);
        vm.expectPartialRevert(Orders.WrongPlace.selector);
        answerResults(made);
    }

    function test_OtherNodesThanTheAdmittedDoNotAnswer() public {
        Play memory made = summonNow();
        made.nodes[1] = exactNode(0);
        vm.expectPartialRevert(Orders.Mismatch.selector);
        answerResults(made);
        made.nodes = inferencers(made.order.order);
        made.resultSignatures[1] = signAs(exactNode(0), Messages.hash(made.results[1]));
        vm.expectRevert(abi.encodeWithSelector(Orders.WrongSigner.selector, exactNode(0), made.nodes[1]));
        answerResults(made);
    }

    function test_ResultsWhoseHeadsDoNotMeetDoNotAnswer() public {
        Play memory made = summonNow();
        made.results[1].inputHead = keccak256("other inputs");
        made.resultSignatures[1] = signAs(made.nodes[1], Messages.hash(made.results[1]));
        vm.expectRevert(abi.encodeWithSelector(Orders.HeadsApart.selector, 1));
        answerResults(made);
        made.results = new Result[](1);
        vm.expectPartialRevert(Orders.WrongCount.selector);
        answerResults(made);
    }

    function test_ResultsOfAnotherLengthDoNotMeet() public {
        Play memory made = summonNow();
        made.results[1].prompt += 1;
        made.resultSignatures[1] = signAs(made.nodes[1], Messages.hash(made.results[1]));
        vm.expectRevert(abi.encodeWithSelector(Orders.HeadsApart.selector, 1));
        answerResults(made);
    }

    function test_WithoutResultsTheSchedulerLosesL() public {
        Play memory made = summonNow();
        vm.roll(state.deadline + 1);
        vm.expectPartialRevert(ISummons.TooLate.selector);
        answerResults(made);
        convict(stranger);
        assertEq(status(), UNANSWERED);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - PENALTY);
        assertEq(registry.convictionCount(scheduler), 1);
    }

    // ---- passing on

    function passOn(Play memory made, address node, uint8 segment) private {
        passOnWith(made, node, promiseOf(made, node, segment, Work.Inference));
    }

    function passOnWith(Play memory made, address node, Promise memory promised) private {
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        uint256 deposit = summons.passDepositFor(block.basefee);
        Tab memory tab = nodeTab(node);
        vm.recordLogs();
        vm.prank(scheduler);
        summons.passOnResults{value: deposit}(summonsId, state, made.nodes, tab, promised, signature);
        read();
    }

    function test_ASilentInferencerPaysAndTheSchedulerIsLetOff() public {
        Play memory made = summonNow();
        pass(5);
        passOn(made, made.nodes[1], 1);
        assertEq(state.passedTo, made.nodes[1]);
        assertEq(state.deadline, vm.getBlockNumber() + parameters().summonsWindow);
        assertEq(creditOf(made.nodes[1]), summons.passDepositFor(block.basefee));
        vm.roll(state.deadline + 1);
        uint96 deposit = state.deposit;
        convict(stranger);
        assertEq(status(), UNANSWERED);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
        assertEq(registry.convictionCount(scheduler), 0);
        assertEq(registry.convictionCount(made.nodes[1]), 0);
        assertGt(creditOf(summoner), deposit);
        uint256 paid = creditOf(summoner) + creditOf(stranger) + summons.passDepositFor(block.basefee);
        assertEq(NODE_STAKE - stakeOf(made.nodes[1]), paid + FEE_CAP / 3);
    }

    function test_ANodeThatSpeaksPaysNothingAndTheSchedulerOnlyForTheSummons() public {
        Play memory made = summonNow();
        passOn(made, made.nodes[0], 0);
        vm.recordLogs();
        vm.prank(made.nodes[0]);
        summons.respond(summonsId, state, "");
        read();
        assertEq(state.passedTo, address(0));
        vm.roll(state.deadline + 1);
        convict(stranger);
        assertEq(stakeOf(made.nodes[0]), NODE_STAKE);
        uint256 paid = uint256(creditOf(summoner)) + creditOf(stranger);
        assertEq(SCHEDULER_STAKE - stakeOf(scheduler), paid + FEE_CAP / 3);
        assertGt(creditOf(summoner), state.deposit);
        assertEq(registry.convictionCount(scheduler), 0);
    }

    function test_AfterItsNodeSpokeTheSchedulerCanAnswer() public {
        Play memory made = summonNow();
        pass(5);
        passOn(made, made.nodes[0], 0);
        pass(5);
        vm.recordLogs();
        vm.prank(ownerOf(made.nodes[0]));
        summons.respond(summonsId, state, abi.encode(made.results[0], made.resultSignatures[0]));
        read();
        made.draw.blockNumber = uint64(vm.getBlockNumber());
        signAgain(made);
        pass(9);
        answerResults(made);
        assertEq(status(), ANSWERED);
    }

    function test_OnlyTheSchedulerPassesOnAndOnlyToItsAdmittedNodeOnce() public {
        Play memory made = summonNow();
        Promise memory promised = promiseOf(made, exactNode(0), 0, Work.Inference);
        uint256 deposit = summons.passDepositFor(block.basefee);
        Tab memory tab = nodeTab(exactNode(0));
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        vm.expectRevert(abi.encodeWithSelector(Orders.NotDrawn.selector, exactNode(0)));
        vm.prank(scheduler);
        summons.passOnResults{value: deposit}(summonsId, state, made.nodes, tab, promised, signature);
        promised = promiseOf(made, made.nodes[0], 0, Work.Inference);
        tab = nodeTab(made.nodes[0]);
        signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        vm.expectRevert(abi.encodeWithSelector(ISummons.NotPassedTo.selector, address(this), scheduler));
        summons.passOnResults{value: deposit}(summonsId, state, made.nodes, tab, promised, signature);
        passOn(made, made.nodes[0], 0);
        vm.expectRevert(abi.encodeWithSelector(ISummons.PassedOnTooOften.selector, 1));
        vm.prank(scheduler);
        summons.passOnResults{value: deposit}(summonsId, state, made.nodes, tab, promised, signature);
    }

    function test_ANodeWithoutAPromiseIsNotPassedOnTo() public {
        Play memory made = summonNow();
        uint256 deposit = summons.passDepositFor(block.basefee);
        for (uint256 change = 0; change < 6; ++change) {
            Promise memory promised = promiseOf(made, made.nodes[0], 0, Work.Inference);
            Tab memory tab = nodeTab(made.nodes[0]);
            if (change == 0) promised.tab = keccak256("another tab");
            if (change == 1) promised.order = keccak256("another order");
            if (change == 2) promised.work = uint8(Work.Check);
            if (change == 3) promised.referenceBlock -= 1;
            if (change == 4) (tab.key, promised.tab) = (tabKey, Messages.tabId(Tab(tab.payer, tab.payee, tabKey)));
            bytes memory signature = sign(change == 5 ? TAB_KEY : SCHEDULER_KEY, Messages.hash(promised));
            bytes4 failure = ISummons.WrongPromise.selector;
            if (change == 0) failure = Orders.Mismatch.selector;
            if (change > 3) failure = Orders.WrongSigner.selector;
            vm.expectPartialRevert(failure);
            vm.prank(scheduler);
            summons.passOnResults{value: deposit}(summonsId, state, made.nodes, tab, promised, signature);
        }
    }

    function test_OnlyTheNodeOrItsOwnerRespondsInTime() public {
        Play memory made = summonNow();
        vm.expectRevert(abi.encodeWithSelector(ISummons.NotPassedTo.selector, address(this), address(0)));
        summons.respond(summonsId, state, "");
        passOn(made, made.nodes[0], 0);
        vm.expectRevert(abi.encodeWithSelector(ISummons.NotPassedTo.selector, address(this), made.nodes[0]));
        summons.respond(summonsId, state, "");
        vm.roll(state.deadline + 1);
        vm.expectPartialRevert(ISummons.TooLate.selector);
        vm.prank(made.nodes[0]);
        summons.respond(summonsId, state, "");
    }
}
