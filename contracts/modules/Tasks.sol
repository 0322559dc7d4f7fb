// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothTasks} from "../interfaces/ITrothTasks.sol";
import {
    Account,
    Order,
    Outcome,
    Phase,
    Progress,
    Role,
    Rules,
    SlashReason,
    Task,
    Terms,
    VrfProof
} from "../interfaces/TrothTypes.sol";
import {Assignment} from "./Assignment.sol";
import {Escrow} from "./Escrow.sol";
import {TypedData} from "./TypedData.sol";

/// @title How a task begins, and how it ends without a result
abstract contract Tasks is Assignment, Escrow, TypedData {
    /// @dev Units per segment that a scheduler loses when it leaves a task unfinished.
    uint256 private constant SCHEDULER_PENALTY = PENALTY * 4;

    /// @inheritdoc ITrothTasks
    function open(Order calldata order, bytes32 ends, bytes calldata signature) external returns (bytes32 taskId) {
        Case memory opened = _open(order, ends, signature);
        _store(opened.taskId, opened.termsHash, opened.progress);
        return opened.taskId;
    }

    /// @inheritdoc ITrothTasks
    function assign(bytes32 taskId, Task calldata task, VrfProof[] calldata proofs) external {
        Case memory opened = _load(taskId, task);
        _requirePhase(taskId, opened.progress, Phase.Opened);
        _requireNotAfter(opened.progress.phaseBlock + COMMIT_WINDOW);
        _assign(opened, proofs);
        opened.progress.phase = Phase.Assigned;
        _store(taskId, opened.termsHash, opened.progress);
    }

    /// @inheritdoc ITrothTasks
    function abort(bytes32 taskId, Task calldata task) external {
        Case memory given = _load(taskId, task);
        if (msg.sender != given.terms.scheduler) revert NotScheduler(given.terms.scheduler, msg.sender);
        if (given.progress.phase > Phase.Assigned) revert WrongPhase(taskId, given.progress.phase);
        if (_sealable(given.progress)) revert AlreadySealable(taskId);
        _finish(taskId, Outcome.Aborted);
        emit TaskAborted(taskId);
        _release(taskId, given.terms.client, given.terms.fee);
    }

    /// @inheritdoc ITrothTasks
    function close(bytes32 taskId, Task calldata task) external {
        Case memory late = _load(taskId, task);
        Progress memory progress = late.progress;
        bool sampleDue = progress.phase == Phase.Committed && !late.rules.exact;
        if (progress.phase > Phase.Assigned && !sampleDue) revert WrongPhase(taskId, progress.phase);
        _requireAfter(progress.phaseBlock + (sampleDue ? SAMPLE_WINDOW : COMMIT_WINDOW));
        bytes32 evidence = taskState(taskId);
        _finish(taskId, Outcome.Expired);
        emit TaskExpired(taskId, progress.phase);
        uint256 penalty = late.rules.unit * SCHEDULER_PENALTY * progress.segments;
        uint256 taken = _slash(taskId, late.terms.scheduler, penalty, SlashReason.SchedulerLate, evidence);
        uint256 paid = sampleDue ? _compensate(taskId, progress, taken) : 0;
        _credit(taskId, RESERVE, taken - paid);
        _release(taskId, late.terms.client, late.terms.fee);
    }

    /// @inheritdoc ITrothTasks
    function taskIdOf(Order calldata order) external view returns (bytes32) {
        return _orderDigest(order);
    }

    function _load(bytes32 taskId, Task calldata task) internal view returns (Case memory loaded) {
        loaded.taskId = taskId;
        loaded.terms = task.terms;
        loaded.progress = task.progress;
        loaded.termsHash = _termsHash(loaded.terms);
        _requireState(taskId, loaded.termsHash, loaded.progress);
        loaded.rules = _rulesOf(loaded.terms.executionClass);
    }

    /// @dev Checks an order and locks its fee; the caller stores the state.
    function _open(Order calldata order, bytes32 ends, bytes calldata signature)
        internal
        returns (Case memory opened)
    {
        _requireScheduler(order.scheduler);
        if (block.timestamp > order.deadline) revert OrderExpired(order.deadline, block.timestamp);
        if (order.referenceBlock >= block.number || block.number - order.referenceBlock > REFERENCE_AGE) {
            revert InvalidReferenceBlock(order.referenceBlock, block.number);
        }
        opened.rules = _rulesOf(order.executionClass);
        uint256 segments = _segmentCount(ends, opened.rules.layers);
        opened.taskId = _orderDigest(order);
        if (taskState(opened.taskId) != 0) revert TaskKnown(opened.taskId);
        opened.terms = Terms({
            client: ECDSA.recoverCalldata(opened.taskId, signature),
            scheduler: order.scheduler,
            executionClass: order.executionClass,
            fee: _feeWithin(opened.rules, segments, order.maxFee),
            referenceBlock: order.referenceBlock,
            ends: ends
        });
        opened.termsHash = _termsHash(opened.terms);
        opened.progress.phase = Phase.Opened;
        opened.progress.phaseBlock = uint40(block.number);
        opened.progress.segments = uint8(segments);
        opened.progress.candidates = opened.rules.candidates;
        emit TaskOpened(
            opened.taskId,
            opened.terms.client,
            order.scheduler,
            order.executionClass,
            order.requestHash,
            opened.terms.fee,
            order.referenceBlock,
            ends,
            _lock(opened.terms.client, opened.terms.fee)
        );
    }

    /// @dev Whether every segment has a root and a quorum of commitments.
    function _sealable(Progress memory progress) internal pure returns (bool) {
        if (progress.posts.length == 0) return false;
        for (uint256 s = 0; s < progress.segments; ++s) {
            (bool hasRoot, uint256 commitments, uint256 quorum) = _posted(progress, s);
            if (!hasRoot || commitments < quorum) return false;
        }
        return true;
    }

    /// @dev What a segment has; the quorum is the smallest majority of its verifiers.
    function _posted(Progress memory progress, uint256 segment)
        internal
        pure
        returns (bool hasRoot, uint256 commitments, uint256 quorum)
    {
        uint256 width = progress.posts.length / progress.segments;
        uint256 from = segment * width;
        hasRoot = progress.posts[from] != 0;
        for (uint256 v = 1; v < width; ++v) {
            if (progress.posts[from + v] != 0) ++commitments;
        }
        quorum = width / 2;
    }

    function _requireScheduler(address scheduler) private view {
        if (msg.sender != scheduler) revert NotScheduler(scheduler, msg.sender);
        Account memory account = _accounts[scheduler];
        bool bonded = account.role == Role.Scheduler && account.exitBlock == 0;
        if (!bonded || account.stake < MINIMUM_SCHEDULER_STAKE) {
            revert SchedulerNotBonded(scheduler, account.stake, MINIMUM_SCHEDULER_STAKE);
        }
    }

    /// @dev Number of segments whose ends rise strictly to the last layer.
    function _segmentCount(bytes32 ends, uint16 layers) private pure returns (uint256 segments) {
        uint256 last = 0;
        while (segments < 32 && ends[segments] != 0) {
            uint256 end = uint8(ends[segments]);
            if (end <= last) revert InvalidEnds(ends, layers);
            last = end;
            ++segments;
        }
        bool onlyZerosFollow = segments == 32 || ends << (8 * segments) == 0;
        if (last != layers || !onlyZerosFollow) revert InvalidEnds(ends, layers);
    }

    function _feeWithin(Rules memory rules, uint256 segments, uint96 maxFee) private pure returns (uint96) {
        uint256 fee = _fee(rules, segments);
        if (fee > maxFee) revert FeeAboveMaximum(fee, maxFee);
        return uint96(fee);
    }

    /// @dev Shares a late scheduler's slash among those whose work it wasted.
    /// @return paid never more than `taken`; what does not divide stays with the caller
    function _compensate(bytes32 taskId, Progress memory progress, uint256 taken) private returns (uint256 paid) {
        uint256 workers = 0;
        for (uint256 i = 0; i < progress.posts.length; ++i) {
            if (progress.posts[i] != 0) ++workers;
        }
        uint256 share = taken / workers;
        uint256 width = progress.posts.length / progress.segments;
        for (uint256 i = 0; i < progress.posts.length; ++i) {
            if (progress.posts[i] == 0) continue;
            _credit(taskId, _partyOf(progress, i / width, i % width), share);
            paid += share;
        }
    }

    /// @dev Party 0 is the inferencer, party 1 + v is verifier v.
    function _partyOf(Progress memory progress, uint256 segment, uint256 party) internal pure returns (address) {
        uint256 place = party == 0 ? 0 : progress.candidates + party - 1;
        return progress.parties[_firstParty(progress, segment) + place];
    }
}
