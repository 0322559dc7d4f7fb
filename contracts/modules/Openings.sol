// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothOpenings} from "../interfaces/ITrothOpenings.sol";
import {Opening, Phase, Progress, Rules} from "../interfaces/TrothTypes.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {Posts} from "./Posts.sol";

/// @title Whether an opening shows what its party committed to (VeriLLM section 5.7)
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and amounts fit 96 bits.
abstract contract Openings is ITrothOpenings, Posts {
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
        unchecked {
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
                _inMemory(opening.siblings)
            );
        }
        // A zero root stands for an absent opening: once revealed it could neither be settled with nor left out.
        if (proven != opening.root || proven == 0) revert InvalidOpening(segment, party, proven, opening.root);
    }

    function _revealHash(Opening calldata opening, bytes32 tilesHash) internal pure returns (bytes32) {
        return keccak256(abi.encode(opening.root, opening.verdict, tilesHash));
    }

    /// @dev The compiler copies element by element.
    function _inMemory(bytes32[] calldata words) private pure returns (bytes32[] memory copied) {
        copied = new bytes32[](words.length);
        assembly ("memory-safe") {
            calldatacopy(add(copied, 0x20), words.offset, shl(5, words.length))
        }
    }
}
