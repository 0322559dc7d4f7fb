// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Outcome} from "../interfaces/TrothTypes.sol";
import {Balances} from "./support/Balances.sol";

/// @title Segments that the first committee left open, and stakes that do not cover what is owed
contract ReviewUndecidedTest is Balances {
    bytes32[2] private _classes;

    function setUp() public override {
        super.setUp();
        _classes = [tolerant, exact];
    }

    function undecided(Play memory play) private returns (Dispute memory made) {
        made = disputeOf(play, finishFirst(play), 0);
        assertOutcome(play.id, Outcome.Indeterminate);
        snap();
        dispute(made, outsider, 0);
    }

    function payReviewers(Dispute memory made, uint256 count) private {
        for (uint256 i = 0; i < count; ++i) {
            units(reviewerOf(made, i), 6);
        }
        units(scheduler, 6);
    }

    function charge(Dispute memory made, uint256[3] memory parties, uint256 count, uint256 owed) private {
        (uint256 share, uint256 left) = shared(owed * UNIT, count);
        for (uint256 i = 0; i < count; ++i) {
            change(partyOf(made.first, 0, parties[i]), -int256(share));
        }
        change(reserve, int256(left));
    }

    /// @dev Yes, a yes that its own trace contradicts, and a no. The second and the third were wrong.
    function test_ThreeOpinionsOfAnHonestInference() public {
        for (uint256 i = 0; i < 2; ++i) {
            Play memory play = newPlay(_classes[i], WHOLE);
            play.conducts[2].data = FALSE_DATA;
            play.conducts[3].verdict = false;
            Dispute memory made = undecided(play);
            assertEq(uint8(finishReview(made)), uint8(Outcome.Accepted));
            units(inferencerOf(made), 6);
            units(verifierOf(made, 0), 6);
            payReviewers(made, 5);
            charge(made, [uint256(2), 3, 0], 2, 6 + 6 + 6 + 30);
            assertChanges(0);
            assertOutcome(made.first.id, Outcome.Accepted);
        }
    }

    /// @dev Two who say no for different reasons are right both; the forger and its friend pay.
    function test_ThreeOpinionsOfAForgery() public {
        for (uint256 i = 0; i < 2; ++i) {
            Play memory play = newPlay(_classes[i], WHOLE);
            (play.conducts[0].data, play.conducts[1].data) = (FALSE_DATA, FALSE_DATA);
            (play.conducts[2].verdict, play.conducts[3].verdict) = (false, false);
            play.conducts[3].data = keccak256("a third trace");
            Dispute memory made = undecided(play);
            assertEq(uint8(finishReview(made)), uint8(Outcome.Rejected));
            units(verifierOf(made, 1), 6);
            units(verifierOf(made, 2), 6);
            payReviewers(made, 5);
            charge(made, [uint256(0), 1, 0], 2, 12 + 6 + 30);
            assertChanges(0);
            assertOutcome(made.first.id, Outcome.Rejected);
        }
    }

    /// @dev One yes, one no, one that committed and then said nothing: it pays as if it had lied.
    function test_TwoOpinionsAndSilence() public {
        for (uint256 i = 0; i < 2; ++i) {
            Play memory play = newPlay(_classes[i], WHOLE);
            play.conducts[2].verdict = false;
            play.conducts[3].opens = false;
            Dispute memory made = undecided(play);
            finishReview(made);
            units(inferencerOf(made), 6);
            units(verifierOf(made, 0), 6);
            payReviewers(made, 5);
            charge(made, [uint256(2), 3, 0], 2, 6 + 6 + 6 + 30);
            assertChanges(0);
        }
    }

    /// @dev One yes and nothing from the others, one of whom had not committed and owes nothing.
    function test_OneOpinion() public {
        Play memory play = newPlay(exact, WHOLE);
        play.conducts[2].commits = false;
        play.conducts[3].opens = false;
        Dispute memory made = undecided(play);
        finishReview(made);
        units(inferencerOf(made), 6);
        units(verifierOf(made, 0), 6);
        payReviewers(made, 5);
        charge(made, [uint256(3), 0, 0], 1, 6 + 6 + 6 + 30);
        assertChanges(0);
    }

    function test_NobodyRevealedButTheInferencer() public {
        Play memory play = newPlay(tolerant, WHOLE);
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].opens = false;
        }
        Dispute memory made = undecided(play);
        finishReview(made);
        units(inferencerOf(made), 6);
        payReviewers(made, 5);
        charge(made, [uint256(1), 2, 3], 3, 6 + 6 + 30);
        assertChanges(0);
    }

    /// @dev Reviewers that cannot agree either cost nobody anything.
    function test_StillUndecided() public {
        for (uint256 i = 0; i < 2; ++i) {
            Play memory play = newPlay(_classes[i], WHOLE);
            play.conducts[2].data = FALSE_DATA;
            play.conducts[3].verdict = false;
            Dispute memory made = undecided(play);
            for (uint256 v = 1; v <= 5; ++v) {
                made.review.conducts[v].data = keccak256(abi.encode(v));
                made.review.conducts[v].verdict = false;
            }
            assertEq(uint8(finishReview(made)), uint8(Outcome.Indeterminate));
            assertChanges(0);
            assertOutcome(made.first.id, Outcome.Indeterminate);
        }
    }

    /// @dev An inferencer that fell silent pays for the review by itself.
    function test_AnInferencerThatFallsSilent() public {
        Play memory play = newPlay(tolerant, WHOLE);
        play.conducts[2].data = FALSE_DATA;
        play.conducts[3].verdict = false;
        Dispute memory made = undecided(play);
        made.review.conducts[0].opens = false;
        assertEq(uint8(finishReview(made)), uint8(Outcome.Rejected));
        units(verifierOf(made, 2), 6);
        payReviewers(made, 5);
        units(inferencerOf(made), -6 - 6 - 30);
        assertChanges(0);
    }

    /// @dev Everybody who is owed something gets the same share of what is there, and the reserve the wei left over.
    function test_ShortStakesAreSharedProRata() public {
        for (uint256 i = 0; i < 2; ++i) {
            Play memory play = newPlay(_classes[i], WHOLE);
            play.conducts[2].data = FALSE_DATA;
            play.conducts[3].verdict = false;
            Dispute memory made = undecided(play);
            setStake(verifierOf(made, 1), 5 * UNIT + 7);
            setStake(verifierOf(made, 2), 0);
            snap();
            finishReview(made);
            uint256 pool = 5 * UNIT + 7;
            uint256 share = 6 * UNIT * pool / (48 * UNIT);
            change(verifierOf(made, 1), -int256(pool));
            change(inferencerOf(made), int256(share));
            change(verifierOf(made, 0), int256(share));
            change(scheduler, int256(share));
            for (uint256 v = 0; v < 5; ++v) {
                change(reviewerOf(made, v), int256(share));
            }
            change(reserve, int256(pool - 8 * share));
            assertChanges(0);
        }
    }

    /// @dev The client comes before everybody else.
    function test_AShortStakeRefundsTheClientFirst() public {
        Play memory play = newPlay(exact, WHOLE);
        for (uint256 party = 0; party <= 2; ++party) {
            play.conducts[party].data = FALSE_DATA;
        }
        play.conducts[3].verdict = false;
        Dispute memory made = disputeOf(play, finishFirst(play), 0);
        dispute(made, client, OUTSIDERS_BOND);
        setStake(inferencerOf(made), 10 * UNIT);
        setStake(verifierOf(made, 0), 11 * UNIT);
        setStake(verifierOf(made, 1), 0);
        snap();
        finishReview(made);
        units(inferencerOf(made), -10);
        units(verifierOf(made, 0), -11);
        units(client, 38 + 21);
        assertChanges(0);
    }

    /// @dev A disputer whose stake does not cover the reviewers' price: its bond is shared among those owed.
    function test_ADisputerThatCannotPayPaysWhatItHas() public {
        Play memory play = newPlay(exact, WHOLE);
        play.conducts[3].verdict = false;
        Dispute memory made = disputeOf(play, finishFirst(play), 0);
        address liar = verifierOf(made, 2);
        setStake(liar, BOND + 1);
        snap();
        dispute(made, liar, BOND);
        finishReview(made);
        uint256 pool = BOND + 1;
        uint256 share = 6 * UNIT * pool / (36 * UNIT);
        change(liar, -int256(pool));
        change(scheduler, int256(share));
        for (uint256 v = 0; v < 5; ++v) {
            change(reviewerOf(made, v), int256(share));
        }
        change(reserve, int256(pool - 6 * share));
        assertChanges(0);
    }
}
