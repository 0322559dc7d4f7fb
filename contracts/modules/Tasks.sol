// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothTasks} from "../interfaces/ITrothTasks.sol";
import {
    Account,
    Order,
    Outcome,
    Phase,
    Role,
    Rules,
    Task,
    Terms,
    VrfProof
} from "../interfaces/TrothTypes.sol";
import {Assignment} from "./Assignment.sol";
import {TaskCodec} from "./TaskCodec.sol";
import {TypedData} from "./TypedData.sol";

/// @title How a task begins
abstract contract Tasks is ITrothTasks, Assignment, TypedData {
    /// @inheritdoc ITrothTasks
    function open(Order calldata order, bytes calldata signature) external returns (bytes32 taskId) {
        Case memory opened = _open(order, signature);
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
    function taskState(bytes32 taskId) public view returns (bytes32) {
        return _tasks[taskId];
    }

    /// @inheritdoc ITrothTasks
    function outcomeOf(bytes32 taskId) external view returns (Outcome) {
        return Outcome(uint8(uint256(_tasks[taskId])));
    }

    /// @inheritdoc ITrothTasks
    function stateHash(Task calldata task) external pure returns (bytes32) {
        return TaskCodec.hash(TaskCodec.hash(TaskCodec.read(task.terms)), TaskCodec.read(task.progress));
    }

    /// @inheritdoc ITrothTasks
    function taskIdOf(Order calldata order) external view returns (bytes32) {
        return _orderDigest(order);
    }

    /// @dev Checks an order and locks its fee; the caller stores the state.
    function _open(Order calldata order, bytes calldata signature) internal returns (Case memory opened) {
        _requireScheduler(order.scheduler);
        if (block.timestamp > order.deadline) revert OrderExpired(order.deadline, block.timestamp);
        if (order.referenceBlock >= block.number || block.number - order.referenceBlock > REFERENCE_AGE) {
            revert InvalidReferenceBlock(order.referenceBlock, block.number);
        }
        opened.rules = _rulesOf(order.executionClass);
        uint256 segments = _segmentCount(order.ends, opened.rules.layers);
        _requireRevealable(opened.rules, segments);
        opened.taskId = _orderDigest(order);
        if (_tasks[opened.taskId] != 0) revert TaskKnown(opened.taskId);
        opened.terms = Terms({
            client: ECDSA.recoverCalldata(opened.taskId, signature),
            scheduler: order.scheduler,
            executionClass: order.executionClass,
            fee: _feeWithin(opened.rules, segments, order.maxFee),
            referenceBlock: order.referenceBlock,
            ends: order.ends
        });
        opened.termsHash = TaskCodec.hash(opened.terms);
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
            order.ends,
            _lock(opened.terms.client, opened.terms.fee)
        );
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

    /// @dev Each reveal changes the task's state, so that in the worst case only one fits into a block.
    function _requireRevealable(Rules memory rules, uint256 segments) private view {
        uint256 openings = segments * (1 + uint256(rules.verifiers));
        if (openings > REVEAL_WINDOW || openings * rules.tiles > MAXIMUM_TILES) {
            revert TooManyOpenings(openings, rules.tiles, REVEAL_WINDOW);
        }
    }

    function _feeWithin(Rules memory rules, uint256 segments, uint96 maxFee) private pure returns (uint96) {
        uint256 fee = _fee(rules, segments);
        if (fee > maxFee) revert FeeAboveMaximum(fee, maxFee);
        return uint96(fee);
    }
}
