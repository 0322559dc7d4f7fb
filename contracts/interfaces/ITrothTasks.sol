// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CommitSubmission, Order, Outcome, Phase, Progress, Task, VrfProof} from "./TrothTypes.sol";

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
    event TaskCommitted(
        bytes32 indexed taskId,
        uint8 attempt,
        uint32 positions,
        bytes32 outputHash,
        address[] inferencers,
        bytes32[] posts
    );
    event TaskAborted(bytes32 indexed taskId);
    event TaskExpired(bytes32 indexed taskId, Phase phase);

    error NotScheduler(address expected, address caller);
    /// @notice The scheduler is not registered, is leaving, or has too little stake.
    error SchedulerNotBonded(address scheduler, uint96 stake, uint96 minimum);
    error OrderExpired(uint64 deadline, uint256 timestamp);
    /// @notice The reference block must be one of the 200 blocks before this one.
    error InvalidReferenceBlock(uint64 referenceBlock, uint256 currentBlock);
    error FeeAboveMaximum(uint256 fee, uint96 maxFee);
    /// @notice Ends must rise strictly, finish at the model's last layer, and be followed by zeros.
    error InvalidEnds(bytes32 ends, uint16 layers);
    error TaskKnown(bytes32 taskId);
    /// @notice The state does not hash to what is stored for the task.
    error StateMismatch(bytes32 taskId, bytes32 stored, bytes32 given);
    error WrongPhase(bytes32 taskId, Phase phase);
    error WrongProofCount(uint256 given, uint256 expected);
    error GroupTooSmall(bytes32 group, uint256 members, uint256 needed);
    error TooLate(uint256 currentBlock, uint256 lastBlock);
    error TooEarly(uint256 currentBlock, uint256 firstBlock);
    error WrongPostCount(uint256 given, uint256 expected);
    error WrongSignatureCount(uint256 givenBytes, uint256 expectedBytes);
    /// @notice A post was signed by somebody else than the party in question.
    error WrongSigner(uint256 segment, address expected, address recovered);
    error CandidateOutOfRange(uint256 segment, uint256 candidate, uint256 candidates);
    error SegmentOutOfRange(uint256 segment, uint256 segments);
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
    error QuorumMissing(uint256 segment, uint256 commitments, uint256 quorum);
    error RootMissing(uint256 segment);
    /// @notice The posts suffice to close the commit phase, so the task can no longer be given up.
    error AlreadySealable(bytes32 taskId);

    /// @notice Scheduler: opens a task and locks its fee.
    /// @param ends byte s is the end of segment s; zero after the last
    /// @param signature the client's EIP-712 signature of the order
    /// @return taskId digest of the order
    function open(Order calldata order, bytes32 ends, bytes calldata signature) external returns (bytes32 taskId);

    /// @notice Scheduler: opens, assigns and commits at once.
    function openAndCommit(
        Order calldata order,
        bytes32 ends,
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

    /// @notice A verifier posts its own commitment.
    /// @param terms keccak256(abi.encode(terms of the task))
    function commitVerification(
        bytes32 taskId,
        bytes32 terms,
        Progress calldata progress,
        uint8 segment,
        bytes32 commitment
    ) external;

    /// @notice Anyone, after half the commit window: closes the commit phase with a quorum of commitments.
    function seal(bytes32 taskId, Task calldata task) external;

    /// @notice Scheduler: gives up a task that has no commitments yet; the client gets its fee back.
    function abort(bytes32 taskId, Task calldata task) external;

    /// @notice Anyone: ends a task whose scheduler missed the commit or the sample window; the client gets its fee
    ///         back, the scheduler is slashed.
    function close(bytes32 taskId, Task calldata task) external;

    /// @notice Hash of a live task's state, the number of its outcome if it has ended, 0 if it was never opened.
    function taskState(bytes32 taskId) external view returns (bytes32);

    /// @notice How a task ended; None while it lives or if it was never opened.
    function outcomeOf(bytes32 taskId) external view returns (Outcome);

    /// @notice The EIP-712 digest of an order.
    function taskIdOf(Order calldata order) external view returns (bytes32);

    /// @notice keccak256(abi.encode(keccak256(abi.encode(terms)), progress)).
    function stateHash(Task calldata task) external pure returns (bytes32);
}
