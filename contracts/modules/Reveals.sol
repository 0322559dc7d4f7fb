// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothSettlement} from "../interfaces/ITrothSettlement.sol";
import {Opening, Phase, Progress, Rules, Task, VrfProof} from "../interfaces/TrothTypes.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {OwnPosts} from "./OwnPosts.sol";

/// @title The sample, and what parties show of their traces (VeriLLM section 5.7)
abstract contract Reveals is ITrothSettlement, OwnPosts {
    /// @inheritdoc ITrothSettlement
    function sample(bytes32 taskId, Task calldata task, VrfProof calldata proof) external {
        Case memory opened = _load(taskId, task);
        if (msg.sender != opened.terms.scheduler) revert NotScheduler(opened.terms.scheduler, msg.sender);
        if (opened.rules.exact) revert ExactClass(opened.terms.executionClass);
        _requirePhase(taskId, opened.progress, Phase.Committed);
        _sample(opened, proof);
        _store(taskId, opened.termsHash, opened.progress);
    }

    /// @inheritdoc ITrothSettlement
    function reveal(bytes32 taskId, Task calldata task, uint8 segment, uint8 party, Opening calldata opening)
        external
    {
        Case memory opened = _load(taskId, task);
        Progress memory progress = opened.progress;
        _requireRevealing(opened);
        _requireNotAfter(progress.phaseBlock + REVEAL_WINDOW);
        uint256 width = progress.posts.length / progress.segments;
        if (segment >= progress.segments) revert SegmentOutOfRange(segment, progress.segments);
        if (party >= width) revert PartyOutOfRange(segment, party, width);
        uint256 place = segment * width + party;
        if (progress.revealed.length == 0) progress.revealed = new bytes32[](progress.posts.length);
        if (progress.revealed[place] != 0) revert AlreadyRevealed(segment, party);
        bytes memory tiles = opening.tiles;
        _requireCommitted(opened, segment, party, opening);
        _requireTiles(opened, segment, party, opening, tiles);
        bytes32 tilesHash = keccak256(tiles);
        progress.revealed[place] = _revealHash(opening, tilesHash);
        address revealer = _partyOf(progress, segment, party);
        emit TraceRevealed(taskId, revealer, segment, opening.root, opening.verdict, tilesHash);
        _store(taskId, opened.termsHash, progress);
    }

    /// @dev Moves a committed task on to Sampled; the caller stores the state.
    function _sample(Case memory task, VrfProof calldata proof) internal {
        Progress memory progress = task.progress;
        _requireAfter(progress.phaseBlock);
        _requireNotAfter(progress.phaseBlock + SAMPLE_WINDOW);
        bytes32 seed = _sampleSeed(task, proof);
        progress.seed = seed;
        progress.phase = Phase.Sampled;
        progress.phaseBlock = uint40(block.number);
        emit TaskSampled(task.taskId, seed, proof.proof);
    }

    /// @dev Tolerant tasks reveal once they are sampled, exact ones in a later block than the commitments.
    function _requireRevealing(Case memory task) internal view {
        _requirePhase(task.taskId, task.progress, task.rules.exact ? Phase.Committed : Phase.Sampled);
        if (task.rules.exact) _requireAfter(task.progress.phaseBlock);
    }

    /// @dev An opening must be of what the party committed to: the root in the clear, or the salted verdict.
    function _requireCommitted(Case memory task, uint256 segment, uint256 party, Opening calldata opening)
        internal
        pure
    {
        Progress memory progress = task.progress;
        bytes32 post = progress.posts[segment * (progress.posts.length / progress.segments) + party];
        if (post == 0) revert NothingCommitted(segment, party);
        if (party == 0) {
            if (opening.root != post) revert RootMismatch(segment, opening.root, post);
            return;
        }
        address verifier = _partyOf(progress, segment, party);
        bytes32 opened =
            keccak256(abi.encode(task.taskId, segment, verifier, opening.root, opening.verdict, opening.salt));
        if (opened != post) revert CommitmentMismatch(segment, party, opened, post);
    }

    /// @dev The sampled tiles must lead to the root; an exact class has none.
    function _requireTiles(
        Case memory task,
        uint256 segment,
        uint256 party,
        Opening calldata opening,
        bytes memory tiles
    ) internal pure {
        Rules memory rules = task.rules;
        bytes32 proven = opening.root;
        if (rules.exact) {
            if (tiles.length != 0 || opening.siblings.length != 0) proven = 0;
        } else {
            proven = TileTree.openingRoot(
                task.progress.seed,
                segment,
                task.progress.positions,
                rules.hiddenSize,
                rules.dtype,
                rules.tiles,
                tiles,
                opening.siblings
            );
        }
        if (proven != opening.root) revert InvalidOpening(segment, party, proven, opening.root);
    }

    function _revealHash(Opening calldata opening, bytes32 tilesHash) internal pure returns (bytes32) {
        return keccak256(abi.encode(opening.root, opening.verdict, tilesHash));
    }
}
