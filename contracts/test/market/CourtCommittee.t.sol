// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IDocket} from "../../market/interfaces/IDocket.sol";
import {IJudgement} from "../../market/interfaces/IJudgement.sol";
import {Rules} from "../../market/interfaces/MarketTypes.sol";
import {CasePhase, CaseState, NodeReveal, Outcome} from "../../market/interfaces/Proceedings.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Reveal, Reveals} from "../../market/libraries/Reveals.sol";
import {Traces} from "../support/Traces.sol";
import {CourtTest} from "./support/CourtTest.sol";
import {Headers} from "./support/Headers.sol";

/// @title From the draw of reviewers to their reveals, and what happens when somebody does not do its part
contract CourtCommitteeTest is CourtTest {
    function begun(bytes32 class, bytes32 data) private returns (Play memory play) {
        play = newPlay(class, data);
        verify(play, REJECT, REJECT, ACCEPT, false);
        open(play, client);
    }

    // ---- the draw

    function test_reviewersAreDrawnByTheBlockThatIsDue() public {
        registry.force(new address[](0));
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        bytes memory header = Headers.build(due, "randao");
        vm.roll(due);
        vm.expectRevert(abi.encodeWithSelector(IDocket.TooEarly.selector, due, due + 1));
        court.draw(play.caseId, play.state, header, "");
        vm.roll(due + 1);
        makeKnown(due, keccak256(header));
        sendDraw(play, header);
        uint256 seats = 0;
        for (uint256 i = 0; i < play.state.seats.length; ++i) {
            seats += uint8(play.state.seats[i]);
            for (uint256 j = 0; j < i; ++j) {
                assertNotEq(play.state.reviewers[i], play.state.reviewers[j]);
            }
        }
        assertEq(seats, 5);
        assertEq(uint256(play.state.phase), uint256(CasePhase.Drawn));
        assertEq(play.state.drawer, address(this));
    }

    function test_anotherRandaoDrawsOthers() public {
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        vm.roll(due + 1);
        bytes memory header = Headers.build(due, "randao");
        bytes memory ground = Headers.build(due, "another");
        makeKnown(due, keccak256(header));
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.WrongHeader.selector, due, due, keccak256(ground), keccak256(header))
        );
        court.draw(play.caseId, play.state, ground, "");
    }

    function test_theHeaderOfAnotherBlockDrawsNobody() public {
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        vm.roll(due + 2);
        bytes memory next = Headers.build(due + 1, "randao");
        makeKnown(due + 1, keccak256(next));
        bytes memory header = Headers.build(due, "randao");
        makeKnown(due, keccak256(header));
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.WrongHeader.selector, due, due + 1, keccak256(next), keccak256(header))
        );
        court.draw(play.caseId, play.state, next, "");
    }

    /// @dev EIP-2935 keeps 8,191 hashes; here the draw's window ends earlier.
    function test_aRandaoIsProvenFromHistoryAndNotForever() public {
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        bytes memory header = Headers.build(due, "randao");
        vm.roll(due + DRAW_WINDOW);
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.WrongHeader.selector, due, due, keccak256(header), bytes32(0))
        );
        court.draw(play.caseId, play.state, header, "");
        makeKnown(due, keccak256(header));
        CaseState memory waiting = abi.decode(abi.encode(play.state), (CaseState));
        uint256 snapshot = vm.snapshotState();
        sendDraw(play, header);
        vm.revertToState(snapshot);
        play.state = waiting;
        vm.roll(due + DRAW_WINDOW + 1);
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.TooLate.selector, due + DRAW_WINDOW + 1, due + DRAW_WINDOW)
        );
        court.draw(play.caseId, play.state, header, "");
    }

    function test_repeatedSeatsAreOneReviewerAtItsFirstPlace() public {
        Play memory play = begun(exact, FALSE);
        address[] memory drawn = new address[](5);
        (drawn[0], drawn[1], drawn[2], drawn[3], drawn[4]) = (node(6), node(5), node(6), node(7), node(6));
        registry.force(drawn);
        pass(LOOKAHEAD + 1);
        sendDraw(play, dueHeader(play, "randao"));
        assertEq(play.state.reviewers.length, 3);
        assertEq(play.state.reviewers[0], node(6));
        assertEq(play.state.reviewers[1], node(5));
        assertEq(uint8(play.state.seats[0]), 3);
        assertEq(uint8(play.state.seats[2]), 1);
        // Three of five seats are a cluster but not two thirds; the two are outside it.
        Vote[] memory votes = say(3, ACCEPT, FALSE);
        votes[0] = Vote(REJECT, HONEST, 0, 0);
        commit(play, votes);
        decide(play, FALSE, votes);
        assertOutcome(play, Outcome.Refunded);
        assertEq(creditOf(node(6)), 18 * UNIT);
        assertEq(stakeOf(node(5)), STAKE - 2 * UNIT);
    }

    function test_fourSeatsOfOneNodeConvict() public {
        Play memory play = begun(exact, FALSE);
        draw(play, hex"0401");
        Vote[] memory votes = say(2, REJECT, HONEST);
        votes[1] = Vote(ACCEPT, FALSE, 0, 0);
        commit(play, votes);
        decide(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
        assertEq(creditOf(node(4)), 24 * UNIT);
    }

    function test_whoJoinsAfterTheReferenceBlockJudgesNothing() public {
        registry.force(new address[](0));
        Play memory play = newPlay(exact, FALSE);
        verify(play, REJECT, REJECT, REJECT, false);
        open(play, client);
        for (uint256 i = 30; i < 60; ++i) {
            _join(i, exact);
        }
        pass(LOOKAHEAD + 1);
        registry.force(new address[](0));
        sendDraw(play, dueHeader(play, "randao"));
        for (uint256 i = 0; i < play.state.reviewers.length; ++i) {
            assertLt(keys[play.state.reviewers[i]] - NODE_KEY, 20);
        }
    }

    // ---- commitments

    function test_ownPostsAreNeverReplaced() public {
        Play memory play = begun(exact, FALSE);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        bytes32[] memory commitments = new bytes32[](5);
        for (uint256 i = 0; i < 5; ++i) {
            commitments[i] = commitmentOf(play, i, votes[i]);
        }
        vm.prank(node(4));
        court.post(play.caseId, play.state, commitments[0]);
        vm.prank(node(6));
        court.post(play.caseId, play.state, commitments[2]);
        assertEq(court.postOf(play.caseId, 0, node(4)), commitments[0]);
        // The batch holds another word of the first, signed by it, and nothing of the third.
        bytes32[] memory batch = new bytes32[](5);
        (batch[0], batch[1], batch[3], batch[4]) = (keccak256("else"), commitments[1], commitments[3], commitments[4]);
        bytes memory signatures = bytes.concat(
            signedCommitment(play, 0, batch[0]),
            signedCommitment(play, 1, batch[1]),
            signedCommitment(play, 3, batch[3]),
            signedCommitment(play, 4, batch[4])
        );
        sendCommit(play, batch, signatures);
        for (uint256 i = 0; i < 5; ++i) {
            assertEq(play.state.commitments[i], commitments[i]);
        }
        decide(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
    }

    function test_aPostIsMadeOnceByAReviewer() public {
        Play memory play = begun(exact, FALSE);
        draw(play, 5);
        bytes32 hearing = Messages.hearing(play.caseId, 0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotReviewer.selector, stranger, play.caseId));
        vm.prank(stranger);
        court.post(play.caseId, play.state, "post");
        vm.startPrank(node(5));
        vm.expectRevert(abi.encodeWithSelector(ICourt.ZeroCommitment.selector, play.caseId));
        court.post(play.caseId, play.state, 0);
        court.post(play.caseId, play.state, "post");
        vm.expectRevert(abi.encodeWithSelector(ICourt.AlreadyDone.selector, node(5), hearing));
        court.post(play.caseId, play.state, "later");
        vm.stopPrank();
        pass(COMMIT_WINDOW + 1);
        vm.expectPartialRevert(ICourt.TooLate.selector);
        vm.prank(node(6));
        court.post(play.caseId, play.state, "post");
    }

    function test_anIncompleteBatchWaitsForThreeQuarters() public {
        Play memory play = begun(exact, FALSE);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[0].opinion = NONE;
        (bytes32[] memory commitments, bytes memory signatures) = batchOf(play, votes);
        uint256 first = play.state.phaseBlock + 76;
        vm.roll(first - 1);
        vm.expectRevert(abi.encodeWithSelector(ICourt.TooEarly.selector, first - 1, first));
        court.commit(play.caseId, play.state, commitments, signatures);
        vm.roll(first);
        sendCommit(play, commitments, signatures);
        decide(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(4)), STAKE - 2 * UNIT, "no word at all is silence");
    }

    function batchOf(Play memory play, Vote[] memory votes)
        private
        view
        returns (bytes32[] memory commitments, bytes memory signatures)
    {
        commitments = new bytes32[](votes.length);
        for (uint256 i = 0; i < votes.length; ++i) {
            if (votes[i].opinion == NONE) continue;
            commitments[i] = commitmentOf(play, i, votes[i]);
            signatures = bytes.concat(signatures, signedCommitment(play, i, commitments[i]));
        }
    }

    function test_halfOfTheSeatsAreTooFew() public {
        Play memory play = begun(exact, FALSE);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        (votes[0].opinion, votes[1].opinion, votes[2].opinion) = (NONE, NONE, NONE);
        (bytes32[] memory commitments, bytes memory signatures) = batchOf(play, votes);
        pass(COMMIT_WINDOW);
        vm.expectRevert(abi.encodeWithSelector(ICourt.TooFewCommitments.selector, 2, 5));
        court.commit(play.caseId, play.state, commitments, signatures);
    }

    function test_aCommitmentIsItsReviewersOwn() public {
        Play memory play = begun(exact, FALSE);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        (bytes32[] memory commitments, bytes memory signatures) = batchOf(play, votes);
        // The second copies the first's commitment and signature.
        commitments[1] = commitments[0];
        for (uint256 i = 0; i < 65; ++i) {
            signatures[65 + i] = signatures[i];
        }
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongSigner.selector, 1, node(4), node(5)));
        court.commit(play.caseId, play.state, commitments, signatures);
        // It may sign the copy, but cannot open it: it names the first.
        bytes memory copy = signedCommitment(play, 1, commitments[1]);
        for (uint256 i = 0; i < 65; ++i) {
            signatures[65 + i] = copy[i];
        }
        sendCommit(play, commitments, signatures);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        reveals[1] = reveals[0];
        vm.expectPartialRevert(IJudgement.CommitmentMismatch.selector);
        sendDecide(play, nodeReveal(play, FALSE), reveals);
    }

    function test_signaturesAreCountedToTheByte() public {
        Play memory play = begun(exact, FALSE);
        draw(play, 5);
        (bytes32[] memory commitments, bytes memory signatures) = batchOf(play, say(5, REJECT, HONEST));
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 326, 325));
        court.commit(play.caseId, play.state, commitments, bytes.concat(signatures, hex"00"));
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 0, 65));
        court.commit(play.caseId, play.state, commitments, "");
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 4, 5));
        court.commit(play.caseId, play.state, new bytes32[](4), "");
    }

    /// @dev Signed commitments are public; one of the first round or of an earlier opening must not speak in a later
    ///      one.
    function test_aCommitmentOfOneRoundIsWorthNothingInAnother() public {
        Play memory play = begun(exact, FALSE);
        draw(play, 5);
        Vote[] memory votes = say(5, REJECT, HONEST);
        (votes[0].opinion, votes[1].opinion) = (ACCEPT, ACCEPT);
        (votes[0].data, votes[1].data, votes[2].opinion) = (FALSE, FALSE, CANNOT_TELL);
        (bytes32[] memory commitments, bytes memory signatures) = batchOf(play, votes);
        commit(play, votes);
        vm.recordLogs();
        decide(play, FALSE, votes);
        foldRestart(play);
        draw(play, 5);
        vm.expectPartialRevert(ICourt.WrongSigner.selector);
        court.commit(play.caseId, play.state, commitments, signatures);
        // Its own post with the old commitment does not open either.
        vm.prank(node(4));
        court.post(play.caseId, play.state, commitments[0]);
        assertEq(court.postOf(play.caseId, 0, node(4)), 0);
        assertEq(court.postOf(play.caseId, 1, node(4)), commitments[0]);
    }

    // ---- reveals

    function test_ownRevealsInAnyOrderFromTheFirstBlock() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        for (uint256 i = 0; i < 5; ++i) {
            votes[i].score = SECOND_CUT + 1;
        }
        draw(play, 5);
        commit(play, votes);
        seed(play);
        uint256[4] memory order = [uint256(3), 0, 4, 1];
        for (uint256 i = 0; i < 4; ++i) {
            revealAs(play, order[i], votes[order[i]]);
        }
        NodeReveal memory shown = nodeReveal(play, FALSE);
        vm.prank(node(100));
        court.revealNode(play.caseId, play.state, shown);
        assertNotEq(court.revealOf(play.caseId, 0, node(100)), 0);
        // Whoever decides cannot leave out who showed its part, in time or later.
        pass(REVEAL_WINDOW + 1);
        Reveal[] memory reveals = reviewReveals(play, votes, shown.tiles);
        Reveal memory none;
        Reveal memory kept = reveals[3];
        reveals[3] = none;
        vm.expectRevert(
            abi.encodeWithSelector(IJudgement.RevealMissing.selector, 3, play.state.phaseBlock + REVEAL_WINDOW)
        );
        sendDecide(play, shown, reveals);
        reveals[3] = kept;
        NodeReveal memory nothing;
        vm.expectRevert(
            abi.encodeWithSelector(IJudgement.RevealMissing.selector, 255, play.state.phaseBlock + REVEAL_WINDOW)
        );
        sendDecide(play, nothing, reveals);
        reveals[2] = none;
        sendDecide(play, shown, reveals);
        assertOutcome(play, Outcome.Convicted);
        assertEq(stakeOf(node(106)), STAKE - 2 * UNIT);
    }

    function revealAs(Play memory play, uint256 place, Vote memory vote) private {
        Reveal memory shown = reviewReveal(play, place, vote, "");
        vm.prank(play.state.reviewers[place]);
        court.reveal(play.caseId, play.state, place, packed(play, shown));
    }

    function test_aRevealThatDoesNotOpenIsNone() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        draw(play, 5);
        commit(play, votes);
        seed(play);
        Reveal memory shown = reviewReveal(play, 0, votes[0], "");
        shown.tiles[7] ^= 0x01;
        vm.expectPartialRevert(IJudgement.InvalidOpening.selector);
        vm.prank(node(104));
        court.reveal(play.caseId, play.state, 0, packed(play, shown));
        vm.expectPartialRevert(IJudgement.NotReviewer.selector);
        vm.prank(stranger);
        court.reveal(play.caseId, play.state, 0, packed(play, shown));
        vm.expectPartialRevert(IJudgement.NotReviewer.selector);
        vm.prank(node(104));
        court.reveal(play.caseId, play.state, type(uint256).max, packed(play, shown));
        shown.tiles[7] ^= 0x01;
        shown.opinion = ACCEPT;
        vm.expectPartialRevert(IJudgement.CommitmentMismatch.selector);
        vm.prank(node(104));
        court.reveal(play.caseId, play.state, 0, packed(play, shown));
        revealAs(play, 0, votes[0]);
        Reveal memory again = reviewReveal(play, 0, votes[0], "");
        bytes32 hearing = Messages.hearing(play.caseId, 0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.AlreadyDone.selector, node(104), hearing));
        vm.prank(node(104));
        court.reveal(play.caseId, play.state, 0, packed(play, again));
        pass(REVEAL_WINDOW + 1);
        vm.expectPartialRevert(IJudgement.TooLate.selector);
        vm.prank(node(104));
        court.reveal(play.caseId, play.state, 0, packed(play, again));
    }

    function test_aMaskThatIsNotTheNodesOpensNothing() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        draw(play, 5);
        commit(play, votes);
        seed(play);
        NodeReveal memory shown = nodeReveal(play, FALSE);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        reveals[0].mask = uint8(Reveals.NODE);
        failsToDecide(play, shown, reveals, IJudgement.InvalidOpening.selector);
        // A node's own tiles, masked with themselves, are not a reviewer's.
        reveals = reviewReveals(play, votes, shown.tiles);
        reveals[0].tiles = new bytes(512);
        failsToDecide(play, shown, reveals, IJudgement.InvalidOpening.selector);
    }

    /// @dev Packed before the revert is expected of the next call.
    function failsToDecide(Play memory play, NodeReveal memory shown, Reveal[] memory reveals, bytes4 reason) private {
        bytes memory all_ = packed(play, reveals);
        vm.expectPartialRevert(reason);
        court.decide(play.caseId, play.state, shown, all_);
    }

    function test_tilesAreMaskedByWhoeverStandsBefore() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[1].opinion = CANNOT_TELL;
        for (uint256 i = 0; i < 5; ++i) {
            votes[i].score = SECOND_CUT + 1;
        }
        draw(play, 5);
        commit(play, votes);
        seed(play);
        NodeReveal memory shown = nodeReveal(play, FALSE);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        bytes memory third = bytes.concat(reveals[2].tiles);
        for (uint256 i = 0; i < 512; ++i) {
            reveals[2].tiles[i] ^= reveals[0].tiles[i];
            reveals[4].tiles[i] ^= third[i];
        }
        // Nobody, itself, whoever stands behind, whoever has no tiles.
        uint8[4] memory others = [77, 2, 3, 1];
        for (uint256 i = 0; i < 4; ++i) {
            reveals[2].mask = others[i];
            failsToDecide(play, shown, reveals, IJudgement.InvalidMask.selector);
        }
        (reveals[2].mask, reveals[4].mask) = (0, 2);
        sendDecide(play, shown, reveals);
        assertOutcome(play, Outcome.Convicted);
    }

    function test_ofANodeThatShowsNothingNoMaskIsMade() public {
        Play memory play = begun(tolerant, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        draw(play, 5);
        commit(play, votes);
        seed(play);
        pass(REVEAL_WINDOW + 1);
        NodeReveal memory none;
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        reveals[0].mask = uint8(Reveals.NODE);
        failsToDecide(play, none, reveals, IJudgement.InvalidMask.selector);
        reveals[0].mask = uint8(Reveals.CLEAR);
        sendDecide(play, none, reveals);
        assertOutcome(play, Outcome.NodeMissing);
    }

    /// @dev A root that is the last one before it is left out; nothing may be missing at the end, or follow it.
    function test_revealsAreReadToTheByte() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        draw(play, 5);
        commit(play, votes);
        NodeReveal memory shown = nodeReveal(play, FALSE);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        bytes memory all_ = packed(play, reveals[0]);
        for (uint256 i = 1; i < 5; ++i) {
            Reveal memory one = reveals[i];
            all_ = abi.encodePacked(all_, one.opinion | uint8(Reveals.REPEATED), one.score, one.spread, one.salt);
        }
        vm.expectRevert(abi.encodeWithSelector(IJudgement.WrongLength.selector, all_.length + 1, all_.length));
        court.decide(play.caseId, play.state, shown, bytes.concat(all_, hex"00"));
        bytes memory short = bytes.concat(all_);
        assembly ("memory-safe") {
            mstore(short, sub(mload(short), 1))
        }
        // What is beyond the end reads as zero.
        vm.expectPartialRevert(IJudgement.CommitmentMismatch.selector);
        court.decide(play.caseId, play.state, shown, short);
        court.decide(play.caseId, play.state, shown, all_);
        assertOutcome(play, Outcome.Convicted);
    }

    function test_nobodyRepeatsARootThatIsNotItsOwn() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        votes[0].data = FALSE;
        draw(play, 5);
        commit(play, votes);
        NodeReveal memory shown = nodeReveal(play, FALSE);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        Reveal memory one = reveals[1];
        bytes memory all_ = packed(play, reveals[0]);
        all_ = abi.encodePacked(all_, one.opinion | uint8(Reveals.REPEATED), one.score, one.spread, one.salt);
        for (uint256 i = 2; i < 5; ++i) {
            all_ = bytes.concat(all_, packed(play, reveals[i]));
        }
        vm.expectPartialRevert(IJudgement.CommitmentMismatch.selector);
        court.decide(play.caseId, play.state, shown, all_);
    }

    function test_nobodyIsLeftOutBeforeTheWindowEnds() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        draw(play, 5);
        commit(play, votes);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        NodeReveal memory none;
        uint256 last = play.state.phaseBlock + REVEAL_WINDOW;
        vm.roll(last);
        vm.expectRevert(abi.encodeWithSelector(IJudgement.RevealMissing.selector, 255, last));
        sendDecide(play, none, reveals);
        NodeReveal memory shown = nodeReveal(play, FALSE);
        reveals[1].opinion = NONE;
        vm.expectRevert(abi.encodeWithSelector(IJudgement.RevealMissing.selector, 1, last));
        sendDecide(play, shown, reveals);
    }

    function test_anExactClassShowsNoTilesAndARootThatIsNotZero() public {
        Play memory play = begun(exact, FALSE);
        Vote[] memory votes = say(5, REJECT, HONEST);
        draw(play, 5);
        commit(play, votes);
        Reveal[] memory reveals = reviewReveals(play, votes, "");
        NodeReveal memory shown = nodeReveal(play, FALSE);
        shown.tiles = new bytes(32);
        failsToDecide(play, shown, reveals, IJudgement.InvalidOpening.selector);
        (shown.tiles, shown.salt) = ("", "another");
        vm.expectPartialRevert(IJudgement.TraceMismatch.selector);
        sendDecide(play, shown, reveals);
    }

    /// @dev A sampled tile more than a short trace has would convict who served it honestly.
    function test_aShortTraceOpensAllThatItHas() public {
        Rules memory many = rules(false, 5);
        many.tiles = 6;
        registry.setClass(tolerant, many);
        Play memory play = newPlay(tolerant, HONEST);
        (play.results[0].prompt, play.results[0].written) = (2, 1);
        play.results[0].traceCommitment =
            keccak256(abi.encode(rootOf(tolerant, 2, HONEST, address(0)), nodeSalt()));
        signResults(play);
        signDraw(play, uint64(vm.getBlockNumber()));
        vm.recordLogs();
        uint96 bond = court.bondFor(tolerant, 2);
        vm.prank(client);
        play.caseId = sendOpen(play, bond);
        play.state = abi.decode(logged(ICourt.CaseOpened.selector), (CaseState));
        Vote[] memory votes = say(5, ACCEPT, HONEST);
        draw(play, 5);
        commit(play, votes);
        seed(play);
        decideWithAll(play, votes);
        assertOutcome(play, Outcome.Upheld);
    }

    function decideWithAll(Play memory play, Vote[] memory votes) private {
        NodeReveal memory shown;
        (shown.root, shown.tiles, shown.siblings) = all(play, address(0));
        shown.salt = nodeSalt();
        Reveal[] memory reveals = new Reveal[](votes.length);
        for (uint256 i = 0; i < votes.length; ++i) {
            reveals[i].opinion = ACCEPT;
            reveals[i].salt = reviewSalt(play.state.reviewers[i]);
            (reveals[i].root, reveals[i].tiles, reveals[i].siblings) = all(play, play.state.reviewers[i]);
            reveals[i].mask = uint8(Reveals.CLEAR);
        }
        sendDecide(play, shown, reveals);
    }

    /// @dev The two tiles of two rows.
    function all(Play memory play, address maker)
        private
        view
        returns (bytes32 root, bytes memory tiles, bytes32[] memory siblings)
    {
        root = rootOf(tolerant, 2, HONEST, maker);
        (tiles, siblings) = Traces.open(traceOf(HONEST, maker), shape(2), play.state.seed, 0, 2);
    }

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
