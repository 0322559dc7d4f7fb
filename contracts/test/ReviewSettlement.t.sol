// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Outcome} from "../interfaces/TrothTypes.sol";
import {Balances} from "./support/Balances.sol";

/// @title Who pays for a second verification, and who is paid, case by case (VeriLLM section 5.7, Appendix E)
contract ReviewSettlementTest is Balances {
    /// @dev An honest inferencer, and a committee that denies its work with one voice.
    function capturedRejection(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v] = Conduct({data: FALSE_DATA, verdict: false, commits: true, opens: true});
        }
        return ended(play, Outcome.Rejected);
    }

    /// @dev A forger with two of three verifiers; the third is honest.
    function capturedAcceptance(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        for (uint256 party = 0; party <= 2; ++party) {
            play.conducts[party].data = FALSE_DATA;
        }
        play.conducts[3].verdict = false;
        return ended(play, Outcome.Accepted);
    }

    function honestRejection(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        play.conducts[0].data = FALSE_DATA;
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
        }
        return ended(play, Outcome.Rejected);
    }

    /// @dev Accepted by two against the lie of a third.
    function honestAcceptance(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        play.conducts[3].verdict = false;
        return ended(play, Outcome.Accepted);
    }

    function ended(Play memory play, Outcome expected) private returns (Dispute memory made) {
        made = disputeOf(play, finishFirst(play), 0);
        assertOutcome(play.id, expected);
    }

    function payReviewers(Dispute memory made, uint256 count) private {
        for (uint256 i = 0; i < count; ++i) {
            units(reviewerOf(made, i), 6);
        }
    }

    function charge(Dispute memory made, uint256[] memory losers, uint256 owedUnits) private {
        (uint256 share, uint256 left) = shared(owedUnits * UNIT, losers.length);
        for (uint256 i = 0; i < losers.length; ++i) {
            change(partyOf(made.first, 0, losers[i]), -int256(share));
        }
        change(reserve, int256(left));
    }

    function list(uint256 a, uint256 b, uint256 c) private pure returns (uint256[] memory parties) {
        parties = new uint256[](3);
        (parties[0], parties[1], parties[2]) = (a, b, c);
    }

    function test_ACapturedRejectionFallsAndTheInferencerEndsWithItsReward() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = capturedRejection(classes[i]);
            address inferencer = inferencerOf(made);
            uint256 spentSoFar = NODE_STAKE - stakeOf(inferencer);
            assertEq(spentSoFar, 20 * UNIT, "first round");
            snap();
            dispute(made, inferencer, BOND);
            assertOutcome(made.first.id, Outcome.Rejected);
            units(inferencer, -8);
            assertChanges(BOND);
            units(inferencer, 8);
            assertEq(uint8(finishReview(made)), uint8(Outcome.Accepted));
            units(inferencer, 26);
            units(scheduler, 6);
            payReviewers(made, 5);
            charge(made, list(1, 2, 3), 26 + 6 + 30);
            assertChanges(0);
            assertOutcome(made.first.id, Outcome.Accepted);
            assertEq(wealth(inferencer), NODE_STAKE + 6 * UNIT, "reward after all");
        }
    }

    function test_ACapturedAcceptanceFallsAndTheClientIsRefunded() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = capturedAcceptance(classes[i]);
            snap();
            dispute(made, client, OUTSIDERS_BOND);
            assertEq(uint8(finishReview(made)), uint8(Outcome.Rejected));
            // Inferencer, two verifiers and the scheduler were paid; the client gets that, and the disputer's reward.
            units(client, 24 + 6);
            units(verifierOf(made, 2), 8);
            units(scheduler, 6);
            payReviewers(made, 5);
            charge(made, list(0, 1, 2), 24 + 6 + 8 + 6 + 30);
            assertChanges(0);
            assertOutcome(made.first.id, Outcome.Rejected);
        }
    }

    /// @dev A party gets its due, and nothing for having asked.
    function test_AVerifierThatWasRightAboutAForgeryDisputesWithItsStake() public {
        Dispute memory made = capturedAcceptance(exact);
        snap();
        dispute(made, verifierOf(made, 2), BOND);
        finishReview(made);
        units(client, 24);
        units(verifierOf(made, 2), 8);
        units(scheduler, 6);
        payReviewers(made, 5);
        charge(made, list(0, 1, 2), 24 + 8 + 6 + 30);
        assertChanges(0);
    }

    function test_AnOutsiderIsRewardedForARejectionThatFalls() public {
        Dispute memory made = capturedRejection(tolerant);
        snap();
        dispute(made, outsider, OUTSIDERS_BOND);
        units(outsider, -38);
        assertChanges(OUTSIDERS_BOND);
        units(outsider, 38);
        finishReview(made);
        units(outsider, 6);
        units(inferencerOf(made), 26);
        units(scheduler, 6);
        payReviewers(made, 5);
        charge(made, list(1, 2, 3), 26 + 6 + 6 + 30);
        assertChanges(0);
    }

    function test_AForgersDisputeCostsItTheReview() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = honestRejection(classes[i]);
            snap();
            dispute(made, inferencerOf(made), BOND);
            assertEq(uint8(finishReview(made)), uint8(Outcome.Rejected));
            units(inferencerOf(made), -38);
            units(scheduler, 6);
            units(reserve, 2);
            payReviewers(made, 5);
            assertChanges(0);
            assertOutcome(made.first.id, Outcome.Rejected);
        }
    }

    function test_ALiarsDisputeOfAnAcceptanceCostsItTheReview() public {
        Dispute memory made = honestAcceptance(tolerant);
        snap();
        dispute(made, verifierOf(made, 2), BOND);
        assertEq(uint8(finishReview(made)), uint8(Outcome.Accepted));
        units(verifierOf(made, 2), -38);
        units(scheduler, 6);
        units(reserve, 2);
        payReviewers(made, 5);
        assertChanges(0);
    }

    /// @dev Four reviewers are cheaper than five: the rest of what was prepaid comes back.
    function test_AnOutsiderPaysOnlyTheReviewersThatWorked() public {
        Dispute memory made = honestAcceptance(exact);
        made.review.conducts[5].commits = false;
        snap();
        dispute(made, outsider, OUTSIDERS_BOND);
        finishReview(made);
        units(outsider, -8 - 24);
        units(scheduler, 6);
        units(reserve, 2);
        payReviewers(made, 4);
        assertChanges(0);
    }

    function test_ReviewersThatDisagreeOrStaySilentLose() public {
        Dispute memory made = honestAcceptance(tolerant);
        made.review.conducts[4].opens = false;
        made.review.conducts[5].verdict = false;
        snap();
        dispute(made, outsider, OUTSIDERS_BOND);
        assertEq(uint8(finishReview(made)), uint8(Outcome.Accepted));
        units(outsider, -8 - 18);
        units(scheduler, 6);
        payReviewers(made, 3);
        units(reviewerOf(made, 3), -2);
        units(reviewerOf(made, 4), -2);
        units(reserve, 2 + 4);
        assertChanges(0);
    }

    /// @dev Without a majority of like mind the first outcome stays and nobody pays, but for who was silent.
    function test_AnUndecidedReviewChangesNothing() public {
        Dispute memory made = capturedRejection(tolerant);
        made.review.conducts[3].verdict = false;
        made.review.conducts[4].verdict = false;
        made.review.conducts[4].data = FALSE_DATA;
        made.review.conducts[5].opens = false;
        snap();
        dispute(made, inferencerOf(made), BOND);
        assertEq(uint8(finishReview(made)), uint8(Outcome.Indeterminate));
        units(reviewerOf(made, 4), -2);
        units(reserve, 2);
        assertChanges(0);
        assertOutcome(made.first.id, Outcome.Rejected);
    }

    function test_AnUndecidedReviewGivesAnOutsiderEverythingBack() public {
        Dispute memory made = honestAcceptance(exact);
        for (uint256 v = 3; v <= 5; ++v) {
            made.review.conducts[v].data = keccak256(abi.encode(v));
        }
        snap();
        dispute(made, outsider, OUTSIDERS_BOND);
        assertEq(uint8(finishReview(made)), uint8(Outcome.Indeterminate));
        assertChanges(0);
        assertOutcome(made.first.id, Outcome.Accepted);
    }

    /// @dev It lost the first review by right; now it says nothing.
    function test_ARejectedInferencerThatStaysSilentLosesItsDispute() public {
        Dispute memory made = honestRejection(tolerant);
        made.review.conducts[0].opens = false;
        snap();
        dispute(made, inferencerOf(made), BOND);
        assertEq(uint8(finishReview(made)), uint8(Outcome.Rejected));
        units(inferencerOf(made), -38);
        units(scheduler, 6);
        units(reserve, 2);
        payReviewers(made, 5);
        assertChanges(0);
    }

    /// @dev Otherwise a client and its inferencer would make honest verifiers pay for an answer that was accepted.
    function test_AnAcceptedInferencerThatStaysSilentPaysAlone() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = honestAcceptance(classes[i]);
            made.review.conducts[0].opens = false;
            snap();
            dispute(made, client, OUTSIDERS_BOND);
            assertEq(uint8(finishReview(made)), uint8(Outcome.Rejected));
            units(client, 24 + 6);
            units(scheduler, 6);
            units(verifierOf(made, 2), 8);
            payReviewers(made, 5);
            units(inferencerOf(made), -24 - 6 - 6 - 8 - 30);
            assertChanges(0);
        }
    }

    /// @dev All are silent: nobody is paid for it but the client, the scheduler and who asked.
    function test_AReviewInWhichNobodyRevealsRejects() public {
        Dispute memory made = honestAcceptance(exact);
        for (uint256 party = 0; party <= 5; ++party) {
            made.review.conducts[party].opens = false;
        }
        snap();
        dispute(made, outsider, OUTSIDERS_BOND);
        assertEq(uint8(finishReview(made)), uint8(Outcome.Rejected));
        for (uint256 v = 0; v < 5; ++v) {
            units(reviewerOf(made, v), -2);
        }
        units(reserve, 10);
        units(client, 24);
        units(outsider, 6);
        units(scheduler, 6);
        units(verifierOf(made, 2), 8);
        units(inferencerOf(made), -44);
        assertChanges(0);
    }
}
