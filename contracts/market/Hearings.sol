// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Agreement} from "../libraries/Agreement.sol";
import {IBank} from "./interfaces/IBank.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IJudgement} from "./interfaces/IJudgement.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {Parameters, Rules} from "./interfaces/MarketTypes.sol";
import {CasePhase, CaseState, NodeReveal} from "./interfaces/Proceedings.sol";
import {Opinion} from "./interfaces/Signed.sol";
import {BlockHeader} from "./libraries/BlockHeader.sol";
import {ClassRules} from "./libraries/ClassRules.sol";
import {HandedOn} from "./libraries/HandedOn.sol";
import {Marks} from "./libraries/Marks.sol";
import {Messages} from "./libraries/Messages.sol";
import {Openings} from "./libraries/Openings.sol";
import {Head, Reveals} from "./libraries/Reveals.sol";

/// @title What is shown in a hearing: openings of reviewers and of the node, held to what they had committed to
/// @dev Stateless, as all of Judgement: the Court hands a call on with the case's state, which it has checked.
abstract contract Hearings is IJudgement {
    using Agreement for Agreement.Rule;
    using Openings for Openings.Sample;

    /// @dev The node's place in errors.
    uint256 private constant NODE = 255;

    IBank internal immutable BANK;
    IRegistry internal immutable REGISTRY;
    ICourt internal immutable COURT;
    uint256 internal immutable LOOKAHEAD;
    uint256 internal immutable DRAW_WINDOW;
    uint256 internal immutable COMMIT_WINDOW;
    uint256 private immutable REVEAL_WINDOW;
    uint256 internal immutable GAS_PRICE;
    bool internal immutable IS_COIN;

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
    function _hear(Hearing memory hearing, bytes32 caseId, CaseState calldata state) internal view {
        _begin(hearing, caseId, state);
        if (!_isShowing(state.phase, hearing.rules)) revert WrongPhase(state.phase);
        _pick(hearing, state, state.seed);
    }

    /// @dev In a tolerant class whose tiles nobody has drawn yet.
    function _hearWhole(Hearing memory hearing, bytes32 caseId, CaseState calldata state, bytes calldata header)
        internal
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
    function _saying(Shown memory shown, Opinion opinion) internal pure returns (uint256 members) {
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

    function _position(bytes calldata packed) internal pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := packed.offset
        }
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

    /// @dev Every opening that is there must be right, and nothing may follow the last one.
    function _show(Hearing memory hearing, CaseState calldata state, NodeReveal calldata node, bytes calldata reveals)
        internal
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

    /// @dev As `_seatsOf`: an element of the array that begins at a position of the calldata.
    function _wordAt(uint256 position, uint256 place) private pure returns (bytes32 word) {
        assembly ("memory-safe") {
            word := calldataload(add(position, shl(5, place)))
        }
    }

    function _position(address[] calldata accounts) internal pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := accounts.offset
        }
    }

    function _position(bytes32[] calldata hashes) internal pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := hashes.offset
        }
    }

    // ------------------------------------------------------------------------------------------------------- helpers

    function _isShowing(CasePhase phase, Rules memory rules) internal pure returns (bool) {
        return phase == (rules.exact ? CasePhase.Committed : CasePhase.Seeded);
    }

    function _requireNotAfter(uint256 lastBlock) private view {
        if (block.number > lastBlock) revert TooLate(block.number, lastBlock);
    }

    function _requireAfter(uint256 lastBlock) internal view {
        if (block.number <= lastBlock) revert TooEarly(block.number, lastBlock + 1);
    }
}
