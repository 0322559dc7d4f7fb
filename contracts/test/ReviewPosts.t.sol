// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {ITrothOpenings} from "../interfaces/ITrothOpenings.sol";
import {ITrothOwnPosts} from "../interfaces/ITrothOwnPosts.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {ITrothSignedPosts} from "../interfaces/ITrothSignedPosts.sol";
import {CommitSubmission, Opening, Outcome, Phase, Progress, VrfProof} from "../interfaces/TrothTypes.sol";
import {Balances} from "./support/Balances.sol";

/// @title What reviewers post and reveal, and which calls a review refuses
contract ReviewPostsTest is Balances {
    VrfProof[] private none;

    function undecided(bytes32 class) private returns (Dispute memory made) {
        Play memory play = newPlay(class, WHOLE);
        play.conducts[2].data = FALSE_DATA;
        play.conducts[3].verdict = false;
        made = disputeOf(play, finishFirst(play), 0);
        dispute(made, outsider, 0);
        pass(1);
    }

    function assigned(bytes32 class) private returns (Dispute memory made) {
        made = undecided(class);
        assignReview(made);
    }

    function post(Dispute memory made, uint256 reviewer) private {
        bytes32 terms = keccak256(abi.encode(made.review.task.terms));
        bytes32 commitment = commitmentOf(made.review, 0, 1 + reviewer);
        vm.prank(reviewerOf(made, reviewer));
        troth.commitVerification(made.review.id, terms, made.review.task.progress, 0, commitment);
        made.review.task.progress.posts[1 + reviewer] = commitment;
    }

    function noteCommitted(Dispute memory made) private view {
        made.review.task.progress.phase = Phase.Committed;
        made.review.task.progress.phaseBlock = uint40(vm.getBlockNumber());
    }

    function test_EachReviewerPostsAndRevealsForItself() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = assigned(classes[i]);
            for (uint256 v = 0; v < REVIEWERS; ++v) {
                assertEq(troth.taskState(made.review.id), stateHash(made.review.task));
                post(made, v);
            }
            noteCommitted(made);
            assertEq(troth.taskState(made.review.id), stateHash(made.review.task));
            pass(1);
            if (classes[i] == tolerant) sample(made.review);
            for (uint8 party = 0; party <= REVIEWERS; ++party) {
                reveal(made, party);
            }
            settleReview(made);
            assertOutcome(made.review.id, Outcome.Accepted);
        }
    }

    function reveal(Dispute memory made, uint8 party) private {
        Progress memory progress = made.review.task.progress;
        Opening memory opening = openingOf(made.review, 0, party, progress.seed);
        vm.prank(outsider);
        troth.reveal(made.review.id, made.review.task, 0, party, opening);
        if (progress.revealed.length == 0) progress.revealed = new bytes32[](1 + REVIEWERS);
        progress.revealed[party] = keccak256(abi.encode(opening.root, opening.verdict, keccak256(opening.tiles)));
        assertEq(troth.taskState(made.review.id), stateHash(made.review.task));
    }

    function test_SealsWithThreeOfFive() public {
        Dispute memory made = assigned(exact);
        uint256 half = uint256(made.review.task.progress.phaseBlock) + COMMIT_WINDOW / 2;
        post(made, 1);
        post(made, 3);
        vm.roll(half + 1);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.QuorumMissing.selector, 0, 2, 3));
        troth.seal(made.review.id, made.review.task);
        post(made, 4);
        troth.seal(made.review.id, made.review.task);
        noteCommitted(made);
        made.review.conducts[1].commits = false;
        made.review.conducts[3].commits = false;
        pass(1);
        settleReview(made);
        assertOutcome(made.review.id, Outcome.Accepted);
    }

    function test_OnlyReviewersPost() public {
        Dispute memory made = assigned(exact);
        bytes32 terms = keccak256(abi.encode(made.review.task.terms));
        address[3] memory others = [verifierOf(made, 0), inferencerOf(made), outsider];
        for (uint256 i = 0; i < others.length; ++i) {
            vm.prank(others[i]);
            vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.NotVerifier.selector, 0, others[i]));
            troth.commitVerification(made.review.id, terms, made.review.task.progress, 0, bytes32("x"));
        }
    }

    /// @dev The root stands since the first round.
    function test_TheInferencerCannotChangeItsRoot() public {
        Dispute memory made = assigned(exact);
        bytes32 terms = keccak256(abi.encode(made.review.task.terms));
        address inferencer = inferencerOf(made);
        vm.prank(inferencer);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.AlreadyPosted.selector, 0, inferencer));
        troth.commitInference(
            made.review.id, terms, made.review.task.progress, 0, 1, POSITIONS, keccak256("another"), OUTPUT
        );
        commitReview(made);
        pass(1);
        Opening[] memory openings = openingsOf(made.review, 0);
        bytes32 root = openings[0].root;
        openings[0].root = keccak256("another");
        VrfProof memory proof;
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.RootMismatch.selector, 0, openings[0].root, root));
        troth.settleReview(
            made.first.id, made.first.task, made.settled, 0, made.review.task, proof, openings
        );
    }

    function test_RefusesWrongSubmissions() public {
        Dispute memory made = assigned(exact);
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(made.review);
        submit(made, new bytes32[](4), signatures, abi.encodeWithSelector(ITrothSignedPosts.WrongPostCount.selector, 4, 5));
        submit(made, new bytes32[](5), "", abi.encodeWithSelector(ITrothProgress.QuorumMissing.selector, 0, 0, 3));
        submit(
            made,
            commitments,
            bytes.concat(signatures, bytes1(0)),
            abi.encodeWithSelector(ITrothSignedPosts.WrongSignatureCount.selector, 326, 325)
        );
        (commitments[0], commitments[1]) = (commitments[1], commitments[0]);
        vm.expectPartialRevert(ITrothSignedPosts.WrongSigner.selector);
        troth.commitReview(made.review.id, made.review.task, none, commitments, signatures);
        uint256 last = uint256(made.review.task.progress.phaseBlock) + COMMIT_WINDOW;
        vm.roll(last + 1);
        submit(made, commitments, signatures, abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
    }

    function submit(Dispute memory made, bytes32[] memory commitments, bytes memory signatures, bytes memory reason)
        private
    {
        vm.expectRevert(reason);
        troth.commitReview(made.review.id, made.review.task, none, commitments, signatures);
    }

    /// @dev A node that reviews two segments cannot be made to say of one what it said of the other.
    function test_CommitmentsOfAnotherReviewAreRefused() public {
        Dispute memory made = assigned(exact);
        Dispute memory other = undecided(exact);
        assignReview(other);
        Play memory replayed = abi.decode(abi.encode(other.review), (Play));
        replayed.task.progress.parties = made.review.task.progress.parties;
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(replayed);
        vm.expectPartialRevert(ITrothSignedPosts.WrongSigner.selector);
        troth.commitReview(made.review.id, made.review.task, none, commitments, signatures);
    }

    /// @dev First-round commitments carry the task's id, not the review's; own posts of them cannot be opened.
    function test_CommitmentsOfTheFirstRoundAreRefused() public {
        Dispute memory made = assigned(exact);
        bytes32[] memory commitments = new bytes32[](REVIEWERS);
        bytes memory signatures;
        Play memory replayed = abi.decode(abi.encode(made.review), (Play));
        replayed.id = made.first.id;
        for (uint256 v = 0; v < REVIEWERS; ++v) {
            commitments[v] = commitmentOf(replayed, 0, 1 + v);
            signatures = bytes.concat(signatures, postSignature(replayed, 0, 1 + v, commitments[v]));
        }
        vm.expectPartialRevert(ITrothSignedPosts.WrongSigner.selector);
        troth.commitReview(made.review.id, made.review.task, none, commitments, signatures);
        bytes32 terms = keccak256(abi.encode(made.review.task.terms));
        Progress memory progress = made.review.task.progress;
        for (uint256 v = 0; v < REVIEWERS; ++v) {
            vm.prank(reviewerOf(made, v));
            troth.commitVerification(made.review.id, terms, progress, 0, commitments[v]);
            progress.posts[1 + v] = commitments[v];
        }
        noteCommitted(made);
        pass(1);
        Opening memory opening = openingOf(replayed, 0, 1, 0);
        vm.expectPartialRevert(ITrothOpenings.CommitmentMismatch.selector);
        troth.reveal(made.review.id, made.review.task, 0, 1, opening);
    }

    /// @dev Whoever hands in a signed set cannot leave out who posted for itself.
    function test_OwnPostsStayBesideASignedSet() public {
        Dispute memory made = assigned(exact);
        post(made, 2);
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(made.review);
        bytes32[] memory given = new bytes32[](REVIEWERS);
        signatures = "";
        for (uint256 v = 0; v < REVIEWERS; ++v) {
            if (v == 2) continue;
            given[v] = commitments[v];
            signatures = bytes.concat(signatures, postSignature(made.review, 0, 1 + v, commitments[v]));
        }
        troth.commitReview(made.review.id, made.review.task, none, given, signatures);
        noteReviewCommitted(made.review, commitments);
        assertEq(troth.taskState(made.review.id), stateHash(made.review.task));
    }

    /// @dev Until three quarters of the window have passed, somebody who was left out can still post.
    function test_MissingCommitmentsAreWaitedFor() public {
        Dispute memory made = assigned(exact);
        uint256 last = uint256(made.review.task.progress.phaseBlock) + COMMIT_WINDOW * 3 / 4;
        made.review.conducts[3].commits = false;
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(made.review);
        vm.roll(last);
        submit(made, commitments, signatures, abi.encodeWithSelector(ITrothProgress.TooEarly.selector, last, last + 1));
        vm.roll(last + 1);
        troth.commitReview(made.review.id, made.review.task, none, commitments, signatures);
        noteReviewCommitted(made.review, commitments);
        assertEq(troth.taskState(made.review.id), stateHash(made.review.task));
    }

    function test_CallsOfTheFirstRoundRefuseAReview() public {
        Dispute memory made = undecided(exact);
        Play memory review = made.review;
        CommitSubmission memory made_;
        VrfProof memory proof;
        bytes memory disputed =
            abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, review.id, Phase.Disputed);
        bytes memory isReview = abi.encodeWithSelector(ITrothProgress.IsReview.selector, review.id);
        vm.expectRevert(disputed);
        troth.assign(review.id, review.task, none);
        vm.expectRevert(disputed);
        troth.commit(review.id, review.task, none, made_);
        closings(review, isReview);
        vm.expectRevert(disputed);
        troth.seal(review.id, review.task);
        assignReview(made);
        vm.expectRevert(isReview);
        troth.commit(review.id, review.task, none, made_);
        closings(review, isReview);
        commitReview(made);
        pass(COMMIT_WINDOW + 1);
        closings(review, isReview);
        Opening[] memory openings = openingsOf(review, 0);
        vm.expectRevert(isReview);
        troth.settle(review.id, review.task, proof, openings);
    }

    function closings(Play memory review, bytes memory isReview) private {
        vm.prank(scheduler);
        vm.expectRevert(isReview);
        troth.abort(review.id, review.task);
        vm.expectRevert(isReview);
        troth.close(review.id, review.task);
    }

    function test_CallsOfAReviewRefuseATask() public {
        Play memory play = newPlay(exact, WHOLE);
        open(play);
        VrfProof memory proof;
        bytes32[] memory commitments = new bytes32[](3);
        bytes memory notReview = abi.encodeWithSelector(ITrothDisputes.NotReview.selector, play.id);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Opened));
        troth.assignReview(play.id, play.task, proof);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Opened));
        troth.commitReview(play.id, play.task, none, commitments, "");
        assign(play);
        vm.expectRevert(notReview);
        troth.commitReview(play.id, play.task, none, commitments, "");
        pass(COMMIT_WINDOW + 1);
        vm.expectRevert(notReview);
        troth.closeReview(play.id, play.task);
    }

    /// @dev A review's id names the task and the segment; no other task's review settles it.
    function test_RefusesAnotherTasksReview() public {
        Dispute memory made = undecided(exact);
        Dispute memory other = undecided(exact);
        assignReview(other);
        commitReview(other);
        pass(1);
        VrfProof memory proof;
        Opening[] memory openings = openingsOf(other.review, 0);
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.settleReview(
            made.first.id, made.first.task, made.settled, 0, other.review.task, proof, openings
        );
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.settleReview(
            other.first.id, other.first.task, made.settled, 0, other.review.task, proof, openings
        );
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.settleReview(
            other.first.id, made.first.task, other.settled, 0, other.review.task, proof, openings
        );
    }

    function test_SettlesOnceAndOnlyInItsTime() public {
        Dispute memory made = assigned(exact);
        VrfProof memory proof;
        Opening[] memory openings;
        vm.expectRevert(
            abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, made.review.id, Phase.Assigned)
        );
        troth.settleReview(made.first.id, made.first.task, made.settled, 0, made.review.task, proof, openings);
        commitReview(made);
        uint256 committed = made.review.task.progress.phaseBlock;
        openings = openingsOf(made.review, 0);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooEarly.selector, committed, committed + 1));
        troth.settleReview(made.first.id, made.first.task, made.settled, 0, made.review.task, proof, openings);
        pass(1);
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.WrongOpeningCount.selector, 4, 6));
        troth.settleReview(
            made.first.id, made.first.task, made.settled, 0, made.review.task, proof, new Opening[](4)
        );
        settleReview(made);
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.settleReview(made.first.id, made.first.task, made.settled, 0, made.review.task, proof, openings);
    }

    function test_BeforeTheDeadlineNobodyMayBeLeftOut() public {
        Dispute memory made = assigned(tolerant);
        commitReview(made);
        pass(1);
        made.review.conducts[4].opens = false;
        (VrfProof memory proof, bytes32 seed) = sampleProof(made.review);
        Opening[] memory openings = openingsOf(made.review, seed);
        uint256 last = vm.getBlockNumber() + REVEAL_WINDOW;
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.OpeningMissing.selector, 0, 4, last));
        troth.settleReview(made.first.id, made.first.task, made.settled, 0, made.review.task, proof, openings);
    }
}
