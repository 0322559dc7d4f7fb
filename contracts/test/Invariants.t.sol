// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {StdInvariant} from "@uniswap/v4-core/lib/forge-std/src/StdInvariant.sol";
import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {Outcome, SlashReason} from "../interfaces/TrothTypes.sol";
import {InvariantReviews} from "./support/InvariantReviews.sol";

/// @dev The test runner fuzzes contracts of this file only.
contract Everybody is InvariantReviews {}

/// @title What holds after any sequence of calls
contract InvariantsTest is Test {
    // Arguments of openTask and advance, see there.
    uint256 private constant EXACT_OPENED = 4;
    uint256 private constant EXACT_COMMITTED = 20;
    uint256 private constant PAST_COMMITMENTS = 1;
    uint256 private constant PAST_REVEALS = 2;

    Everybody private everybody;
    bytes4[] private calls;

    function setUp() public {
        everybody = new Everybody();
        everybody.setUp();
        calls = [
            everybody.openTask.selector,
            everybody.assign.selector,
            everybody.commit.selector,
            everybody.post.selector,
            everybody.seal.selector,
            everybody.sample.selector,
            everybody.reveal.selector,
            everybody.settle.selector,
            everybody.dispute.selector,
            everybody.review.selector,
            everybody.review.selector,
            everybody.closeReview.selector,
            everybody.abort.selector,
            everybody.close.selector,
            everybody.replay.selector,
            everybody.deposit.selector,
            everybody.withdrawEscrow.selector,
            everybody.registerNode.selector,
            everybody.registerScheduler.selector,
            everybody.topUp.selector,
            everybody.enroll.selector,
            everybody.changeSlice.selector,
            everybody.claim.selector,
            everybody.evict.selector,
            everybody.deregister.selector,
            everybody.withdraw.selector,
            everybody.equivocate.selector,
            everybody.advance.selector
        ];
        targetContract(address(everybody));
        targetSelector(StdInvariant.FuzzSelector({addr: address(everybody), selectors: calls}));
    }

    /// @dev One campaign checks all rules: each costs as much as the calls themselves.
    function invariant_MoneyStakesAndTasksAreInOrder() public view {
        assertEq(everybody.owed(), everybody.held(), "stakes, credits, escrows, live fees and bonds are not the balance");
        assertEq(everybody.held() + everybody.paidOut(), everybody.paidIn(), "more or less came out than went in");
        assertEq(everybody.enrichedClients(), 0, "a client has more than was deposited for it");
        assertEq(everybody.earlyWithdrawals(), 0, "a stake was withdrawn before its exit block had passed");
        assertEq(everybody.wrongSlashes(), 0, "a slash was above the stake or the rules");
        assertEq(everybody.wrongStakes(), 0, "a stake is not what deposits and slashes leave");
        assertEq(everybody.backwardSteps(), 0, "a task went backwards");
        assertEq(everybody.wrongTasks(), 0, "a task is not where its steps took it");
        assertEq(everybody.wrongMemberships(), 0, "a changed slice is not what a node is drawn for, or changed the past");
        assertEq(everybody.wrongReviews(), 0, "a review is not where its steps took it");
    }

    /// @dev The rules above would hold of calls that all fail: these calls can reach every outcome and every slash.
    function test_EveryOutcomeAndSlashIsWithinReach() public {
        uint256 conduct = 1;
        while (
            everybody.finished(Outcome.Accepted) == 0 || everybody.finished(Outcome.Indeterminate) == 0
                || everybody.slashes(SlashReason.Rejected) == 0 || everybody.slashes(SlashReason.Disagreed) == 0
                || everybody.slashes(SlashReason.Unrevealed) == 0
        ) {
            assertLt(conduct, 100, "fifty mixed committees do not reach every way to settle");
            everybody.openTask(EXACT_COMMITTED, conduct);
            everybody.advance(PAST_REVEALS);
            everybody.settle(0);
            conduct += 2;
        }
        reviewUntilBothWaysOfLosing(conduct);
        everybody.openTask(EXACT_OPENED, 0);
        everybody.abort(0);
        everybody.openTask(EXACT_OPENED, 0);
        everybody.advance(PAST_COMMITMENTS);
        everybody.close(0);
        everybody.equivocate(0, 0);
        for (uint8 i = 1; i <= 5; ++i) {
            assertGt(everybody.finished(Outcome(i)), 0, string.concat("no task of outcome ", vm.toString(i)));
            assertGt(everybody.slashes(SlashReason(i)), 0, string.concat("no slash for reason ", vm.toString(i)));
        }
        invariant_MoneyStakesAndTasksAreInOrder();
    }

    /// @dev One node after another to each of the four places, and a second time too early.
    function test_SlicesChangeWithinTheRules() public {
        for (uint256 i = 0; i < 8; ++i) {
            everybody.changeSlice(1 + 65 * (i % 4));
        }
        assertEq(everybody.slicesChanged(), 4, "not every node could move, or one twice");
        invariant_MoneyStakesAndTasksAreInOrder();
    }

    /// @dev Disputes of the latest task by each kind of party in turn, until one has won and one has lost.
    function reviewUntilBothWaysOfLosing(uint256 conduct) private {
        for (
            uint256 i = 0;
            everybody.slashes(SlashReason.Overturned) == 0 || everybody.slashes(SlashReason.DisputeLost) == 0;
            ++i
        ) {
            assertLt(i, 100, "a hundred disputes are all won, or all lost");
            uint256 last = everybody.tasks();
            everybody.openTask(EXACT_COMMITTED, conduct + 2 * i);
            everybody.advance(PAST_REVEALS);
            everybody.settle(0);
            everybody.dispute(last, i % 6, 0);
            everybody.advance(0);
            everybody.review(0);
            everybody.review(0);
            everybody.advance(PAST_REVEALS);
            everybody.review(0);
        }
    }
}
