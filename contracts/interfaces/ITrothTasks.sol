// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CommitSubmission, Order, Outcome, Task, VrfProof} from "./TrothTypes.sol";

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
    error CandidateOutOfRange(uint256 segment, uint256 candidate, uint256 candidates);
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

    /// @notice Hash of a live task's state; what is kept of one that has ended, its last byte the number of the outcome;
    ///         0 if it was never opened.
    function taskState(bytes32 taskId) external view returns (bytes32);

    /// @notice How a task ended; None while it lives or if it was never opened.
    function outcomeOf(bytes32 taskId) external view returns (Outcome);

    /// @notice The EIP-712 digest of an order.
    function taskIdOf(Order calldata order) external view returns (bytes32);

    /// @notice keccak256(abi.encode(keccak256(abi.encode(terms)), progress)), its last two bytes cleared.
    function stateHash(Task calldata task) external pure returns (bytes32);
}
