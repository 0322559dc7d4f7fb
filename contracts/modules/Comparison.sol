// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Opening, Outcome, Progress, Rules} from "../interfaces/TrothTypes.sol";
import {Agreement} from "../libraries/Agreement.sol";
import {Clusters} from "../libraries/Clusters.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {Sampling} from "./Sampling.sol";

/// @title What a segment's openings say (VeriLLM Appendix E)
/// @dev Arithmetic is unchecked: a task has at most 32 segments of 16 parties, and amounts fit 96 bits.
abstract contract Comparison is Sampling {
    /// @param committed bit 0: inferencer, bit 1 + v: verifier v posted something
    /// @param opened same bits: what was posted was opened too
    /// @param verdicts bit v: verifier v opened the verdict true
    /// @param cluster bit v: verifier v is in the proper cluster
    /// @param valid bit v: verifier v opened a verdict that its own trace does not contradict; zero if the inferencer
    ///        opened nothing
    struct Finding {
        Outcome outcome;
        uint256 committed;
        uint256 opened;
        uint256 verdicts;
        uint256 cluster;
        uint256 valid;
    }

    /// @dev One segment's openings after their checks, inferencer first; what is absent is empty.
    struct Shown {
        bytes32[] roots;
        bytes[] tiles;
    }

    /// @dev Checks one segment's openings, compares them and decides.
    function _judge(
        Case memory task,
        uint256 segment,
        Opening[] calldata openings
    ) internal view returns (Finding memory finding) {
        Shown memory shown = _check(task, segment, openings, finding);
        bool inferencerOpened = finding.opened & 1 != 0;
        uint256 consistent = finding.opened >> 1;
        if (inferencerOpened) {
            consistent = _consistent(task.rules, shown, consistent, finding.verdicts);
            finding.valid = consistent;
        }
        finding.cluster = _properCluster(task.rules, shown, consistent, finding.verdicts);
        if (!inferencerOpened) finding.outcome = Outcome.Rejected;
        else if (finding.cluster == 0) finding.outcome = Outcome.Indeterminate;
        else finding.outcome = finding.cluster & finding.verdicts != 0 ? Outcome.Accepted : Outcome.Rejected;
    }

    /// @dev Every opening that is there must be right; one may be missing only after the deadline, and only if the
    ///      party has not revealed it by its own call.
    function _check(
        Case memory task,
        uint256 segment,
        Opening[] calldata openings,
        Finding memory finding
    ) private view returns (Shown memory shown) {
        unchecked {
            uint256 width = 1 + uint256(task.rules.verifiers);
            shown = Shown({roots: new bytes32[](width), tiles: new bytes[](width)});
            for (uint256 party = 0; party < width; ++party) {
                Opening calldata opening = openings[segment * width + party];
                bool posted = task.progress.posts[segment * width + party] != 0;
                if (posted) finding.committed |= 1 << party;
                if (opening.root == 0 && opening.tiles.length == 0) {
                    if (posted) _requireExcusable(task.progress, segment * width + party, segment, party);
                    continue;
                }
                bytes memory tiles = party == 0 || shown.tiles[0].length == 0
                    ? opening.tiles
                    : TileTree.unmask(opening.tiles, shown.tiles[0]);
                _requireShown(task, segment, party, opening, tiles);
                shown.roots[party] = opening.root;
                shown.tiles[party] = tiles;
                finding.opened |= 1 << party;
                if (party > 0 && opening.verdict) finding.verdicts |= 1 << (party - 1);
            }
        }
    }

    function _requireExcusable(Progress memory progress, uint256 place, uint256 segment, uint256 party) private view {
        unchecked {
            uint256 lastBlock = progress.phaseBlock + REVEAL_WINDOW;
            bool revealed = progress.revealed.length != 0 && progress.revealed[place] != 0;
            if (revealed || block.number <= lastBlock) revert OpeningMissing(segment, party, lastBlock);
        }
    }

    function _requireShown(
        Case memory task,
        uint256 segment,
        uint256 party,
        Opening calldata opening,
        bytes memory tiles
    ) private pure {
        unchecked {
            bytes32[] memory hashes = task.progress.revealed;
            uint256 place = segment * (1 + uint256(task.rules.verifiers)) + party;
            bytes32 revealed = hashes.length == 0 ? bytes32(0) : hashes[place];
            if (revealed == 0) {
                _requireCommitted(task, segment, party, opening);
                _requireTiles(task, segment, party, opening, tiles);
                return;
            }
            bytes32 given = _revealHash(opening, keccak256(tiles));
            if (given != revealed) revert RevealMismatch(segment, party, given, revealed);
        }
    }

    /// @dev Leaves out who says true about an inferencer's trace that its own contradicts.
    function _consistent(Rules memory rules, Shown memory shown, uint256 verifiers, uint256 verdicts)
        private
        pure
        returns (uint256 consistent)
    {
        unchecked {
            consistent = verifiers;
            for (uint256 v = 0; v < rules.verifiers; ++v) {
                bool saysTrue = (verifiers & verdicts) >> v & 1 != 0;
                if (saysTrue && !_agree(rules, shown, 0, 1 + v)) consistent ^= 1 << v;
            }
        }
    }

    /// @dev The majority of verifiers that agree with one another in verdict and trace, 0 if there is none.
    function _properCluster(Rules memory rules, Shown memory shown, uint256 verifiers, uint256 verdicts)
        private
        pure
        returns (uint256)
    {
        unchecked {
            uint256[] memory adjacency = new uint256[](rules.verifiers);
            for (uint256 v = 0; v < rules.verifiers; ++v) {
                if (verifiers >> v & 1 == 0) continue;
                for (uint256 w = v + 1; w < rules.verifiers; ++w) {
                    if (verifiers >> w & 1 == 0 || (verdicts >> v ^ verdicts >> w) & 1 != 0) continue;
                    // Who agree with a third are of one cluster already; Kruskal's algorithm skips such an edge.
                    if (adjacency[v] & adjacency[w] != 0) continue;
                    if (_agree(rules, shown, 1 + v, 1 + w)) Clusters.connect(adjacency, v, w);
                }
            }
            return Clusters.properCluster(adjacency, verifiers, (uint256(rules.verifiers) + 1) / 2);
        }
    }

    function _agree(Rules memory rules, Shown memory shown, uint256 a, uint256 b) private pure returns (bool) {
        if (rules.exact) return shown.roots[a] == shown.roots[b];
        return Agreement.agrees(
            shown.tiles[a], shown.tiles[b], rules.dtype, rules.mantissaBits, rules.steps, rules.theta
        );
    }
}
