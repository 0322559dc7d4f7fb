// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEndings} from "../interfaces/ITrothEndings.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {Outcome, Phase, SlashReason} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title Each deadline, and who pays for missing it
contract EndingsTest is TaskTest {
    function fee(uint256 segments) private view returns (uint96) {
        return troth.feeOf(tolerant, segments);
    }

    function test_TheSchedulerGivesUpFreely() public {
        for (uint256 step = 0; step < 2; ++step) {
            Play memory play = newPlay(tolerant, WHOLE);
            open(play);
            if (step == 1) assign(play);
            vm.expectEmit(address(troth));
            emit ITrothEndings.TaskAborted(play.id);
            vm.expectEmit(address(troth));
            emit ITrothMoney.EscrowReleased(play.id, client, fee(1), DEPOSIT);
            vm.prank(scheduler);
            troth.abort(play.id, play.task);
            assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Aborted));
            assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
            assertSolvent(0);
        }
    }

    function test_OnlyTheSchedulerGivesUpAndOnlyBeforeTheCommitments() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        vm.prank(client);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.NotScheduler.selector, scheduler, client));
        troth.abort(play.id, play.task);
        play = committedPlay(tolerant, WHOLE);
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Committed));
        troth.abort(play.id, play.task);
    }

    /// @dev Otherwise a late scheduler would give up as soon as somebody tries to close the task.
    function test_ALateSchedulerCannotGiveUp() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        uint256 last = uint256(play.task.progress.phaseBlock) + COMMIT_WINDOW;
        vm.roll(last + 1);
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.abort(play.id, play.task);
        vm.roll(last);
        vm.prank(scheduler);
        troth.abort(play.id, play.task);
    }

    /// @dev Once parties have posted enough themselves, their pay cannot be taken away by giving up.
    function test_WhatCanBeSealedCannotBeGivenUp() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        bytes32 terms = keccak256(abi.encode(play.task.terms));
        bytes32[3] memory posts = [rootOf(play, 0, 0), commitmentOf(play, 0, 1), commitmentOf(play, 0, 2)];
        vm.prank(partyOf(play, 0, 0));
        troth.commitInference(play.id, terms, play.task.progress, 0, 1, POSITIONS, posts[0], OUTPUT);
        play.task.progress.attempt = 1;
        play.task.progress.positions = POSITIONS;
        play.task.progress.outputHash = OUTPUT;
        play.task.progress.posts = new bytes32[](4);
        play.task.progress.posts[0] = posts[0];
        for (uint256 v = 1; v <= 2; ++v) {
            vm.prank(partyOf(play, 0, v));
            troth.commitVerification(play.id, terms, play.task.progress, 0, posts[v]);
            play.task.progress.posts[v] = posts[v];
        }
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothEndings.AlreadySealable.selector, play.id));
        troth.abort(play.id, play.task);
    }

    function test_AMissedCommitWindowCostsTheScheduler() public {
        for (uint256 step = 0; step < 2; ++step) {
            Play memory play = newPlay(tolerant, HALVES);
            open(play);
            if (step == 1) assign(play);
            uint256 last = uint256(play.task.progress.phaseBlock) + COMMIT_WINDOW;
            uint96 stake = stakeOf(scheduler);
            vm.roll(last);
            vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooEarly.selector, last, last + 1));
            troth.close(play.id, play.task);
            vm.roll(last + 1);
            bytes32 evidence = troth.taskState(play.id);
            vm.expectEmit(address(troth));
            emit ITrothEndings.TaskExpired(play.id, step == 0 ? Phase.Opened : Phase.Assigned);
            vm.expectEmit(address(troth));
            emit ITrothMoney.Slashed(
                play.id, scheduler, 16 * UNIT, stake - 16 * UNIT, SlashReason.SchedulerLate, evidence
            );
            troth.close(play.id, play.task);
            assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Expired));
            assertEq(troth.escrowOf(client), DEPOSIT);
            assertEq(creditOf(reserve), 16 * UNIT * (step + 1));
            assertSolvent(0);
            vm.prank(owner);
            troth.topUp{value: 16 * UNIT}(scheduler);
        }
    }

    /// @dev Parties whose work a late scheduler wasted share what it loses.
    function test_AMissedSampleWindowPaysWhoCommitted() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        play.conducts[3].commits = false;
        commit(play);
        uint256 last = uint256(play.task.progress.phaseBlock) + SAMPLE_WINDOW;
        vm.roll(last);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooEarly.selector, last, last + 1));
        troth.close(play.id, play.task);
        vm.roll(last + 1);
        troth.close(play.id, play.task);
        uint256 share = uint256(8 * UNIT) / 3;
        for (uint256 party = 0; party < 3; ++party) {
            assertEq(creditOf(partyOf(play, 0, party)), share);
        }
        assertEq(creditOf(partyOf(play, 0, 3)), 0);
        assertEq(creditOf(reserve), 8 * UNIT - 3 * share);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - 8 * UNIT);
        assertEq(troth.escrowOf(client), DEPOSIT);
        assertSolvent(0);
    }

    function test_OnlyADueTaskIsClosed() public {
        Play memory play = committedPlay(exact, WHOLE);
        pass(1000);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Committed));
        troth.close(play.id, play.task);
        play = committedPlay(tolerant, WHOLE);
        sample(play);
        pass(1000);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Sampled));
        troth.close(play.id, play.task);
    }

    function test_AnEndedTaskStaysEnded() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        pass(COMMIT_WINDOW + 1);
        troth.close(play.id, play.task);
        bytes32 state = bytes32(uint256(Outcome.Expired));
        bytes memory mismatch =
            abi.encodeWithSelector(ITrothProgress.StateMismatch.selector, play.id, state, stateHash(play.task));
        vm.expectRevert(mismatch);
        troth.close(play.id, play.task);
        vm.prank(scheduler);
        vm.expectRevert(mismatch);
        troth.abort(play.id, play.task);
    }

    /// @dev A slash never takes more than there is.
    function test_ASlashStopsAtTheStake() public {
        uint96 stake = SCHEDULER_STAKE;
        while (stake >= SCHEDULER_STAKE) {
            Play memory spent = newPlay(tolerant, HALVES);
            open(spent);
            Play memory last = newPlay(tolerant, HALVES);
            open(last);
            pass(COMMIT_WINDOW + 1);
            troth.close(spent.id, spent.task);
            vm.store(address(troth), accountSlot(scheduler), bytes32(uint256(2) << 232 | 5 * UNIT));
            assertEq(stakeOf(scheduler), 5 * UNIT);
            troth.close(last.id, last.task);
            stake = stakeOf(scheduler);
        }
        assertEq(stake, 0);
        assertEq(creditOf(reserve), 16 * UNIT + 5 * UNIT);
    }

    function accountSlot(address account) private pure returns (bytes32) {
        return keccak256(abi.encode(account, uint256(4)));
    }
}
