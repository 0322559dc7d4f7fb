// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Progress} from "./TrothTypes.sol";

/// @title What a party posts itself, should the scheduler not do it
interface ITrothOwnPosts {
    event InferenceCommitted(
        bytes32 indexed taskId,
        address indexed inferencer,
        uint8 segment,
        uint8 attempt,
        uint32 positions,
        bytes32 root,
        bytes32 outputHash
    );
    event VerificationCommitted(bytes32 indexed taskId, address indexed verifier, uint8 segment, bytes32 commitment);

    error NotCandidate(uint256 segment, address caller);
    error NotVerifier(uint256 segment, address caller);
    error AlreadyPosted(uint256 segment, address party);
    error ZeroCommitment(uint256 segment);
    /// @notice Another segment was posted for another attempt or length.
    error AttemptMismatch(uint8 attempt, uint8 postedAttempt, uint32 positions, uint32 postedPositions);

    /// @notice A candidate posts its own root.
    /// @param terms keccak256(abi.encode(terms of the task))
    /// @param outputHash of the last segment; zero at all others
    function commitInference(
        bytes32 taskId,
        bytes32 terms,
        Progress calldata progress,
        uint8 segment,
        uint8 attempt,
        uint32 positions,
        bytes32 root,
        bytes32 outputHash
    ) external;

    /// @notice A verifier posts its own commitment, once its segment's root is posted: only then attempt and length are
    ///         fixed, without which it might be bound to an opening that it cannot make.
    /// @param terms keccak256(abi.encode(terms of the task))
    function commitVerification(
        bytes32 taskId,
        bytes32 terms,
        Progress calldata progress,
        uint8 segment,
        bytes32 commitment
    ) external;
}
