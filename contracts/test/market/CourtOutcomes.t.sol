// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Fault, Outcome} from "../../market/interfaces/Proceedings.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title Every outcome, and its money by hand
contract CourtOutcomesTest is CourtTest {
    uint96 private bond;

    function setUp() public override {
        super.setUp();
        bond = court.bondFor(exact, 99);
    }

    function rejected(bytes32 class, bool suspend) private returns (Play memory play) {
        play = newPlay(class, FALSE);
        verify(play, REJECT, REJECT, ACCEPT, suspend);
        play.suspend = suspend;
        open(play, client);
    }

    function scored(uint256 count, uint32 score, uint32 spread) private pure returns (Vote[] memory votes) {
        votes = say(count, REJECT, HONEST);
        for (uint256 i = 0; i < count; ++i) {
            votes[i].score = score;
            votes[i].spread = spread;
        }
    }

    function lastFault() private view returns (Fault fault) {
        (, fault,,) = registry.convictions(registry.convictionCount() - 1);
    }

    function test_aFalseResultOfAnExactClassIsConvicted() public {
        Play memory play = rejected(exact, false);
        assertEq(stakeOf(node(0)), STAKE - L);
        assertEq(lockedOf(node(0)), L);
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(0)), STAKE - L);
        // Client: refund, bond, a tenth of L.
        assertEq(creditOf(client), FEE + bond + L / 10);
        for (uint256 i = 4; i < 9; ++i) {
            assertEq(creditOf(node(i)), 6 * UNIT);
        }
        // Who accepted it: two units of its one seat.
        assertEq(stakeOf(node(3)), STAKE - 2 * UNIT);
        assertEq(burnt(), L - FEE - L / 10 - 5 * 6 * UNIT + 2 * UNIT);
        assertEq(uint256(lastFault()), uint256(Fault.FalseResult));
        assertFalse(court.isVoided(play.digest, 0), "its client was made whole");
    }

    function test_aTrueResultIsUpheldAndTheOpenerLosesItsBond() public {
        Play memory play = newPlay(exact, HONEST);
        verify(play, REJECT, REJECT, ACCEPT, true);
        play.suspend = true;
        open(play, client);
        assertEq(registry.suspendedBy(node(0)), play.caseId);
        assertEq(lockedOf(node(1)), L);
        conclude(play, HONEST, say(5, ACCEPT, HONEST));
        assertOutcome(play, Outcome.Upheld);
        assertEq(registry.suspendedBy(node(0)), 0);
        assertEq(stakeOf(node(0)), STAKE);
        assertEq(creditOf(client), 0);
        // The rejecters lose what they locked, and two units.
        assertEq(lockedOf(node(1)), 0);
        assertEq(stakeOf(node(1)), STAKE - L - 2 * UNIT);
        assertEq(stakeOf(node(3)), STAKE);
        assertEq(burnt(), bond - 30 * UNIT + 2 * L + 4 * UNIT);
    }

    function test_aDoubtConvictsNobody() public {
        Play memory play = newPlay(exact, FALSE);
        open(play, client);
        assertEq(lockedOf(node(0)), 0);
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertOutcome(play, Outcome.Refunded);
        assertEq(stakeOf(node(0)), STAKE);
        assertEq(creditOf(client), bond - 30 * UNIT);
        assertTrue(court.isVoided(play.digest, 0));
        assertTrue(court.isVoided(play.digest, 255));
        assertFalse(court.isVoided(play.digest, 1));
        (uint16 count,) = court.pooledOf(ownerOf(0), exact);
        assertEq(count, 1);
    }

    function test_aFalseAcceptanceIsConvictedOnTheClientsWord() public {
        Play memory play = newPlay(exact, FALSE);
        verify(play, ACCEPT, ACCEPT, ACCEPT, false);
        open(play, client);
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(1)), STAKE - 2 * UNIT);
        assertEq(stakeOf(node(2)), STAKE - 2 * UNIT);
        assertEq(stakeOf(node(3)), STAKE - 2 * UNIT);
    }

    function test_lessThanTwoThirdsConvictNobody() public {
        Play memory play = rejected(exact, true);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[3] = Vote(ACCEPT, FALSE, 0, 0);
        votes[4] = Vote(ACCEPT, FALSE, 0, 0);
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.Refunded);
        assertEq(stakeOf(node(0)), STAKE);
        assertEq(stakeOf(node(1)), STAKE, "the rejecters' locks go back");
        assertEq(creditOf(client), bond - 18 * UNIT);
        assertEq(stakeOf(node(7)), STAKE - 2 * UNIT);
        assertEq(creditOf(node(7)), 0);
        assertEq(registry.convictionCount(), 0);
        (uint16 count,) = court.pooledOf(ownerOf(0), exact);
        assertEq(count, 0, "and such a majority fills no pool");
        assertTrue(court.isVoided(play.digest, 0));
    }

    function test_twoThirdsToTheSeatConvict() public {
        registry.setClass(exact, rules(true, 3));
        Play memory play = rejected(exact, false);
        Vote[] memory votes = say(3, REJECT, HONEST);
        votes[2] = Vote(ACCEPT, FALSE, 0, 0);
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
    }

    function test_aTolerantResultBeyondTheSecondCutIsConvicted() public {
        Play memory play = rejected(tolerant, false);
        Vote[] memory votes = scored(5, SECOND_CUT + 1, 100_000);
        votes[0].score = 5;
        votes[1].score = type(uint32).max;
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
    }

    function test_betweenTheCutsIsRefundedAndPooledUntilThePoolConvicts() public {
        for (uint256 i = 0; i < 3; ++i) {
            Play memory play = newPlay(tolerant, FALSE);
            play.order.order.sequence = uint64(i + 1);
            setOrder(play, play.order.order);
            play.results[0].order = play.digest;
            signResults(play);
            signDraw(play, uint64(vm.getBlockNumber()));
            verify(play, REJECT, REJECT, REJECT, false);
            open(play, client);
            conclude(play, FALSE, scored(5, SECOND_CUT, 100_000));
            assertOutcome(play, Outcome.Refunded);
            assertTrue(court.isVoided(play.digest, 0));
            if (i < 2) assertEq(stakeOf(node(100)), STAKE);
        }
        uint96 tolerantBond = court.bondFor(tolerant, 99);
        // The third within the window: L, and no reward, since prompts could have filled the pool; nothing more for the
        // client, whose leaf fell.
        assertEq(stakeOf(node(100)), STAKE - L);
        assertEq(creditOf(client), 2 * (tolerantBond - 30 * UNIT) + tolerantBond);
        assertEq(uint256(lastFault()), uint256(Fault.Pooled));
        (uint16 count,) = court.pooledOf(ownerOf(100), tolerant);
        assertEq(count, 0);
    }

    function test_theReviewersOwnNoiseHoldsASlashOff() public {
        Play memory play = rejected(tolerant, false);
        conclude(play, FALSE, scored(5, 2_000_000, 1_000_000));
        assertOutcome(play, Outcome.Refunded);
        assertEq(stakeOf(node(100)), STAKE);
    }

    function test_aClientsOwnChoiceBetweenTheCutsFillsNoPool() public {
        Play memory play = newPlay(tolerant, FALSE);
        open(play, client);
        conclude(play, FALSE, scored(5, SECOND_CUT, 0));
        assertOutcome(play, Outcome.Refunded);
        (uint16 count,) = court.pooledOf(ownerOf(100), tolerant);
        assertEq(count, 0);
    }

    function test_aDoubtBeyondTheCutsFillsThePool() public {
        Play memory play = newPlay(tolerant, FALSE);
        open(play, client);
        conclude(play, FALSE, scored(5, SECOND_CUT + 1, 0));
        assertOutcome(play, Outcome.Refunded);
        (uint16 count,) = court.pooledOf(ownerOf(100), tolerant);
        assertEq(count, 1);
    }

    /// @dev The client doubts an order whose result is between the cuts.
    function doubted(uint64 sequence) private {
        Play memory play = newPlay(tolerant, FALSE);
        play.order.order.sequence = sequence;
        setOrder(play, play.order.order);
        play.results[0].order = play.digest;
        signResults(play);
        signDraw(play, uint64(vm.getBlockNumber()));
        open(play, client);
        conclude(play, FALSE, scored(5, SECOND_CUT + 1, 0));
    }

    /// @dev A second case that is decided so many blocks after the first.
    /// @return since block from which was counted before
    /// @return count after the second
    /// @return later block from which is counted then
    function poolAfter(uint256 blocks) private returns (uint40 since, uint16 count, uint40 later) {
        uint256 opened = vm.getBlockNumber();
        doubted(1);
        (count, since) = court.pooledOf(ownerOf(100), tolerant);
        assertEq(count, 1);
        assertEq(since, vm.getBlockNumber());
        pass(blocks - (since - opened));
        doubted(2);
        assertEq(vm.getBlockNumber(), since + blocks);
        (count, later) = court.pooledOf(ownerOf(100), tolerant);
    }

    function test_APoolCountsInItsWindowsLastBlock() public {
        (uint40 since, uint16 count, uint40 later) = poolAfter(rules(false, 5).poolWindow);
        assertEq(count, 2);
        assertEq(later, since);
    }

    function test_APoolBeginsAnewAfterItsWindowsLastBlock() public {
        uint256 blocks = uint256(rules(false, 5).poolWindow) + 1;
        (uint40 since, uint16 count, uint40 later) = poolAfter(blocks);
        assertEq(count, 1);
        assertEq(later, since + blocks);
    }

    function test_aPromptThatIsMissingLosesTheCaseAndLeavesTheLeafOpen() public {
        Play memory play = rejected(exact, true);
        conclude(play, FALSE, say(5, MISSING_PROMPT, 0));
        assertOutcome(play, Outcome.OpenerMissing);
        assertEq(creditOf(client), 0);
        assertEq(creditOf(node(4)), 6 * UNIT);
        assertEq(stakeOf(node(0)), STAKE);
        assertEq(stakeOf(node(1)), STAKE, "the rejecters are not to blame");
        assertEq(burnt(), bond - 30 * UNIT);
        assertFalse(court.isVoided(play.digest, 0));
        // The same leaf again, with its data: the whole window from the end of the sham case.
        pass(LAG + 2 * SUMMONS_WINDOW);
        open(play, client);
        assertEq(play.state.round, 2);
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertOutcome(play, Outcome.Convicted);
    }

    function test_halfOfTheReviewersWithoutAPromptDoNotFreeTheClient() public {
        Play memory play = newPlay(exact, HONEST);
        open(play, client);
        Vote[] memory votes = say(5, MISSING_PROMPT, 0);
        votes[0] = Vote(ACCEPT, HONEST, 0, 0);
        votes[1] = Vote(ACCEPT, HONEST, 0, 0);
        conclude(play, HONEST, votes);
        assertOutcome(play, Outcome.OpenerMissing);
        assertFalse(court.isVoided(play.digest, 0));
        assertEq(stakeOf(node(4)), STAKE, "who had the data is not slashed for it");
    }

    function test_aNodeThatShowsNothingIsConvicted() public {
        Play memory play = rejected(exact, false);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[4] = Vote(ACCEPT, HONEST, 0, 0);
        commit(play, votes);
        pass(REVEAL_WINDOW + 1);
        decide(play, 0, votes);
        assertOutcome(play, Outcome.NodeMissing);
        assertEq(stakeOf(node(0)), STAKE - L);
        assertEq(creditOf(client), FEE + bond + L / 10);
        assertEq(stakeOf(node(8)), STAKE, "it proves nobody else wrong");
        assertEq(stakeOf(node(3)), STAKE);
        assertEq(uint256(lastFault()), uint256(Fault.NothingShown));
    }

    function test_aNodeThatShowsNothingInADoubtLosesTheLeaf() public {
        Play memory play = newPlay(exact, HONEST);
        open(play, client);
        draw(play, 5);
        Vote[] memory votes = say(5, ACCEPT, HONEST);
        commit(play, votes);
        pass(REVEAL_WINDOW + 1);
        decide(play, 0, votes);
        assertOutcome(play, Outcome.Refunded);
        assertEq(stakeOf(node(0)), STAKE);
    }

    function test_aNodeThatWithholdsItsRowsIsConvicted() public {
        Play memory play = rejected(exact, false);
        Vote[] memory votes = say(5, MISSING_TRACE, 0);
        votes[0] = Vote(REJECT, HONEST, 0, 0);
        votes[1] = Vote(CANNOT_TELL, 0, 0, 0);
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.NodeMissing);
        assertEq(creditOf(node(5)), 0);
    }

    /// @dev Rows for a third of the reviewers would otherwise turn a conviction into a refund.
    function test_rowsWithheldFromSomeReviewersSaveNobody() public {
        Play memory play = rejected(exact, false);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[0] = Vote(MISSING_TRACE, 0, 0, 0);
        votes[1] = Vote(MISSING_TRACE, 0, 0, 0);
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(4)), STAKE);
    }

    function test_whoCannotTellIsNeitherPaidNorSlashed() public {
        Play memory play = rejected(exact, false);
        Vote[] memory votes = say(5, CANNOT_TELL, 0);
        votes[0] = Vote(REJECT, HONEST, 0, 0);
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.Refunded);
        assertEq(creditOf(node(5)), 0);
        assertEq(stakeOf(node(4)), STAKE);
        assertEq(creditOf(client), bond);
        (uint16 count,) = court.pooledOf(ownerOf(0), exact);
        assertEq(count, 0);
    }

    function test_silentReviewersPay() public {
        Play memory play = rejected(exact, false);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        commit(play, votes);
        pass(REVEAL_WINDOW + 1);
        votes[2].opinion = NONE;
        decide(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(6)), STAKE - 2 * UNIT);
        assertEq(creditOf(node(6)), 0);
    }

    function test_anAcceptanceThatItsOwnTraceContradictsIsWorthNothing() public {
        Play memory play = rejected(exact, false);
        conclude(play, FALSE, say(5, ACCEPT, HONEST));
        // Nobody agrees with the node's trace, though all say so: no cluster.
        assertEq(registry.convictionCount(), 0);
        assertGt(uint256(court.caseOf(play.caseId)), 1 << 96);
    }

    function test_undecidedTwiceFreesTheLeafAndSlashesNobody() public {
        Play memory play = rejected(exact, true);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[0] = Vote(ACCEPT, FALSE, 0, 0);
        votes[1] = Vote(ACCEPT, FALSE, 0, 0);
        votes[2] = Vote(CANNOT_TELL, 0, 0, 0);
        draw(play, 5);
        commit(play, votes);
        vm.recordLogs();
        decide(play, FALSE, votes);
        foldRestart(play);
        assertEq(play.state.round, 1);
        assertEq(play.state.reviewers.length, 0);
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.Undecided);
        assertTrue(court.isVoided(play.digest, 0));
        assertEq(creditOf(client), bond);
        assertEq(stakeOf(node(0)), STAKE);
        assertEq(stakeOf(node(1)), STAKE);
        assertEq(stakeOf(node(4)), STAKE);
        assertEq(registry.suspendedBy(node(0)), 0);
    }
}
