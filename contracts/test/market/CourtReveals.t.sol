// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IJudgement} from "../../market/interfaces/IJudgement.sol";
import {Rules} from "../../market/interfaces/MarketTypes.sol";
import {CaseState, NodeReveal, Outcome} from "../../market/interfaces/Proceedings.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Reveal, Reveals} from "../../market/libraries/Reveals.sol";
import {Traces} from "../support/Traces.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title What the node and reviewers show, and who is left out
contract CourtRevealsTest is CourtTest {
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
}
