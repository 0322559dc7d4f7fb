// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {Outcome} from "../interfaces/TrothTypes.sol";
import {Balances} from "./support/Balances.sol";

/// @title How reviews of its segments change a task's outcome
contract ReviewRestatingTest is Balances {
    /// @param says per segment: 0 accepted, 1 rejected by liars, 2 undecided, 3 accepted by forgers
    function ended(uint8[2] memory says) private returns (Dispute[2] memory made) {
        Play memory play = newPlay(exact, HALVES);
        for (uint256 s = 0; s < 2; ++s) {
            for (uint256 party = 0; party < 4; ++party) {
                Conduct memory conduct = play.conducts[4 * s + party];
                if (says[s] == 1 && party > 0) conduct.verdict = false;
                if (says[s] == 2 && party > 0) conduct.data = keccak256(abi.encode(party));
                if (says[s] == 2 && party > 1) conduct.verdict = false;
                if (says[s] == 3) conduct.data = FALSE_DATA;
            }
        }
        made[0] = disputeOf(play, finishFirst(play), 0);
        made[1] = disputeOf(play, made[0].settled, 1);
        assertSlot(play.id, notAccepted(says[0]) + notAccepted(says[1]), troth.outcomeOf(play.id));
    }

    function notAccepted(uint8 says) private pure returns (uint256) {
        return says == 1 || says == 2 ? 1 : 0;
    }

    function assertSlot(bytes32 id, uint256 missing, Outcome outcome) private view {
        assertEq(uint256(troth.taskState(id)) & 0xffff, missing << 8 | uint256(outcome), "slot");
    }

    /// @dev Both are under review at the same time.
    function both(Dispute[2] memory made, address[2] memory by, uint96[2] memory bonds) private {
        dispute(made[0], by[0], bonds[0]);
        dispute(made[1], by[1], bonds[1]);
        pass(1);
        for (uint256 s = 0; s < 2; ++s) {
            assignReview(made[s]);
            commitReview(made[s]);
        }
        pass(1);
    }

    /// @dev Each segment's traces are its own: what a review of segment 1 shows is not segment 0's.
    function test_BothRejectionsFall() public {
        Dispute[2] memory made = ended([1, 1]);
        bytes32 id = made[0].first.id;
        assertOutcome(id, Outcome.Rejected);
        both(made, [inferencerOf(made[0]), inferencerOf(made[1])], [BOND, BOND]);
        settleReview(made[1]);
        assertOutcome(made[1].review.id, Outcome.Accepted);
        assertSlot(id, 1, Outcome.Rejected);
        settleReview(made[0]);
        assertSlot(id, 0, Outcome.Accepted);
    }

    /// @dev The client is refunded once.
    function test_BothAcceptancesFall() public {
        Dispute[2] memory made = ended([3, 3]);
        bytes32 id = made[0].first.id;
        assertSlot(id, 0, Outcome.Accepted);
        uint96 escrow = troth.escrowOf(client);
        both(made, [outsider, outsider], [OUTSIDERS_BOND, OUTSIDERS_BOND]);
        settleReview(made[0]);
        assertSlot(id, 1, Outcome.Rejected);
        assertEq(troth.escrowOf(client), escrow + troth.feeOf(exact, 2));
        settleReview(made[1]);
        assertSlot(id, 2, Outcome.Rejected);
        assertEq(troth.escrowOf(client), escrow + troth.feeOf(exact, 2));
    }

    /// @dev Paid and refunded as one task: the whole fee comes from the segment that was wrong.
    function test_OneOfTwoAcceptancesFalls() public {
        Dispute[2] memory made = ended([0, 3]);
        snap();
        dispute(made[1], outsider, OUTSIDERS_BOND);
        finishReview(made[1]);
        units(client, 54);
        units(outsider, 6);
        units(scheduler, 6);
        for (uint256 v = 0; v < 5; ++v) {
            units(reviewerOf(made[1], v), 6);
        }
        (uint256 share, uint256 left) = shared(96 * UNIT, 4);
        for (uint256 party = 0; party < 4; ++party) {
            change(partyOf(made[1].first, 1, party), -int256(share));
        }
        change(reserve, int256(left));
        assertChanges(0);
        assertSlot(made[0].first.id, 1, Outcome.Rejected);
    }

    function test_TheOnlyRejectionFalls() public {
        Dispute[2] memory made = ended([0, 1]);
        uint96 escrow = troth.escrowOf(client);
        dispute(made[1], inferencerOf(made[1]), BOND);
        finishReview(made[1]);
        assertSlot(made[0].first.id, 0, Outcome.Accepted);
        assertEq(troth.escrowOf(client), escrow, "the client was refunded and stays so");
    }

    function test_UndecidedSegmentsAreDecidedOneByOne() public {
        Dispute[2] memory made = ended([2, 2]);
        bytes32 id = made[0].first.id;
        assertSlot(id, 2, Outcome.Indeterminate);
        both(made, [outsider, outsider], [uint96(0), 0]);
        settleReview(made[0]);
        assertSlot(id, 1, Outcome.Indeterminate);
        settleReview(made[1]);
        assertSlot(id, 0, Outcome.Accepted);
    }

    function test_AnUndecidedSegmentIsRejected() public {
        Dispute[2] memory made = ended([0, 2]);
        made[1].review.conducts[0].opens = false;
        dispute(made[1], outsider, 0);
        finishReview(made[1]);
        assertSlot(made[0].first.id, 1, Outcome.Rejected);
    }

    /// @dev A task that was rejected stays so until every segment is accepted.
    function test_ARejectionFallsBesideAnUndecidedSegment() public {
        Dispute[2] memory made = ended([2, 1]);
        bytes32 id = made[0].first.id;
        assertSlot(id, 2, Outcome.Rejected);
        both(made, [outsider, inferencerOf(made[1])], [uint96(0), BOND]);
        settleReview(made[1]);
        assertSlot(id, 1, Outcome.Rejected);
        settleReview(made[0]);
        assertSlot(id, 0, Outcome.Accepted);
    }

    /// @dev What one review leaves in the slot does not keep the other segment from being disputed.
    function test_ASecondSegmentIsDisputedAfterTheFirstReview() public {
        Dispute[2] memory made = ended([1, 1]);
        dispute(made[0], inferencerOf(made[0]), BOND);
        finishReview(made[0]);
        assertLe(vm.getBlockNumber(), uint256(made[0].settled.settledBlock) + DISPUTE_WINDOW);
        dispute(made[1], inferencerOf(made[1]), BOND);
        finishReview(made[1]);
        assertSlot(made[0].first.id, 0, Outcome.Accepted);
    }

    function test_TheReviewTellsHowTheTaskStands() public {
        Dispute[2] memory made = ended([1, 1]);
        dispute(made[0], inferencerOf(made[0]), BOND);
        readyReview(made[0]);
        vm.expectEmit(address(troth));
        emit ITrothDisputes.ReviewSettled(
            made[0].first.id, made[0].review.id, 0, Outcome.Accepted, Outcome.Rejected, 31, 31
        );
        settleReview(made[0]);
    }
}
