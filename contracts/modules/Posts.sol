// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Phase, Progress} from "../interfaces/TrothTypes.sol";
import {TaskStore} from "./TaskStore.sol";

/// @title Roots and commitments of a task, and who stands where
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and amounts fit 96 bits.
abstract contract Posts is TaskStore {
    /// @dev Party 0 is the inferencer, party 1 + v is verifier v.
    function _partyOf(Progress memory progress, uint256 segment, uint256 party) internal pure returns (address) {
        unchecked {
            uint256 place = party == 0 ? 0 : progress.candidates + party - 1;
            return progress.parties[_firstParty(progress, segment) + place];
        }
    }

    /// @dev Whether every segment has a root and a quorum of commitments.
    function _sealable(Progress memory progress) internal pure returns (bool) {
        unchecked {
            if (progress.posts.length == 0) return false;
            for (uint256 s = 0; s < progress.segments; ++s) {
                (bool hasRoot, uint256 commitments, uint256 quorum) = _posted(progress, s);
                if (!hasRoot || commitments < quorum) return false;
            }
            return true;
        }
    }

    /// @dev What a segment has; the quorum is the smallest majority of its verifiers.
    function _posted(Progress memory progress, uint256 segment)
        internal
        pure
        returns (bool hasRoot, uint256 commitments, uint256 quorum)
    {
        unchecked {
            uint256 width = progress.posts.length / progress.segments;
            uint256 from = segment * width;
            hasRoot = progress.posts[from] != 0;
            for (uint256 v = 1; v < width; ++v) {
                if (progress.posts[from + v] != 0) ++commitments;
            }
            quorum = width / 2;
        }
    }

    /// @dev Closes the commit phase; the caller stores the state.
    function _enterCommitted(bytes32 taskId, Progress memory progress) internal {
        unchecked {
            progress.phase = Phase.Committed;
            progress.phaseBlock = uint40(block.number);
            address[] memory inferencers = new address[](progress.segments);
            for (uint256 s = 0; s < progress.segments; ++s) {
                inferencers[s] = _partyOf(progress, s, 0);
            }
            emit TaskCommitted(
                taskId, progress.attempt, progress.positions, progress.outputHash, inferencers, progress.posts
            );
        }
    }

    /// @dev Puts the candidate at `place` first among its segment's parties, where the inferencer stands.
    function _seat(Progress memory progress, uint256 first, uint256 place) internal pure {
        address[] memory parties = progress.parties;
        (parties[first], parties[place]) = (parties[place], parties[first]);
    }

    function _requireSealable(Progress memory progress, uint256 segment) internal pure {
        (bool hasRoot, uint256 commitments, uint256 quorum) = _posted(progress, segment);
        if (!hasRoot) revert RootMissing(segment);
        if (commitments < quorum) revert QuorumMissing(segment, commitments, quorum);
    }

    /// @dev Number of posts of an assigned task: a root and k commitments per segment.
    function _postCount(Progress memory progress) internal pure returns (uint256) {
        unchecked {
            return progress.segments * (1 + _verifiers(progress));
        }
    }
}
