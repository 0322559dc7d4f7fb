// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Opening, Outcome, Phase, Settled, Task, VrfProof} from "./TrothTypes.sol";

/// @title A second verification of one segment, by more verifiers, once (VeriLLM section 5.7, Appendix E)
/// @dev A review is kept like a task of one segment, under its own id; `sample`, `reveal`, `seal` and `commitVerification`
///      take it as they take a task. Its posts are signed for the review's id and for segment 0.
interface ITrothDisputes {
    /// @param reviewId keccak256(abi.encode(keccak256("troth/review/1"), taskId, segment))
    /// @param disputer zero if nobody has to ask, since the segment was undecided
    /// @param balance what the bond left of the disputer's stake if it is a party of the segment, else of its escrow
    event TaskDisputed(
        bytes32 indexed taskId,
        bytes32 indexed reviewId,
        address indexed disputer,
        uint8 segment,
        uint96 bond,
        uint96 balance
    );
    /// @param parties the inferencer, then the reviewers
    event ReviewAssigned(bytes32 indexed reviewId, address[] parties, bytes32 beta, bytes proof);
    /// @param outcome what the reviewers decided about the segment
    /// @param taskOutcome how the task stands now
    /// @param verdicts bit v is set if reviewer v revealed the verdict true
    /// @param cluster bit v is set if reviewer v is in the proper cluster
    event ReviewSettled(
        bytes32 indexed taskId,
        bytes32 indexed reviewId,
        uint8 segment,
        Outcome outcome,
        Outcome taskOutcome,
        uint256 verdicts,
        uint256 cluster
    );
    event ReviewExpired(bytes32 indexed reviewId, Phase phase);
    /// @param balance the disputer's stake, its credit if it has withdrawn, or its escrow if that is where the bond was from
    event BondReturned(bytes32 indexed reviewId, address indexed disputer, uint96 amount, uint96 balance);

    /// @notice Each segment is disputed at most once.
    error AlreadyDisputed(bytes32 taskId, uint256 segment);
    /// @notice An accepted segment of a task that failed elsewhere, or one whose inferencer showed nothing.
    error NotDisputable(bytes32 taskId, uint256 segment, Outcome outcome);
    /// @notice A task of the first round has other calls for this.
    error NotReview(bytes32 taskId);
    /// @notice The stake does not cover the bond.
    error BondMissing(address disputer, uint96 stake, uint256 bond);
    /// @notice The group has too few members besides those who verified before.
    error TooFewReviewers(bytes32 group, uint256 members, uint256 needed);

    /// @notice Has a segment verified again. An undecided one costs no bond, and anyone may call for it. For a decided one
    ///         a party that would profit pays a bond of 8 units out of its stake; anybody else pays 8 units and what the
    ///         reviewers get, out of its escrow.
    /// @param task the task as it was when it was settled, sampled
    function dispute(bytes32 taskId, Task calldata task, Settled calldata settled, uint8 segment)
        external
        returns (bytes32 reviewId);

    /// @notice Anyone: draws the reviewers, at least one block after the dispute.
    function assignReview(bytes32 reviewId, Task calldata review, VrfProof calldata proof) external;

    /// @notice Anyone: posts reviewers' commitments with their signatures, which with those that reviewers posted
    ///         themselves make at least a quorum. While some are missing, only after three quarters of the commit window:
    ///         until then a reviewer that was left out can post for itself.
    /// @param proofs one if the reviewers are not drawn yet, else none
    /// @param commitments one per reviewer, zero where there is none
    function commitReview(
        bytes32 reviewId,
        Task calldata review,
        VrfProof[] calldata proofs,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) external;

    /// @notice Anyone: decides the review; who was wrong pays those who were right, and for the review. An inferencer that
    ///         shows nothing is rejected, and pays alone. Undecided with commitments missing, the review costs its scheduler
    ///         as one that it left unfinished.
    /// @param proof sampling proof, used if the class is tolerant and the review is not sampled yet
    /// @param openings the inferencer's, then the reviewers'
    function settleReview(
        bytes32 taskId,
        Task calldata task,
        Settled calldata settled,
        uint8 segment,
        Task calldata review,
        VrfProof calldata proof,
        Opening[] calldata openings
    ) external;

    /// @notice Anyone: ends a review that its scheduler left unfinished. The bond returns, the first verdict stays, the
    ///         scheduler is slashed (10 units, and 6 for each first verifier) unless there were too few reviewers to draw:
    ///         for those who committed if the sample is missing, else for a party that disputed, else for the reserve.
    function closeReview(bytes32 reviewId, Task calldata review) external;
}
