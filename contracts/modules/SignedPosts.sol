// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothSignedPosts} from "../interfaces/ITrothSignedPosts.sol";
import {Progress} from "../interfaces/TrothTypes.sol";
import {Posts} from "./Posts.sol";
import {TypedData} from "./TypedData.sol";

/// @title Posts that somebody else hands in, each with its maker's signature
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and positions in calldata are small.
abstract contract SignedPosts is ITrothSignedPosts, Posts, TypedData {
    uint256 private constant SIGNATURE_BYTES = 65;

    /// @dev Checks the signatures of one segment's posts, those of party `from` and after it, from byte `used` on.
    /// @return the first byte after them
    function _checkSignatures(
        bytes32 taskId,
        Progress memory progress,
        uint256 segment,
        uint256 from,
        bytes calldata signatures,
        uint256 used
    ) internal view returns (uint256) {
        unchecked {
            uint256 width = progress.posts.length / progress.segments;
            bytes32 judged = _judgedHash(taskId, progress, segment, progress.posts[segment * width]);
            for (uint256 party = from; party < width; ++party) {
                bytes32 post = progress.posts[segment * width + party];
                if (post == 0) continue;
                bytes32 structHash =
                    party == 0 ? judged : _verdictHash(taskId, segment, progress.attempt, post, judged);
                uint256 end = used + SIGNATURE_BYTES;
                if (end > signatures.length) revert WrongSignatureCount(signatures.length, end);
                address signer = ECDSA.recoverCalldata(_hashTypedDataV4(structHash), signatures[used:end]);
                address expected = _partyOf(progress, segment, party);
                if (signer != expected) revert WrongSigner(segment, expected, signer);
                used = end;
            }
            return used;
        }
    }

    function _judgedHash(bytes32 taskId, Progress memory progress, uint256 segment, bytes32 root)
        private
        pure
        returns (bytes32)
    {
        unchecked {
            bytes32 outputHash = segment + 1 == progress.segments ? progress.outputHash : bytes32(0);
            return _traceRootHash(taskId, segment, progress.attempt, progress.positions, root, outputHash);
        }
    }
}
