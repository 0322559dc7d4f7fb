// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IJudgement} from "../../market/interfaces/IJudgement.sol";
import {PotKind} from "../../market/interfaces/MarketTypes.sol";
import {Fault, NodeReveal, Outcome} from "../../market/interfaces/Proceedings.sol";
import {Order, Result} from "../../market/interfaces/Signed.sol";
import {Reveal} from "../../market/libraries/Reveals.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title Segments of a pipeline, each judged by itself; medians and clusters of tolerant classes
contract CourtPipelineTest is CourtTest {
    /// @dev Two segments by nodes 0 and 1; the second is judged.
    function pipeline(bytes32 data) private returns (Play memory play) {
        Order memory order = newOrder(exact);
        order.ends = bytes32(bytes2(hex"0204"));
        setOrder(play, order);
        play.results = new Result[](2);
        play.results[0] = newResult(play, 0, exact, HONEST);
        play.results[1] = newResult(play, 1, exact, data);
        signResults(play);
        signDraw(play, uint64(vm.getBlockNumber()));
        play.secret = "secret";
        play.segment = 1;
    }

    /// @dev Verifiers are nodes 2, 3 and 4 here, so that no inferencer is among them.
    function rejected(bytes32 data) private returns (Play memory play) {
        play = pipeline(data);
        verify(play, REJECT, REJECT, REJECT, false);
        address[] memory drawn = new address[](3);
        for (uint256 v = 0; v < 3; ++v) {
            drawn[v] = node(12 + v);
            play.verdictSignatures[v] = signed(NODE_KEY + 12 + v, verdictHash(play, v));
        }
        registry.force(drawn);
        open(play, client);
    }

    function verdictHash(Play memory play, uint256 v) private pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256(
                    "Verdict(bytes32 order,uint8 segment,bytes32 result,bytes32 commitment,uint8 opinion,bool locks)"
                ),
                play.verdicts[v]
            )
        );
    }

    function test_aLaterSegmentsNodeIsConvictedAndNobodyElse() public {
        Play memory play = rejected(FALSE);
        assertEq(play.state.node, node(1));
        assertEq(play.state.segment, 1);
        // Owners of both inferencers cannot review.
        assertEq(play.state.excluded[0], ownerOf(0));
        assertEq(play.state.excluded[1], ownerOf(1));
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(0)), STAKE);
        assertEq(stakeOf(node(1)), STAKE - L);
    }

    function test_missingRowsConvictTheScheduler() public {
        Play memory play = rejected(FALSE);
        uint96 bond = play.state.bond;
        conclude(play, FALSE, say(5, MISSING_INPUT, 0));
        assertOutcome(play, Outcome.SchedulerMissing);
        assertEq(stakeOf(scheduler), STAKE - L);
        assertEq(stakeOf(node(1)), STAKE);
        assertEq(creditOf(client), play.state.fee + bond + L / 10);
        (address convict, Fault fault, bytes32 subject,) = registry.convictions(0);
        assertEq(convict, scheduler);
        assertEq(uint256(fault), uint256(Fault.NothingShown));
        assertEq(subject, play.caseId);
    }

    function test_missingRowsForFewerThanTwoThirdsRefund() public {
        Play memory play = rejected(HONEST);
        Vote[] memory votes = say(5, MISSING_INPUT, 0);
        votes[0] = Vote(ACCEPT, HONEST, 0, 0);
        votes[1] = Vote(ACCEPT, HONEST, 0, 0);
        conclude(play, HONEST, votes);
        assertOutcome(play, Outcome.Refunded);
        assertEq(stakeOf(scheduler), STAKE);
        assertTrue(court.isVoided(play.digest, 1));
        assertFalse(court.isVoided(play.digest, 0));
    }

    function test_missingRowsInADoubtCostTheLeafAlone() public {
        Play memory play = pipeline(FALSE);
        play.secret = 0;
        open(play, client);
        conclude(play, FALSE, say(5, MISSING_INPUT, 0));
        assertOutcome(play, Outcome.Refunded);
        assertEq(stakeOf(scheduler), STAKE);
    }

    /// @dev Nobody before the first segment owes it rows.
    function test_theFirstSegmentMissesNoInput() public {
        Play memory play = newPlay(exact, FALSE);
        open(play, client);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[0].opinion = MISSING_INPUT;
        commit(play, votes);
        NodeReveal memory shown = nodeReveal(play, FALSE);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        vm.expectRevert(abi.encodeWithSelector(IJudgement.InvalidOpinion.selector, 0, MISSING_INPUT));
        sendDecide(play, shown, reveals);
    }

    function test_segmentsOfOneOrderAreCasesOfTheirOwn() public {
        Play memory play = pipeline(FALSE);
        open(play, client);
        bytes32 second = play.caseId;
        play.segment = 0;
        open(play, client);
        assertNotEq(play.caseId, second);
        assertEq(play.state.node, node(0));
    }

    // ---- tolerant classes

    function scored(uint32[5] memory scores, uint32[5] memory spreads) private pure returns (Vote[] memory votes) {
        votes = say(5, REJECT, HONEST);
        for (uint256 i = 0; i < 5; ++i) {
            (votes[i].score, votes[i].spread) = (scores[i], spreads[i]);
        }
    }

    function decided(Vote[] memory votes, bytes memory seats)
        private
        returns (Play memory play, uint32 score, uint32 spread)
    {
        play = newPlay(tolerant, FALSE);
        verify(play, REJECT, REJECT, REJECT, false);
        open(play, client);
        draw(play, seats);
        commit(play, votes);
        seed(play);
        vm.recordLogs();
        decide(play, FALSE, votes);
        (,, score, spread) = abi.decode(logged(ICourt.CaseDecided.selector), (Outcome, uint256, uint32, uint32));
    }

    function test_mediansAreThoseOfTheCluster() public {
        Vote[] memory votes = scored([uint32(9e6), 4e6, 5e6, 6e6, 0], [uint32(1), 5, 2, 4, 3]);
        (, uint32 score, uint32 spread) = decided(votes, hex"0101010101");
        assertEq(score, 5e6);
        assertEq(spread, 3);
    }

    function test_mediansLeaveOutWhoIsOutside() public {
        Vote[] memory votes = scored([uint32(9e6), 4e6, 5e6, 6e6, 0], [uint32(1), 5, 2, 4, 3]);
        // Its trace is nobody else's.
        votes[4].data = keccak256("invented");
        (, uint32 score, uint32 spread) = decided(votes, hex"0101010101");
        assertEq(score, 5e6, "the lower of the two in the middle");
        assertEq(spread, 2);
        assertEq(stakeOf(node(108)), STAKE - 2 * UNIT);
    }

    function test_mediansCountSeats() public {
        Vote[] memory votes = say(3, REJECT, HONEST);
        (votes[0].score, votes[1].score, votes[2].score) = (1, 2, 3);
        (votes[0].spread, votes[1].spread, votes[2].spread) = (1, 2, 0);
        (, uint32 score, uint32 spread) = decided(votes, hex"010103");
        assertEq(score, 3);
        assertEq(spread, 0);
    }

    function test_tolerantTracesWithNoiseAgreeAndUphold() public {
        Play memory play = newPlay(tolerant, HONEST);
        verify(play, REJECT, REJECT, REJECT, false);
        open(play, client);
        conclude(play, HONEST, say(5, ACCEPT, HONEST));
        assertOutcome(play, Outcome.Upheld);
        assertEq(creditOf(node(104)), 6 * UNIT);
    }

    function test_anAcceptanceAgainstItsOwnTilesIsLeftOut() public {
        Play memory play = newPlay(tolerant, FALSE);
        verify(play, REJECT, REJECT, REJECT, false);
        open(play, client);
        Vote[] memory votes = say(5, REJECT, HONEST);
        for (uint256 i = 0; i < 4; ++i) {
            votes[i].score = SECOND_CUT + 1;
        }
        votes[4].opinion = ACCEPT;
        conclude(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(108)), STAKE - 2 * UNIT);
    }
}
