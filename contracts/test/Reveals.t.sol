// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothOpenings} from "../interfaces/ITrothOpenings.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {ITrothReveals} from "../interfaces/ITrothReveals.sol";
import {Opening, Outcome, Phase, VrfProof} from "../interfaces/TrothTypes.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {TaskTest} from "./support/TaskTest.sol";
import {Traces} from "./support/Traces.sol";

/// @title A party's own reveal, and what no opening may be
contract RevealsTest is TaskTest {
    function sampled() private returns (Play memory play) {
        play = committedPlay(tolerant, WHOLE);
        sample(play);
    }

    function reveal(Play memory play, uint256 party) private {
        Opening memory opening = openingOf(play, 0, party, play.task.progress.seed);
        bytes32 tilesHash = keccak256(opening.tiles);
        vm.expectEmit(address(troth));
        emit ITrothReveals.TraceRevealed(
            play.id, partyOf(play, 0, party), 0, opening.root, opening.verdict, opening.tiles
        );
        troth.reveal(play.id, play.task, 0, uint8(party), opening);
        if (play.task.progress.revealed.length == 0) play.task.progress.revealed = new bytes32[](4);
        play.task.progress.revealed[party] = keccak256(abi.encode(opening.root, opening.verdict, tilesHash));
    }

    function refused(Play memory play, uint8 party, Opening memory opening, bytes memory error_) private {
        vm.expectRevert(error_);
        troth.reveal(play.id, play.task, 0, party, opening);
    }

    function test_EveryPartyRevealsForItself() public {
        Play memory play = sampled();
        for (uint256 party = 0; party < 4; ++party) {
            reveal(play, party);
            assertEq(troth.taskState(play.id), stateHash(play.task));
        }
        Opening[] memory openings = openingsOf(play, play.task.progress.seed);
        VrfProof memory none;
        for (uint256 i = 0; i < 4; ++i) {
            delete openings[i].siblings;
            delete openings[i].salt;
        }
        troth.settle(play.id, play.task, none, openings);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Accepted));
    }

    function test_ExactPartiesRevealWithoutASample() public {
        Play memory play = committedPlay(exact, WHOLE);
        reveal(play, 0);
        reveal(play, 2);
        assertEq(troth.taskState(play.id), stateHash(play.task));
        settle(play);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Accepted));
    }

    function test_ExactOpeningsWaitABlock() public {
        Play memory play = committedPlay(exact, WHOLE);
        uint256 committed = play.task.progress.phaseBlock;
        Opening memory opening = openingOf(play, 0, 1, 0);
        vm.roll(committed);
        refused(play, 1, opening, abi.encodeWithSelector(ITrothProgress.TooEarly.selector, committed, committed + 1));
    }

    function test_WhatWasRevealedCannotBeLeftOutOrChanged() public {
        Play memory play = sampled();
        reveal(play, 2);
        vm.roll(uint256(play.task.progress.phaseBlock) + REVEAL_WINDOW + 1);
        VrfProof memory none;
        bytes32 seed = play.task.progress.seed;
        play.conducts[2].opens = false;
        Opening[] memory openings = openingsOf(play, seed);
        vm.expectRevert(
            abi.encodeWithSelector(
                ITrothOpenings.OpeningMissing.selector, 0, 2, uint256(play.task.progress.phaseBlock) + REVEAL_WINDOW
            )
        );
        troth.settle(play.id, play.task, none, openings);
        play.conducts[2].opens = true;
        openings = openingsOf(play, seed);
        openings[2].tiles[7] ^= 0x01;
        vm.expectPartialRevert(ITrothOpenings.RevealMismatch.selector);
        troth.settle(play.id, play.task, none, openings);
    }

    function test_NobodyRevealsTwice() public {
        Play memory play = sampled();
        reveal(play, 1);
        Opening memory opening = openingOf(play, 0, 1, play.task.progress.seed);
        refused(play, 1, opening, abi.encodeWithSelector(ITrothReveals.AlreadyRevealed.selector, 0, 1));
    }

    function test_RevealsNeitherEarlyNorLate() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        Opening memory opening = openingOf(play, 0, 1, 0);
        refused(play, 1, opening, abi.encodeWithSelector(ITrothProgress.WrongPhase.selector, play.id, Phase.Committed));
        sample(play);
        opening = openingOf(play, 0, 1, play.task.progress.seed);
        uint256 last = uint256(play.task.progress.phaseBlock) + REVEAL_WINDOW;
        vm.roll(last + 1);
        refused(play, 1, opening, abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last));
        vm.roll(last);
        reveal(play, 1);
    }

    function test_RefusesPlacesThatTheTaskHasNot() public {
        Play memory play = sampled();
        Opening memory opening = openingOf(play, 0, 1, play.task.progress.seed);
        refused(play, 4, opening, abi.encodeWithSelector(ITrothReveals.PartyOutOfRange.selector, 0, 4, 4));
        vm.expectRevert(abi.encodeWithSelector(ITrothProgress.SegmentOutOfRange.selector, 1, 1));
        troth.reveal(play.id, play.task, 1, 0, opening);
    }

    function test_RefusesAnOpeningOfNoCommitment() public {
        Play memory play = newPlay(tolerant, WHOLE);
        open(play);
        assign(play);
        play.conducts[3].commits = false;
        commit(play);
        pass(1);
        sample(play);
        Opening memory opening = openingOf(play, 0, 3, play.task.progress.seed);
        refused(play, 3, opening, abi.encodeWithSelector(ITrothOpenings.NothingCommitted.selector, 0, 3));
    }

    /// @dev Verdict, salt and root are all bound by the commitment, and so is the verifier.
    function test_RefusesWhatTheCommitmentDoesNotOpenTo() public {
        Play memory play = sampled();
        bytes32 seed = play.task.progress.seed;
        for (uint256 change = 0; change < 4; ++change) {
            Opening memory opening = openingOf(play, 0, change == 3 ? 2 : 1, seed);
            if (change == 0) opening.verdict = false;
            if (change == 1) opening.salt = bytes32("salt");
            if (change == 2) opening.root = rootOf(play, 0, 2);
            vm.expectPartialRevert(ITrothOpenings.CommitmentMismatch.selector);
            troth.reveal(play.id, play.task, 0, 1, opening);
        }
        Opening memory own = openingOf(play, 0, 1, seed);
        refused(
            play,
            0,
            own,
            abi.encodeWithSelector(ITrothOpenings.RootMismatch.selector, 0, own.root, play.task.progress.posts[0])
        );
    }

    function test_RefusesTilesThatAreNotTheTraces() public {
        Play memory play = sampled();
        bytes32 seed = play.task.progress.seed;
        Opening memory opening = openingOf(play, 0, 1, seed);
        opening.tiles[100] ^= 0x10;
        vm.expectPartialRevert(ITrothOpenings.InvalidOpening.selector);
        troth.reveal(play.id, play.task, 0, 1, opening);
        opening = openingOf(play, 0, 1, seed);
        opening.siblings[0] ^= bytes32(uint256(1));
        vm.expectPartialRevert(ITrothOpenings.InvalidOpening.selector);
        troth.reveal(play.id, play.task, 0, 1, opening);
    }

    function test_RefusesATileThatWasNotSampled() public {
        Play memory play = sampled();
        uint256 index = TileTree.tileIndex(play.task.progress.seed, 0, 0, 1, 2);
        Opening memory opening = openingOf(play, 0, 1, play.task.progress.seed);
        opening.tiles = Traces.tile(traceOf(play, 0, 1), 1 - index);
        opening.siblings = Traces.path(traceOf(play, 0, 1), shape(), 1 - index);
        vm.expectPartialRevert(ITrothOpenings.InvalidOpening.selector);
        troth.reveal(play.id, play.task, 0, 1, opening);
    }

    function test_RefusesTooFewBytes() public {
        Play memory play = sampled();
        Opening memory opening = openingOf(play, 0, 1, play.task.progress.seed);
        bytes memory tiles = opening.tiles;
        assembly ("memory-safe") {
            mstore(tiles, 511)
        }
        refused(play, 1, opening, abi.encodeWithSelector(TileTree.WrongTileBytes.selector, 511, 512));
        assembly ("memory-safe") {
            mstore(tiles, 512)
        }
        opening.siblings = new bytes32[](2);
        refused(play, 1, opening, abi.encodeWithSelector(TileTree.WrongSiblings.selector, 2, 1));
    }

    function test_ExactOpeningsCarryNoTiles() public {
        Play memory play = committedPlay(exact, WHOLE);
        Opening memory opening = openingOf(play, 0, 1, 0);
        opening.tiles = new bytes(512);
        refused(play, 1, opening, abi.encodeWithSelector(ITrothOpenings.InvalidOpening.selector, 0, 1, 0, opening.root));
        delete opening.tiles;
        opening.siblings = new bytes32[](1);
        refused(play, 1, opening, abi.encodeWithSelector(ITrothOpenings.InvalidOpening.selector, 0, 1, 0, opening.root));
    }
}
