// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CommitSubmission, Order, Outcome, Progress, Task, VrfProof} from "./TrothTypes.sol";

/// @title From the client's order to the commitments
/// @dev A live task is one storage slot with the hash of its state; callers bring the state along.
interface ITrothTasks {
    event TaskOpened(
        bytes32 indexed taskId,
        address indexed client,
        address indexed scheduler,
        bytes32 executionClass,
        bytes32 requestHash,
        uint96 fee,
        uint64 referenceBlock,
        bytes32 ends,
        uint96 escrow
    );
    event TaskAssigned(bytes32 indexed taskId, address[] parties, bytes32[] betas, bytes[] proofs);
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
    /// @notice The scheduler is not registered, is leaving, or has too little stake.
    error SchedulerNotBonded(address scheduler, uint96 stake, uint96 minimum);
    error OrderExpired(uint64 deadline, uint256 timestamp);
    /// @notice The reference block must be one of the 200 blocks before this one.
    error InvalidReferenceBlock(uint64 referenceBlock, uint256 currentBlock);
    error FeeAboveMaximum(uint256 fee, uint96 maxFee);
    /// @notice Ends must rise strictly, finish at the model's last layer, and be followed by zeros.
    error InvalidEnds(bytes32 ends, uint16 layers);
    /// @notice Every party needs a block of the reveal window to reveal in, should each have to, and a settlement must fit
    ///         into a transaction.
    error TooManyOpenings(uint256 openings, uint8 tiles, uint256 revealWindow);
    error TaskKnown(bytes32 taskId);
    error WrongProofCount(uint256 given, uint256 expected);
    error GroupTooSmall(bytes32 group, uint256 members, uint256 needed);
    error WrongPostCount(uint256 given, uint256 expected);
    error WrongSignatureCount(uint256 givenBytes, uint256 expectedBytes);
    /// @notice A post was signed by somebody else than the party in question.
    error WrongSigner(uint256 segment, address expected, address recovered);
    error CandidateOutOfRange(uint256 segment, uint256 candidate, uint256 candidates);
    error NotCandidate(uint256 segment, address caller);
    error NotVerifier(uint256 segment, address caller);
    error AlreadyPosted(uint256 segment, address party);
    error ZeroCommitment(uint256 segment);
    /// @notice A trace has at least one row.
    error ZeroPositions(bytes32 taskId);
    /// @notice Another segment was posted for another attempt or length.
    error AttemptMismatch(uint8 attempt, uint8 postedAttempt, uint32 positions, uint32 postedPositions);
    /// @notice Only the last segment's inferencer, and it always, names the output.
    error InvalidOutputHash(uint256 segment, bytes32 outputHash);
    /// @notice Scheduler: opens a task and locks its fee.
    /// @param signature the client's EIP-712 signature of the order
    /// @return taskId digest of the order
    function open(Order calldata order, bytes calldata signature) external returns (bytes32 taskId);

    /// @notice Scheduler: opens, assigns and commits at once.
    function openAndCommit(
        Order calldata order,
        bytes calldata signature,
        VrfProof[] calldata proofs,
        CommitSubmission calldata submission
    ) external returns (bytes32 taskId);

    /// @notice Anyone: derives the parties of an opened task from the scheduler's VRF proofs, one per segment.
    function assign(bytes32 taskId, Task calldata task, VrfProof[] calldata proofs) external;

    /// @notice Anyone: posts all roots and at least a quorum of commitments with their signatures; posts that parties
    ///         made themselves are replaced.
    /// @param proofs empty if the task is assigned already
    function commit(
        bytes32 taskId,
        Task calldata task,
        VrfProof[] calldata proofs,
        CommitSubmission calldata submission
    ) external;

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

    /// @notice Hash of a live task's state, the number of its outcome if it has ended, 0 if it was never opened.
    function taskState(bytes32 taskId) external view returns (bytes32);

    /// @notice How a task ended; None while it lives or if it was never opened.
    function outcomeOf(bytes32 taskId) external view returns (Outcome);

    /// @notice The EIP-712 digest of an order.
    function taskIdOf(Order calldata order) external view returns (bytes32);

    /// @notice keccak256(abi.encode(keccak256(abi.encode(terms)), progress)).
    function stateHash(Task calldata task) external pure returns (bytes32);
}
