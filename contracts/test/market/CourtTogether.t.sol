// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {TileTree} from "../../libraries/TileTree.sol";
import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IDocket} from "../../market/interfaces/IDocket.sol";
import {IJudgement} from "../../market/interfaces/IJudgement.sol";
import {CasePhase, CaseState, NodeReveal, Outcome} from "../../market/interfaces/Proceedings.sol";
import {CaseGas} from "../../market/libraries/CaseGas.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {CourtTest} from "./support/CourtTest.sol";
import {Headers} from "./support/Headers.sol";

/// @title Two steps of a case in one call, where everybody has spoken; and who is paid for which gas
contract CourtTogetherTest is CourtTest {
    uint256 private constant REVIEWERS = 5;

    address private committer = makeAddr("committer");
    address private decider = makeAddr("decider");

    /// @dev Nodes base + 4 and following will be drawn, a seat each.
    function force(Play memory play) private {
        registry.force(expected(play));
    }

    function expected(Play memory play) private view returns (address[] memory drawn) {
        drawn = new address[](REVIEWERS);
        for (uint256 i = 0; i < REVIEWERS; ++i) {
            drawn[i] = node(base(play.state.executionClass) + 4 + i);
        }
    }

    /// @dev What the reviewers that will be drawn sign before anybody has drawn them.
    function pledges(Play memory play, Vote[] memory votes)
        private
        view
        returns (bytes32[] memory commitments, bytes memory signatures)
    {
        play.state.reviewers = expected(play);
        commitments = new bytes32[](votes.length);
        for (uint256 i = 0; i < votes.length; ++i) {
            commitments[i] = commitmentOf(play, i, votes[i]);
            signatures = bytes.concat(signatures, signedCommitment(play, i, commitments[i]));
        }
        play.state.reviewers = new address[](0);
    }

    function due(Play memory play) private returns (bytes memory header) {
        force(play);
        pass(LOOKAHEAD + 1);
        header = dueHeader(play, keccak256(abi.encode("randao", play.state.round)));
    }

    function convene(Play memory play, Vote[] memory votes) private {
        bytes memory header = due(play);
        (bytes32[] memory commitments, bytes memory signatures) = pledges(play, votes);
        vm.recordLogs();
        vm.prank(committer);
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
        foldConvene(play);
    }

    /// @dev Both events, in their order, give the state.
    function foldConvene(Play memory play) private view {
        CaseState memory state = play.state;
        state.reviewers = expected(play);
        state.seats = new bytes(REVIEWERS);
        for (uint256 i = 0; i < REVIEWERS; ++i) {
            state.seats[i] = 0x01;
        }
        state.committer = committer;
    }

    function folded(Play memory play, Vote[] memory votes) private {
        convene(play, votes);
        play.state.commitments = abi.decode(logged(ICourt.ReviewsCommitted.selector), (bytes32[]));
        assertEq(loggedCaller, committer);
        fold(play, CasePhase.Committed);
    }

    function concludeAll(Play memory play, bytes32 data, Vote[] memory votes) private returns (bytes memory call) {
        pass(LOOKAHEAD + 1);
        bytes memory header = dueHeader(play, keccak256("tiles"));
        return concludeCall(play, header, data, votes);
    }

    function concludeCall(Play memory play, bytes memory header, bytes32 data, Vote[] memory votes)
        private
        view
        returns (bytes memory)
    {
        bytes32 seedBefore = play.state.seed;
        play.state.seed = tilesSeed(play, keccak256("tiles"));
        NodeReveal memory shown;
        if (data != 0) shown = nodeReveal(play, data);
        bytes memory all = packed(play, reviewReveals(play, votes, shown.tiles));
        play.state.seed = seedBefore;
        return abi.encodeCall(ICourt.conclude, (play.caseId, play.state, header, shown, all));
    }

    function tilesSeed(Play memory play, bytes32 randao) private pure returns (bytes32) {
        return Messages.tilesSeed(play.caseId, play.state.commitments, randao);
    }

    function send(bytes memory call) private returns (bool success, bytes memory answer) {
        vm.prank(decider);
        (success, answer) = address(court).call(call);
    }

    function assertRefused(bytes memory call, bytes4 reason) private {
        (bool success, bytes memory answer) = send(call);
        assertFalse(success);
        assertEq(bytes32(bytes4(answer)), bytes32(reason));
    }

    // ---- the whole way

    function test_anExactCaseInThreeCalls() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        folded(play, votes);
        vm.fee(1 gwei);
        decide(play, FALSE, votes);
        vm.fee(0);
        assertOutcome(play, Outcome.Convicted);
        assertEq(creditOf(committer), CaseGas.convening(REVIEWERS) * 1 gwei);
    }

    function test_aTolerantCaseInThreeCalls() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        for (uint256 i = 0; i < REVIEWERS; ++i) {
            votes[i].score = SECOND_CUT + 1;
        }
        folded(play, votes);
        bytes memory call = concludeAll(play, FALSE, votes);
        vm.recordLogs();
        vm.fee(1 gwei);
        (bool success,) = send(call);
        vm.fee(0);
        assertTrue(success);
        assertEq(creditOf(decider), CaseGas.deciding(wholeDecision(play)) * 1 gwei);
        assertOutcome(play, Outcome.Convicted);
        bytes32 shown = abi.decode(logged(ICourt.CaseSeeded.selector), (bytes32));
        assertEq(shown, tilesSeed(play, keccak256("tiles")));
    }

    /// @dev Each of five, and the node, opens a tile of 99 rows.
    function wholeDecision(Play memory play) private pure returns (CaseGas.Decision memory done) {
        (done.shown, done.paid, done.tiles) = (REVIEWERS, REVIEWERS, REVIEWERS + 1);
        done.depth = TileTree.depthOf(TileTree.tileCount(play.state.rows, 32, 0));
        (done.convicts, done.proves) = (true, true);
    }

    // ---- convening

    function test_nobodyIsConvenedWithoutAWord() public {
        Play memory play = begun(exact, FALSE);
        bytes memory header = due(play);
        (bytes32[] memory commitments, bytes memory signatures) = pledges(play, say(REVIEWERS, REJECT, HONEST));
        bytes32 first = commitments[0];
        commitments[0] = 0;
        vm.expectRevert(abi.encodeWithSelector(ICourt.ZeroCommitment.selector, play.caseId));
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
        commitments[0] = keccak256("invented");
        vm.expectPartialRevert(ICourt.WrongSigner.selector);
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
        // Two reviewers' words in each other's places.
        (commitments[0], commitments[1]) = (commitments[1], first);
        vm.expectPartialRevert(ICourt.WrongSigner.selector);
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
        (commitments[0], commitments[1]) = (first, commitments[0]);
        vm.expectPartialRevert(ICourt.WrongCount.selector);
        court.convene(play.caseId, play.state, header, "", commitments, bytes.concat(signatures, hex"00"));
        vm.expectPartialRevert(ICourt.WrongCount.selector);
        court.convene(play.caseId, play.state, header, "", new bytes32[](REVIEWERS - 1), new bytes(65 * 4));
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
    }

    function test_theBeaconIsThatOfTheDraw() public {
        Play memory play = begun(exact, FALSE);
        (bytes32[] memory commitments, bytes memory signatures) = pledges(play, say(REVIEWERS, REJECT, HONEST));
        vm.expectPartialRevert(IDocket.TooEarly.selector);
        court.convene(play.caseId, play.state, "", "", commitments, signatures);
        bytes memory header = due(play);
        bytes memory other = Headers.build(play.state.phaseBlock + LOOKAHEAD, "another");
        vm.expectPartialRevert(IDocket.WrongHeader.selector);
        court.convene(play.caseId, play.state, other, "", commitments, signatures);
        pass(DRAW_WINDOW);
        vm.expectPartialRevert(IDocket.TooLate.selector);
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
    }

    /// @dev Once somebody has drawn, own posts can stand, and only `commit` unites them.
    function test_whoeverHasPostedIsNotConvened() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        (bytes32[] memory commitments, bytes memory signatures) = pledges(play, votes);
        draw(play, REVIEWERS);
        vm.prank(node(4));
        court.post(play.caseId, play.state, commitments[0]);
        bytes memory header = Headers.build(play.state.phaseBlock, "randao");
        vm.expectRevert(abi.encodeWithSelector(IDocket.WrongPhase.selector, CasePhase.Drawn));
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
    }

    function test_nobodyPostsAfterAllHaveSpoken() public {
        Play memory play = begun(exact, FALSE);
        folded(play, say(REVIEWERS, REJECT, HONEST));
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongPhase.selector, CasePhase.Committed));
        vm.prank(node(4));
        court.post(play.caseId, play.state, "another");
    }

    /// @dev Two, two and one: no cluster. The words of the first round are worth nothing in the second.
    function test_wordsOfOneRoundConveneNobodyInAnother() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        (votes[2].data, votes[3].data) = (keccak256("b"), keccak256("b"));
        votes[4].opinion = CANNOT_TELL;
        (bytes32[] memory commitments, bytes memory signatures) = pledges(play, votes);
        folded(play, votes);
        vm.recordLogs();
        decide(play, FALSE, votes);
        foldRestart(play);
        bytes memory header = due(play);
        vm.expectPartialRevert(ICourt.WrongSigner.selector);
        court.convene(play.caseId, play.state, header, "", commitments, signatures);
    }

    // ---- concluding

    function test_concludingLeavesNobodyOut() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        folded(play, votes);
        pass(LOOKAHEAD + 1);
        bytes memory header = dueHeader(play, keccak256("tiles"));
        // Not even when the time to show would be over, had it begun.
        pass(REVEAL_WINDOW + 1);
        makeKnown(play.state.phaseBlock + LOOKAHEAD, keccak256(header));
        Vote[] memory fewer = say(REVIEWERS, REJECT, HONEST);
        fewer[1].opinion = NONE;
        assertRefused(concludeCall(play, header, FALSE, fewer), IJudgement.RevealMissing.selector);
        assertRefused(concludeCall(play, header, 0, votes), IJudgement.RevealMissing.selector);
        (bool success,) = send(concludeCall(play, header, FALSE, votes));
        assertTrue(success);
    }

    function test_aNodeThatShowsNothingIsGivenItsWindow() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(REVIEWERS, CANNOT_TELL, HONEST);
        folded(play, votes);
        pass(LOOKAHEAD + 1);
        bytes memory header = dueHeader(play, keccak256("tiles"));
        assertRefused(concludeCall(play, header, 0, votes), IJudgement.RevealMissing.selector);
    }

    function test_concludingNeedsTheDueHeader() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        folded(play, votes);
        assertRefused(concludeCall(play, "", FALSE, votes), IJudgement.TooEarly.selector);
        pass(LOOKAHEAD + 1);
        bytes memory header = dueHeader(play, keccak256("tiles"));
        bytes memory other = Headers.build(play.state.phaseBlock + LOOKAHEAD, "chosen");
        assertRefused(concludeCall(play, other, FALSE, votes), IDocket.WrongHeader.selector);
        pass(DRAW_WINDOW);
        assertRefused(concludeCall(play, header, FALSE, votes), IJudgement.TooLate.selector);
    }

    /// @dev After a seed everybody may show by itself: then `decide` alone knows who did.
    function test_aSeededCaseIsDecided() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        folded(play, votes);
        seed(play);
        assertRefused(concludeCall(play, "", FALSE, votes), IJudgement.WrongPhase.selector);
    }

    function test_anExactCaseHasNoTilesToDraw() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(REVIEWERS, REJECT, HONEST);
        folded(play, votes);
        assertRefused(concludeCall(play, "", FALSE, votes), IJudgement.ExactClass.selector);
    }

    // ---- who is paid for the commitments

    function paidFor(uint256 posts, bytes memory garbage) private returns (uint256) {
        Play memory play = begun(exact, HONEST);
        draw(play, REVIEWERS);
        Vote[] memory votes = say(REVIEWERS, ACCEPT, HONEST);
        bytes32[] memory commitments = new bytes32[](REVIEWERS);
        bytes memory signatures;
        for (uint256 i = 0; i < REVIEWERS; ++i) {
            commitments[i] = commitmentOf(play, i, votes[i]);
            signatures = bytes.concat(signatures, signedCommitment(play, i, commitments[i]));
            if (i >= posts) continue;
            vm.prank(node(4 + i));
            court.post(play.caseId, play.state, commitments[i]);
        }
        bytes memory call = abi.encodeCall(ICourt.commit, (play.caseId, play.state, commitments, signatures));
        vm.recordLogs();
        vm.prank(committer);
        (bool success,) = address(court).call(bytes.concat(call, garbage));
        assertTrue(success);
        foldCommit(play);
        vm.fee(1 gwei);
        decide(play, HONEST, votes);
        vm.fee(0);
        return creditOf(committer);
    }

    function test_whoSendsSignaturesIsPaidForThem() public {
        assertEq(paidFor(0, ""), CaseGas.committing(REVIEWERS, 0, REVIEWERS) * 1 gwei);
    }

    /// @dev Signatures of those who have posted are passed over, and bring nothing.
    function test_signaturesBesideOwnPostsAreNotPaid() public {
        uint256 paid = paidFor(3, "");
        assertEq(paid, CaseGas.committing(REVIEWERS, 3, REVIEWERS - 3) * 1 gwei);
        assertLt(paid, CaseGas.committing(REVIEWERS, 0, REVIEWERS) * 1 gwei);
    }

    function test_calldataThatNobodyNeedsIsNotPaid() public {
        assertEq(paidFor(0, new bytes(4000)), CaseGas.committing(REVIEWERS, 0, REVIEWERS) * 1 gwei);
    }
}
