// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothOpenings} from "../interfaces/ITrothOpenings.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {ITrothSettlement} from "../interfaces/ITrothSettlement.sol";
import {Opening, Outcome, SlashReason, VrfProof} from "../interfaces/TrothTypes.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title Decisions and movements, case by case (VeriLLM Appendix E)
contract SettlementTest is TaskTest {
    uint96 private constant REWARD = 6 * UNIT;
    uint96 private constant PENALTY = 2 * UNIT;

    function assigned(bytes32 class, bytes32 ends) private returns (Play memory play) {
        play = newPlay(class, ends);
        open(play);
        assign(play);
    }

    /// @dev Commits, waits a block, settles.
    function finish(Play memory play) private returns (Outcome) {
        commit(play);
        pass(1);
        settle(play);
        assertSolvent(0);
        return troth.outcomeOf(play.id);
    }

    /// @dev Commits, samples, lets the reveal window pass, settles.
    function finishLate(Play memory play) private returns (Outcome) {
        commit(play);
        pass(1);
        sample(play);
        pass(REVEAL_WINDOW + 1);
        settle(play);
        assertSolvent(0);
        return troth.outcomeOf(play.id);
    }

    function assertOutcome(Outcome found, Outcome expected) private pure {
        assertEq(uint8(found), uint8(expected));
    }

    function assertParty(Play memory play, uint256 party, uint256 credit, uint256 lost) private view {
        assertEq(creditOf(partyOf(play, 0, party)), credit, "credit");
        assertEq(stakeOf(partyOf(play, 0, party)), NODE_STAKE - lost, "stake");
    }

    function test_AcceptsAndPaysEverybody() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Play memory play = assigned(classes[i], WHOLE);
            assertOutcome(finish(play), Outcome.Accepted);
            for (uint256 party = 0; party < 4; ++party) {
                assertParty(play, party, REWARD, 0);
            }
        }
        assertEq(creditOf(scheduler), 2 * REWARD);
        assertEq(troth.escrowOf(client), DEPOSIT - 2 * troth.feeOf(tolerant, 1));
    }

    function test_AnnouncesTheDecision() public {
        Play memory play = committedPlay(exact, HALVES);
        play.conducts[2].opens = true;
        VrfProof memory none;
        Opening[] memory openings = openingsOf(play, 0);
        uint8[] memory outcomes = new uint8[](2);
        uint8[] memory masks = new uint8[](2);
        for (uint256 s = 0; s < 2; ++s) {
            outcomes[s] = uint8(Outcome.Accepted);
            masks[s] = 7;
        }
        vm.expectEmit(address(troth));
        emit ITrothSettlement.TaskSettled(play.id, Outcome.Accepted, outcomes, masks, masks, masks);
        vm.expectEmit(address(troth));
        emit ITrothMoney.Credited(play.id, partyOf(play, 0, 0), REWARD, REWARD);
        troth.settle(play.id, play.task, none, openings);
    }

    function test_AVerifierThatDidNotCommitIsNotPaid() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[2].commits = false;
        assertOutcome(finish(play), Outcome.Accepted);
        assertParty(play, 2, 0, 0);
        assertEq(troth.escrowOf(client), DEPOSIT - troth.feeOf(tolerant, 1) + REWARD);
    }

    function test_ALonelyNoIsSlashed() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[3].verdict = false;
        assertOutcome(finish(play), Outcome.Accepted);
        assertParty(play, 1, REWARD, 0);
        assertParty(play, 3, 0, PENALTY);
        assertEq(creditOf(reserve), PENALTY);
        assertEq(troth.escrowOf(client), DEPOSIT - troth.feeOf(tolerant, 1) + REWARD);
    }

    /// @dev Says that all is well of a trace that its own contradicts.
    function test_AnInconsistentYesIsSlashed() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[1].data = FALSE_DATA;
        assertOutcome(finish(play), Outcome.Accepted);
        assertParty(play, 1, 0, PENALTY);
        assertParty(play, 2, REWARD, 0);
    }

    function test_RejectsAndPaysTheCheckersFromTheInferencersStake() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[0].data = FALSE_DATA;
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
        }
        assertOutcome(finish(play), Outcome.Rejected);
        assertParty(play, 0, 0, PENALTY + 3 * REWARD);
        for (uint256 v = 1; v <= 3; ++v) {
            assertParty(play, v, REWARD, 0);
        }
        assertEq(creditOf(reserve), PENALTY);
        assertEq(creditOf(scheduler), 0);
        assertEq(troth.escrowOf(client), DEPOSIT);
    }

    /// @dev A colluding yes to a forged trace stands alone against two honest checkers.
    function test_AColluderIsSlashedWithTheInferencer() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[0].data = FALSE_DATA;
        play.conducts[1].data = FALSE_DATA;
        play.conducts[2].verdict = false;
        play.conducts[3].verdict = false;
        assertOutcome(finish(play), Outcome.Rejected);
        assertParty(play, 0, 0, PENALTY + 2 * REWARD);
        assertParty(play, 1, 0, PENALTY);
        assertParty(play, 2, REWARD, 0);
        assertEq(creditOf(reserve), 2 * PENALTY);
    }

    /// @dev Two who say no for different reasons are no cluster.
    function test_WithoutAClusterNothingIsDecided() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[0].data = keccak256("a");
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
            play.conducts[v].data = keccak256(abi.encode("other", v));
        }
        assertOutcome(finish(play), Outcome.Indeterminate);
        for (uint256 party = 0; party < 4; ++party) {
            assertParty(play, party, 0, 0);
        }
        assertEq(troth.escrowOf(client), DEPOSIT);
    }

    /// @dev In an exact class nearly equal is not equal.
    function test_AnExactClassComparesRoots() public {
        Play memory play = assigned(exact, WHOLE);
        play.conducts[2].data = keccak256("nearly");
        assertOutcome(finish(play), Outcome.Accepted);
        assertParty(play, 2, 0, PENALTY);
    }

    function test_ASilentVerifierIsSlashedAfterTheDeadline() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[2].opens = false;
        assertOutcome(finishLate(play), Outcome.Accepted);
        assertParty(play, 2, 0, PENALTY);
        assertParty(play, 3, REWARD, 0);
    }

    function test_BeforeTheDeadlineNobodyMayBeLeftOut() public {
        Play memory play = assigned(tolerant, WHOLE);
        commit(play);
        pass(1);
        sample(play);
        play.conducts[2].opens = false;
        uint256 last = uint256(play.task.progress.phaseBlock) + REVEAL_WINDOW;
        Opening[] memory openings = openingsOf(play, play.task.progress.seed);
        VrfProof memory none;
        vm.roll(last);
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.OpeningMissing.selector, 0, 2, last));
        troth.settle(play.id, play.task, none, openings);
    }

    /// @dev Who samples and settles in one call has given nobody time to reveal.
    function test_SamplingOnTheWayNeedsAllOpenings() public {
        Play memory play = assigned(tolerant, WHOLE);
        commit(play);
        pass(SAMPLE_WINDOW);
        (VrfProof memory proof, bytes32 seed) = sampleProof(play);
        play.conducts[3].opens = false;
        Opening[] memory openings = openingsOf(play, seed);
        uint256 last = vm.getBlockNumber() + REVEAL_WINDOW;
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.OpeningMissing.selector, 0, 3, last));
        troth.settle(play.id, play.task, proof, openings);
    }

    function test_ASilentInferencerIsRejected() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[0].opens = false;
        assertOutcome(finishLate(play), Outcome.Rejected);
        assertParty(play, 0, 0, PENALTY + 3 * REWARD);
        assertParty(play, 1, REWARD, 0);
        assertEq(troth.escrowOf(client), DEPOSIT);
    }

    function test_WhereNobodyRevealsAllAreSlashed() public {
        Play memory play = assigned(tolerant, WHOLE);
        for (uint256 party = 0; party < 4; ++party) {
            play.conducts[party].opens = false;
        }
        assertOutcome(finishLate(play), Outcome.Rejected);
        for (uint256 party = 0; party < 4; ++party) {
            assertParty(play, party, 0, PENALTY);
        }
        assertEq(creditOf(reserve), 4 * PENALTY);
    }

    /// @dev One bad segment: the client pays nothing, the other segment's workers earn nothing.
    function test_OneRejectedSegmentRejectsTheTask() public {
        Play memory play = assigned(exact, HALVES);
        play.conducts[4].data = FALSE_DATA;
        for (uint256 v = 5; v < 8; ++v) {
            play.conducts[v].verdict = false;
        }
        play.conducts[3].verdict = false;
        uint256 slashed = stakeOf(partyOf(play, 0, 3));
        assertOutcome(finish(play), Outcome.Rejected);
        assertEq(troth.escrowOf(client), DEPOSIT);
        assertEq(creditOf(scheduler), 0);
        assertLe(stakeOf(partyOf(play, 0, 3)), slashed - PENALTY);
        assertEq(creditOf(reserve), 2 * PENALTY);
    }

    function test_OneUndecidedSegmentLeavesTheTaskUndecided() public {
        Play memory play = assigned(exact, HALVES);
        play.conducts[5].verdict = false;
        play.conducts[6].data = FALSE_DATA;
        assertOutcome(finish(play), Outcome.Indeterminate);
        assertEq(troth.escrowOf(client), DEPOSIT);
        assertEq(creditOf(reserve), 0);
    }

    /// @dev What is left of a short stake is shared; the remainder goes to the reserve.
    function test_AShortStakeIsSharedProRata() public {
        Play memory play = assigned(tolerant, WHOLE);
        play.conducts[0].data = FALSE_DATA;
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
        }
        address inferencer = partyOf(play, 0, 0);
        uint96 left = 7 * UNIT + 11;
        bytes32 slot = keccak256(abi.encode(inferencer, uint256(4)));
        vm.store(address(troth), slot, bytes32(uint256(1) << 232 | left));
        assertEq(stakeOf(inferencer), left);
        commit(play);
        pass(1);
        settle(play);
        uint256 share = uint256(left) * 6 / 20;
        assertEq(stakeOf(inferencer), 0);
        for (uint256 v = 1; v <= 3; ++v) {
            assertEq(creditOf(partyOf(play, 0, v)), share);
        }
        assertEq(creditOf(reserve), left - 3 * share);
    }

    function test_TheSlashCarriesItsEvidence() public {
        Play memory play = assigned(exact, WHOLE);
        play.conducts[3].verdict = false;
        commit(play);
        pass(1);
        VrfProof memory none;
        Opening[] memory openings = openingsOf(play, 0);
        bytes32 commitment = play.task.progress.posts[3];
        vm.expectEmit(address(troth));
        emit ITrothMoney.Slashed(
            play.id, partyOf(play, 0, 3), PENALTY, NODE_STAKE - PENALTY, SlashReason.Disagreed, commitment
        );
        troth.settle(play.id, play.task, none, openings);
    }

    function test_RefusesMalformedOpenings() public {
        Play memory play = committedPlay(exact, WHOLE);
        VrfProof memory none;
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.WrongOpeningCount.selector, 3, 4));
        troth.settle(play.id, play.task, none, new Opening[](3));
        play = committedPlay(tolerant, WHOLE);
        sample(play);
        Opening[] memory openings = openingsOf(play, play.task.progress.seed);
        bytes memory tiles = openings[2].tiles;
        assembly ("memory-safe") {
            mstore(tiles, 480)
        }
        vm.expectRevert(abi.encodeWithSelector(TileTree.WrongTileBytes.selector, 480, 512));
        troth.settle(play.id, play.task, none, openings);
    }

    function test_RefusesAnOpeningOfNoCommitment() public {
        Play memory play = assigned(exact, WHOLE);
        play.conducts[2].commits = false;
        commit(play);
        pass(1);
        play.conducts[2].commits = true;
        VrfProof memory none;
        Opening[] memory openings = openingsOf(play, 0);
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.NothingCommitted.selector, 0, 2));
        troth.settle(play.id, play.task, none, openings);
    }

    function test_SettlesOnce() public {
        Play memory play = committedPlay(exact, WHOLE);
        settle(play);
        VrfProof memory none;
        Opening[] memory openings = openingsOf(play, 0);
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.settle(play.id, play.task, none, openings);
    }

    /// @dev A party that left after the task's reference block works and answers for it all the same.
    function test_ALeavingPartyIsStillPaidAndSlashed() public {
        Play memory play = assigned(exact, WHOLE);
        play.conducts[0].data = FALSE_DATA;
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
        }
        vm.startPrank(owner);
        troth.deregister(partyOf(play, 0, 0));
        troth.deregister(partyOf(play, 0, 1));
        vm.stopPrank();
        assertOutcome(finish(play), Outcome.Rejected);
        assertParty(play, 0, 0, PENALTY + 3 * REWARD);
        assertParty(play, 1, REWARD, 0);
        pass(UNBONDING_PERIOD);
        troth.withdraw(partyOf(play, 0, 1));
        assertEq(payout.balance, NODE_STAKE + REWARD);
    }
}
