// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothSettlement} from "../interfaces/ITrothSettlement.sol";
import {
    Opening,
    Outcome,
    Phase,
    Progress,
    Settled,
    SlashReason,
    Task,
    VrfProof
} from "../interfaces/TrothTypes.sol";
import {Clusters} from "../libraries/Clusters.sol";
import {Comparison} from "./Comparison.sol";
import {TaskCodec} from "./TaskCodec.sol";

/// @title Who is paid and who is slashed (VeriLLM Appendix E)
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and amounts fit 96 bits.
abstract contract Settlement is ITrothSettlement, Comparison {
    /// @inheritdoc ITrothSettlement
    function sample(bytes32 taskId, Task calldata task, VrfProof calldata proof) external {
        Case memory opened = _load(taskId, task);
        if (msg.sender != opened.terms.scheduler) revert NotScheduler(opened.terms.scheduler, msg.sender);
        if (opened.rules.exact) revert ExactClass(opened.terms.executionClass);
        _requirePhase(taskId, opened.progress, Phase.Committed);
        _sample(opened, proof);
        _store(taskId, opened.termsHash, opened.progress);
    }

    /// @inheritdoc ITrothSettlement
    function settle(bytes32 taskId, Task calldata task, VrfProof calldata proof, Opening[] calldata openings)
        external
    {
        unchecked {
            Case memory due = _load(taskId, task);
            _requireNoReview(taskId, due.terms);
            Progress memory progress = due.progress;
            if (progress.phase == Phase.Committed && !due.rules.exact) _sample(due, proof);
            _requireRevealing(due);
            if (openings.length != progress.posts.length) {
                revert WrongOpeningCount(openings.length, progress.posts.length);
            }
            Finding[] memory findings = new Finding[](progress.segments);
            for (uint256 s = 0; s < progress.segments; ++s) {
                findings[s] = _judge(due, s, openings);
            }
            Outcome outcome = _outcome(findings);
            _keep(due, outcome, findings);
            _move(due, outcome, findings);
        }
    }

    /// @dev One rejected segment rejects the task; otherwise one undecided segment leaves it undecided.
    function _outcome(Finding[] memory findings) private pure returns (Outcome outcome) {
        unchecked {
            outcome = Outcome.Accepted;
            for (uint256 s = 0; s < findings.length; ++s) {
                if (findings[s].outcome == Outcome.Rejected) return Outcome.Rejected;
                if (findings[s].outcome == Outcome.Indeterminate) outcome = Outcome.Indeterminate;
            }
        }
    }

    /// @dev Stores what a dispute needs to know.
    function _keep(Case memory due, Outcome outcome, Finding[] memory findings) private {
        unchecked {
            uint256 count = findings.length;
            Settled memory settled = Settled({
                outcomes: new uint8[](count),
                verdicts: new uint8[](count),
                clusters: new uint8[](count),
                valid: new uint8[](count),
                settledBlock: uint40(block.number)
            });
            uint256 notAccepted = 0;
            for (uint256 s = 0; s < count; ++s) {
                Finding memory finding = findings[s];
                settled.outcomes[s] = uint8(finding.outcome);
                settled.verdicts[s] = uint8(finding.verdicts);
                settled.clusters[s] = uint8(finding.cluster);
                settled.valid[s] = uint8(finding.valid);
                if (finding.outcome != Outcome.Accepted) ++notAccepted;
            }
            bytes32 kept = TaskCodec.hash(TaskCodec.hash(due.termsHash, due.progress), settled);
            _tasks[due.taskId] = kept | bytes32(notAccepted << 8 | uint256(outcome));
            emit TaskSettled(
                due.taskId, outcome, settled.outcomes, settled.verdicts, settled.clusters, settled.valid
            );
        }
    }

    function _move(Case memory task, Outcome outcome, Finding[] memory findings) private {
        unchecked {
            bytes32 taskId = task.taskId;
            uint256 reward = task.rules.unit * REWARD;
            uint256 spent = 0;
            uint256 reserved = 0;
            for (uint256 s = 0; s < findings.length; ++s) {
                Finding memory finding = findings[s];
                uint256 bounty = 0;
                if (outcome == Outcome.Accepted) {
                    _credit(taskId, _partyOf(task.progress, s, 0), reward);
                    bounty = reward;
                    spent += reward * (1 + Clusters.count(finding.cluster));
                } else if (finding.outcome == Outcome.Rejected) {
                    uint256 left;
                    (bounty, left) = _slashInferencer(task, s, finding);
                    reserved += left;
                }
                reserved += _moveVerifiers(task, outcome, s, finding, bounty);
            }
            if (outcome == Outcome.Accepted) {
                _credit(taskId, task.terms.scheduler, reward);
                spent += reward;
            }
            _release(taskId, task.terms.client, task.terms.fee - spent);
            _credit(taskId, RESERVE, reserved);
        }
    }

    /// @dev A rejected inferencer pays its own penalty and its checkers' rewards, as far as its stake goes.
    /// @return bounty for each verifier of the proper cluster
    /// @return left for the reserve
    function _slashInferencer(Case memory task, uint256 segment, Finding memory finding)
        private
        returns (uint256 bounty, uint256 left)
    {
        unchecked {
            uint256 members = Clusters.count(finding.cluster);
            uint256 units = PENALTY + REWARD * members;
            bytes32 root = task.progress.posts[segment * (1 + uint256(task.rules.verifiers))];
            address inferencer = _partyOf(task.progress, segment, 0);
            uint256 taken = _slash(task.taskId, inferencer, task.rules.unit * units, SlashReason.Rejected, root);
            bounty = taken * REWARD / units;
            left = taken - bounty * members;
        }
    }

    /// @dev Pays the proper cluster and slashes who was silent, or outside the cluster of a decided task.
    /// @return reserved what the slashes brought
    function _moveVerifiers(
        Case memory task,
        Outcome outcome,
        uint256 segment,
        Finding memory finding,
        uint256 bounty
    ) private returns (uint256 reserved) {
        unchecked {
            bool decided = outcome != Outcome.Indeterminate && finding.cluster != 0;
            uint256 penalty = task.rules.unit * PENALTY;
            for (uint256 v = 0; v < task.rules.verifiers; ++v) {
                if (finding.committed >> (1 + v) & 1 == 0) continue;
                address verifier = _partyOf(task.progress, segment, 1 + v);
                bool opened = finding.opened >> (1 + v) & 1 != 0;
                if (finding.cluster >> v & 1 != 0) {
                    _credit(task.taskId, verifier, bounty);
                } else if (!opened || decided) {
                    bytes32 commitment = task.progress.posts[segment * (1 + uint256(task.rules.verifiers)) + 1 + v];
                    SlashReason reason = opened ? SlashReason.Disagreed : SlashReason.Unrevealed;
                    reserved += _slash(task.taskId, verifier, penalty, reason, commitment);
                }
            }
        }
    }
}
