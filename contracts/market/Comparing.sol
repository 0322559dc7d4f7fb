// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Agreement} from "../libraries/Agreement.sol";
import {Hearings} from "./Hearings.sol";
import {Rules} from "./interfaces/MarketTypes.sol";
import {CaseKind, CaseState, Outcome} from "./interfaces/Proceedings.sol";
import {Opinion} from "./interfaces/Signed.sol";
import {Head} from "./libraries/Reveals.sol";

/// @title Who agrees with whom: the largest cluster of what was shown, and what it says (VeriLLM, Appendix E)
abstract contract Comparing is Hearings {
    using Agreement for Agreement.Rule;

    /// @dev What the comparison of all openings says. Reviewer i is bit i.
    /// @param paid whether the cluster earned its reward: it told something
    /// @param silent who committed nothing or did not show it
    /// @param telling who says Accept or Reject, and shows tiles for it
    /// @param wrong who says Accept or Reject outside a cluster that says one of them
    /// @param node whether the node shows its trace
    struct Comparison {
        Outcome outcome;
        uint256 cluster;
        bool paid;
        uint256 silent;
        uint256 telling;
        uint256 wrong;
        uint32 score;
        uint32 spread;
        bool pooled;
        bool node;
    }

    function _compare(Hearing memory hearing, CaseState calldata state, Shown memory shown)
        internal
        pure
        returns (Comparison memory finding)
    {
        bytes calldata seats = state.seats;
        Rules memory rules = hearing.rules;
        finding.silent = ~shown.opened & ((1 << seats.length) - 1);
        finding.node = shown.node;
        finding.telling = _saying(shown, Opinion.Accept) | _saying(shown, Opinion.Reject);
        uint256 weight;
        (finding.cluster, weight) = _properCluster(hearing, shown, seats);
        uint256 opinion = finding.cluster == 0 ? 0 : shown.heads.at(_lowest(finding.cluster)).opinionOf();
        finding.paid = opinion != 0 && opinion != uint256(Opinion.CannotTell);
        if (opinion == uint256(Opinion.Accept) || opinion == uint256(Opinion.Reject)) {
            // A node that shows nothing proves nobody wrong.
            if (shown.node) finding.wrong = finding.telling & ~finding.cluster;
            if (!rules.exact) {
                (finding.score, finding.spread) = _medians(shown, seats, finding.cluster);
            }
        }
        _conclude(finding, rules, state, shown, opinion, weight);
    }

    /// @dev The reviewers with more than half of all seats who agree in opinion and trace; 0 if there are none.
    /// @return cluster its members
    /// @return weight their seats
    function _properCluster(Hearing memory hearing, Shown memory shown, bytes calldata seats)
        private
        pure
        returns (uint256 cluster, uint256 weight)
    {
        uint256 unseen = _consistent(hearing, shown);
        while (unseen != 0) {
            cluster = hearing.rules.exact ? _equal(shown, unseen) : _component(hearing, shown, unseen);
            weight = _weight(seats, cluster);
            if (2 * weight > hearing.rules.reviewers) return (cluster, weight);
            unseen &= ~cluster;
        }
        return (0, 0);
    }

    /// @dev Leaves out who accepts a trace that its own contradicts.
    function _consistent(Hearing memory hearing, Shown memory shown) private pure returns (uint256 valid) {
        valid = shown.opened;
        if (!shown.node) return valid;
        for (uint256 rest = _saying(shown, Opinion.Accept); rest != 0; rest &= rest - 1) {
            uint256 i = _lowest(rest);
            Head head = shown.heads.at(i);
            if (!_agree(hearing, head.rootOf(), shown.nodeRoot, head.tilesOf(), shown.nodeTiles)) valid ^= 1 << i;
        }
    }

    /// @dev As `_component`, where roots are compared: who has that of the lowest belongs to it, and nobody else.
    function _equal(Shown memory shown, uint256 unseen) private pure returns (uint256 members) {
        unchecked {
            Head head = shown.heads.at(_lowest(unseen));
            uint256 opinion = head.opinionOf();
            uint256 rest = unseen & _saying(shown, Opinion(opinion));
            if (opinion > uint256(Opinion.Reject)) return rest;
            bytes32 root = head.rootOf();
            for (; rest != 0; rest &= rest - 1) {
                uint256 w = _lowest(rest);
                if (shown.heads.at(w).rootOf() == root) members |= 1 << w;
            }
        }
    }

    /// @dev The component of the lowest of `unseen`, among them: who agrees with one of it belongs to it (library
    ///      Clusters says the same of a whole graph; here no edge is compared that joins what is joined).
    function _component(Hearing memory hearing, Shown memory shown, uint256 unseen)
        private
        pure
        returns (uint256 members)
    {
        unchecked {
            uint256 fresh = unseen & (~unseen + 1);
            while (fresh != 0) {
                uint256 v = _lowest(fresh);
                members |= 1 << v;
                fresh &= fresh - 1;
                unseen &= ~(members | fresh);
                // Only who is of one opinion can agree.
                Head head = shown.heads.at(v);
                uint256 opinion = head.opinionOf();
                uint256 rest = unseen & _saying(shown, Opinion(opinion));
                if (opinion > uint256(Opinion.Reject)) {
                    fresh |= rest;
                    continue;
                }
                for (; rest != 0; rest &= rest - 1) {
                    uint256 w = _lowest(rest);
                    Head other = shown.heads.at(w);
                    if (_agree(hearing, head.rootOf(), other.rootOf(), head.tilesOf(), other.tilesOf())) fresh |= 1 << w;
                }
            }
        }
    }

    function _agree(Hearing memory hearing, bytes32 rootA, bytes32 rootB, bytes memory tilesA, bytes memory tilesB)
        private
        pure
        returns (bool)
    {
        if (rootA == rootB) return true;
        return !hearing.rules.exact && hearing.rule.agrees(tilesA, tilesB, hearing.rules.theta);
    }

    /// @param weight seats of the cluster
    /// @dev Two thirds convict; votes that the node withheld its rows count with those that its rows are false. In a Doubt
    ///      only the leaf can fall. Pooled is what chance could have chosen, a rejection between the cuts; of what a client
    ///      chose only what is beyond them; and never what is within twice the reviewers' own noise, for prompts can be noisy.
    function _conclude(
        Comparison memory finding,
        Rules memory rules,
        CaseState calldata state,
        Shown memory shown,
        uint256 opinion,
        uint256 weight
    ) private pure {
        bool doubt = state.kind == CaseKind.Doubt;
        bool isReject = opinion == uint256(Opinion.Reject);
        uint256 convicting = finding.cluster;
        if (isReject) convicting |= _saying(shown, Opinion.MissingTrace);
        if (opinion == uint256(Opinion.MissingTrace)) convicting |= _saying(shown, Opinion.Reject);
        if (convicting != finding.cluster) weight = _weight(state.seats, convicting);
        bool strong = 3 * weight >= 2 * uint256(rules.reviewers);
        if (opinion == uint256(Opinion.MissingPrompt)) {
            finding.outcome = Outcome.OpenerMissing;
        } else if (!shown.node) {
            finding.outcome = doubt ? Outcome.Refunded : Outcome.NodeMissing;
        } else if (opinion == uint256(Opinion.Accept)) {
            finding.outcome = Outcome.Upheld;
        } else if (opinion != 0) {
            finding.outcome = Outcome.Refunded;
            bool apart = rules.exact || uint256(finding.score) > 2 * uint256(finding.spread);
            bool beyond = rules.exact || (apart && finding.score > rules.secondCut);
            if (isReject && strong) {
                if (beyond && !doubt) finding.outcome = Outcome.Convicted;
                else finding.pooled = doubt ? beyond : apart;
            } else if (strong && !doubt) {
                if (opinion == uint256(Opinion.MissingTrace)) finding.outcome = Outcome.NodeMissing;
                if (opinion == uint256(Opinion.MissingInput)) finding.outcome = Outcome.SchedulerMissing;
            }
        }
    }

    function _weight(bytes calldata seats, uint256 members) private pure returns (uint256 weight) {
        assembly ("memory-safe") {
            // A byte for each of at most 31 reviewers.
            let word := calldataload(seats.offset)
            for { } members { members := and(members, sub(members, 1)) } {
                weight := add(weight, byte(sub(255, clz(and(members, sub(0, members)))), word))
            }
        }
    }

    /// @dev Of a state that the Court has compared with its hash: no index is beyond it, and no number too large.
    function _seatsOf(bytes calldata seats, uint256 place) internal pure returns (uint256 count) {
        assembly ("memory-safe") {
            count := byte(0, calldataload(add(seats.offset, place)))
        }
    }

    /// @dev Of scores and of spreads the smallest value that at least half of the members' seats do not exceed.
    function _medians(Shown memory shown, bytes calldata seats, uint256 members)
        private
        pure
        returns (uint32 score, uint32 spread)
    {
        uint256[] memory scores = new uint256[](seats.length);
        uint256[] memory spreads = new uint256[](seats.length);
        uint256 count = 0;
        uint256 total = 0;
        unchecked {
            for (; members != 0; members &= members - 1) {
                uint256 i = _lowest(members);
                uint256 weight = _seatsOf(seats, i);
                Head head = shown.heads.at(i);
                _insert(scores, count, head.scoreOf() << 8 | weight);
                _insert(spreads, count++, head.spreadOf() << 8 | weight);
                total += weight;
            }
        }
        return (_middle(scores, total), _middle(spreads, total));
    }

    /// @param sorted values above the seats of each
    /// @param total of the seats, at least one
    function _middle(uint256[] memory sorted, uint256 total) private pure returns (uint32 value) {
        assembly ("memory-safe") {
            let passed := 0
            for { let at := add(sorted, 0x20) } 1 { at := add(at, 0x20) } {
                value := mload(at)
                passed := add(passed, and(value, 0xff))
                if iszero(lt(shl(1, passed), total)) { break }
            }
            value := shr(8, value)
        }
    }

    /// @dev Among the first `count`, which are sorted; there must be room.
    function _insert(uint256[] memory sorted, uint256 count, uint256 item) private pure {
        assembly ("memory-safe") {
            let at := add(add(sorted, 0x20), shl(5, count))
            for { } gt(at, add(sorted, 0x20)) { at := sub(at, 0x20) } {
                let before := mload(sub(at, 0x20))
                if iszero(gt(before, item)) { break }
                mstore(at, before)
            }
            mstore(at, item)
        }
    }

    /// @dev Index of the lowest bit of a set that is not empty.
    function _lowest(uint256 members) internal pure returns (uint256 index) {
        assembly ("memory-safe") {
            index := sub(255, clz(and(members, sub(0, members))))
        }
    }
}
