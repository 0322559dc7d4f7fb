// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothAssignment} from "../interfaces/ITrothAssignment.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {ITrothSignedPosts} from "../interfaces/ITrothSignedPosts.sol";
import {ITrothTasks} from "../interfaces/ITrothTasks.sol";
import {CommitSubmission, Phase, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title All roots and commitments in one call
contract CommitmentsTest is TaskTest {
    function assigned(bytes32 ends) private returns (Play memory play) {
        play = newPlay(tolerant, ends);
        open(play);
        assign(play);
    }

    function copy(Task memory task) private pure returns (Task memory) {
        return abi.decode(abi.encode(task), (Task));
    }

    function refused(Play memory play, Task memory task, CommitSubmission memory made, bytes memory error_) private {
        vm.expectRevert(error_);
        troth.commit(play.id, task, new VrfProof[](0), made);
    }

    function test_CommitsWithAllSignatures() public {
        Play memory play = assigned(HALVES);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 1);
        address[] memory inferencers = new address[](2);
        inferencers[0] = before.progress.parties[1];
        inferencers[1] = before.progress.parties[6];
        vm.expectEmit(address(troth));
        emit ITrothProgress.TaskCommitted(play.id, 1, POSITIONS, OUTPUT, inferencers, made.posts);
        troth.commit(play.id, before, new VrfProof[](0), made);
        noteCommitted(play, made);
        assertEq(troth.taskState(play.id), stateHash(play.task));
    }

    function test_AssignsOnTheWay() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        Task memory before = copy(play.task);
        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        play.task.progress.parties = parties;
        CommitSubmission memory made = submission(play, 0);
        troth.commit(play.id, before, proofs, made);
        noteCommitted(play, made);
        assertEq(troth.taskState(play.id), stateHash(play.task));
    }

    function test_OpensAssignsAndCommitsAtOnce() public {
        Play memory play = newPlay(tolerant, HALVES);
        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        play.task.progress.parties = parties;
        CommitSubmission memory made = submission(play, 0);
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        vm.prank(scheduler);
        bytes32 id = troth.openAndCommit(play.order, signature, proofs, made);
        assertEq(id, play.id);
        noteCommitted(play, made);
        assertEq(troth.taskState(play.id), stateHash(play.task));
        vm.prank(client);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.NotScheduler.selector, scheduler, client));
        troth.openAndCommit(play.order, signature, proofs, made);
    }

    function test_AQuorumIsEnough() public {
        Play memory play = assigned(WHOLE);
        play.conducts[2].commits = false;
        commit(play);
        assertEq(troth.taskState(play.id), stateHash(play.task));
    }

    function test_LessThanAQuorumIsNot() public {
        Play memory play = assigned(HALVES);
        Task memory before = copy(play.task);
        play.conducts[5].commits = false;
        play.conducts[6].commits = false;
        CommitSubmission memory made = submission(play, 0);
        refused(play, before, made, abi.encodeWithSelector(ITrothProgress.QuorumMissing.selector, 1, 1, 2));
        play.conducts[4].commits = false;
        play.conducts[5].commits = true;
        play.conducts[6].commits = true;
        made = submission(play, 0);
        refused(play, before, made, abi.encodeWithSelector(ITrothProgress.RootMissing.selector, 1));
    }

    function test_RefusesAnotherPartysSignature() public {
        Play memory play = assigned(WHOLE);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        made.inferencers = bytes32(bytes1(0x01));
        refused(
            play,
            before,
            made,
            abi.encodeWithSelector(
                ITrothSignedPosts.WrongSigner.selector, 0, before.progress.parties[1], before.progress.parties[0]
            )
        );
        made.inferencers = 0;
        bytes memory third = postSignature(play, 0, 3, made.posts[2]);
        for (uint256 i = 0; i < 65; ++i) {
            made.signatures[130 + i] = third[i];
        }
        refused(
            play,
            before,
            made,
            abi.encodeWithSelector(
                ITrothSignedPosts.WrongSigner.selector, 0, before.progress.parties[3], before.progress.parties[4]
            )
        );
    }

    function test_RefusesWhatWasSignedForSomethingElse() public {
        Play memory play = assigned(WHOLE);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        made.attempt = 2;
        refusedSigner(play, before, made);
        made.attempt = 1;
        ++made.positions;
        refusedSigner(play, before, made);
        --made.positions;
        made.outputHash = keccak256("another output");
        refusedSigner(play, before, made);
        made.outputHash = OUTPUT;
        made.posts[1] = keccak256("another commitment");
        refusedSigner(play, before, made);
    }

    function refusedSigner(Play memory play, Task memory task, CommitSubmission memory made) private {
        vm.expectPartialRevert(ITrothSignedPosts.WrongSigner.selector);
        troth.commit(play.id, task, new VrfProof[](0), made);
    }

    function test_RefusesMissingAndSurplusSignatures() public {
        Play memory play = assigned(WHOLE);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        bytes memory all = made.signatures;
        made.signatures = bytes.concat(all, hex"00");
        refused(play, before, made, abi.encodeWithSelector(ITrothSignedPosts.WrongSignatureCount.selector, 261, 260));
        assembly ("memory-safe") {
            mstore(all, 259)
        }
        made.signatures = all;
        refused(play, before, made, abi.encodeWithSelector(ITrothSignedPosts.WrongSignatureCount.selector, 259, 260));
    }

    function test_RefusesMalformedSubmissions() public {
        Play memory play = assigned(WHOLE);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        made.inferencers = bytes32(bytes1(0x02));
        refused(play, before, made, abi.encodeWithSelector(ITrothTasks.CandidateOutOfRange.selector, 0, 2, 2));
        made.inferencers = 0;
        made.positions = 0;
        refused(play, before, made, abi.encodeWithSelector(ITrothProgress.ZeroPositions.selector, play.id));
        made.positions = POSITIONS;
        made.outputHash = 0;
        refused(play, before, made, abi.encodeWithSelector(ITrothProgress.InvalidOutputHash.selector, 0, bytes32(0)));
        made.outputHash = OUTPUT;
        made.posts = new bytes32[](3);
        refused(play, before, made, abi.encodeWithSelector(ITrothSignedPosts.WrongPostCount.selector, 3, 4));
    }

    function test_RefusesProofsForAnAssignedTask() public {
        Play memory play = assigned(WHOLE);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        vm.expectRevert(abi.encodeWithSelector(ITrothAssignment.WrongProofCount.selector, 1, 0));
        troth.commit(play.id, before, new VrfProof[](1), made);
    }

    function test_CommitsOnceAndInTime() public {
        Play memory play = assigned(WHOLE);
        uint256 last = uint256(play.task.progress.phaseBlock) + COMMIT_WINDOW;
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        vm.roll(last + 1);
        refused(play, before, made, abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        vm.roll(last);
        commit(play);
        refused(
            play, play.task, made, abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Committed)
        );
    }
}
