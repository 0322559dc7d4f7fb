// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {Phase, Progress, VrfProof} from "../interfaces/TrothTypes.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {Permutation} from "../libraries/Permutation.sol";
import {Comparison} from "./Comparison.sol";

/// @title Who verifies a second time
/// @dev Arithmetic is unchecked: a group's slots are counted in 32 bits, a committee has at most 31 members.
abstract contract Reviewers is Comparison {
    using Permutation for Permutation.Walk;

    bytes32 private constant DRAW_TAG = keccak256("troth/review/draw/1");
    /// @dev The hash of the dispute's block must still be known when the reviewers are drawn.
    uint256 private constant DRAW_WINDOW = 200;

    /// @dev The last block in which the reviewers can be drawn.
    function _drawDeadline(Progress memory progress) internal view returns (uint256) {
        unchecked {
            uint256 window = COMMIT_WINDOW < DRAW_WINDOW ? COMMIT_WINDOW : DRAW_WINDOW;
            return progress.phaseBlock + window;
        }
    }

    function _reviewGroup(Case memory review) internal pure returns (bytes32) {
        bytes32 ends = review.terms.ends;
        return _groupId(review.terms.executionClass, uint8(ends[1]), uint8(ends[2]));
    }

    /// @dev Members of the group at the dispute's block who did not verify before; counts no further than needed.
    function _reviewersIn(bytes32 group, Case memory review) internal view returns (uint256 members) {
        unchecked {
            uint256 size = _groupSizeAt(group, review.terms.referenceBlock);
            for (uint256 slot = 0; slot < size && members < review.rules.reviewers; ++slot) {
                if (_isFresh(_memberAt(group, slot, review.terms.referenceBlock), review.progress)) ++members;
            }
        }
    }

    /// @dev Draws the reviewers by the scheduler's VRF over the hash of the dispute's block: neither the scheduler nor
    ///      whoever disputes can choose them.
    function _drawReviewers(Case memory review, VrfProof calldata proof) internal {
        unchecked {
            Progress memory progress = review.progress;
            _requireAfter(progress.phaseBlock);
            _requireNotAfter(_drawDeadline(progress));
            bytes32 group = _reviewGroup(review);
            uint256 size = _groupSizeAt(group, review.terms.referenceBlock);
            VrfKey memory key = _vrfKeys[review.terms.scheduler];
            bytes32 alpha = keccak256(
                abi.encode(
                    DRAW_TAG, block.chainid, address(this), review.taskId, size, blockhash(progress.phaseBlock)
                )
            );
            bytes32 beta = EcVrf.verify(key.x, key.y, alpha, proof.proof, proof.hints);
            uint256 needed = review.rules.reviewers;
            address[] memory drawn = new address[](1 + needed);
            drawn[0] = progress.parties[0];
            Permutation.Walk memory walk = Permutation.start(beta, size);
            for (uint256 found = 0; found < needed;) {
                if (!walk.hasNext()) revert ITrothDisputes.TooFewReviewers(group, found, needed);
                address member = _memberAt(group, walk.next(), review.terms.referenceBlock);
                if (_isFresh(member, progress)) drawn[++found] = member;
            }
            _seatReviewers(review, drawn);
            emit ITrothDisputes.ReviewAssigned(review.taskId, drawn, beta, proof.proof);
        }
    }

    function _seatReviewers(Case memory review, address[] memory drawn) private view {
        Progress memory progress = review.progress;
        bytes32[] memory posts = new bytes32[](drawn.length);
        posts[0] = progress.posts[0];
        progress.posts = posts;
        progress.parties = drawn;
        progress.phase = Phase.Assigned;
        progress.phaseBlock = uint40(block.number);
        review.rules.verifiers = review.rules.reviewers;
    }

    function _isFresh(address member, Progress memory progress) private pure returns (bool) {
        unchecked {
            if (member == address(0)) return false;
            for (uint256 i = 0; i < progress.parties.length; ++i) {
                if (progress.parties[i] == member) return false;
            }
            return true;
        }
    }
}
