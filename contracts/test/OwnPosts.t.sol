// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothOwnPosts} from "../interfaces/ITrothOwnPosts.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {CommitSubmission, Outcome, Phase, Progress, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title Parties that post for themselves
contract OwnPostsTest is TaskTest {
    function assigned(bytes32 ends) private returns (Play memory play) {
        play = newPlay(tolerant, ends);
        open(play);
        assign(play);
    }

    function termsOf(Play memory play) private pure returns (bytes32) {
        return keccak256(abi.encode(play.task.terms));
    }

    function postRoot(Play memory play, uint256 segment, uint256 candidate) private {
        Progress memory progress = play.task.progress;
        uint256 stride = progress.parties.length / progress.segments;
        address poster = progress.parties[segment * stride + candidate];
        bytes32 root = rootOf(play, segment, 0);
        bytes32 output = segment + 1 == progress.segments ? OUTPUT : bytes32(0);
        vm.expectEmit(address(troth));
        emit ITrothOwnPosts.InferenceCommitted(play.id, poster, uint8(segment), 1, POSITIONS, root, output);
        vm.prank(poster);
        troth.commitInference(play.id, termsOf(play), progress, uint8(segment), 1, POSITIONS, root, output);
        progress.attempt = 1;
        progress.positions = POSITIONS;
        if (output != 0) progress.outputHash = output;
        if (progress.posts.length == 0) progress.posts = new bytes32[](play.conducts.length);
        progress.posts[segment * play.width] = root;
        (progress.parties[segment * stride], progress.parties[segment * stride + candidate]) =
            (progress.parties[segment * stride + candidate], progress.parties[segment * stride]);
    }

    function postCommitment(Play memory play, uint256 segment, uint256 verifier) private {
        Progress memory progress = play.task.progress;
        bytes32 commitment = commitmentOf(play, segment, 1 + verifier);
        vm.expectEmit(address(troth));
        emit ITrothOwnPosts.VerificationCommitted(play.id, partyOf(play, segment, 1 + verifier), uint8(segment), commitment);
        vm.prank(partyOf(play, segment, 1 + verifier));
        troth.commitVerification(play.id, termsOf(play), progress, uint8(segment), commitment);
        if (progress.posts.length == 0) progress.posts = new bytes32[](play.conducts.length);
        progress.posts[segment * play.width + 1 + verifier] = commitment;
    }

    function noteCommitted(Play memory play) private view {
        play.task.progress.phase = Phase.Committed;
        play.task.progress.phaseBlock = uint40(vm.getBlockNumber());
    }

    function test_TheLastPostClosesThePhase() public {
        Play memory play = assigned(HALVES);
        postRoot(play, 1, 1);
        postRoot(play, 0, 0);
        for (uint256 s = 0; s < 2; ++s) {
            for (uint256 v = 0; v < 3; ++v) {
                assertEq(troth.taskState(play.id), stateHash(play.task));
                postCommitment(play, s, v);
            }
        }
        noteCommitted(play);
        assertEq(troth.taskState(play.id), stateHash(play.task));
        pass(1);
        settle(play);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Accepted));
    }

    function test_SealsWithAQuorumAfterHalfTheWindow() public {
        Play memory play = assigned(WHOLE);
        uint256 half = uint256(play.task.progress.phaseBlock) + COMMIT_WINDOW / 2;
        postRoot(play, 0, 0);
        postCommitment(play, 0, 0);
        vm.roll(half + 1);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.QuorumMissing.selector, 0, 1, 2));
        troth.seal(play.id, play.task);
        postCommitment(play, 0, 2);
        vm.roll(half);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooEarly.selector, half, half + 1));
        troth.seal(play.id, play.task);
        vm.roll(half + 1);
        troth.seal(play.id, play.task);
        noteCommitted(play);
        assertEq(troth.taskState(play.id), stateHash(play.task));
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Committed));
        troth.seal(play.id, play.task);
    }

    function test_DoesNotSealWithoutARootOrTooLate() public {
        Play memory play = assigned(HALVES);
        uint256 last = uint256(play.task.progress.phaseBlock) + COMMIT_WINDOW;
        vm.roll(last);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.RootMissing.selector, 0));
        troth.seal(play.id, play.task);
        postRoot(play, 1, 0);
        for (uint256 v = 0; v < 3; ++v) {
            postCommitment(play, 1, v);
        }
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.RootMissing.selector, 0));
        troth.seal(play.id, play.task);
        Play memory other = assigned(WHOLE);
        postRoot(other, 0, 0);
        postCommitment(other, 0, 0);
        postCommitment(other, 0, 1);
        last = uint256(other.task.progress.phaseBlock) + COMMIT_WINDOW;
        vm.roll(last + 1);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.seal(other.id, other.task);
    }

    function test_TheSchedulerReplacesOwnPosts() public {
        Play memory play = assigned(WHOLE);
        postRoot(play, 0, 1);
        Task memory before = abi.decode(abi.encode(play.task), (Task));
        CommitSubmission memory made = submission(play, 1);
        troth.commit(play.id, before, new VrfProof[](0), made);
        noteCommitted(play, made);
        assertEq(troth.taskState(play.id), stateHash(play.task));
    }

    function test_OnlyPartiesPostAndOnlyTheirs() public {
        Play memory play = assigned(HALVES);
        Progress memory progress = play.task.progress;
        bytes32 terms = termsOf(play);
        address verifier = partyOf(play, 0, 1);
        address candidate = partyOf(play, 0, 0);
        vm.prank(verifier);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.NotCandidate.selector, 0, verifier));
        troth.commitInference(play.id, terms, progress, 0, 1, POSITIONS, bytes32("root"), 0);
        vm.prank(candidate);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.NotVerifier.selector, 0, candidate));
        troth.commitVerification(play.id, terms, progress, 0, bytes32("commitment"));
        vm.prank(client);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.NotVerifier.selector, 1, client));
        troth.commitVerification(play.id, terms, progress, 1, bytes32("commitment"));
        vm.prank(verifier);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.SegmentOutOfRange.selector, 2, 2));
        troth.commitVerification(play.id, terms, progress, 2, bytes32("commitment"));
    }

    /// @dev Otherwise a root of another length could follow, and the verifier would be slashed for what it cannot open.
    function test_AVerifierPostsAfterItsInferencer() public {
        Play memory play = assigned(HALVES);
        postRoot(play, 1, 0);
        bytes32 commitment = commitmentOf(play, 0, 1);
        vm.prank(partyOf(play, 0, 1));
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.RootMissing.selector, 0));
        troth.commitVerification(play.id, termsOf(play), play.task.progress, 0, commitment);
        postRoot(play, 0, 0);
        postCommitment(play, 0, 0);
    }

    function test_NobodyPostsTwice() public {
        Play memory play = assigned(WHOLE);
        postRoot(play, 0, 1);
        postCommitment(play, 0, 0);
        Progress memory progress = play.task.progress;
        bytes32 terms = termsOf(play);
        address inferencer = partyOf(play, 0, 0);
        vm.prank(inferencer);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.AlreadyPosted.selector, 0, inferencer));
        troth.commitInference(play.id, terms, progress, 0, 1, POSITIONS, bytes32("root"), OUTPUT);
        // The other candidate comes too late as well.
        vm.prank(progress.parties[1]);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.AlreadyPosted.selector, 0, inferencer));
        troth.commitInference(play.id, terms, progress, 0, 1, POSITIONS, bytes32("root"), OUTPUT);
        address verifier = partyOf(play, 0, 1);
        vm.prank(verifier);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.AlreadyPosted.selector, 0, verifier));
        troth.commitVerification(play.id, terms, progress, 0, bytes32("commitment"));
    }

    function test_RefusesEmptyPosts() public {
        Play memory play = assigned(HALVES);
        Progress memory progress = play.task.progress;
        bytes32 terms = termsOf(play);
        address candidate = partyOf(play, 0, 0);
        vm.prank(candidate);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.ZeroCommitment.selector, 0));
        troth.commitInference(play.id, terms, progress, 0, 1, POSITIONS, 0, 0);
        vm.prank(candidate);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.ZeroPositions.selector, play.id));
        troth.commitInference(play.id, terms, progress, 0, 1, 0, bytes32("root"), 0);
        vm.prank(candidate);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.InvalidOutputHash.selector, 0, OUTPUT));
        troth.commitInference(play.id, terms, progress, 0, 1, POSITIONS, bytes32("root"), OUTPUT);
        candidate = partyOf(play, 1, 0);
        vm.prank(candidate);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.InvalidOutputHash.selector, 1, bytes32(0)));
        troth.commitInference(play.id, terms, progress, 1, 1, POSITIONS, bytes32("root"), 0);
    }

    function test_SegmentsMustAgreeOnTheAttempt() public {
        Play memory play = assigned(HALVES);
        postRoot(play, 0, 0);
        Progress memory progress = play.task.progress;
        bytes32 terms = termsOf(play);
        address candidate = partyOf(play, 1, 0);
        vm.prank(candidate);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.AttemptMismatch.selector, 2, 1, POSITIONS, POSITIONS));
        troth.commitInference(play.id, terms, progress, 1, 2, POSITIONS, bytes32("root"), OUTPUT);
        vm.prank(candidate);
        vm.expectRevert(abi.encodeWithSelector(ITrothOwnPosts.AttemptMismatch.selector, 1, 1, 9, POSITIONS));
        troth.commitInference(play.id, terms, progress, 1, 1, 9, bytes32("root"), OUTPUT);
    }

    function test_PostsNeitherEarlyNorLate() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        bytes32 terms = termsOf(play);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Opened));
        troth.commitVerification(play.id, terms, play.task.progress, 0, bytes32("commitment"));
        assign(play);
        uint256 last = uint256(play.task.progress.phaseBlock) + COMMIT_WINDOW;
        vm.roll(last + 1);
        address verifier = partyOf(play, 0, 1);
        vm.prank(verifier);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.commitVerification(play.id, terms, play.task.progress, 0, bytes32("commitment"));
        vm.roll(last);
        postRoot(play, 0, 0);
        postCommitment(play, 0, 0);
        assertEq(troth.taskState(play.id), stateHash(play.task));
    }
}
