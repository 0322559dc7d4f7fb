// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IJudgement} from "../../market/interfaces/IJudgement.sol";
import {Outcome} from "../../market/interfaces/Proceedings.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Reveal} from "../../market/libraries/Reveals.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title What drawn reviewers commit to, by themselves or all at once
contract CourtCommitmentsTest is CourtTest {
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
}
