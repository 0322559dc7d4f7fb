// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {Outcome, Phase, Progress, Settled, Task, Terms} from "../interfaces/TrothTypes.sol";
import {Reviewers} from "./Reviewers.sol";
import {TaskCodec} from "./TaskCodec.sol";

/// @title How a settled segment is disputed
/// @dev Arithmetic is unchecked: a task has at most 32 segments, a committee at most 31 members, amounts fit 96 bits.
abstract contract ReviewOpening is ITrothDisputes, Reviewers {
    bytes32 private constant REVIEW_TAG = keccak256("troth/review/1");

    /// @inheritdoc ITrothDisputes
    function dispute(bytes32 taskId, Task calldata task, Settled calldata settled, uint8 segment)
        external
        returns (bytes32 reviewId)
    {
        Case memory ended = _loadSettled(taskId, task, settled);
        if (segment >= ended.progress.segments) revert SegmentOutOfRange(segment, ended.progress.segments);
        reviewId = _reviewId(taskId, segment);
        if (_tasks[reviewId] != 0) revert AlreadyDisputed(taskId, segment);
        _requireNotAfter(settled.settledBlock + DISPUTE_WINDOW);
        Case memory review = _newReview(ended, segment);
        review.taskId = reviewId;
        bytes32 group = _reviewGroup(review);
        uint256 members = _reviewersIn(group, review);
        if (members < review.rules.reviewers) revert TooFewReviewers(group, members, review.rules.reviewers);
        uint96 balance = 0;
        if (_requireDisputable(taskId, settled, segment)) {
            review.terms.client = msg.sender;
            balance = _takeBond(review, ended, settled, segment);
        }
        _store(reviewId, TaskCodec.hash(review.terms), review.progress);
        emit TaskDisputed(taskId, reviewId, review.terms.client, segment, review.terms.fee, balance);
    }

    function _reviewId(bytes32 taskId, uint8 segment) internal pure returns (bytes32) {
        return keccak256(abi.encode(REVIEW_TAG, taskId, segment));
    }

    /// @dev A settled task as it was when it was settled.
    function _loadSettled(bytes32 taskId, Task calldata task, Settled calldata settled)
        internal
        view
        returns (Case memory ended)
    {
        ended.taskId = taskId;
        ended.terms = TaskCodec.read(task.terms);
        ended.progress = TaskCodec.read(task.progress);
        ended.termsHash = TaskCodec.hash(ended.terms);
        bytes32 given = TaskCodec.hash(TaskCodec.hash(ended.termsHash, ended.progress), settled);
        bytes32 stored = _tasks[taskId];
        if ((stored ^ given) >> 16 != 0) revert StateMismatch(taskId, stored, given);
        ended.rules = _rulesOf(ended.terms.executionClass);
    }

    /// @dev Who would be right among the first verifiers if the segment's outcome were this one.
    function _inTheRight(Settled calldata settled, uint256 segment, Outcome outcome) internal pure returns (uint256) {
        uint256 verdicts = settled.verdicts[segment];
        return settled.valid[segment] & (outcome == Outcome.Accepted ? verdicts : ~verdicts);
    }

    function _newReview(Case memory ended, uint256 segment) private view returns (Case memory review) {
        unchecked {
            bytes32 ends = ended.terms.ends;
            uint8 first = segment == 0 ? 0 : uint8(ends[segment - 1]);
            Progress memory progress = ended.progress;
            review.rules = ended.rules;
            review.terms = Terms({
                client: address(0),
                scheduler: ended.terms.scheduler,
                executionClass: ended.terms.executionClass,
                fee: 0,
                // Members of this block could still leave in it, and nobody might be left to draw.
                referenceBlock: uint64(block.number - 1),
                ends: bytes32(uint256(first) << 240 | uint256(uint8(ends[segment])) << 232)
            });
            uint256 width = progress.parties.length / progress.segments;
            review.progress.phase = Phase.Disputed;
            review.progress.phaseBlock = uint40(block.number);
            review.progress.segments = 1;
            review.progress.candidates = 1;
            review.progress.attempt = progress.attempt;
            review.progress.positions = progress.positions;
            review.progress.outputHash = progress.outputHash;
            review.progress.parties = new address[](width);
            for (uint256 i = 0; i < width; ++i) {
                review.progress.parties[i] = progress.parties[segment * width + i];
            }
            review.progress.posts = new bytes32[](1);
            review.progress.posts[0] = progress.posts[segment * (progress.posts.length / progress.segments)];
        }
    }

    /// @return bonded whether the dispute costs a bond
    function _requireDisputable(bytes32 taskId, Settled calldata settled, uint256 segment)
        private
        pure
        returns (bool bonded)
    {
        Outcome outcome = Outcome(settled.outcomes[segment]);
        bool disputable = outcome != Outcome.Rejected || settled.valid[segment] != 0;
        if (outcome == Outcome.Accepted) {
            for (uint256 s = 0; s < settled.outcomes.length; ++s) {
                disputable = disputable && settled.outcomes[s] == uint8(Outcome.Accepted);
            }
        }
        if (!disputable) revert NotDisputable(taskId, segment, outcome);
        return outcome != Outcome.Indeterminate;
    }

    /// @dev Sets the review's fee, which is the bond.
    /// @return balance what is left of the stake, or of the escrow
    function _takeBond(Case memory review, Case memory ended, Settled calldata settled, uint256 segment)
        private
        returns (uint96 balance)
    {
        unchecked {
            uint96 bond = uint96(review.rules.unit * BOND);
            if (!_profits(ended.progress, settled, segment)) {
                bond += uint96(review.rules.unit * REWARD * review.rules.reviewers);
                review.terms.fee = bond;
                return _lock(msg.sender, bond);
            }
            review.terms.fee = bond;
            balance = _accounts[msg.sender].stake;
            if (balance < bond) revert BondMissing(msg.sender, balance, bond);
            balance -= bond;
            _accounts[msg.sender].stake = balance;
        }
    }

    /// @dev Whether the caller is a party of the segment that another outcome would pay.
    function _profits(Progress memory progress, Settled calldata settled, uint256 segment) private view returns (bool) {
        unchecked {
            bool rejected = settled.outcomes[segment] == uint8(Outcome.Rejected);
            if (rejected && _partyOf(progress, segment, 0) == msg.sender) return true;
            uint256 right = _inTheRight(settled, segment, rejected ? Outcome.Accepted : Outcome.Rejected);
            for (uint256 v = 0; right >> v != 0; ++v) {
                if (right >> v & 1 != 0 && _partyOf(progress, segment, 1 + v) == msg.sender) return true;
            }
            return false;
        }
    }
}
