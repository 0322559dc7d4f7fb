// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Agreement} from "../libraries/Agreement.sol";
import {Clusters} from "../libraries/Clusters.sol";
import {IBank} from "./interfaces/IBank.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {Finding, IJudgement} from "./interfaces/IJudgement.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {
    CaseKind,
    CasePhase,
    CaseState,
    Fault,
    NodeReveal,
    Opinion,
    Outcome,
    Parameters,
    PotKind,
    Rules
} from "./interfaces/MarketTypes.sol";
import {BlockHeader} from "./libraries/BlockHeader.sol";
import {CaseGas} from "./libraries/CaseGas.sol";
import {ClassRules} from "./libraries/ClassRules.sol";
import {HandedOn} from "./libraries/HandedOn.sol";
import {Ledger} from "./libraries/Ledger.sol";
import {Marks} from "./libraries/Marks.sol";
import {Messages} from "./libraries/Messages.sol";
import {Openings} from "./libraries/Openings.sol";
import {Prices} from "./libraries/Prices.sol";
import {Head, Reveals} from "./libraries/Reveals.sol";

/// @title What the reviewers of a case show, what follows, and who pays whom (VeriLLM, Appendix E)
/// @dev Stateless, and without any right: the Court asks it and acts.
contract Judgement is IJudgement {
    using Ledger for Ledger.Draft;
    using Agreement for Agreement.Rule;
    using Openings for Openings.Sample;

    /// @dev The node's place in errors.
    uint256 private constant NODE = 255;

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    ICourt private immutable COURT;
    uint256 private immutable LOOKAHEAD;
    uint256 private immutable DRAW_WINDOW;
    uint256 private immutable COMMIT_WINDOW;
    uint256 private immutable REVEAL_WINDOW;
    uint256 private immutable GAS_PRICE;
    bool private immutable IS_COIN;

    constructor() {
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        BANK = IBank(contracts.bank);
        REGISTRY = IRegistry(contracts.registry);
        COURT = ICourt(contracts.court);
        LOOKAHEAD = parameters.lookahead;
        DRAW_WINDOW = parameters.drawWindow;
        COMMIT_WINDOW = parameters.commitWindow;
        REVEAL_WINDOW = parameters.revealWindow;
        GAS_PRICE = parameters.gasPrice;
        IS_COIN = parameters.asset == address(0);
    }

    // ------------------------------------------------------------------------------------------------------- showing

    /// @dev What the checks of openings need to know of a case.
    /// @param whole all who committed must be shown, whatever the block: the tiles are drawn in the deciding call
    struct Hearing {
        bytes32 id;
        bool whole;
        uint256 segment;
        Rules rules;
        Openings.Sample sample;
        Agreement.Rule rule;
    }

    /// @dev What is shown, after its checks. Reviewer i is bit i.
    /// @param node whether the node shows its trace
    /// @param saying who shows an opinion: 32 bits for each, by its number
    /// @param heads the first reviewer's reveal; the others follow
    struct Shown {
        bool node;
        bytes32 nodeRoot;
        bytes nodeTiles;
        uint256 opened;
        uint256 saying;
        Head heads;
    }

    /// @inheritdoc IJudgement
    function reveal(bytes32 caseId, CaseState calldata state, uint256 reviewer, bytes calldata reveal_) external view {
        Hearing memory hearing;
        _hear(hearing, caseId, state);
        _requireNotAfter(state.phaseBlock + REVEAL_WINDOW);
        if (reviewer >= state.reviewers.length || state.reviewers[reviewer] != HandedOn.caller()) {
            revert NotReviewer(HandedOn.caller(), reviewer);
        }
        Shown memory shown;
        shown.heads = Reveals.many(state.reviewers.length);
        uint256 position = _position(reveal_);
        Head head = shown.heads.at(reviewer);
        (uint256 opinion, uint256 end, bytes32 opened) = head.read(position, 0, hearing.id, HandedOn.caller());
        if (opinion == 0) revert InvalidOpinion(reviewer, 0);
        _requireCommitted(hearing, reviewer, opinion, opened, state.commitments[reviewer]);
        end = _openReveal(hearing, shown, reviewer, head, end);
        if (end - position != reveal_.length) revert WrongLength(reveal_.length, end - position);
    }

    /// @inheritdoc IJudgement
    function revealNode(bytes32 caseId, CaseState calldata state, NodeReveal calldata reveal_) external view {
        Hearing memory hearing;
        _hear(hearing, caseId, state);
        _requireNotAfter(state.phaseBlock + REVEAL_WINDOW);
        if (state.node != HandedOn.caller()) revert NotReviewer(HandedOn.caller(), NODE);
        _openNode(hearing, state.traceCommitment, reveal_);
    }

    /// @dev Tolerant classes show once their tiles are known, exact ones once all have committed.
    function _hear(Hearing memory hearing, bytes32 caseId, CaseState calldata state) private view {
        _begin(hearing, caseId, state);
        if (!_isShowing(state.phase, hearing.rules)) revert WrongPhase(state.phase);
        _pick(hearing, state, state.seed);
    }

    /// @dev In a tolerant class whose tiles nobody has drawn yet.
    function _hearWhole(Hearing memory hearing, bytes32 caseId, CaseState calldata state, bytes calldata header)
        private
        view
        returns (bytes32 seed)
    {
        _begin(hearing, caseId, state);
        if (hearing.rules.exact) revert ExactClass(state.executionClass);
        if (state.phase != CasePhase.Committed) revert WrongPhase(state.phase);
        uint256 due = state.phaseBlock + LOOKAHEAD;
        _requireAfter(due);
        _requireNotAfter(due + DRAW_WINDOW);
        seed = Messages.tilesSeed(caseId, state.commitments, BlockHeader.randaoAt(due, header));
        hearing.whole = true;
        _pick(hearing, state, seed);
    }

    /// @dev Structs are filled where they are: a function that gave one back would make an empty one first.
    function _begin(Hearing memory hearing, bytes32 caseId, CaseState calldata state) private view {
        hearing.id = Messages.hearing(caseId, state.round);
        hearing.segment = state.segment;
        ClassRules.read(hearing.rules, REGISTRY, state.executionClass);
    }

    function _pick(Hearing memory hearing, CaseState calldata state, bytes32 seed) private pure {
        Rules memory rules = hearing.rules;
        if (rules.exact) return;
        hearing.sample.pick(seed, hearing.segment, state.rows, rules);
        hearing.rule.set(rules.dtype, rules.mantissaBits, rules.steps);
    }

    function _openNode(Hearing memory hearing, bytes32 committed, NodeReveal calldata given)
        private
        pure
        returns (bytes memory tiles)
    {
        bytes32 opened = keccak256(abi.encode(given.root, given.salt));
        if (opened != committed) revert TraceMismatch(opened, committed);
        bytes calldata packed = given.tiles;
        bytes32[] calldata siblings = given.siblings;
        bool fits = packed.length == hearing.sample.tileBytes() && 32 * siblings.length == hearing.sample.siblingBytes();
        if (!fits) revert InvalidOpening(NODE, 0, given.root);
        tiles = packed;
        uint256 path;
        assembly ("memory-safe") {
            path := siblings.offset
        }
        _requireTiles(hearing, NODE, given.root, tiles, path);
    }

    function _requireCommitted(
        Hearing memory hearing,
        uint256 place,
        uint256 opinion,
        bytes32 opened,
        bytes32 commitment
    ) private pure {
        bool known = opinion <= uint256(Opinion.MissingTrace);
        if (!known || (opinion == uint256(Opinion.MissingInput) && hearing.segment == 0)) {
            revert InvalidOpinion(place, uint8(opinion));
        }
        if (opened != commitment) revert CommitmentMismatch(place, opened, commitment);
    }

    /// @dev What a reveal shows beside its head. Who could not tell, or lacked something, has no trace to show.
    /// @param begin where the head ends
    /// @return end where the reveal ends
    function _openReveal(Hearing memory hearing, Shown memory shown, uint256 place, Head head, uint256 begin)
        private
        pure
        returns (uint256 end)
    {
        uint256 opinion = head.opinionOf();
        unchecked {
            // A place is below 31, and an opinion below 7.
            shown.opened |= 1 << place;
            shown.saying |= 1 << 32 * opinion + place;
        }
        if (opinion > uint256(Opinion.Reject)) return begin;
        if (!hearing.rules.exact) return _openTiles(hearing, shown, place, head, begin);
        // A zero root stands for nothing shown.
        if (head.rootOf() == 0) revert InvalidOpening(place, 0, 0);
        return begin;
    }

    /// @dev The tiles behind a head, in the clear, and their siblings.
    function _openTiles(Hearing memory hearing, Shown memory shown, uint256 place, Head head, uint256 begin)
        private
        pure
        returns (uint256 end)
    {
        bytes memory mask = _maskAt(shown, place, begin);
        uint256 length = hearing.sample.tileBytes();
        uint256 siblings;
        unchecked {
            // Places in the calldata, and lengths that the class bounds.
            siblings = begin + 1 + length;
            end = siblings + hearing.sample.siblingBytes();
        }
        bytes memory tiles = Openings.unmasked(begin + 1, length, mask);
        head.putTiles(tiles);
        _requireTiles(hearing, place, head.rootOf(), tiles, siblings);
    }

    /// @dev Who shows this opinion.
    function _saying(Shown memory shown, Opinion opinion) private pure returns (uint256 members) {
        unchecked {
            members = uint32(shown.saying >> 32 * uint256(opinion));
        }
    }

    /// @dev The tiles that these are XORed with: who agrees with another has them nearly equal, and zeros are cheap.
    function _maskAt(Shown memory shown, uint256 place, uint256 position) private pure returns (bytes memory mask) {
        uint256 by;
        assembly ("memory-safe") {
            by := byte(0, calldataload(position))
        }
        if (by == Reveals.CLEAR) return "";
        if (by == Reveals.NODE) mask = shown.nodeTiles;
        else if (shown.opened >> by & 1 != 0 && by != place) mask = shown.heads.at(by).tilesOf();
        if (mask.length == 0) revert InvalidMask(place, by);
    }

    /// @dev The sampled tiles must lead to the root; an exact class has none. A zero root stands for nothing shown.
    function _requireTiles(
        Hearing memory hearing,
        uint256 place,
        bytes32 root,
        bytes memory tiles,
        uint256 siblings
    ) private pure {
        bytes32 proven = hearing.rules.exact ? root : hearing.sample.rootOf(tiles, siblings);
        if (proven != root || proven == 0) revert InvalidOpening(place, proven, root);
    }

    function _position(bytes calldata packed) private pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := packed.offset
        }
    }

    // ------------------------------------------------------------------------------------------------------- judging

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

    /// @inheritdoc IJudgement
    function decide(bytes32 caseId, CaseState calldata state, NodeReveal calldata node, bytes calldata reveals)
        external
        view
        returns (Finding memory finding, bytes memory transfers)
    {
        Hearing memory hearing;
        _hear(hearing, caseId, state);
        return _decide(caseId, state, hearing, node, reveals);
    }

    /// @inheritdoc IJudgement
    function conclude(
        bytes32 caseId,
        CaseState calldata state,
        bytes calldata header,
        NodeReveal calldata node,
        bytes calldata reveals
    ) external view returns (Finding memory finding, bytes memory transfers) {
        Hearing memory hearing;
        bytes32 seed = _hearWhole(hearing, caseId, state, header);
        (finding, transfers) = _decide(caseId, state, hearing, node, reveals);
        finding.seed = seed;
    }

    function _decide(
        bytes32 caseId,
        CaseState calldata state,
        Hearing memory hearing,
        NodeReveal calldata node,
        bytes calldata reveals
    ) private view returns (Finding memory finding, bytes memory transfers) {
        Shown memory shown = _show(hearing, state, node, reveals);
        Comparison memory comparison = _compare(hearing, state, shown);
        if (comparison.outcome == Outcome.None) {
            uint256 spent = CaseGas.deciding(_decisionOf(hearing, state, comparison));
            return _leaveUndecided(caseId, state, hearing.rules, comparison.silent, HandedOn.caller(), spent);
        }
        return _settle(caseId, state, hearing, comparison);
    }

    /// @dev A party may be missing only after the window, and only if it did not show its part by its own call.
    function _requireExcusable(
        Hearing memory hearing,
        CaseState calldata state,
        uint256 place,
        bool committed,
        uint256 mark
    ) private view {
        uint256 lastBlock = hearing.whole ? type(uint256).max : state.phaseBlock + REVEAL_WINDOW;
        if ((committed && block.number <= lastBlock) || HandedOn.word() & mark != 0) {
            revert RevealMissing(place, lastBlock);
        }
    }

    function _compare(Hearing memory hearing, CaseState calldata state, Shown memory shown)
        private
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

    /// @dev Every opening that is there must be right, and nothing may follow the last one.
    function _show(Hearing memory hearing, CaseState calldata state, NodeReveal calldata node, bytes calldata reveals)
        private
        view
        returns (Shown memory shown)
    {
        (uint256 reviewers, uint256 commitments) = (_position(state.reviewers), _position(state.commitments));
        uint256 count = state.reviewers.length;
        shown.heads = Reveals.many(count);
        if (node.root == 0) {
            _requireExcusable(hearing, state, NODE, true, Marks.NODE);
        } else {
            shown.node = true;
            shown.nodeRoot = node.root;
            shown.nodeTiles = _openNode(hearing, state.traceCommitment, node);
        }
        uint256 begin = _position(reveals);
        uint256 position = begin;
        bytes32 last;
        for (uint256 i = 0; i < count; ++i) {
            Head head = shown.heads.at(i);
            bytes32 commitment = _wordAt(commitments, i);
            uint256 opinion;
            bytes32 opened;
            (opinion, position, opened) =
                head.read(position, last, hearing.id, address(uint160(uint256(_wordAt(reviewers, i)))));
            if (opinion == 0) {
                _requireExcusable(hearing, state, i, commitment != 0, 1 << Marks.REVEALS + i);
                continue;
            }
            _requireCommitted(hearing, i, opinion, opened, commitment);
            position = _openReveal(hearing, shown, i, head, position);
            last = head.rootOf();
        }
        if (position - begin != reveals.length) revert WrongLength(reveals.length, position - begin);
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
    function _seatsOf(bytes calldata seats, uint256 place) private pure returns (uint256 count) {
        assembly ("memory-safe") {
            count := byte(0, calldataload(add(seats.offset, place)))
        }
    }

    /// @dev As `_seatsOf`: an element of the array that begins at a position of the calldata.
    function _wordAt(uint256 position, uint256 place) private pure returns (bytes32 word) {
        assembly ("memory-safe") {
            word := calldataload(add(position, shl(5, place)))
        }
    }

    function _position(address[] calldata accounts) private pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := accounts.offset
        }
    }

    function _position(bytes32[] calldata hashes) private pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := hashes.offset
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
    function _lowest(uint256 members) private pure returns (uint256 index) {
        assembly ("memory-safe") {
            index := sub(255, clz(and(members, sub(0, members))))
        }
    }

    // --------------------------------------------------------------------------------------------------------- money

    /// @inheritdoc IJudgement
    function expire(bytes32 caseId, CaseState calldata state)
        external
        view
        returns (Finding memory finding, bytes memory transfers)
    {
        Rules memory rules;
        ClassRules.read(rules, REGISTRY, state.executionClass);
        if (_isShowing(state.phase, rules)) revert WrongPhase(state.phase);
        uint256 silent = 0;
        if (state.phase == CasePhase.Drawn) {
            _requireAfter(state.phaseBlock + COMMIT_WINDOW);
            silent = ~HandedOn.word() & ((1 << state.reviewers.length) - 1);
        } else {
            _requireAfter(state.phaseBlock + LOOKAHEAD + DRAW_WINDOW);
            if (state.phase == CasePhase.Opened) return _lapse(caseId, state, rules);
            bytes32[] calldata commitments = state.commitments;
            for (uint256 i = 0; i < commitments.length; ++i) {
                if (commitments[i] == 0) silent |= 1 << i;
            }
        }
        return _leaveUndecided(caseId, state, rules, silent, address(0), 0);
    }

    /// @dev Nobody carried the case on: the bond is lost.
    function _lapse(bytes32 caseId, CaseState calldata state, Rules memory rules)
        private
        view
        returns (Finding memory finding, bytes memory transfers)
    {
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        draft.burnRest();
        _unlock(draft, state, state.locked, rules.penalty, PotKind.Stake);
        finding.outcome = Outcome.Lapsed;
        transfers = draft.toCall();
    }

    /// @dev No proper cluster. The gas of the round is paid, and silence; after the second round the leaf falls.
    function _leaveUndecided(
        bytes32 caseId,
        CaseState calldata state,
        Rules memory rules,
        uint256 silent,
        address decider,
        uint256 spent
    ) private view returns (Finding memory finding, bytes memory transfers) {
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        _payGas(draft, state, decider, spent, 0);
        _fineReviewers(draft, state, silent);
        if (state.round % 2 != 0) {
            finding.outcome = Outcome.Undecided;
            draft.pay(state.opener, draft.left, 0);
            _unlock(draft, state, state.locked, rules.penalty, PotKind.Stake);
        }
        finding.left = uint96(draft.left);
        transfers = draft.toCall();
    }

    /// @dev In this order: the client, the reviewers, gas, the opener, nobody.
    function _settle(
        bytes32 caseId,
        CaseState calldata state,
        Hearing memory hearing,
        Comparison memory comparison
    ) private view returns (Finding memory finding, bytes memory transfers) {
        Rules memory rules = hearing.rules;
        finding.outcome = comparison.outcome;
        finding.cluster = comparison.cluster;
        finding.score = comparison.score;
        finding.spread = comparison.spread;
        _convict(finding, state, rules, comparison.pooled);
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        bool convicts = finding.convict != address(0);
        CaseGas.Decision memory done = _decisionOf(hearing, state, comparison);
        (done.convicts, done.restores) = (convicts, state.suspends);
        uint256 taken;
        if (convicts) (taken, done.evicts) = _takePenalty(draft, state, finding, rules);
        if (comparison.paid) _payReviewers(draft, state, comparison.cluster);
        uint256 since = draft.count;
        _payGas(draft, state, HandedOn.caller(), CaseGas.deciding(done), since);
        if (convicts) _payOpener(draft, state, since, finding.fault == Fault.Pooled ? 0 : taken);
        else if (finding.outcome == Outcome.Refunded) draft.pay(state.opener, draft.left, since);
        draft.burnRest();
        bool upheld = finding.outcome == Outcome.Upheld;
        // A convict's own lock is used up; what else is locked is another case's, and must not leave with this one.
        uint256 locked = finding.convict == state.node ? 0 : state.locked;
        _unlock(draft, state, locked, rules.penalty, upheld ? PotKind.Burnt : PotKind.Stake);
        if (upheld) _fineVerifiers(draft, state, Opinion.Reject);
        if (finding.outcome == Outcome.Convicted) _fineVerifiers(draft, state, Opinion.Accept);
        _fineReviewers(draft, state, comparison.silent | comparison.wrong);
        transfers = draft.toCall();
    }

    /// @dev Whom an outcome convicts, if anybody. One between the cuts is counted against the node's owner; when
    ///      there are more of them than honest noise gives, it convicts, and counting begins anew.
    function _convict(Finding memory finding, CaseState calldata state, Rules memory rules, bool pooled) private view {
        Outcome outcome = finding.outcome;
        finding.fault = Fault.NothingShown;
        if (outcome == Outcome.SchedulerMissing) {
            finding.convict = state.scheduler;
        } else if (outcome == Outcome.NodeMissing) {
            finding.convict = state.node;
        } else if (outcome == Outcome.Convicted) {
            finding.convict = state.node;
            finding.fault = Fault.FalseResult;
        } else if (pooled) {
            finding.poolOwner = REGISTRY.ownerOf(state.node);
            (finding.poolCount, finding.poolSince) = COURT.pooledOf(finding.poolOwner, state.executionClass);
            if (finding.poolCount == 0 || block.number > uint256(finding.poolSince) + rules.poolWindow) {
                finding.poolSince = uint40(block.number);
                finding.poolCount = 0;
            }
            if (++finding.poolCount <= rules.poolLimit) return;
            finding.convict = state.node;
            finding.fault = Fault.Pooled;
        }
    }

    /// @dev Takes L: what is locked, for this case or another, then free stake. A lock only keeps stake from leaving; were it one
    ///      case's own, friends could lock everything by sham cases before the true one. The client's refund comes first and out of
    ///      L alone, so that no opener pays for a convict without stake; a leaf that fell already is not refunded.
    /// @return taken what is there of L
    /// @return evicts whether a node loses its last seat by it
    function _takePenalty(
        Ledger.Draft memory draft,
        CaseState calldata state,
        Finding memory finding,
        Rules memory rules
    ) private view returns (uint256 taken, bool evicts) {
        (address convict, uint256 penalty) = (finding.convict, rules.penalty);
        (uint256 stake, uint256 locked) = BANK.stakeOf(convict);
        taken = locked < penalty ? locked : penalty;
        draft.take(PotKind.Locked, convict, taken);
        uint256 rest = penalty - taken < stake ? penalty - taken : stake;
        draft.take(PotKind.Stake, convict, rest);
        taken += rest;
        evicts = convict == state.node && stake + locked >= rules.seat && stake + locked - taken < rules.seat;
        if (finding.fault == Fault.Pooled || HandedOn.word() & Marks.VOIDED != 0) return (taken, evicts);
        draft.pay(state.client, state.fee < taken ? state.fee : taken);
    }

    function _payReviewers(Ledger.Draft memory draft, CaseState calldata state, uint256 cluster) private pure {
        draft.payMany(_position(state.reviewers), state.seats, cluster, Prices.REWARD_UNITS * state.unit);
    }

    /// @dev Gas of this round, to those who paid it.
    /// @param spent by the decider
    function _payGas(
        Ledger.Draft memory draft,
        CaseState calldata state,
        address decider,
        uint256 spent,
        uint256 since
    ) private view {
        uint256 price = _gasPrice();
        uint256 reviewers = state.reviewers.length;
        if (state.drawer != address(0)) {
            draft.pay(state.drawer, CaseGas.worth(CaseGas.drawing(reviewers), price), since);
        }
        if (state.committer != address(0)) {
            draft.pay(state.committer, CaseGas.worth(_committing(state, reviewers), price), since);
        }
        if (state.seeder != address(0)) draft.pay(state.seeder, CaseGas.worth(CaseGas.seeding(reviewers), price), since);
        if (decider != address(0)) draft.pay(decider, CaseGas.worth(spent, price), since);
    }

    /// @dev Where nobody drew, the commitments were ended in the call that did.
    function _committing(CaseState calldata state, uint256 reviewers) private pure returns (uint256) {
        if (state.drawer == address(0)) return CaseGas.convening(reviewers);
        uint256 posted = HandedOn.word() & ((1 << reviewers) - 1);
        bytes32[] calldata commitments = state.commitments;
        uint256 signed_ = 0;
        for (uint256 i = 0; i < reviewers; ++i) {
            if (commitments[i] != 0 && posted >> i & 1 == 0) ++signed_;
        }
        return CaseGas.committing(reviewers, Clusters.count(posted), signed_);
    }

    /// @dev Of what the gas of deciding depends on, what was shown.
    function _decisionOf(Hearing memory hearing, CaseState calldata state, Comparison memory comparison)
        private
        pure
        returns (CaseGas.Decision memory done)
    {
        done.shown = state.reviewers.length - Clusters.count(comparison.silent);
        done.paid = comparison.paid ? Clusters.count(comparison.cluster) : 0;
        uint256 openings = Clusters.count(comparison.telling) + (comparison.node ? 1 : 0);
        (done.tiles, done.depth) = (hearing.sample.places.length * openings, hearing.sample.depth);
        done.proves = hearing.whole;
    }

    /// @dev Bond, gas and reward, a tenth of what was taken or of the bond; a full pool, which prompts may have filled, pays
    ///      none, and who convicts itself with little stake gets little. Anyone can bring a rejection, and so can anyone who
    ///      sees it on its way: then half of the reward is the rejecters', whose work it is.
    function _payOpener(Ledger.Draft memory draft, CaseState calldata state, uint256 since, uint256 taken) private view {
        uint256 reward = taken == 0 ? 0 : (taken > state.bond ? taken : state.bond) / 10;
        uint256 shared = state.kind == CaseKind.Rejection && _isStranger(state) ? reward / 2 : 0;
        uint256 back = state.bond + CaseGas.worth(CaseGas.opening(state.kind == CaseKind.Doubt, state.suspends), _gasPrice());
        draft.pay(state.opener, back + reward - shared, since);
        if (shared == 0) return;
        address[] calldata verifiers = state.verifiers;
        bytes calldata opinions = state.opinions;
        uint256 rejecting = 0;
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) == uint8(Opinion.Reject)) ++rejecting;
        }
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) == uint8(Opinion.Reject)) draft.pay(verifiers[v], shared / rejecting, since);
        }
    }

    /// @dev Whether a rejection was brought by somebody else than the client or a rejecter.
    function _isStranger(CaseState calldata state) private pure returns (bool) {
        if (state.opener == state.client) return false;
        address[] calldata verifiers = state.verifiers;
        for (uint256 v = 0; v < verifiers.length; ++v) {
            if (verifiers[v] == state.opener && uint8(state.opinions[v]) == uint8(Opinion.Reject)) return false;
        }
        return true;
    }

    /// @dev What is still locked of the node is free again; the rejecters' locks go back, or are lost. A conviction may have
    ///      taken some of it in the meantime.
    function _unlock(
        Ledger.Draft memory draft,
        CaseState calldata state,
        uint256 locked,
        uint256 penalty,
        PotKind rejecters
    ) private view {
        if (locked != 0) _free(draft, state.node, PotKind.Stake, locked);
        if (!state.suspends) return;
        address[] memory verifiers = state.verifiers;
        bytes calldata opinions = state.opinions;
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) != uint8(Opinion.Reject) || Ledger.seatsFrom(verifiers, v) == 0) continue;
            _free(draft, verifiers[v], rejecters, penalty);
        }
    }

    /// @dev At most what is locked.
    function _free(Ledger.Draft memory draft, address operator, PotKind to, uint256 amount) private view {
        uint256 locked = BANK.balanceOf(PotKind.Locked, Ledger.id(operator));
        draft.shift(PotKind.Locked, to, operator, amount < locked ? amount : locked);
    }

    /// @dev Verifiers of the check whose opinion fell.
    function _fineVerifiers(Ledger.Draft memory draft, CaseState calldata state, Opinion fallen) private view {
        address[] memory verifiers = state.verifiers;
        bytes calldata opinions = state.opinions;
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) != uint8(fallen)) continue;
            _fine(draft, state.unit, verifiers[v], Ledger.seatsFrom(verifiers, v));
        }
    }

    function _fineReviewers(Ledger.Draft memory draft, CaseState calldata state, uint256 fined) private view {
        for (; fined != 0; fined &= fined - 1) {
            uint256 i = _lowest(fined);
            _fine(draft, state.unit, state.reviewers[i], _seatsOf(state.seats, i));
        }
    }

    function _fine(Ledger.Draft memory draft, uint256 unit, address operator, uint256 seats) private view {
        if (seats == 0) return;
        uint256 stake = BANK.balanceOf(PotKind.Stake, Ledger.id(operator));
        uint256 fine = Prices.PENALTY_UNITS * unit * seats;
        draft.shift(PotKind.Stake, PotKind.Burnt, operator, fine < stake ? fine : stake);
    }

    /// @dev Gas is paid back at the block's price, at most at the ceiling; of a token the ceiling is all that is known.
    function _gasPrice() private view returns (uint256) {
        if (!IS_COIN) return GAS_PRICE;
        uint256 price = block.basefee * 1e9;
        return price < GAS_PRICE ? price : GAS_PRICE;
    }

    /// @dev Most movements of an outcome: penalty (two), refund, gas (four), opener, rest, the node's lock, one for
    ///      each reviewer, and three for each verifier.
    function _room(CaseState calldata state) private pure returns (uint256) {
        return 10 + state.reviewers.length + 3 * state.verifiers.length;
    }

    // ------------------------------------------------------------------------------------------------------- helpers

    function _isShowing(CasePhase phase, Rules memory rules) private pure returns (bool) {
        return phase == (rules.exact ? CasePhase.Committed : CasePhase.Seeded);
    }

    function _requireNotAfter(uint256 lastBlock) private view {
        if (block.number > lastBlock) revert TooLate(block.number, lastBlock);
    }

    function _requireAfter(uint256 lastBlock) private view {
        if (block.number <= lastBlock) revert TooEarly(block.number, lastBlock + 1);
    }
}
