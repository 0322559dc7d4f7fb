// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothOpenings} from "../interfaces/ITrothOpenings.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {ITrothSignedPosts} from "../interfaces/ITrothSignedPosts.sol";
import {CommitSubmission, Opening, Order, Outcome, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";
import {Traces} from "./support/Traces.sol";

/// @title What somebody who wants more than the rules give may try
contract AttacksTest is TaskTest {
    function copy(Task memory task) private pure returns (Task memory) {
        return abi.decode(abi.encode(task), (Task));
    }

    /// @dev A second contract with the same parties: nothing signed for one is good at the other.
    function test_AnOrderIsForOneContract() public {
        Play memory play = newPlay(tolerant, WHOLE);
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        bytes32 id = play.id;
        setUp();
        assertNotEq(troth.taskIdOf(play.order), id);
        play.order.referenceBlock = uint64(vm.getBlockNumber() - 1);
        vm.prank(scheduler);
        vm.expectPartialRevert(ITrothMoney.InsufficientEscrow.selector);
        troth.open(play.order, signature);
    }

    function test_AnOrderIsForOneChain() public {
        Play memory play = newPlay(tolerant, WHOLE);
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        vm.chainId(block.chainid + 1);
        assertNotEq(troth.taskIdOf(play.order), play.id);
        vm.prank(scheduler);
        vm.expectPartialRevert(ITrothMoney.InsufficientEscrow.selector);
        troth.open(play.order, signature);
    }

    /// @dev The id follows from the order alone, so that a reorganisation that moves the task leaves it.
    function test_TheTaskIdSurvivesAReorganisation() public {
        Play memory play = newPlay(tolerant, WHOLE);
        uint256 start = vm.getBlockNumber();
        uint256 snapshot = vm.snapshotState();
        open(play);
        assign(play);
        bytes32[] memory first = parties(play);
        vm.revertToState(snapshot);
        vm.roll(start + 3);
        delete play.task.progress.parties;
        open(play);
        assign(play);
        assertEq(abi.encode(parties(play)), abi.encode(first));
        assertEq(troth.taskIdOf(play.order), play.id);
    }

    function parties(Play memory play) private pure returns (bytes32[] memory named) {
        named = new bytes32[](play.task.progress.parties.length);
        for (uint256 i = 0; i < named.length; ++i) {
            named[i] = bytes32(uint256(uint160(play.task.progress.parties[i])));
        }
    }

    /// @dev A scheduler cannot open what the client gave to another one, under its own name neither.
    function test_ASchedulerCannotTakeAnothersOrder() public {
        Play memory play = newPlay(tolerant, WHOLE);
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        address rival = registerScheduler(0x07e4, 11, SCHEDULER_STAKE);
        Order memory taken = play.order;
        vm.prank(rival);
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.NotScheduler.selector, scheduler, rival));
        troth.open(taken, signature);
        taken.scheduler = rival;
        vm.prank(rival);
        vm.expectPartialRevert(ITrothMoney.InsufficientEscrow.selector);
        troth.open(taken, signature);
    }

    function test_CommitmentsAreForOneTask() public {
        Play memory play = newPlay(tolerant, WHOLE);
        Play memory other = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        open(other);
        assign(other);
        other.task.progress.parties = play.task.progress.parties;
        Task memory before = copy(play.task);
        CommitSubmission memory replayed = submission(other, 0);
        vm.expectPartialRevert(ITrothSignedPosts.WrongSigner.selector);
        troth.commit(play.id, before, new VrfProof[](0), replayed);
    }

    /// @dev A lazy verifier posts an honest one's commitment as its own. It can never open it.
    function test_ACopiedCommitmentDoesNotOpen() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        made.posts[3] = made.posts[2];
        bytes memory signature = postSignature(play, 0, 3, made.posts[3]);
        for (uint256 i = 0; i < 65; ++i) {
            made.signatures[195 + i] = signature[i];
        }
        troth.commit(play.id, before, new VrfProof[](0), made);
        noteCommitted(play, made);
        pass(1);
        sample(play);
        Opening memory copied = openingOf(play, 0, 2, play.task.progress.seed);
        vm.expectPartialRevert(ITrothOpenings.CommitmentMismatch.selector);
        troth.reveal(play.id, play.task, 0, 3, copied);
        play.conducts[3].opens = false;
        pass(REVEAL_WINDOW + 1);
        settle(play);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Accepted));
        assertEq(stakeOf(partyOf(play, 0, 3)), NODE_STAKE - 2 * UNIT);
    }

    /// @dev The zero root stands for an absent opening. Shown by its own call, it could neither be left out nor used.
    function test_AVerifierWithoutARootLocksNothing() public {
        Play memory play = newPlay(exact, WHOLE);
        open(play);
        assign(play);
        Task memory before = copy(play.task);
        CommitSubmission memory made = submission(play, 0);
        Opening memory none;
        none.salt = "salt";
        made.posts[3] =
            keccak256(abi.encode(play.id, uint8(0), partyOf(play, 0, 3), none.root, none.verdict, none.salt));
        bytes memory signature = postSignature(play, 0, 3, made.posts[3]);
        for (uint256 i = 0; i < 65; ++i) {
            made.signatures[195 + i] = signature[i];
        }
        troth.commit(play.id, before, new VrfProof[](0), made);
        noteCommitted(play, made);
        pass(1);
        vm.expectRevert(abi.encodeWithSelector(ITrothOpenings.InvalidOpening.selector, 0, 3, 0, 0));
        troth.reveal(play.id, play.task, 0, 3, none);
        play.conducts[3].opens = false;
        pass(REVEAL_WINDOW);
        settle(play);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Accepted));
        assertEq(stakeOf(partyOf(play, 0, 3)), NODE_STAKE - 2 * UNIT);
    }

    /// @dev Nodes of its own, alone in the groups of an unusual split, would be all that a scheduler's draw can find.
    function test_ASchedulerCannotChooseTheSplit() public {
        Play memory play = newPlay(tolerant, WHOLE);
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        play.order.ends = bytes32(bytes2(0x0104));
        vm.prank(scheduler);
        vm.expectPartialRevert(ITrothMoney.InsufficientEscrow.selector);
        troth.open(play.order, signature);
    }

    /// @dev An inferencer shows the tile of another place, which happens to be right.
    function test_AnInferencerCannotChooseItsTile() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        sample(play);
        bytes32 seed = play.task.progress.seed;
        Opening[] memory openings = openingsOf(play, seed);
        bytes memory sampled = openings[0].tiles;
        for (uint256 index = 0; index < 2; ++index) {
            bytes memory tile = Traces.tile(traceOf(play, 0, 0), index);
            if (keccak256(tile) == keccak256(sampled)) continue;
            openings[0].tiles = tile;
            openings[0].siblings = Traces.path(traceOf(play, 0, 0), shape(), index);
        }
        VrfProof memory none;
        vm.expectPartialRevert(ITrothOpenings.InvalidOpening.selector);
        troth.settle(play.id, play.task, none, openings);
    }

    /// @dev A settlement with somebody's wrong opening fails, and so cannot get an honest party slashed.
    function test_AWrongOpeningSlashesNobody() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        sample(play);
        pass(REVEAL_WINDOW + 1);
        Opening[] memory openings = openingsOf(play, play.task.progress.seed);
        openings[1].verdict = false;
        VrfProof memory none;
        vm.expectPartialRevert(ITrothOpenings.CommitmentMismatch.selector);
        troth.settle(play.id, play.task, none, openings);
        assertEq(stakeOf(partyOf(play, 0, 1)), NODE_STAKE);
    }

    /// @dev A node cannot flee from a task: what it could lose stays until long after the task must have ended.
    function test_NobodyWithdrawsBeforeItsTasksHaveEnded() public {
        Play memory play = newPlay(tolerant, WHOLE);
        uint256 longest = 200 + COMMIT_WINDOW + SAMPLE_WINDOW + REVEAL_WINDOW;
        vm.prank(owner);
        troth.deregister(nodeAddress(0));
        assertGt(troth.accountOf(nodeAddress(0)).exitBlock, play.order.referenceBlock + longest);
        pass(longest);
        vm.expectPartialRevert(ITrothRegistry.StillUnbonding.selector);
        troth.withdraw(nodeAddress(0));
    }

    /// @dev A state with a field changed in the bits beyond its type does not pass for the stored one.
    function test_DirtyBitsAreRefused() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        bytes memory data = abi.encodeCall(troth.abort, (play.id, play.task));
        for (uint256 word = 0; word < (data.length - 4) / 32; ++word) {
            bytes memory dirty = bytes.concat(data);
            dirty[4 + 32 * word] ^= 0x80;
            vm.prank(scheduler);
            (bool success,) = address(troth).call(dirty);
            assertFalse(success, vm.toString(word));
        }
        vm.prank(scheduler);
        (bool clean,) = address(troth).call(data);
        assertTrue(clean);
    }

    function test_AnOversizedArrayIsRefused() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        play.task.progress.posts = new bytes32[](70_000);
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSignature("MalformedTask()"));
        troth.abort(play.id, play.task);
    }

    /// @dev An attacker's transaction with the state of yesterday changes nothing.
    function test_AnOldStateIsRefused() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        Task memory old = copy(play.task);
        assign(play);
        vm.prank(scheduler);
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.abort(play.id, old);
    }

    /// @dev An inferencer signs its root with two texts; the verifiers' signatures fit the one that they judged.
    function test_AVerdictDoesNotFitAnotherText() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        CommitSubmission memory made = submission(play, 0);
        made.outputHash = keccak256("another text");
        bytes32 claim = claimHash(play, 0, made.posts[0], made.outputHash);
        replaceFirst(made, signed(keys[partyOf(play, 0, 0)], claim));
        refusesVerdicts(play, made);
    }

    /// @dev Verifiers judged what the second candidate signed; their verdicts cannot convict the first one.
    function test_AVerdictDoesNotFitAnotherCandidatesRoot() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        CommitSubmission memory made = submission(play, 0);
        made.posts[0] = keccak256("another candidate's root");
        bytes32 claim = claimHash(play, 0, made.posts[0], made.outputHash);
        replaceFirst(made, signed(keys[partyOf(play, 0, 0)], claim));
        refusesVerdicts(play, made);
    }

    function replaceFirst(CommitSubmission memory made, bytes memory signature) private pure {
        for (uint256 i = 0; i < signature.length; ++i) {
            made.signatures[i] = signature[i];
        }
    }

    function refusesVerdicts(Play memory play, CommitSubmission memory made) private {
        VrfProof[] memory none;
        vm.prank(scheduler);
        vm.expectPartialRevert(ITrothSignedPosts.WrongSigner.selector);
        troth.commit(play.id, play.task, none, made);
    }
}
