// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothAssignment} from "../interfaces/ITrothAssignment.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {ITrothTasks} from "../interfaces/ITrothTasks.sol";
import {Outcome, Phase, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {P256Prover} from "./support/P256Prover.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title Opening and assignment
contract TasksTest is TaskTest {
    bytes private _signature;

    function sign(Play memory play) private {
        _signature = signed(CLIENT_KEY, orderHash(play.order));
    }

    function refusedOpen(Play memory play, bytes memory error_) private {
        vm.prank(scheduler);
        vm.expectRevert(error_);
        troth.open(play.order, _signature);
    }

    function test_OpensAndLocksTheFee() public {
        Play memory play = newPlay(tolerant, HALVES);
        sign(play);
        uint96 fee = troth.feeOf(tolerant, 2);
        vm.expectEmit(address(troth));
        emit ITrothTasks.TaskOpened(
            play.id,
            client,
            scheduler,
            tolerant,
            play.order.requestHash,
            fee,
            play.order.referenceBlock,
            HALVES,
            DEPOSIT - fee
        );
        open(play);
        assertEq(troth.escrowOf(client), DEPOSIT - fee);
        assertEq(troth.taskState(play.id), stateHash(play.task));
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.None));
        assertSolvent(fee);
    }

    function test_TheTaskIdIsTheOrdersDigest() public {
        Play memory play = newPlay(tolerant, WHOLE);
        bytes32 digest =
            keccak256(abi.encodePacked(hex"1901", troth.domainSeparator(), orderHash(play.order)));
        assertEq(play.id, digest);
    }

    function test_OnlyTheNamedSchedulerOpens() public {
        Play memory play = newPlay(tolerant, WHOLE);
        sign(play);
        address other = registerScheduler(0x07e4, 11, SCHEDULER_STAKE);
        vm.prank(other);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.NotScheduler.selector, scheduler, other));
        troth.open(play.order, _signature);
    }

    function test_OnlyABondedSchedulerOpens() public {
        Play memory play = newPlay(tolerant, WHOLE);
        play.order.scheduler = client;
        sign(play);
        vm.prank(client);
        vm.expectRevert(abi.encodeWithSelector(ITrothTasks.SchedulerNotBonded.selector, client, 0, SCHEDULER_STAKE));
        troth.open(play.order, _signature);

        play = newPlay(tolerant, WHOLE);
        play.order.scheduler = nodeAddress(0);
        sign(play);
        vm.prank(nodeAddress(0));
        vm.expectRevert(
            abi.encodeWithSelector(ITrothTasks.SchedulerNotBonded.selector, nodeAddress(0), NODE_STAKE, SCHEDULER_STAKE)
        );
        troth.open(play.order, _signature);

        play = newPlay(tolerant, WHOLE);
        sign(play);
        vm.prank(owner);
        troth.deregister(scheduler);
        refusedOpen(
            play,
            abi.encodeWithSelector(ITrothTasks.SchedulerNotBonded.selector, scheduler, SCHEDULER_STAKE, SCHEDULER_STAKE)
        );
    }

    function test_ASlashedSchedulerOpensNoMore() public {
        Play memory late = newPlay(tolerant, WHOLE);
        open(late);
        pass(COMMIT_WINDOW + 1);
        troth.close(late.id, late.task);
        Play memory play = newPlay(tolerant, WHOLE);
        sign(play);
        refusedOpen(
            play,
            abi.encodeWithSelector(
                ITrothTasks.SchedulerNotBonded.selector, scheduler, SCHEDULER_STAKE - 8 * UNIT, SCHEDULER_STAKE
            )
        );
    }

    function test_RefusesAnExpiredOrder() public {
        Play memory play = newPlay(tolerant, WHOLE);
        sign(play);
        vm.warp(play.order.deadline + 1);
        refusedOpen(
            play, abi.encodeWithSelector(ITrothTasks.OrderExpired.selector, play.order.deadline, play.order.deadline + 1)
        );
        vm.warp(play.order.deadline);
        open(play);
    }

    function test_RefusesReferenceBlocksOfTheFutureAndTheFarPast() public {
        Play memory play = newPlay(tolerant, WHOLE);
        uint256 now_ = vm.getBlockNumber();
        uint256[2] memory wrong = [now_, now_ - 201];
        for (uint256 i = 0; i < 2; ++i) {
            play.order.referenceBlock = uint64(wrong[i]);
            sign(play);
            refusedOpen(play, abi.encodeWithSelector(ITrothTasks.InvalidReferenceBlock.selector, wrong[i], now_));
        }
        play.order.referenceBlock = uint64(now_ - 200);
        sign(play);
        vm.prank(scheduler);
        troth.open(play.order, _signature);
    }

    function test_RefusesEndsThatDoNotCoverTheModel() public {
        bytes32[7] memory wrong = [
            bytes32(0),
            bytes32(bytes1(0x03)),
            bytes32(bytes1(0x05)),
            bytes32(bytes2(0x0202)),
            bytes32(bytes3(0x040000)) | bytes32(bytes3(0x000004)),
            bytes32(bytes3(0x020304)) | bytes32(uint256(1)),
            bytes32(bytes3(0x030204))
        ];
        for (uint256 i = 0; i < wrong.length; ++i) {
            Play memory play = newPlay(tolerant, WHOLE);
            play.order.ends = wrong[i];
            sign(play);
            refusedOpen(play, abi.encodeWithSelector(ITrothTasks.InvalidEnds.selector, wrong[i], 4));
        }
    }

    /// @dev Reveals come one a block in the worst case: four segments of four parties are too many for ten blocks.
    function test_RefusesMorePartiesThanCanReveal() public {
        Play memory play = newPlay(tolerant, WHOLE);
        play.order.ends = bytes32(bytes4(0x01020304));
        sign(play);
        refusedOpen(play, abi.encodeWithSelector(ITrothTasks.TooManyOpenings.selector, 16, 1, REVEAL_WINDOW));
        play.order.ends = bytes32(bytes3(0x010204));
        sign(play);
        refusedOpen(play, abi.encodeWithSelector(ITrothTasks.TooManyOpenings.selector, 12, 1, REVEAL_WINDOW));
        play.order.ends = HALVES;
        sign(play);
        vm.prank(scheduler);
        troth.open(play.order, _signature);
    }

    function test_RefusesAFeeAboveTheClientsMaximum() public {
        Play memory play = newPlay(tolerant, WHOLE);
        uint96 fee = troth.feeOf(tolerant, 1);
        play.order.maxFee = fee - 1;
        sign(play);
        refusedOpen(play, abi.encodeWithSelector(ITrothTasks.FeeAboveMaximum.selector, fee, fee - 1));
        play.order.maxFee = fee;
        sign(play);
        vm.prank(scheduler);
        troth.open(play.order, _signature);
    }

    function test_RefusesAnUnknownClass() public {
        Play memory play = newPlay(tolerant, WHOLE);
        play.order.executionClass = bytes32("nothing");
        sign(play);
        refusedOpen(play, abi.encodeWithSelector(ITrothMoney.UnknownClass.selector, bytes32("nothing")));
    }

    function test_RefusesAClientWithoutMoney() public {
        Play memory play = newPlay(tolerant, WHOLE);
        _signature = signed(0xbeef, orderHash(play.order));
        uint96 fee = troth.feeOf(tolerant, 1);
        refusedOpen(play, abi.encodeWithSelector(ITrothMoney.InsufficientEscrow.selector, vm.addr(0xbeef), 0, fee));
    }

    function test_AnOrderOpensOnce() public {
        Play memory play = newPlay(tolerant, WHOLE);
        sign(play);
        open(play);
        refusedOpen(play, abi.encodeWithSelector(ITrothTasks.TaskKnown.selector, play.id));
        vm.prank(scheduler);
        troth.abort(play.id, play.task);
        refusedOpen(play, abi.encodeWithSelector(ITrothTasks.TaskKnown.selector, play.id));
    }

    function test_RefusesMalleatedSignatures() public {
        Play memory play = newPlay(tolerant, WHOLE);
        sign(play);
        bytes memory signature = _signature;
        bytes32 s;
        assembly ("memory-safe") {
            s := mload(add(signature, 0x40))
        }
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        bytes32 high = bytes32(order - uint256(s));
        assembly ("memory-safe") {
            mstore(add(signature, 0x40), high)
        }
        signature[64] = signature[64] == bytes1(uint8(27)) ? bytes1(uint8(28)) : bytes1(uint8(27));
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ECDSA.ECDSAInvalidSignatureS.selector, high));
        troth.open(play.order, signature);
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ECDSA.ECDSAInvalidSignatureLength.selector, 3));
        troth.open(play.order, hex"010203");
    }

    function test_AssignsWhatTheVrfDraws() public {
        Play memory play = newPlay(tolerant, HALVES);
        open(play);
        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        bytes32[] memory betas = new bytes32[](2);
        bytes[] memory pis = new bytes[](2);
        for (uint256 s = 0; s < 2; ++s) {
            (, betas[s]) = P256Prover.prove(VRF_SECRET, assignmentAlpha(play, s, NODES));
            pis[s] = proofs[s].proof;
        }
        vm.expectEmit(address(troth));
        emit ITrothAssignment.TaskAssigned(play.id, parties, betas, pis);
        assign(play);
        assertEq(troth.taskState(play.id), stateHash(play.task));
        for (uint256 i = 0; i < 10; ++i) {
            for (uint256 j = i - i % 5; j < i; ++j) {
                assertNotEq(parties[i], parties[j]);
            }
        }
    }

    function test_AssignmentPassesOverEmptySlots() public {
        vm.prank(owner);
        troth.deregister(nodeAddress(3));
        pass(1);
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        for (uint256 i = 0; i < 5; ++i) {
            assertNotEq(play.task.progress.parties[i], nodeAddress(3));
        }
    }

    function test_AssignmentUsesTheGroupOfTheReferenceBlock() public {
        Play memory play = newPlay(tolerant, WHOLE);
        for (uint256 i = 0; i < 3; ++i) {
            registerNode(0xf00d + i, tolerant, NODE_STAKE);
        }
        vm.prank(owner);
        troth.deregister(nodeAddress(0));
        pass(3);
        open(play);
        assign(play);
        for (uint256 i = 0; i < 5; ++i) {
            assertTrue(keys[play.task.progress.parties[i]] < NODE_KEY + NODES);
        }
    }

    function test_RefusesAGroupThatIsTooSmall() public {
        vm.startPrank(owner);
        troth.deregister(nodeAddress(0));
        troth.deregister(nodeAddress(1));
        vm.stopPrank();
        pass(1);
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        VrfProof[] memory proofs = new VrfProof[](1);
        (proofs[0],) = P256Prover.prove(VRF_SECRET, assignmentAlpha(play, 0, NODES));
        bytes32 group = troth.groupId(tolerant, 0, 4);
        vm.expectRevert(abi.encodeWithSelector(ITrothAssignment.GroupTooSmall.selector, group, 4, 5));
        troth.assign(play.id, play.task, proofs);
    }

    function test_RefusesProofsOfAnotherKeySegmentOrTask() public {
        Play memory play = newPlay(tolerant, HALVES);
        open(play);
        (VrfProof[] memory proofs,) = assignment(play);
        VrfProof[] memory swapped = new VrfProof[](2);
        (swapped[0], swapped[1]) = (proofs[1], proofs[0]);
        refusedProofs(play, swapped);
        (swapped[0],) = P256Prover.prove(VRF_SECRET + 1, assignmentAlpha(play, 0, NODES));
        swapped[1] = proofs[1];
        refusedProofs(play, swapped);
        Play memory other = newPlay(tolerant, HALVES);
        open(other);
        refusedProofs(other, proofs);
    }

    function refusedProofs(Play memory play, VrfProof[] memory proofs) private {
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        troth.assign(play.id, play.task, proofs);
    }

    function test_RefusesAWrongNumberOfProofs() public {
        Play memory play = newPlay(tolerant, HALVES);
        open(play);
        vm.expectRevert(abi.encodeWithSelector(ITrothAssignment.WrongProofCount.selector, 1, 2));
        troth.assign(play.id, play.task, new VrfProof[](1));
    }

    function test_RefusesAStateThatIsNotTheTasks() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        (VrfProof[] memory proofs,) = assignment(play);
        Task memory forged = play.task;
        bytes32 stored = troth.taskState(play.id);
        forged.terms.client = scheduler;
        vm.expectRevert(
            abi.encodeWithSelector(ITrothProgress.StateMismatch.selector, play.id, stored, stateHash(forged))
        );
        troth.assign(play.id, forged, proofs);
    }

    function test_AssignsOnceAndInTime() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        uint256 last = vm.getBlockNumber() + COMMIT_WINDOW;
        (VrfProof[] memory proofs,) = assignment(play);
        vm.roll(last + 1);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        troth.assign(play.id, play.task, proofs);
        vm.roll(last);
        assign(play);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Assigned));
        troth.assign(play.id, play.task, proofs);
    }
}
