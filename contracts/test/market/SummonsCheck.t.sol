// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {ISummons} from "../../market/interfaces/ISummons.sol";
import {Fault, SummonsKind} from "../../market/interfaces/Proceedings.sol";
import {Opinion, Order, Verdict} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Orders} from "../../market/libraries/Orders.sol";
import {SummonsTest} from "./support/SummonsTest.sol";

contract SummonsCheckTest is SummonsTest {
    function summonFails(Play memory made, uint8 segment, bytes memory failure) private {
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.expectRevert(failure);
        vm.prank(summoner);
        summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, segment, made.secret);
    }

    function answerFails(Play memory made, Check memory check, bytes4 failure) private {
        vm.expectPartialRevert(failure);
        answerCheck(made, check);
    }

    // ---- summoning

    function test_ADrawnCheckIsSummonedAndTheDepositPaysTheSchedulersGas() public {
        Play memory made = play(exact, WHOLE, 1);
        uint96 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        assertGt(deposit, 0);
        summonCheck(made, 0);
        assertEq(creditOf(scheduler), deposit);
        assertEq(summonsId, summons.summonsIdOf(made.id, SummonsKind.Check, 0));
        assertEq(summons.summonsOf(summonsId), keccak256(abi.encode(state)));
        assertEq(state.order, made.id);
        assertEq(state.scheduler, scheduler);
        assertEq(state.summoner, summoner);
        assertEq(state.client, client);
        assertEq(state.secret, made.secret);
        assertEq(state.named, made.draw.beta);
        assertEq(state.results, made.resultsHash);
        assertEq(state.deadline, vm.getBlockNumber() + parameters().summonsWindow);
        assertEq(state.referenceBlock, made.order.order.referenceBlock);
        summonFails(made, 0, abi.encodeWithSelector(ISummons.AlreadySummoned.selector, summonsId));
    }

    function test_ASecretThatMissesCannotSummon() public {
        Order memory order = newOrder(exact, WHOLE, 1);
        order.checkRate = 1;
        Play memory made = play(order);
        summonFails(
            made, 0, abi.encodeWithSelector(ISummons.SecretMisses.selector, made.secret, made.draw.beta, uint32(1))
        );
    }

    function test_AnotherSecretThanTheOrdersCannotSummon() public {
        Play memory made = play(exact, WHOLE, 1);
        made.secret = keccak256("another");
        summonFails(
            made,
            0,
            abi.encodeWithSelector(
                Orders.Mismatch.selector, keccak256(abi.encode(made.secret)), made.order.order.drawHash
            )
        );
    }

    function test_ChecksAreSummonedWithinHalfOfTheLag() public {
        Play memory made = play(exact, WHOLE, 1);
        uint256 until = uint256(made.draw.blockNumber) + parameters().lag / 2;
        vm.roll(until + 1);
        summonFails(made, 0, abi.encodeWithSelector(ISummons.TooLate.selector, until, until + 1));
        vm.roll(until);
        summonCheck(made, 0);
    }

    function test_ADrawOfABlockToComeCannotSummonYet() public {
        Play memory made = play(exact, WHOLE, 1);
        made.draw.blockNumber = uint64(vm.getBlockNumber() + 1);
        signAgain(made);
        summonFails(
            made,
            0,
            abi.encodeWithSelector(ISummons.TooEarly.selector, vm.getBlockNumber() + 1, vm.getBlockNumber())
        );
    }

    function test_OnlyTheSchedulersOwnWordOverThisOrderSummonsIt() public {
        Play memory made = play(exact, WHOLE, 1);
        made.drawSignature = sign(CLIENT_KEY, Messages.hash(made.draw));
        summonFails(made, 0, abi.encodeWithSelector(Orders.WrongSigner.selector, client, scheduler));
        Play memory other = play(exact, WHOLE, 2);
        (made.draw, made.drawSignature) = (other.draw, other.drawSignature);
        summonFails(made, 0, abi.encodeWithSelector(Orders.WrongPlace.selector, other.id, 0, made.id, 0));
    }

    function test_AMalleatedSignatureSummonsNobody() public {
        Play memory made = play(exact, WHOLE, 1);
        made.drawSignature = malleated(made.drawSignature);
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.expectPartialRevert(ECDSA.ECDSAInvalidSignatureS.selector);
        summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, 0, made.secret);
    }

    function test_AForeignDeploymentsDrawSummonsNobody() public {
        Play memory made = play(exact, WHOLE, 1);
        made.drawSignature = foreign(SCHEDULER_KEY, Messages.hash(made.draw));
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.expectPartialRevert(Orders.WrongSigner.selector);
        summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, 0, made.secret);
    }

    function test_ClientKeyAndSchedulerCannotBeSwappedUnderAnOrder() public {
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        for (uint256 change = 0; change < 3; ++change) {
            Play memory made = play(exact, WHOLE, 1);
            if (change == 0) made.order.client = stranger;
            if (change == 1) made.order.key = stranger;
            if (change == 2) made.order.scheduler = vm.addr(SCHEDULER_KEY + 1);
            vm.expectPartialRevert(Orders.ForeignTab.selector);
            summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, 0, made.secret);
        }
    }

    function test_SegmentsThatAnOrderDoesNotHaveCannotBeSummoned() public {
        Play memory made = play(exact, WHOLE, 1);
        summonFails(made, 1, abi.encodeWithSelector(Orders.UnknownSegment.selector, 1, WHOLE));
        made.order.order.ends = bytes32(uint256(2) << 248 | uint256(2) << 240);
        made.draw.order = orderId(made.order.order);
        signAgain(made);
        summonFails(made, 0, abi.encodeWithSelector(Orders.InvalidEnds.selector, made.order.order.ends));
        made.order.order.ends = bytes32(uint256(4) << 248 | 1);
        made.draw.order = orderId(made.order.order);
        signAgain(made);
        summonFails(made, 0, abi.encodeWithSelector(Orders.InvalidEnds.selector, made.order.order.ends));
    }

    function test_WhoHasLeftIsOutOfReachAfterTheExitBlockOnly() public {
        for (uint64 i = 0; i < 2; ++i) {
            uint256 snapshot = vm.snapshotState();
            Play memory made = play(exact, WHOLE, 1);
            vm.prank(scheduler);
            registry.deregister(scheduler);
            (,, uint40 exitBlock) = registry.roleOf(scheduler);
            vm.roll(exitBlock - parameters().summonsWindow - 1 + i);
            made.draw.blockNumber = last();
            signAgain(made);
            summonCheck(made, 0);
            vm.roll(state.deadline + 1);
            convict(stranger);
            assertEq(stakeOf(scheduler), i == 0 ? SCHEDULER_STAKE - PENALTY : SCHEDULER_STAKE);
            vm.revertToState(snapshot);
        }
    }

    function test_TheDepositIsTheAnswersGasAndAtMostTwiceIt() public {
        Play memory made = play(exact, WHOLE, 1);
        uint256 least = summons.depositFor(SummonsKind.Check, block.basefee);
        for (uint256 i = 0; i < 2; ++i) {
            uint256 value = i == 0 ? least - 1 : 2 * least + 1;
            vm.expectRevert(abi.encodeWithSelector(ISummons.WrongDeposit.selector, value, least, 2 * least));
            summons.summonCheck{value: value}(made.order, made.draw, made.drawSignature, 0, made.secret);
        }
        summons.summonCheck{value: 2 * least}(made.order, made.draw, made.drawSignature, 0, made.secret);
        assertEq(creditOf(scheduler), 2 * least);
    }

    function test_AStatesFieldsAreTheEventsAndNobodyElsesSummonsIsTouched() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        bytes32 other = summons.summonsIdOf(made.id, SummonsKind.Check, 1);
        assertEq(summons.summonsOf(other), 0);
        vm.expectPartialRevert(ISummons.SummonsMismatch.selector);
        summons.convict(other, state);
    }

    function test_ALowBaseFeeLowersTheDeposit() public {
        uint256 ceiling = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.fee(10 gwei);
        assertEq(summons.depositFor(SummonsKind.Check, block.basefee), ceiling);
        vm.fee(0.1 gwei);
        assertEq(summons.depositFor(SummonsKind.Check, block.basefee), ceiling / 10);
    }

    // ---- answers

    function test_VerdictsOfTheDrawnAnswerACheckWhateverTheySay() public {
        for (uint8 opinion = 1; opinion <= 3; ++opinion) {
            Play memory made = play(exact, WHOLE, opinion);
            summonCheck(made, 0);
            Check memory check = checkOf(made, 0, Opinion(opinion));
            uint8[] memory opinions = new uint8[](3);
            for (uint256 i = 0; i < 3; ++i) opinions[i] = opinion;
            vm.expectEmit(address(summons));
            emit ISummons.SummonsAnswered(summonsId, address(this), keccak256(abi.encode(check.seats, opinions)));
            answerCheck(made, check);
            assertEq(status(), ANSWERED);
            assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
            vm.roll(state.deadline + 1);
            vm.expectPartialRevert(ISummons.SummonsMismatch.selector);
            summons.convict(summonsId, state);
        }
    }

    function test_FriendsWhoWereNotDrawnCannotAnswer() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        address friend = made.nodes[0];
        check.signatures[0] = signAs(friend, Messages.hash(check.verdicts[0]));
        vm.expectRevert(abi.encodeWithSelector(Orders.NotDrawn.selector, friend));
        answerCheck(made, check);
    }

    function test_EveryDrawnNodeMustSpeakAndOnce() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        Check memory fewer = checkOf(made, 0, Opinion.Accept);
        address missing = check.seats[check.seats.length - 1];
        uint256 count = check.verdicts.length - 1;
        (fewer.verdicts, fewer.signatures) = (shortened(fewer, count), shortenedSignatures(fewer, count));
        if (distinct(check.seats)[count] == missing) {
            vm.expectRevert(abi.encodeWithSelector(ISummons.VerdictMissing.selector, missing));
        } else {
            vm.expectPartialRevert(ISummons.VerdictMissing.selector);
        }
        answerCheck(made, fewer);
        check.verdicts[count] = check.verdicts[0];
        check.signatures[count] = check.signatures[0];
        if (count > 0) answerFails(made, check, Orders.JudgedTwice.selector);
    }

    function shortened(Check memory check, uint256 count) private pure returns (Verdict[] memory list) {
        list = check.verdicts;
        assembly ("memory-safe") {
            mstore(list, count)
        }
    }

    function shortenedSignatures(Check memory check, uint256 count) private pure returns (bytes[] memory list) {
        list = check.signatures;
        assembly ("memory-safe") {
            mstore(list, count)
        }
    }

    function test_VerdictsOverAnythingElseAreNoAnswer() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        for (uint256 change = 0; change < 5; ++change) {
            Check memory check = checkOf(made, 0, Opinion.Accept);
            if (change == 0) check.verdicts[0].order = keccak256("another order");
            if (change == 1) check.verdicts[0].segment = 1;
            if (change == 2) check.verdicts[0].result = keccak256("another result");
            if (change == 3) check.verdicts[0].opinion = 0;
            if (change == 4) check.verdicts[0].opinion = 4;
            check.signatures[0] = signAs(check.seats[0], Messages.hash(check.verdicts[0]));
            // A word over another place or result is nobody's word over this one.
            answerFails(made, check, change < 3 ? Orders.NotDrawn.selector : Orders.WrongOpinion.selector);
        }
        Check memory foreignCheck = checkOf(made, 0, Opinion.Accept);
        foreignCheck.signatures[0] = foreign(keys[foreignCheck.seats[0]], Messages.hash(foreignCheck.verdicts[0]));
        answerFails(made, foreignCheck, Orders.NotDrawn.selector);
    }

    function test_OtherResultsThanTheDrawsAreNoAnswer() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        made.results[0].outputHash = keccak256("another answer");
        made.resultSignatures[0] = signAs(made.nodes[0], Messages.hash(made.results[0]));
        answerFails(made, check, Orders.Mismatch.selector);
    }

    function test_AnAnswerInTheLastBlockCountsAndLaterIsTooLate() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        vm.roll(state.deadline + 1);
        answerFails(made, check, ISummons.TooLate.selector);
        vm.roll(state.deadline);
        vm.expectRevert(
            abi.encodeWithSelector(ISummons.TooEarly.selector, uint256(state.deadline) + 1, uint256(state.deadline))
        );
        summons.convict(summonsId, state);
        answerCheck(made, check);
        assertEq(status(), ANSWERED);
    }

    function test_AnotherStateOrKindIsRefused() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        vm.expectPartialRevert(ISummons.WrongKind.selector);
        answerResults(made);
        state.summoner = address(this);
        answerFails(made, check, ISummons.SummonsMismatch.selector);
    }

    function test_ADrawThatFindsTooFewSeatsIsNotTheSchedulersFault() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        vm.mockCallRevert(
            address(registry),
            abi.encodeWithSelector(IRegistry.draw.selector),
            abi.encodeWithSelector(IRegistry.GroupEmpty.selector, bytes32(0), uint256(0))
        );
        answerFails(made, check, IRegistry.GroupEmpty.selector);
        vm.mockCallRevert(
            address(registry),
            abi.encodeWithSelector(IRegistry.draw.selector),
            abi.encodeWithSelector(IRegistry.DrawExhausted.selector, bytes32(0), uint256(1), uint256(3))
        );
        vm.expectEmit(address(summons));
        emit ISummons.SummonsAnswered(summonsId, address(this), 0);
        answerCheck(made, check);
    }

    // ---- unanswered

    function test_ACheckRefusedForATenthOfACentCostsL() public {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        vm.roll(state.deadline + 1);
        uint256 burnt = burntMoney();
        vm.expectEmit(address(registry));
        emit IRegistry.Convicted(
            scheduler,
            Fault.Unanswered,
            summonsId,
            state.referenceBlock - parameters().lag,
            uint64(vm.getBlockNumber()),
            0
        );
        vm.expectEmit(address(summons));
        emit ISummons.SummonsUnanswered(summonsId, scheduler, PENALTY);
        convict(stranger);
        assertEq(status(), UNANSWERED);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - PENALTY);
        uint256 reward = creditOf(summoner) - state.deposit;
        assertGe(reward, PENALTY / 10);
        assertLt(reward, PENALTY / 10 + 0.001 ether);
        assertGt(creditOf(stranger), 0);
        assertEq(burntMoney() - burnt, PENALTY - creditOf(summoner) - creditOf(stranger));
        assertTrue(registry.isVoidByAny(scheduler, made.order.order.referenceBlock));
        vm.expectPartialRevert(ISummons.SummonsMismatch.selector);
        summons.convict(summonsId, state);
    }

    function test_WhoSummonsItselfLosesNineTenths() public {
        Play memory made = play(exact, WHOLE, 1);
        summoner = ownerOf(scheduler);
        vm.deal(summoner, 1 ether);
        uint256 before = wealth();
        summonCheck(made, 0);
        vm.roll(state.deadline + 1);
        convict(summoner);
        // Nobody paid for gas in this test; the deposit comes out of the same stake to the same party.
        assertLe(wealth() + PENALTY * 9 / 10 - 400_000 gwei, before);
    }

    function test_WhoseStakeIsBelowTheRewardGetsATenthOfIt() public {
        slash(scheduler, SCHEDULER_STAKE - PENALTY / 10);
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        vm.roll(state.deadline + 1);
        convict(summoner);
        assertLt(creditOf(summoner), state.deposit + PENALTY / 100 + 200_000 gwei);
        assertEq(stakeOf(scheduler), 0);
    }

    function test_WithoutStakeASummonsStillEndsAndVoids() public {
        slash(scheduler, SCHEDULER_STAKE);
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        vm.roll(state.deadline + 1);
        convict(summoner);
        assertEq(status(), UNANSWERED);
        assertEq(registry.convictionCount(scheduler), 1);
    }

    function test_SummonsByTheHundredCostTheSummonerAndPayTheAnswers() public {
        uint256 before = summoner.balance;
        uint256 count = 8;
        for (uint64 i = 1; i <= count; ++i) {
            Play memory made = play(exact, WHOLE, i);
            summonCheck(made, 0);
            answerCheck(made, checkOf(made, 0, Opinion.Accept));
        }
        assertEq(before - summoner.balance, count * summons.depositFor(SummonsKind.Check, block.basefee));
        assertEq(creditOf(summoner), 0);
        assertEq(creditOf(scheduler), count * summons.depositFor(SummonsKind.Check, block.basefee));
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
    }

    function wealth() private view returns (uint256) {
        return summoner.balance + creditOf(summoner) + stakeOf(scheduler) + creditOf(scheduler);
    }
}
