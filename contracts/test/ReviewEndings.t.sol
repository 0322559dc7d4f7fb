// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {Outcome, Phase} from "../interfaces/TrothTypes.sol";
import {Balances} from "./support/Balances.sol";

/// @title Reviews that their scheduler leaves unfinished
contract ReviewEndingsTest is Balances {
    function rejected(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
        }
        return disputeOf(play, finishFirst(play), 0);
    }

    function accepted(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        return disputeOf(play, finishFirst(play), 0);
    }

    function undecided(bytes32 class) private returns (Dispute memory made) {
        Play memory play = newPlay(class, WHOLE);
        play.conducts[2].data = FALSE_DATA;
        play.conducts[3].verdict = false;
        return disputeOf(play, finishFirst(play), 0);
    }

    /// @dev One block too early, then in time.
    function close(Dispute memory made, uint256 window) private {
        uint256 last = uint256(made.review.task.progress.phaseBlock) + window;
        vm.roll(last);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooEarly.selector, last, last + 1));
        troth.closeReview(made.review.id, made.review.task);
        vm.roll(last + 1);
        vm.expectEmit(address(troth));
        emit ITrothDisputes.ReviewExpired(made.review.id, made.review.task.progress.phase);
        troth.closeReview(made.review.id, made.review.task);
        assertOutcome(made.review.id, Outcome.Expired);
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.closeReview(made.review.id, made.review.task);
    }

    function test_AnUndrawnReviewPaysThePartyThatAsked() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = rejected(classes[i]);
            snap();
            dispute(made, inferencerOf(made), BOND);
            close(made, COMMIT_WINDOW);
            units(scheduler, -28);
            units(inferencerOf(made), 28);
            assertChanges(0);
            assertOutcome(made.first.id, Outcome.Rejected);
            vm.prank(owner);
            troth.topUp{value: FINE}(scheduler);
        }
    }

    function test_AnUncommittedReviewPaysThePartyThatAsked() public {
        Dispute memory made = rejected(exact);
        snap();
        dispute(made, inferencerOf(made), BOND);
        pass(1);
        assignReview(made);
        close(made, COMMIT_WINDOW);
        units(scheduler, -28);
        units(inferencerOf(made), 28);
        assertChanges(0);
    }

    /// @dev The inferencer's root is among the posts, so it has a sixth of what the scheduler loses.
    function test_AnUnsampledReviewPaysWhoCommitted() public {
        Dispute memory made = accepted(tolerant);
        made.review.conducts[5].commits = false;
        snap();
        dispute(made, outsider, OUTSIDERS_BOND);
        pass(1);
        assignReview(made);
        commitReview(made);
        close(made, SAMPLE_WINDOW);
        int256 share = int256(uint256(FINE) / 5);
        units(scheduler, -28);
        change(inferencerOf(made), share);
        for (uint256 v = 0; v < 4; ++v) {
            change(reviewerOf(made, v), share);
        }
        change(reserve, int256(uint256(FINE)) - 5 * share);
        assertChanges(0);
        assertOutcome(made.first.id, Outcome.Accepted);
    }

    function test_WhereNobodyAskedTheReserveIsPaid() public {
        Dispute memory made = undecided(exact);
        snap();
        dispute(made, outsider, 0);
        close(made, COMMIT_WINDOW);
        units(scheduler, -28);
        units(reserve, 28);
        assertChanges(0);
        assertOutcome(made.first.id, Outcome.Indeterminate);
    }

    /// @dev A scheduler that disputes itself, so that nobody else can, and then does nothing, must not get its fine back.
    function test_ASchedulerCannotEndDisputesForNothing() public {
        Dispute memory made = rejected(exact);
        vm.deal(scheduler, 1 ether);
        vm.prank(scheduler);
        troth.deposit{value: 1 ether}(scheduler);
        snap();
        dispute(made, scheduler, OUTSIDERS_BOND);
        close(made, COMMIT_WINDOW);
        units(scheduler, -28);
        units(reserve, 28);
        assertChanges(0);
    }

    /// @dev Who leaves in the dispute's own block can be drawn still: nobody's leaving ends a dispute.
    function test_LeavingInTheBlockOfTheDisputeChangesNothing() public {
        for (uint256 i = NODES + 4; i < NODES + MORE_NODES; ++i) {
            vm.prank(owner);
            troth.deregister(exactNodeAddress(i));
        }
        pass(2);
        Dispute memory made = rejected(exact);
        dispute(made, inferencerOf(made), BOND);
        uint256 left = 0;
        for (uint256 i = 0; left == 0; ++i) {
            if (_contains(made.review.task.progress.parties, exactNodeAddress(i))) continue;
            vm.prank(owner);
            troth.deregister(exactNodeAddress(i));
            left = 1;
        }
        readyReview(made);
        settleReview(made);
        assertOutcome(made.review.id, Outcome.Accepted);
    }

    /// @dev What can be settled needs no scheduler.
    function test_ReviewsThatCanBeSettledAreNotClosed() public {
        Dispute memory made = rejected(exact);
        dispute(made, inferencerOf(made), BOND);
        pass(1);
        assignReview(made);
        commitReview(made);
        pass(1000);
        vm.expectRevert(
            abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, made.review.id, Phase.Committed)
        );
        troth.closeReview(made.review.id, made.review.task);
        settleReview(made);
        Dispute memory other = rejected(tolerant);
        dispute(other, inferencerOf(other), BOND);
        readyReview(other);
        pass(1000);
        vm.expectRevert(
            abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, other.review.id, Phase.Sampled)
        );
        troth.closeReview(other.review.id, other.review.task);
        settleReview(other);
    }

    function test_ABondIsReturnedToTheEscrowItIsFrom() public {
        Dispute memory made = accepted(exact);
        dispute(made, outsider, OUTSIDERS_BOND);
        uint96 balance = troth.escrowOf(outsider);
        uint256 last = uint256(made.review.task.progress.phaseBlock) + COMMIT_WINDOW;
        vm.roll(last + 1);
        vm.expectEmit(address(troth));
        emit ITrothDisputes.BondReturned(made.review.id, outsider, OUTSIDERS_BOND, balance + OUTSIDERS_BOND);
        troth.closeReview(made.review.id, made.review.task);
    }

    /// @dev Its stake is gone, its bond is not lost: it becomes credit.
    function test_AWithdrawnPartyGetsItsBondAsCredit() public {
        Dispute memory made = rejected(exact);
        address inferencer = inferencerOf(made);
        dispute(made, inferencer, BOND);
        pass(1);
        assignReview(made);
        for (uint256 v = 1; v <= 5; ++v) {
            made.review.conducts[v].data = keccak256(abi.encode(v));
            made.review.conducts[v].verdict = false;
        }
        commitReview(made);
        vm.prank(owner);
        troth.deregister(inferencer);
        pass(UNBONDING_PERIOD + 1);
        troth.withdraw(inferencer);
        assertEq(owned(inferencer), 0);
        settleReview(made);
        assertOutcome(made.review.id, Outcome.Indeterminate);
        assertEq(creditOf(inferencer), BOND);
        uint256 before = payout.balance;
        troth.claim(inferencer);
        assertEq(payout.balance, before + BOND);
    }
}
