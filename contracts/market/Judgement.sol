// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Agreement} from "../libraries/Agreement.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {Finding, IJudgement} from "./interfaces/IJudgement.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {
    Ask,
    CaseKind,
    CaseState,
    Draw,
    DrawRequest,
    NodeReveal,
    Opinion,
    Order,
    Outcome,
    Parameters,
    Result,
    Reveal,
    Rules,
    SignedOrder,
    Tab,
    Verdict,
    VrfProof
} from "./interfaces/MarketTypes.sol";
import {Messages} from "./libraries/Messages.sol";
import {Owners} from "./libraries/Owners.sol";
import {Prices} from "./libraries/Prices.sol";

/// @title Reads the evidence of a case: what it is opened with, what is shown, and what follows
/// @dev Stateless, and without any right: the Court asks it, and anybody else may.
contract Judgement is IJudgement {
    using Owners for address[];

    /// @dev Tiles of the largest trace: no opening is deeper, and every allowed class' largest call fits a transaction.
    uint256 private constant MOST_TILES = 1 << 22;
    uint256 private constant NODE = 255;

    address private immutable BANK;
    IRegistry private immutable REGISTRY;
    /// @dev Blocks from an order's reference block to its draw, at most: stake that was drawn there is still bonded.
    uint256 private immutable ANSWER_AGE;

    constructor() {
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        BANK = contracts.bank;
        REGISTRY = IRegistry(contracts.registry);
        ANSWER_AGE = uint256(parameters.referenceAge) + parameters.lag + 2 * uint256(parameters.summonsWindow);
    }

    // ------------------------------------------------------------------------------------------------------- opening

    /// @inheritdoc IJudgement
    function examine(
        SignedOrder calldata order,
        Result[] calldata results,
        bytes[] calldata resultSignatures,
        Draw calldata draw,
        bytes calldata drawSignature,
        uint8 segment,
        bytes32 secret,
        Verdict[] calldata verdicts,
        bytes[] calldata verdictSignatures,
        VrfProof calldata check,
        bytes calldata hints,
        bool suspend
    ) external view returns (CaseState memory state, uint96 penalty) {
        Rules memory rules = REGISTRY.rulesOf(order.order.executionClass);
        bytes32 domain = Messages.separator(BANK);
        penalty = rules.penalty;
        state.suspends = suspend;
        _readOrder(state, domain, order);
        bytes32 named = _readResults(state, domain, rules, results, resultSignatures, segment);
        _readDraw(state, domain, draw, drawSignature, named);
        _price(state, rules, order.order, results[results.length - 1], results[segment]);
        if (verdicts.length == 0) {
            state.kind = CaseKind.Doubt;
        } else {
            _requireDrawn(order.order, secret, draw.beta);
            _drawVerifiers(state, rules, secret, draw.results, check, hints);
            _readVerdicts(state, domain, verdicts, verdictSignatures);
            _setKind(state);
        }
        state.excluded.add(REGISTRY.ownerOf(state.scheduler));
        state.excluded.add(state.client);
        state.excluded.add(REGISTRY.ownerOf(state.client));
    }

    function _readOrder(CaseState memory state, bytes32 domain, SignedOrder calldata given) private view {
        Order memory order = given.order;
        bytes32 tab = Messages.tabId(Tab({payer: given.client, payee: given.scheduler, key: given.key}));
        if (tab != order.tab) revert WrongTab(order.tab, tab);
        state.order = Messages.digest(domain, Messages.hash(order));
        if (!SignatureChecker.isValidSignatureNowCalldata(given.key, state.order, given.signature)) {
            revert WrongSignature(given.key);
        }
        state.executionClass = order.executionClass;
        state.ends = order.ends;
        state.referenceBlock = order.referenceBlock;
        state.client = given.client;
        state.scheduler = given.scheduler;
    }

    /// @dev All results, each for its place, and who signed them. The judged one's signer must be a node of the class: nobody
    ///      else has the stake that this class is made for.
    function _readResults(
        CaseState memory state,
        bytes32 domain,
        Rules memory rules,
        Result[] calldata results,
        bytes[] calldata signatures,
        uint8 segment
    ) private view returns (bytes32) {
        _requireSegments(state.ends, rules.layers, results.length);
        if (segment >= results.length) revert WrongSegments(state.ends, segment);
        if (signatures.length != results.length) revert WrongCount(signatures.length, results.length);
        state.segment = segment;
        // Room for the owners of inferencers, verifiers, scheduler, client and the client itself.
        state.excluded = Owners.start(results.length + rules.verifiers + 3);
        bytes32[] memory hashes = new bytes32[](results.length);
        for (uint256 s = 0; s < results.length; ++s) {
            Result memory result = results[s];
            if (result.order != state.order || result.segment != s) {
                revert ForeignResult(s, result.order, result.segment);
            }
            hashes[s] = Messages.hash(result);
            address signer = ECDSA.recoverCalldata(Messages.digest(domain, hashes[s]), signatures[s]);
            state.excluded.add(REGISTRY.ownerOf(signer));
            if (s != segment) continue;
            if (REGISTRY.classOf(signer) != state.executionClass) revert WrongClass(signer, state.executionClass);
            state.node = signer;
            state.result = hashes[s];
            state.traceCommitment = result.traceCommitment;
        }
        return Messages.resultsHash(hashes);
    }

    /// @dev Ends rise to the last layer, and nothing follows them.
    function _requireSegments(bytes32 ends, uint256 layers, uint256 count) private pure {
        uint256 last = 0;
        bool holds = count != 0 && count <= 32;
        for (uint256 s = 0; holds && s < count; ++s) {
            holds = uint8(ends[s]) > last;
            last = uint8(ends[s]);
        }
        if (!holds || last != layers || uint256(ends) << (8 * count) != 0) revert WrongSegments(ends, count);
    }

    function _readDraw(
        CaseState memory state,
        bytes32 domain,
        Draw calldata given,
        bytes calldata signature,
        bytes32 expected
    ) private view {
        Draw memory draw = given;
        if (draw.order != state.order || draw.results != expected) revert ForeignDraw(draw.order, draw.results, expected);
        if (ECDSA.recoverCalldata(Messages.digest(domain, Messages.hash(draw)), signature) != state.scheduler) {
            revert WrongSignature(state.scheduler);
        }
        if (
            draw.blockNumber < state.referenceBlock || draw.blockNumber > block.number
                || draw.blockNumber - state.referenceBlock > ANSWER_AGE
        ) revert DrawOutOfTime(draw.blockNumber, state.referenceBlock, block.number);
        state.answeredAt = draw.blockNumber;
    }

    /// @dev Whatever the node signed can be judged: a length beyond what the class can open counts as the longest.
    function _price(
        CaseState memory state,
        Rules memory rules,
        Order calldata order,
        Result calldata last,
        Result calldata judged
    ) private pure {
        uint256 rows = Prices.positions(judged.prompt, judged.cached, judged.written);
        rows = rows < 2 ? 1 : rows - 1;
        uint256 most = type(uint32).max;
        if (!rules.exact) {
            uint256 across = TileTree.tileCount(1, rules.hiddenSize, rules.dtype);
            most = across > MOST_TILES ? TileTree.TILE_ROWS : TileTree.TILE_ROWS * (MOST_TILES / across);
        }
        state.rows = uint32(rows < most ? rows : most);
        state.unit = uint96(Prices.unit(rules, uint256(state.rows) + 1));
        state.fee = uint96(Prices.fee(order, rules, _count(state.ends), last));
    }

    /// @dev Number of segments of ends that were checked.
    function _count(bytes32 ends) private pure returns (uint256 count) {
        while (count < 32 && ends[count] != 0) ++count;
    }

    function _requireDrawn(Order calldata order, bytes32 secret, bytes32 beta) private pure {
        if (keccak256(abi.encodePacked(secret)) != order.drawHash) revert WrongSecret(secret, order.drawHash);
        if (!Messages.hits(secret, beta, order.checkRate)) revert NotDrawn(secret, beta, order.checkRate);
    }

    /// @dev Seats by the scheduler's VRF over what neither side chose alone.
    function _drawVerifiers(
        CaseState memory state,
        Rules memory rules,
        bytes32 secret,
        bytes32 results,
        VrfProof calldata check,
        bytes calldata hints
    ) private view {
        (uint256 x, uint256 y) = REGISTRY.vrfKeyOf(state.scheduler);
        bytes32 alpha = Messages.checkAlpha(state.order, secret, results);
        bytes32 beta = EcVrf.verify(x, y, alpha, check.proof, check.hints);
        state.verifiers = REGISTRY.draw(
            DrawRequest({
                executionClass: state.executionClass,
                first: state.segment == 0 ? 0 : uint8(state.ends[state.segment - 1]),
                end: uint8(state.ends[state.segment]),
                blockNumber: state.referenceBlock,
                seed: Messages.segmentSeed(beta, state.segment),
                count: rules.verifiers,
                seasoned: true,
                distinct: false,
                excluded: state.excluded,
                bound: Ask({prompt: 0, cached: 0, written: 0}),
                hints: hints
            })
        );
    }

    /// @dev One verdict per node, over this result; it counts for all of the node's seats.
    function _readVerdicts(
        CaseState memory state,
        bytes32 domain,
        Verdict[] calldata verdicts,
        bytes[] calldata signatures
    ) private view {
        if (signatures.length != verdicts.length) revert WrongCount(signatures.length, verdicts.length);
        state.opinions = new uint8[](state.verifiers.length);
        for (uint256 i = 0; i < verdicts.length; ++i) {
            Verdict memory verdict = verdicts[i];
            if (verdict.order != state.order || verdict.segment != state.segment || verdict.result != state.result) {
                revert ForeignVerdict(i, verdict.result);
            }
            if (verdict.opinion == 0 || verdict.opinion > uint8(Opinion.CannotTell)) {
                revert InvalidOpinion(i, verdict.opinion);
            }
            address signer = ECDSA.recoverCalldata(Messages.digest(domain, Messages.hash(verdict)), signatures[i]);
            _seatVerdict(state, i, signer, verdict.opinion);
            if (state.suspends && verdict.opinion == uint8(Opinion.Reject) && !verdict.locks) {
                revert LockMissing(i, signer);
            }
        }
        for (uint256 v = 0; v < state.verifiers.length; ++v) {
            state.excluded.add(REGISTRY.ownerOf(state.verifiers[v]));
        }
    }

    function _seatVerdict(CaseState memory state, uint256 index, address signer, uint8 opinion) private pure {
        bool seated = false;
        for (uint256 v = 0; v < state.verifiers.length; ++v) {
            if (state.verifiers[v] != signer) continue;
            if (!seated && state.opinions[v] != 0) revert AlreadyJudged(index, signer);
            state.opinions[v] = opinion;
            seated = true;
        }
        if (!seated) revert NotVerifier(index, signer);
    }

    function _setKind(CaseState memory state) private pure {
        uint256 seats = state.opinions.length;
        uint256 rejecting = 0;
        uint256 accepting = 0;
        for (uint256 v = 0; v < seats; ++v) {
            if (state.opinions[v] == uint8(Opinion.Reject)) ++rejecting;
            if (state.opinions[v] == uint8(Opinion.Accept)) ++accepting;
        }
        if (2 * rejecting > seats) state.kind = CaseKind.Rejection;
        else if (2 * accepting > seats) state.kind = CaseKind.Acceptance;
        else revert NoMajority(rejecting, accepting, seats);
    }

    // ------------------------------------------------------------------------------------------------------- showing

    /// @dev What the checks of openings need to know of a case.
    struct Hearing {
        bytes32 id;
        Rules rules;
        bytes32 seed;
        uint256 segment;
        uint256 rows;
        uint256 tiles;
    }

    /// @dev What is shown, after its checks. Reviewer i is bit i.
    /// @param node whether the node shows its trace
    struct Shown {
        bool node;
        bytes32 nodeRoot;
        bytes nodeTiles;
        uint256 opened;
        uint8[] opinions;
        bytes32[] roots;
        bytes[] tiles;
        uint256[] scores;
        uint256[] spreads;
    }

    /// @inheritdoc IJudgement
    function checkReveal(bytes32 caseId, CaseState calldata state, uint256 reviewer, Reveal calldata reveal_)
        external
        view
    {
        _openReveal(_hear(caseId, state), state, reviewer, reveal_, "");
    }

    /// @inheritdoc IJudgement
    function checkNode(bytes32 caseId, CaseState calldata state, NodeReveal calldata reveal_) external view {
        _openNode(_hear(caseId, state), state.traceCommitment, reveal_);
    }

    function _hear(bytes32 caseId, CaseState calldata state) private view returns (Hearing memory hearing) {
        hearing.id = Messages.hearing(caseId, state.round);
        hearing.rules = REGISTRY.rulesOf(state.executionClass);
        hearing.seed = state.seed;
        hearing.segment = state.segment;
        hearing.rows = state.rows;
        if (!hearing.rules.exact) {
            // A short trace has fewer tiles than the class samples: then all of them are opened.
            uint256 count = TileTree.tileCount(hearing.rows, hearing.rules.hiddenSize, hearing.rules.dtype);
            hearing.tiles = count < hearing.rules.tiles ? count : hearing.rules.tiles;
        }
    }

    function _openNode(Hearing memory hearing, bytes32 committed, NodeReveal calldata given)
        private
        pure
        returns (bytes memory tiles)
    {
        bytes32 opened = keccak256(abi.encode(given.root, given.salt));
        if (opened != committed) revert TraceMismatch(opened, committed);
        tiles = given.tiles;
        _requireTiles(hearing, NODE, given.root, tiles, given.siblings);
    }

    /// @dev A reviewer's tiles, in the clear. Who could not tell, or lacked something, has no trace to show.
    function _openReveal(
        Hearing memory hearing,
        CaseState calldata state,
        uint256 index,
        Reveal calldata given,
        bytes memory mask
    ) private pure returns (bytes memory tiles) {
        uint256 opinion = given.opinion;
        bool known = opinion != 0 && opinion <= uint256(Opinion.MissingTrace);
        if (!known || (opinion == uint256(Opinion.MissingInput) && hearing.segment == 0)) {
            revert InvalidOpinion(index, given.opinion);
        }
        bytes32 opened = keccak256(
            abi.encode(
                hearing.id, state.reviewers[index], given.root, opinion, given.score, given.spread, given.salt
            )
        );
        if (opened != state.commitments[index]) {
            revert CommitmentMismatch(index, opened, state.commitments[index]);
        }
        if (opinion <= uint256(Opinion.Reject)) {
            tiles = mask.length == 0 ? bytes(given.tiles) : TileTree.unmask(given.tiles, mask);
            _requireTiles(hearing, index, given.root, tiles, given.siblings);
        } else if (given.tiles.length != 0 || given.siblings.length != 0) {
            revert InvalidOpening(index, 0, given.root);
        }
    }

    /// @dev The sampled tiles must lead to the root; an exact class has none. A zero root stands for nothing shown.
    function _requireTiles(
        Hearing memory hearing,
        uint256 place,
        bytes32 root,
        bytes memory tiles,
        bytes32[] calldata siblings
    ) private pure {
        bytes32 proven = root;
        if (hearing.rules.exact) {
            if (tiles.length != 0 || siblings.length != 0) proven = 0;
        } else {
            proven = TileTree.openingRoot(
                hearing.seed,
                hearing.segment,
                hearing.rows,
                hearing.rules.hiddenSize,
                hearing.rules.dtype,
                hearing.tiles,
                tiles,
                _inMemory(siblings)
            );
        }
        if (proven != root || proven == 0) revert InvalidOpening(place, proven, root);
    }

    /// @dev The compiler copies element by element.
    function _inMemory(bytes32[] calldata words) private pure returns (bytes32[] memory copied) {
        copied = new bytes32[](words.length);
        assembly ("memory-safe") {
            calldatacopy(add(copied, 0x20), words.offset, shl(5, words.length))
        }
    }

    // ------------------------------------------------------------------------------------------------------- judging

    /// @inheritdoc IJudgement
    function judge(bytes32 caseId, CaseState calldata state, NodeReveal calldata node, Reveal[] calldata reveals)
        external
        view
        returns (Finding memory finding)
    {
        Hearing memory hearing = _hear(caseId, state);
        Shown memory shown = _show(hearing, state, node, reveals);
        uint8[] memory seats = state.seats;
        finding.silent = ~shown.opened & ((1 << seats.length) - 1);
        finding.cluster = _properCluster(hearing.rules, shown, seats);
        uint8 opinion = finding.cluster == 0 ? 0 : shown.opinions[_lowest(finding.cluster)];
        finding.paid = opinion != 0 && opinion != uint8(Opinion.CannotTell);
        bool told = opinion == uint8(Opinion.Accept) || opinion == uint8(Opinion.Reject);
        if (told) {
            // A node that shows nothing proves nobody wrong.
            if (shown.node) {
                uint256 telling = _saying(shown, uint8(Opinion.Accept)) | _saying(shown, uint8(Opinion.Reject));
                finding.wrong = telling & ~finding.cluster;
            }
            if (!hearing.rules.exact) {
                finding.score = _median(shown.scores, seats, finding.cluster);
                finding.spread = _median(shown.spreads, seats, finding.cluster);
            }
        }
        _conclude(finding, hearing.rules, state, shown, seats, opinion);
    }

    /// @dev Every opening that is there must be right.
    function _show(
        Hearing memory hearing,
        CaseState calldata state,
        NodeReveal calldata node,
        Reveal[] calldata reveals
    ) private pure returns (Shown memory shown) {
        uint256 count = reveals.length;
        if (count != state.reviewers.length) revert WrongCount(count, state.reviewers.length);
        shown.opinions = new uint8[](count);
        shown.roots = new bytes32[](count);
        shown.tiles = new bytes[](count);
        shown.scores = new uint256[](count);
        shown.spreads = new uint256[](count);
        if (node.root != 0) {
            shown.node = true;
            shown.nodeRoot = node.root;
            shown.nodeTiles = _openNode(hearing, state.traceCommitment, node);
        }
        for (uint256 i = 0; i < count; ++i) {
            Reveal calldata given = reveals[i];
            if (given.opinion == 0) continue;
            shown.tiles[i] = _openReveal(hearing, state, i, given, shown.nodeTiles);
            shown.opened |= 1 << i;
            shown.opinions[i] = given.opinion;
            shown.roots[i] = given.root;
            shown.scores[i] = given.score;
            shown.spreads[i] = given.spread;
        }
    }

    /// @dev The reviewers with more than half of all seats who agree in opinion and trace; 0 if there are none.
    function _properCluster(Rules memory rules, Shown memory shown, uint8[] memory seats)
        private
        pure
        returns (uint256)
    {
        uint256 unseen = _consistent(rules, shown);
        while (unseen != 0) {
            uint256 members = _component(rules, shown, unseen);
            if (2 * _weight(seats, members) > rules.reviewers) return members;
            unseen &= ~members;
        }
        return 0;
    }

    /// @dev Leaves out who accepts a trace that its own contradicts.
    function _consistent(Rules memory rules, Shown memory shown) private pure returns (uint256 valid) {
        valid = shown.opened;
        if (!shown.node) return valid;
        for (uint256 i = 0; i < shown.opinions.length; ++i) {
            if (shown.opinions[i] != uint8(Opinion.Accept)) continue;
            if (!_agree(rules, shown.roots[i], shown.nodeRoot, shown.tiles[i], shown.nodeTiles)) valid &= ~(1 << i);
        }
    }

    /// @dev The component of the lowest of `unseen`, among them: who agrees with one of it belongs to it (library Clusters says
    ///      the same of a whole graph; here no edge is compared that joins what is joined).
    function _component(Rules memory rules, Shown memory shown, uint256 unseen) private pure returns (uint256 members) {
        uint256 fresh = unseen & (~unseen + 1);
        while (fresh != 0) {
            uint256 v = _lowest(fresh);
            members |= 1 << v;
            fresh &= fresh - 1;
            unseen &= ~(members | fresh);
            for (uint256 rest = unseen; rest != 0; rest &= rest - 1) {
                uint256 w = _lowest(rest);
                if (_sameCluster(rules, shown, v, w)) fresh |= 1 << w;
            }
        }
    }

    function _sameCluster(Rules memory rules, Shown memory shown, uint256 v, uint256 w) private pure returns (bool) {
        if (shown.opinions[v] != shown.opinions[w]) return false;
        if (shown.opinions[v] > uint8(Opinion.Reject)) return true;
        return _agree(rules, shown.roots[v], shown.roots[w], shown.tiles[v], shown.tiles[w]);
    }

    function _agree(Rules memory rules, bytes32 rootA, bytes32 rootB, bytes memory tilesA, bytes memory tilesB)
        private
        pure
        returns (bool)
    {
        if (rules.exact || rootA == rootB) return rootA == rootB;
        return Agreement.agrees(tilesA, tilesB, rules.dtype, rules.mantissaBits, rules.steps, rules.theta);
    }

    /// @dev Two thirds convict; votes that the node withheld its rows count with those that its rows are false. In a Doubt
    ///      only the leaf can fall. Pooled is what chance could have chosen: a rejection between the cuts; of what a client
    ///      chose, only what is beyond them.
    function _conclude(
        Finding memory finding,
        Rules memory rules,
        CaseState calldata state,
        Shown memory shown,
        uint8[] memory seats,
        uint8 opinion
    ) private pure {
        bool doubt = state.kind == CaseKind.Doubt;
        bool isReject = opinion == uint8(Opinion.Reject);
        uint256 convicting = finding.cluster;
        if (isReject) convicting |= _saying(shown, uint8(Opinion.MissingTrace));
        if (opinion == uint8(Opinion.MissingTrace)) convicting |= _saying(shown, uint8(Opinion.Reject));
        bool strong = 3 * _weight(seats, convicting) >= 2 * uint256(rules.reviewers);
        if (opinion == uint8(Opinion.MissingPrompt)) {
            finding.outcome = Outcome.OpenerMissing;
        } else if (!shown.node) {
            finding.outcome = doubt ? Outcome.Refunded : Outcome.NodeMissing;
        } else if (opinion == uint8(Opinion.Accept)) {
            finding.outcome = Outcome.Upheld;
        } else if (opinion != 0) {
            finding.outcome = Outcome.Refunded;
            bool beyond = rules.exact
                || (finding.score > rules.secondCut && uint256(finding.score) > 2 * uint256(finding.spread));
            if (isReject && strong) {
                if (beyond && !doubt) finding.outcome = Outcome.Convicted;
                else finding.pooled = beyond || state.kind == CaseKind.Rejection;
            } else if (strong && !doubt) {
                if (opinion == uint8(Opinion.MissingTrace)) finding.outcome = Outcome.NodeMissing;
                if (opinion == uint8(Opinion.MissingInput)) finding.outcome = Outcome.SchedulerMissing;
            }
        }
    }

    /// @dev Who shows this opinion.
    function _saying(Shown memory shown, uint8 opinion) private pure returns (uint256 members) {
        for (uint256 i = 0; i < shown.opinions.length; ++i) {
            if (shown.opinions[i] == opinion) members |= 1 << i;
        }
    }

    function _weight(uint8[] memory seats, uint256 members) private pure returns (uint256 weight) {
        for (; members != 0; members &= members - 1) {
            weight += seats[_lowest(members)];
        }
    }

    /// @dev The smallest value that at least half of the members' seats do not exceed.
    function _median(uint256[] memory values, uint8[] memory seats, uint256 members) private pure returns (uint32) {
        uint256[] memory sorted = new uint256[](values.length);
        uint256 count = 0;
        uint256 total = 0;
        for (; members != 0; members &= members - 1) {
            uint256 i = _lowest(members);
            uint256 item = values[i] << 8 | seats[i];
            uint256 place = count++;
            for (; place > 0 && sorted[place - 1] > item; --place) {
                sorted[place] = sorted[place - 1];
            }
            sorted[place] = item;
            total += seats[i];
        }
        uint256 passed = 0;
        for (uint256 i = 0; i < count; ++i) {
            passed += uint8(sorted[i]);
            if (2 * passed >= total) return uint32(sorted[i] >> 8);
        }
        return 0;
    }

    /// @dev Index of the lowest bit of a set that is not empty.
    function _lowest(uint256 members) private pure returns (uint256 index) {
        assembly ("memory-safe") {
            index := sub(255, clz(and(members, sub(0, members))))
        }
    }
}
