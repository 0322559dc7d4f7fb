// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothSettlement} from "../interfaces/ITrothSettlement.sol";
import {
    Opening,
    Outcome,
    Phase,
    Progress,
    Rules,
    SlashReason,
    Task,
    Terms,
    VrfProof
} from "../interfaces/TrothTypes.sol";
import {Clusters} from "../libraries/Clusters.sol";
import {Comparison} from "./Comparison.sol";

/// @title Who is paid and who is slashed (VeriLLM Appendix E)
abstract contract Settlement is Comparison {
    /// @inheritdoc ITrothSettlement
    function settle(bytes32 taskId, Task calldata task, VrfProof calldata proof, Opening[] calldata openings)
        external
    {
        (Terms memory terms, Progress memory progress,) = _load(taskId, task);
        Rules memory rules = _rulesOf(terms.executionClass);
        if (progress.phase == Phase.Committed && !rules.exact) _sample(taskId, terms.scheduler, progress, proof);
        _requireRevealing(taskId, progress, rules);
        if (openings.length != progress.posts.length) {
            revert WrongOpeningCount(openings.length, progress.posts.length);
        }
        Finding[] memory findings = new Finding[](progress.segments);
        for (uint256 s = 0; s < progress.segments; ++s) {
            findings[s] = _judge(taskId, progress, rules, s, openings);
        }
        Outcome outcome = _outcome(findings);
        _finish(taskId, outcome);
        _announce(taskId, outcome, findings);
        _move(taskId, terms, progress, rules, outcome, findings);
    }

    /// @dev One rejected segment rejects the task; otherwise one undecided segment leaves it undecided.
    function _outcome(Finding[] memory findings) private pure returns (Outcome outcome) {
        outcome = Outcome.Accepted;
        for (uint256 s = 0; s < findings.length; ++s) {
            if (findings[s].outcome == Outcome.Rejected) return Outcome.Rejected;
            if (findings[s].outcome == Outcome.Indeterminate) outcome = Outcome.Indeterminate;
        }
    }

    function _announce(bytes32 taskId, Outcome outcome, Finding[] memory findings) private {
        uint8[] memory outcomes = new uint8[](findings.length);
        uint8[] memory verdicts = new uint8[](findings.length);
        uint8[] memory clusters = new uint8[](findings.length);
        for (uint256 s = 0; s < findings.length; ++s) {
            outcomes[s] = uint8(findings[s].outcome);
            verdicts[s] = uint8(findings[s].verdicts);
            clusters[s] = uint8(findings[s].cluster);
        }
        emit TaskSettled(taskId, outcome, outcomes, verdicts, clusters);
    }

    function _move(
        bytes32 taskId,
        Terms memory terms,
        Progress memory progress,
        Rules memory rules,
        Outcome outcome,
        Finding[] memory findings
    ) private {
        uint256 reward = rules.unit * REWARD;
        uint256 spent = 0;
        uint256 reserved = 0;
        for (uint256 s = 0; s < findings.length; ++s) {
            Finding memory finding = findings[s];
            uint256 bounty = 0;
            if (outcome == Outcome.Accepted) {
                _credit(taskId, _partyOf(progress, s, 0), reward);
                bounty = reward;
                spent += reward * (1 + Clusters.count(finding.cluster));
            } else if (finding.outcome == Outcome.Rejected) {
                uint256 left;
                (bounty, left) = _slashInferencer(taskId, progress, rules, s, finding);
                reserved += left;
            }
            reserved += _moveVerifiers(taskId, progress, rules, outcome, s, finding, bounty);
        }
        if (outcome == Outcome.Accepted) {
            _credit(taskId, terms.scheduler, reward);
            spent += reward;
        }
        _release(taskId, terms.client, terms.fee - spent);
        _credit(taskId, RESERVE, reserved);
    }

    /// @dev A rejected inferencer pays its own penalty and its checkers' rewards, as far as its stake goes.
    /// @return bounty for each verifier of the proper cluster
    /// @return left for the reserve
    function _slashInferencer(
        bytes32 taskId,
        Progress memory progress,
        Rules memory rules,
        uint256 segment,
        Finding memory finding
    ) private returns (uint256 bounty, uint256 left) {
        uint256 members = Clusters.count(finding.cluster);
        uint256 units = PENALTY + REWARD * members;
        bytes32 root = progress.posts[segment * (1 + uint256(rules.verifiers))];
        uint256 taken =
            _slash(taskId, _partyOf(progress, segment, 0), rules.unit * units, SlashReason.Rejected, root);
        bounty = taken * REWARD / units;
        left = taken - bounty * members;
    }

    /// @dev Pays the proper cluster and slashes who was silent, or outside the cluster of a decided task.
    /// @return reserved what the slashes brought
    function _moveVerifiers(
        bytes32 taskId,
        Progress memory progress,
        Rules memory rules,
        Outcome outcome,
        uint256 segment,
        Finding memory finding,
        uint256 bounty
    ) private returns (uint256 reserved) {
        bool decided = outcome != Outcome.Indeterminate && finding.cluster != 0;
        uint256 penalty = rules.unit * PENALTY;
        for (uint256 v = 0; v < rules.verifiers; ++v) {
            if (finding.committed >> (1 + v) & 1 == 0) continue;
            address verifier = _partyOf(progress, segment, 1 + v);
            bool opened = finding.opened >> (1 + v) & 1 != 0;
            if (finding.cluster >> v & 1 != 0) {
                _credit(taskId, verifier, bounty);
            } else if (!opened || decided) {
                bytes32 commitment = progress.posts[segment * (1 + uint256(rules.verifiers)) + 1 + v];
                SlashReason reason = opened ? SlashReason.Disagreed : SlashReason.Unrevealed;
                reserved += _slash(taskId, verifier, penalty, reason, commitment);
            }
        }
    }
}
