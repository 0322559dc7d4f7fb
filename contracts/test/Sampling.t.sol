// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothOpenings} from "../interfaces/ITrothOpenings.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {ITrothSettlement} from "../interfaces/ITrothSettlement.sol";
import {Opening, Phase, VrfProof} from "../interfaces/TrothTypes.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {P256Prover} from "./support/P256Prover.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title When and by whom the sample is drawn
contract SamplingTest is TaskTest {
    function test_Samples() public {
        Play memory play = committedPlay(tolerant, HALVES);
        (VrfProof memory proof, bytes32 seed) = sampleProof(play);
        vm.expectEmit(address(troth));
        emit ITrothOpenings.TaskSampled(play.id, seed, proof.proof);
        sample(play);
        assertEq(troth.taskState(play.id), stateHash(play.task));
    }

    function test_OnlyTheSchedulerSamples() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        (VrfProof memory proof,) = sampleProof(play);
        vm.prank(client);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.NotScheduler.selector, scheduler, client));
        troth.sample(play.id, play.task, proof);
    }

    function test_ExactClassesAreNotSampled() public {
        Play memory play = committedPlay(exact, WHOLE);
        VrfProof memory proof;
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothSettlement.ExactClass.selector, exact));
        troth.sample(play.id, play.task, proof);
    }

    function test_NotInTheBlockOfTheCommitments() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        (VrfProof memory proof,) = sampleProof(play);
        uint256 committed = play.task.progress.phaseBlock;
        vm.roll(committed);
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooEarly.selector, committed, committed + 1));
        troth.sample(play.id, play.task, proof);
    }

    function test_NotAfterTheSampleWindow() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        uint256 last = uint256(play.task.progress.phaseBlock) + SAMPLE_WINDOW;
        (VrfProof memory proof,) = sampleProof(play);
        vm.roll(last + 1);
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.sample(play.id, play.task, proof);
        Opening[] memory openings = new Opening[](4);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.settle(play.id, play.task, proof, openings);
        vm.roll(last);
        sample(play);
    }

    function test_OnlyOnceAndOnlyAfterTheCommitments() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        VrfProof memory proof;
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Opened));
        troth.sample(play.id, play.task, proof);
        play = committedPlay(tolerant, WHOLE);
        (proof,) = sampleProof(play);
        sample(play);
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Sampled));
        troth.sample(play.id, play.task, proof);
    }

    /// @dev Neither the scheduler's key nor the block alone fixes the sample.
    function test_TheSeedIsBoundToKeyPostsAndBlock() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        Play memory other = committedPlay(tolerant, WHOLE);
        (VrfProof memory proof,) = sampleProof(other);
        refused(play, proof);
        bytes32 alpha = keccak256(
            abi.encode(
                keccak256("troth/sample/1"),
                block.chainid,
                address(troth),
                play.id,
                keccak256(abi.encode(play.task.progress.posts)),
                blockhash(play.task.progress.phaseBlock - 1)
            )
        );
        (proof,) = P256Prover.prove(VRF_SECRET, alpha);
        refused(play, proof);
        (proof,) = P256Prover.prove(VRF_SECRET + 1, alpha);
        refused(play, proof);
    }

    function refused(Play memory play, VrfProof memory proof) private {
        vm.prank(scheduler);
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        troth.sample(play.id, play.task, proof);
    }
}
