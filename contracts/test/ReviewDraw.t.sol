// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothAssignment} from "../interfaces/ITrothAssignment.sol";
import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {Outcome, Parameters, Phase, VrfProof} from "../interfaces/TrothTypes.sol";
import {P256Prover} from "./support/P256Prover.sol";
import {Balances} from "./support/Balances.sol";

/// @title Who verifies a second time
contract ReviewDrawTest is Balances {
    function undecided(bytes32 class) private returns (Dispute memory made) {
        Play memory play = newPlay(class, WHOLE);
        play.conducts[2].data = FALSE_DATA;
        play.conducts[3].verdict = false;
        made = disputeOf(play, finishFirst(play), 0);
        dispute(made, outsider, 0);
    }

    /// @dev `assignReview` compares the contract's state with that of a draw made here.
    function test_DrawsWhomTheRulesName() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = undecided(classes[i]);
            address[] memory before = made.review.task.progress.parties;
            assertEq(before.length, 5);
            pass(1);
            (VrfProof memory proof, address[] memory parties) = draw(made.review);
            vm.expectEmit(address(troth));
            emit ITrothDisputes.ReviewAssigned(made.review.id, parties, betaOf(made.review), proof.proof);
            assignReview(made);
            assertEq(parties[0], inferencerOf(made));
            for (uint256 v = 1; v < parties.length; ++v) {
                assertFalse(_contains(before, parties[v]), "verified before");
                for (uint256 w = 1; w < v; ++w) {
                    assertNotEq(parties[v], parties[w]);
                }
            }
        }
    }

    function betaOf(Play memory review) private view returns (bytes32 beta) {
        bytes32 group = troth.groupId(review.task.terms.executionClass, 0, 4);
        uint256 size = troth.groupSizeAt(group, review.task.terms.referenceBlock);
        (, beta) = P256Prover.prove(VRF_SECRET, drawAlpha(review, size));
    }

    /// @dev The hash of the dispute's block is not known in it.
    function test_NotInTheBlockOfTheDispute() public {
        Dispute memory made = undecided(exact);
        uint256 disputed = made.review.task.progress.phaseBlock;
        (VrfProof memory proof,) = draw(made.review);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooEarly.selector, disputed, disputed + 1));
        troth.assignReview(made.review.id, made.review.task, proof);
    }

    function test_NotAfterTheCommitWindow() public {
        Dispute memory made = undecided(exact);
        uint256 last = uint256(made.review.task.progress.phaseBlock) + COMMIT_WINDOW;
        vm.roll(last + 1);
        (VrfProof memory proof,) = draw(made.review);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.assignReview(made.review.id, made.review.task, proof);
        vm.roll(last);
        assignReview(made);
    }

    /// @dev Once a draw was made there is no second one.
    function test_DrawsOnce() public {
        Dispute memory made = undecided(exact);
        pass(1);
        (VrfProof memory proof,) = draw(made.review);
        assignReview(made);
        vm.expectRevert(
            abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, made.review.id, Phase.Assigned)
        );
        troth.assignReview(made.review.id, made.review.task, proof);
    }

    /// @dev The proof is of the scheduler's key, this review and this block.
    function test_RefusesAnotherProof() public {
        Dispute memory made = undecided(exact);
        Dispute memory other = undecided(exact);
        pass(1);
        (VrfProof memory proof,) = draw(other.review);
        vm.expectRevert();
        troth.assignReview(made.review.id, made.review.task, proof);
        bytes32 group = troth.groupId(exact, 0, 4);
        uint256 size = troth.groupSizeAt(group, made.review.task.terms.referenceBlock);
        (proof,) = P256Prover.prove(VRF_SECRET + 1, drawAlpha(made.review, size));
        vm.expectRevert();
        troth.assignReview(made.review.id, made.review.task, proof);
    }

    /// @dev Who joins after the dispute cannot be drawn, who leaves after it can.
    function test_TheGroupIsThatOfTheDispute() public {
        for (uint256 i = NODES + 4; i < NODES + MORE_NODES; ++i) {
            vm.prank(owner);
            troth.deregister(exactNodeAddress(i));
        }
        pass(2);
        Dispute memory made = undecided(exact);
        pass(1);
        address late = registerNode(0x7e4, exact, NODE_STAKE);
        for (uint256 i = 0; i < NODES; ++i) {
            vm.prank(owner);
            troth.deregister(exactNodeAddress(i));
        }
        pass(1);
        assignReview(made);
        assertFalse(_contains(made.review.task.progress.parties, late));
    }

    /// @dev Draws and posts in one call, as a scheduler that asked the reviewers first does.
    function test_DrawsAndCommitsAtOnce() public {
        Dispute memory made = undecided(tolerant);
        pass(1);
        VrfProof[] memory proofs = new VrfProof[](1);
        address[] memory parties;
        (proofs[0], parties) = draw(made.review);
        Play memory before = abi.decode(abi.encode(made.review), (Play));
        noteDrawn(made.review, parties);
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(made.review);
        vm.expectRevert(abi.encodeWithSelector(ITrothAssignment.WrongProofCount.selector, 0, 1));
        troth.commitReview(made.review.id, before.task, new VrfProof[](0), commitments, signatures);
        troth.commitReview(made.review.id, before.task, proofs, commitments, signatures);
        noteReviewCommitted(made.review, commitments);
        assertEq(troth.taskState(made.review.id), stateHash(made.review.task));
        pass(1);
        settleReview(made);
        assertOutcome(made.review.id, Outcome.Accepted);
        assertOutcome(made.first.id, Outcome.Accepted);
    }

    function test_NoProofOnceTheyAreDrawn() public {
        Dispute memory made = undecided(tolerant);
        pass(1);
        VrfProof[] memory proofs = new VrfProof[](1);
        (proofs[0],) = draw(made.review);
        assignReview(made);
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(made.review);
        vm.expectRevert(abi.encodeWithSelector(ITrothAssignment.WrongProofCount.selector, 1, 0));
        troth.commitReview(made.review.id, made.review.task, proofs, commitments, signatures);
    }
}

/// @title A commit window longer than block hashes are known
contract ReviewDrawLateTest is Balances {
    function parameters() internal view override returns (Parameters memory long) {
        long = super.parameters();
        long.commitWindow = 300;
        long.unbondingPeriod = 2000;
    }

    function test_TheDrawEndsWhileTheBlockHashIsKnown() public {
        Play memory play = newPlay(exact, WHOLE);
        play.conducts[2].data = FALSE_DATA;
        play.conducts[3].verdict = false;
        Dispute memory made = disputeOf(play, finishFirst(play), 0);
        dispute(made, outsider, 0);
        uint256 last = uint256(made.review.task.progress.phaseBlock) + 200;
        vm.roll(last + 1);
        (VrfProof memory proof,) = draw(made.review);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.assignReview(made.review.id, made.review.task, proof);
        uint96 stake = stakeOf(scheduler);
        uint256 snapshot = vm.snapshotState();
        troth.closeReview(made.review.id, made.review.task);
        assertEq(stakeOf(scheduler), stake - FINE);
        vm.revertToState(snapshot);
        vm.roll(last);
        assertNotEq(blockhash(made.review.task.progress.phaseBlock), 0);
        assignReview(made);
    }
}
