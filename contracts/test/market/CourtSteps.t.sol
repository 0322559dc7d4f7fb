// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IDocket} from "../../market/interfaces/IDocket.sol";
import {IJudgement} from "../../market/interfaces/IJudgement.sol";
import {CaseState, NodeReveal, Outcome} from "../../market/interfaces/Proceedings.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title Each step of a case in its phase, cases that nobody carries on, and who pays for the gas
contract CourtStepsTest is CourtTest {
    // ---- states

    function test_nothingMovesWithAnotherState() public {
        Play memory play = begun(exact, FALSE);
        CaseState memory forged = play.state;
        forged.bond += 1;
        bytes32 given = keccak256(abi.encode(forged));
        forged.bond -= 1;
        bytes32 stored = keccak256(abi.encode(forged));
        forged.bond += 1;
        vm.expectRevert(abi.encodeWithSelector(ICourt.StateMismatch.selector, play.caseId, stored, given));
        court.expire(play.caseId, forged);
        forged.bond -= 1;
        vm.expectPartialRevert(ICourt.StateMismatch.selector);
        court.expire(keccak256("another case"), forged);
    }

    function test_eachStepHasItsPhase() public {
        Play memory play = begun(exact, FALSE);
        vm.expectPartialRevert(ICourt.WrongPhase.selector);
        court.post(play.caseId, play.state, "post");
        vm.expectPartialRevert(ICourt.WrongPhase.selector);
        court.commit(play.caseId, play.state, new bytes32[](0), "");
        vm.expectPartialRevert(IDocket.WrongPhase.selector);
        court.seed(play.caseId, play.state, "");
        NodeReveal memory none;
        vm.expectPartialRevert(IJudgement.WrongPhase.selector);
        court.decide(play.caseId, play.state, none, "");
        vm.expectPartialRevert(IJudgement.WrongPhase.selector);
        court.revealNode(play.caseId, play.state, none);
        draw(play, 5);
        vm.expectPartialRevert(IDocket.WrongPhase.selector);
        court.draw(play.caseId, play.state, "", "");
        commit(play, say(5, REJECT, HONEST));
        vm.expectPartialRevert(IDocket.ExactClass.selector);
        court.seed(play.caseId, play.state, "");
        vm.expectPartialRevert(IJudgement.WrongPhase.selector);
        court.expire(play.caseId, play.state);
    }

    // ---- idle cases

    function test_anIdleCaseLosesItsBond() public {
        Play memory play = newPlay(exact, FALSE);
        verify(play, REJECT, REJECT, ACCEPT, true);
        play.suspend = true;
        open(play, client);
        uint256 last = play.state.phaseBlock + LOOKAHEAD + DRAW_WINDOW;
        vm.roll(last);
        vm.expectRevert(abi.encodeWithSelector(IJudgement.TooEarly.selector, last, last + 1));
        court.expire(play.caseId, play.state);
        vm.roll(last + 1);
        vm.prank(stranger);
        court.expire(play.caseId, play.state);
        assertOutcome(play, Outcome.Lapsed);
        assertEq(burnt(), play.state.bond);
        assertEq(stakeOf(node(0)), STAKE);
        assertEq(stakeOf(node(1)), STAKE);
        assertEq(registry.suspendedBy(node(0)), 0);
        // The leaf is open still.
        open(play, client);
        assertEq(play.state.round, 2);
    }

    function test_withoutCommitmentsTheRoundIsUndecidedAndSilencePaid() public {
        Play memory play = begun(exact, FALSE);
        for (uint256 round = 0; round < 2; ++round) {
            draw(play, 5);
            vm.prank(node(4));
            court.post(play.caseId, play.state, "post");
            pass(COMMIT_WINDOW);
            vm.expectPartialRevert(IJudgement.TooEarly.selector);
            court.expire(play.caseId, play.state);
            pass(1);
            vm.recordLogs();
            court.expire(play.caseId, play.state);
            assertEq(stakeOf(node(4)), STAKE);
            assertEq(stakeOf(node(5)), STAKE - uint96(2 * UNIT * (round + 1)));
            if (round == 0) foldRestart(play);
        }
        assertOutcome(play, Outcome.Undecided);
        assertTrue(court.isVoided(play.digest, 0));
    }

    function test_withoutASeedTheRoundIsUndecided() public {
        Play memory play = begun(tolerant, FALSE);
        draw(play, 5);
        commit(play, say(5, REJECT, HONEST));
        pass(LOOKAHEAD + DRAW_WINDOW);
        vm.expectPartialRevert(IJudgement.TooEarly.selector);
        court.expire(play.caseId, play.state);
        pass(1);
        vm.recordLogs();
        court.expire(play.caseId, play.state);
        foldRestart(play);
        assertEq(play.state.round, 1);
        assertEq(stakeOf(node(104)), STAKE);
    }

    function test_casesByTheHundredCostABondEach() public {
        uint256 spent = client.balance;
        for (uint256 i = 0; i < 100; ++i) {
            Play memory play = newPlay(exact, HONEST);
            play.order.order.sequence = uint64(i + 1);
            setOrder(play, play.order.order);
            play.results[0].order = play.digest;
            signResults(play);
            signDraw(play, uint64(vm.getBlockNumber()));
            open(play, client);
            pass(LOOKAHEAD + DRAW_WINDOW + 1);
            court.expire(play.caseId, play.state);
        }
        assertEq(burnt(), 100 * uint256(court.bondFor(exact, 99)));
        assertEq(spent - client.balance, burnt());
        assertEq(stakeOf(node(0)), STAKE);
    }

    // ---- gas

    function test_whoCarriesACaseOnGetsItsGasBack() public {
        Play memory play = begun(exact, HONEST);
        uint96 bond = play.state.bond;
        vm.startPrank(stranger);
        draw(play, 5);
        vm.stopPrank();
        vm.startPrank(makeAddr("committer"));
        commit(play, say(5, ACCEPT, HONEST));
        vm.stopPrank();
        vm.fee(1 gwei);
        vm.prank(makeAddr("decider"));
        decide(play, HONEST, say(5, ACCEPT, HONEST));
        vm.fee(0);
        uint96 paid = creditOf(stranger) + creditOf(makeAddr("committer")) + creditOf(makeAddr("decider"));
        assertGt(creditOf(stranger), 50_000 gwei);
        assertGt(creditOf(makeAddr("committer")), 50_000 gwei);
        assertGt(creditOf(makeAddr("decider")), 100_000 gwei);
        assertEq(burnt(), bond - 30 * UNIT - paid + 4 * UNIT);
    }

    function test_theCeilingBoundsTheGasAndTheBondCoversIt() public {
        Play memory play = begun(exact, HONEST);
        draw(play, 5);
        commit(play, say(5, ACCEPT, HONEST));
        vm.fee(1000 gwei);
        decide(play, HONEST, say(5, ACCEPT, HONEST));
        vm.fee(0);
        assertOutcome(play, Outcome.Upheld);
        assertGt(burnt(), 8 * UNIT);
        assertLt(creditOf(address(this)), 10 gwei * 1_000_000);
    }

    /// @dev Convicting oneself costs at least what the reviewers get and what is burnt.
    function test_convictingOneselfReturnsLessThanItCosts() public {
        Play memory play = begun(exact, FALSE);
        uint96 bond = play.state.bond;
        conclude(play, FALSE, say(5, REJECT, HONEST));
        uint256 cost = uint256(STAKE - stakeOf(node(0))) + bond;
        assertGt(cost, creditOf(client) + 5 * 6 * UNIT);
        assertEq(bank.total(), allPots());
    }

    function allPots() private view returns (uint256 sum) {
        sum = uint256(burnt()) + creditOf(client) + stakeOf(scheduler);
        for (uint256 i = 0; i < NODES; ++i) {
            sum += uint256(stakeOf(node(i))) + creditOf(node(i)) + lockedOf(node(i));
            sum += uint256(stakeOf(node(100 + i))) + creditOf(node(100 + i)) + lockedOf(node(100 + i));
        }
    }
}
