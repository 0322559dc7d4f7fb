// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IBank} from "./interfaces/IBank.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {Finding, IJudgement} from "./interfaces/IJudgement.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {
    Ask,
    CaseKind,
    CasePhase,
    CaseState,
    Draw,
    DrawRequest,
    Fault,
    NodeReveal,
    Opinion,
    Outcome,
    Parameters,
    PotKind,
    Result,
    Reveal,
    ReviewCommitment,
    Rules,
    SignedOrder,
    Verdict,
    VrfProof
} from "./interfaces/MarketTypes.sol";
import {BlockHeader} from "./libraries/BlockHeader.sol";
import {CaseGas} from "./libraries/CaseGas.sol";
import {Ledger} from "./libraries/Ledger.sol";
import {Messages} from "./libraries/Messages.sol";
import {Owners} from "./libraries/Owners.sol";
import {Prices} from "./libraries/Prices.sol";

/// @title Decides one result by a committee drawn by RANDAO
/// @dev A case's state travels in calldata; one word is stored of it. Judgement reads the evidence, Bank moves the money.
contract Court is ICourt, ReentrancyGuardTransient {
    using Ledger for Ledger.Draft;
    using Owners for address[];

    uint256 private constant SIGNATURE_BYTES = 65;
    uint256 private constant NODE = 255;
    uint256 private constant ANY_SEGMENT = 255;
    /// @dev Marks of a round, by reviewer: its own post in the lower half of the word, its own reveal in the upper half.
    uint256 private constant REVEALS = 128;
    uint256 private constant NODE_REVEALED = 1 << 255;
    /// @dev Openings under one id: their rounds are counted in eight bits.
    uint256 private constant LIVES = 127;

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    IJudgement private immutable JUDGEMENT;
    uint256 private immutable OPENING_WINDOW;
    uint256 private immutable LOOKAHEAD;
    uint256 private immutable DRAW_WINDOW;
    uint256 private immutable COMMIT_WINDOW;
    uint256 private immutable REVEAL_WINDOW;
    uint256 private immutable GAS_PRICE;
    bool private immutable IS_COIN;

    /// @dev Hash of the state of a live case; of an ended one block << 16 | openings << 8 | outcome.
    mapping(bytes32 caseId => bytes32) private _cases;
    mapping(bytes32 hearing => uint256) private _marks;
    mapping(bytes32 hearing => mapping(address reviewer => bytes32)) private _posts;
    mapping(bytes32 hearing => mapping(address party => bytes32)) private _reveals;
    /// @dev Bit s: the leaf of segment s fell.
    mapping(bytes32 order => uint256) private _voided;
    mapping(address owner => mapping(bytes32 executionClass => Pool)) private _pools;

    /// @dev Outcomes between the cuts since the block in which the first of them was counted.
    struct Pool {
        uint40 since;
        uint16 count;
    }

    constructor() {
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        BANK = IBank(contracts.bank);
        REGISTRY = IRegistry(contracts.registry);
        JUDGEMENT = IJudgement(contracts.judgement);
        OPENING_WINDOW = uint256(parameters.lag) + 2 * uint256(parameters.summonsWindow);
        LOOKAHEAD = parameters.lookahead;
        DRAW_WINDOW = parameters.drawWindow;
        COMMIT_WINDOW = parameters.commitWindow;
        REVEAL_WINDOW = parameters.revealWindow;
        GAS_PRICE = parameters.gasPrice;
        IS_COIN = parameters.asset == address(0);
    }

    // ------------------------------------------------------------------------------------------------------- opening

    /// @inheritdoc ICourt
    function open(
        SignedOrder calldata order,
        Result[] calldata,
        bytes[] calldata,
        Draw calldata,
        bytes calldata,
        uint8,
        bytes32,
        Verdict[] calldata,
        bytes[] calldata,
        VrfProof calldata,
        bytes calldata,
        bool
    ) external payable nonReentrant returns (bytes32 caseId) {
        (CaseState memory state, uint96 penalty) =
            abi.decode(_handOn(IJudgement.examine.selector), (CaseState, uint96));
        if (state.kind != CaseKind.Rejection && msg.sender != state.client && msg.sender != order.key) {
            revert NotClient(msg.sender, state.client, order.key);
        }
        caseId = _caseId(state);
        if (state.suspends && state.kind != CaseKind.Rejection) revert CannotSuspend(caseId, state.kind);
        state.round = _requireOpenable(caseId, state);
        state.phase = CasePhase.Opened;
        state.phaseBlock = uint40(block.number);
        state.opener = msg.sender;
        state.excluded = state.excluded.extend(2);
        state.excluded.add(msg.sender);
        state.excluded.add(REGISTRY.ownerOf(msg.sender));
        uint96 bond = bondFor(state.executionClass, state.rows);
        state.bond = BANK.collect{value: msg.value}(caseId, msg.sender, PotKind.Bond, caseId, bond);
        _lock(caseId, state, penalty);
        _cases[caseId] = keccak256(abi.encode(state));
        emit CaseOpened(caseId, state.order, state.node, state);
        if (state.suspends && !REGISTRY.suspend(state.node, caseId)) revert NotSuspended(state.node);
    }

    /// @dev Judgement's functions take the same arguments as the Court's: the call goes on as it came, without being encoded
    ///      again, and both decode the same bytes by the same rules.
    function _handOn(bytes4 selector) private view returns (bytes memory answer) {
        address judgement = address(JUDGEMENT);
        assembly ("memory-safe") {
            let call_ := mload(0x40)
            calldatacopy(call_, 0, calldatasize())
            mstore(call_, or(selector, and(mload(call_), shr(32, not(0)))))
            let success := staticcall(gas(), judgement, call_, calldatasize(), 0, 0)
            answer := call_
            mstore(answer, returndatasize())
            let data := add(answer, 0x20)
            returndatacopy(data, 0, returndatasize())
            if iszero(success) { revert(data, returndatasize()) }
            mstore(0x40, and(add(add(data, returndatasize()), 0x1f), not(0x1f)))
        }
    }

    function _caseId(CaseState memory state) private pure returns (bytes32) {
        uint256 place = state.kind == CaseKind.Doubt ? Messages.DOUBTS + state.segment : state.segment;
        return Messages.caseId(state.order, place);
    }

    /// @dev In time, and not decided. A case that was lost for lack of data or interest leaves the leaf open: whoever has the
    ///      data gets the whole window again. A Doubt needs a leaf that no drawn case is or was about.
    /// @return round first round of this opening
    function _requireOpenable(bytes32 caseId, CaseState memory state) private view returns (uint8 round) {
        uint256 lives = 0;
        uint256 since = state.answeredAt;
        uint256 ended = _requireReopenable(caseId);
        if (ended != 0) {
            lives = uint8(ended >> 8);
            since = ended >> 16;
        }
        if (state.kind == CaseKind.Doubt) _requireReopenable(Messages.caseId(state.order, state.segment));
        if (lives > LIVES) revert CaseClosed(caseId, Outcome(uint8(ended)));
        if (block.number > since + OPENING_WINDOW) revert TooLate(block.number, since + OPENING_WINDOW);
        return uint8(2 * lives);
    }

    function _requireReopenable(bytes32 caseId) private view returns (uint256 ended) {
        ended = uint256(_cases[caseId]);
        if (ended >> 96 != 0) revert CaseUnderWay(caseId);
        Outcome outcome = Outcome(uint8(ended));
        if (ended != 0 && outcome != Outcome.OpenerMissing && outcome != Outcome.Lapsed) {
            revert CaseClosed(caseId, outcome);
        }
    }

    /// @dev Locks L of the node, or what it has, and of each rejecter if the case suspends.
    function _lock(bytes32 caseId, CaseState memory state, uint96 penalty) private {
        if (state.kind == CaseKind.Doubt) return;
        uint256 stake = _stakeOf(state.node);
        state.locked = uint96(stake < penalty ? stake : penalty);
        Ledger.Draft memory draft = Ledger.start(caseId, 0, 1 + state.verifiers.length);
        bytes32 node = Ledger.id(state.node);
        draft.shift(PotKind.Stake, node, PotKind.Locked, node, state.locked);
        if (state.suspends) _shiftLocks(draft, state, penalty, PotKind.Stake, PotKind.Locked);
        BANK.move(caseId, draft.movements);
    }

    /// @dev Moves L of each rejecter, in its own name unless it is burnt.
    function _shiftLocks(
        Ledger.Draft memory draft,
        CaseState memory state,
        uint256 penalty,
        PotKind from,
        PotKind to
    ) private pure {
        for (uint256 v = 0; v < state.verifiers.length; ++v) {
            if (state.opinions[v] != uint8(Opinion.Reject) || _seatsFrom(state, v) == 0) continue;
            bytes32 verifier = Ledger.id(state.verifiers[v]);
            draft.shift(from, verifier, to, to == PotKind.Burnt ? bytes32(0) : verifier, penalty);
        }
    }

    /// @dev Seats of the verifier at `place`; 0 if it had an earlier one.
    function _seatsFrom(CaseState memory state, uint256 place) private pure returns (uint256 seats) {
        address verifier = state.verifiers[place];
        for (uint256 v = 0; v < state.verifiers.length; ++v) {
            if (state.verifiers[v] != verifier) continue;
            if (v < place) return 0;
            ++seats;
        }
    }

    // ----------------------------------------------------------------------------------------------------- committee

    /// @inheritdoc ICourt
    function draw(bytes32 caseId, CaseState calldata given, bytes calldata header, bytes calldata hints) external {
        CaseState memory state = _load(caseId, given, CasePhase.Opened);
        bytes32 randao = _randao(state.phaseBlock, header);
        uint8 segment = state.segment;
        address[] memory drawn = REGISTRY.draw(
            DrawRequest({
                executionClass: state.executionClass,
                first: segment == 0 ? 0 : uint8(state.ends[segment - 1]),
                end: uint8(state.ends[segment]),
                blockNumber: state.referenceBlock,
                seed: Messages.courtSeed(caseId, state.round, randao),
                count: REGISTRY.rulesOf(state.executionClass).reviewers,
                seasoned: true,
                distinct: false,
                excluded: state.excluded,
                bound: Ask({prompt: 0, cached: 0, written: 0}),
                hints: hints
            })
        );
        _seat(state, drawn);
        state.drawer = msg.sender;
        _enter(caseId, state, CasePhase.Drawn);
        emit ReviewersDrawn(caseId, state.round, randao, state.reviewers, state.seats, state);
    }

    /// @dev RANDAO of the block that is due, by its header.
    function _randao(uint256 phaseBlock, bytes calldata header) private view returns (bytes32 randao) {
        uint256 due = phaseBlock + LOOKAHEAD;
        if (block.number <= due) revert TooEarly(block.number, due + 1);
        if (block.number > due + DRAW_WINDOW) revert TooLate(block.number, due + DRAW_WINDOW);
        uint256 number;
        bytes32 hash;
        (number, randao, hash) = BlockHeader.parse(header);
        bytes32 knownHash = BlockHeader.known(due);
        if (number != due || hash != knownHash) revert WrongHeader(due, number, hash, knownHash);
    }

    /// @dev An operator that is drawn more than once is one reviewer with more seats.
    function _seat(CaseState memory state, address[] memory drawn) private pure {
        uint256 count = 0;
        uint8[] memory seats = new uint8[](drawn.length);
        for (uint256 i = 0; i < drawn.length; ++i) {
            address operator = drawn[i];
            uint256 place = 0;
            while (place < count && drawn[place] != operator) ++place;
            if (place == count) drawn[count++] = operator;
            ++seats[place];
        }
        assembly ("memory-safe") {
            mstore(drawn, count)
            mstore(seats, count)
        }
        state.reviewers = drawn;
        state.seats = seats;
    }

    /// @inheritdoc ICourt
    function post(bytes32 caseId, CaseState calldata given, bytes32 commitment) external {
        CaseState memory state = _load(caseId, given, CasePhase.Drawn);
        _requireNotAfter(state.phaseBlock + COMMIT_WINDOW);
        if (commitment == 0) revert ZeroCommitment(caseId);
        bytes32 hearing = Messages.hearing(caseId, state.round);
        uint256 place = 0;
        while (place < state.reviewers.length && state.reviewers[place] != msg.sender) ++place;
        if (place == state.reviewers.length) revert NotReviewer(msg.sender, caseId);
        uint256 marks = _marks[hearing];
        if (marks >> place & 1 != 0) revert AlreadyPosted(msg.sender, caseId);
        _marks[hearing] = marks | 1 << place;
        _posts[hearing][msg.sender] = commitment;
        emit ReviewPosted(caseId, msg.sender, state.round, commitment);
    }

    /// @inheritdoc ICourt
    function commit(
        bytes32 caseId,
        CaseState calldata given,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) external {
        CaseState memory state = _load(caseId, given, CasePhase.Drawn);
        _requireNotAfter(state.phaseBlock + COMMIT_WINDOW);
        if (commitments.length != state.reviewers.length) revert WrongCount(commitments.length, state.reviewers.length);
        state.commitments = commitments;
        _unite(caseId, state, signatures);
        _requireEnough(state);
        state.committer = msg.sender;
        _enter(caseId, state, CasePhase.Committed);
        emit ReviewsCommitted(caseId, state.commitments, state);
    }

    /// @dev Own posts stand whatever is given; what is given is its reviewer's by its signature. A signature whose reviewer has
    ///      posted meanwhile is passed over, so that no post in the last moment spoils the call.
    function _unite(bytes32 caseId, CaseState memory state, bytes calldata signatures) private view {
        bytes32 hearing = Messages.hearing(caseId, state.round);
        bytes32 domain = Messages.separator(address(BANK));
        uint256 marks = _marks[hearing];
        uint256 used = 0;
        for (uint256 i = 0; i < state.reviewers.length; ++i) {
            address reviewer = state.reviewers[i];
            bytes32 commitment = state.commitments[i];
            uint256 begin = used;
            if (commitment != 0) used += SIGNATURE_BYTES;
            if (used > signatures.length) revert WrongCount(signatures.length, used);
            if (marks >> i & 1 != 0) {
                state.commitments[i] = _posts[hearing][reviewer];
            } else if (commitment != 0) {
                bytes32 structHash = Messages.hash(ReviewCommitment({caseId: hearing, commitment: commitment}));
                address signer = ECDSA.recoverCalldata(Messages.digest(domain, structHash), signatures[begin:used]);
                if (signer != reviewer) revert WrongSigner(i, signer, reviewer);
            }
        }
        if (used != signatures.length) revert WrongCount(signatures.length, used);
    }

    /// @dev All seats, or after three quarters of the window more than half: with fewer there is no proper cluster.
    function _requireEnough(CaseState memory state) private view {
        uint256 all = 0;
        uint256 committed = 0;
        for (uint256 i = 0; i < state.seats.length; ++i) {
            all += state.seats[i];
            if (state.commitments[i] != 0) committed += state.seats[i];
        }
        if (committed == all) return;
        if (2 * committed <= all) revert TooFewCommitments(committed, all);
        uint256 first = state.phaseBlock + COMMIT_WINDOW * 3 / 4 + 1;
        if (block.number < first) revert TooEarly(block.number, first);
    }

    /// @inheritdoc ICourt
    function seed(bytes32 caseId, CaseState calldata given, bytes calldata header) external {
        CaseState memory state = _load(caseId, given, CasePhase.Committed);
        if (REGISTRY.rulesOf(state.executionClass).exact) revert ExactClass(state.executionClass);
        state.seed = Messages.tilesSeed(caseId, state.commitments, _randao(state.phaseBlock, header));
        state.seeder = msg.sender;
        _enter(caseId, state, CasePhase.Seeded);
        emit CaseSeeded(caseId, state.seed, state);
    }

    // ------------------------------------------------------------------------------------------------------- showing

    /// @inheritdoc ICourt
    function reveal(bytes32 caseId, CaseState calldata given, uint256 reviewer, Reveal calldata reveal_) external {
        CaseState memory state = _loadShowing(caseId, given);
        _requireNotAfter(state.phaseBlock + REVEAL_WINDOW);
        if (reviewer >= state.reviewers.length || state.reviewers[reviewer] != msg.sender) {
            revert NotReviewer(msg.sender, caseId);
        }
        _handOn(IJudgement.checkReveal.selector);
        _show(caseId, state.round, 1 << (REVEALS + reviewer), keccak256(abi.encode(reveal_)));
    }

    /// @inheritdoc ICourt
    function revealNode(bytes32 caseId, CaseState calldata given, NodeReveal calldata reveal_) external {
        CaseState memory state = _loadShowing(caseId, given);
        _requireNotAfter(state.phaseBlock + REVEAL_WINDOW);
        if (msg.sender != state.node) revert NotReviewer(msg.sender, caseId);
        _handOn(IJudgement.checkNode.selector);
        _show(caseId, state.round, NODE_REVEALED, keccak256(abi.encode(reveal_)));
    }

    /// @dev From now on this party cannot be left out. What it shows follows from what it committed to, so that nobody can show
    ///      something else in its name.
    function _show(bytes32 caseId, uint8 round, uint256 mark, bytes32 revealHash) private {
        bytes32 hearing = Messages.hearing(caseId, round);
        uint256 marks = _marks[hearing];
        if (marks & mark != 0) revert AlreadyRevealed(msg.sender, caseId);
        _marks[hearing] = marks | mark;
        _reveals[hearing][msg.sender] = revealHash;
        emit Revealed(caseId, msg.sender, round, revealHash);
    }

    // ------------------------------------------------------------------------------------------------------- outcome

    /// @inheritdoc ICourt
    function decide(bytes32 caseId, CaseState calldata given, NodeReveal calldata node, Reveal[] calldata reveals)
        external
        nonReentrant
    {
        CaseState memory state = _loadShowing(caseId, given);
        _requireExcusable(caseId, state, node, reveals);
        Finding memory finding = abi.decode(_handOn(IJudgement.judge.selector), (Finding));
        if (finding.outcome == Outcome.None) _undecided(caseId, state, finding.silent, msg.sender);
        else _settle(caseId, state, finding);
    }

    /// @dev A party may be missing only after the window, and only if it did not show its part itself.
    function _requireExcusable(
        bytes32 caseId,
        CaseState memory state,
        NodeReveal calldata node,
        Reveal[] calldata reveals
    ) private view {
        uint256 marks = _marks[Messages.hearing(caseId, state.round)];
        uint256 lastBlock = state.phaseBlock + REVEAL_WINDOW;
        bool late = block.number > lastBlock;
        if (reveals.length != state.reviewers.length) revert WrongCount(reveals.length, state.reviewers.length);
        if (node.root == 0 && (!late || marks & NODE_REVEALED != 0)) revert RevealMissing(NODE, lastBlock);
        for (uint256 i = 0; i < reveals.length; ++i) {
            if (reveals[i].opinion != 0) continue;
            bool owed = state.commitments[i] != 0 && !late;
            if (owed || marks >> (REVEALS + i) & 1 != 0) revert RevealMissing(i, lastBlock);
        }
    }

    /// @inheritdoc ICourt
    function expire(bytes32 caseId, CaseState calldata given) external nonReentrant {
        CaseState memory state = _load(caseId, given);
        uint256 silent = 0;
        if (state.phase == CasePhase.Drawn) {
            _requireAfter(state.phaseBlock + COMMIT_WINDOW);
            silent = ~_marks[Messages.hearing(caseId, state.round)] & ((1 << state.reviewers.length) - 1);
        } else {
            bool showing = state.phase == CasePhase.Seeded
                || (state.phase == CasePhase.Committed && REGISTRY.rulesOf(state.executionClass).exact);
            if (showing) revert WrongPhase(caseId, state.phase);
            _requireAfter(state.phaseBlock + LOOKAHEAD + DRAW_WINDOW);
            if (state.phase == CasePhase.Opened) return _lapse(caseId, state);
            for (uint256 i = 0; i < state.commitments.length; ++i) {
                if (state.commitments[i] == 0) silent |= 1 << i;
            }
        }
        _undecided(caseId, state, silent, address(0));
    }

    /// @dev Nobody carried the case on.
    function _lapse(bytes32 caseId, CaseState memory state) private {
        Rules memory rules = REGISTRY.rulesOf(state.executionClass);
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, 2 + state.verifiers.length);
        draft.burnRest();
        _unlock(draft, state, rules.penalty, PotKind.Stake);
        _end(caseId, state, Outcome.Lapsed, 0, 0, 0);
        BANK.move(caseId, draft.movements);
        if (state.suspends) REGISTRY.restore(state.node, caseId);
    }

    /// @dev No proper cluster: a second round with other reviewers, or the leaf falls.
    function _undecided(bytes32 caseId, CaseState memory state, uint256 silent, address decider) private {
        Rules memory rules = REGISTRY.rulesOf(state.executionClass);
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        _payGas(draft, state, rules, decider, 0);
        _fineReviewers(draft, state, silent);
        if (state.round % 2 == 0) {
            state.bond = uint96(draft.left);
            _restart(caseId, state);
            BANK.move(caseId, draft.movements);
            return;
        }
        draft.pay(state.opener, draft.left, 0);
        _unlock(draft, state, rules.penalty, PotKind.Stake);
        _void(caseId, state);
        _end(caseId, state, Outcome.Undecided, 0, 0, 0);
        BANK.move(caseId, draft.movements);
        if (state.suspends) REGISTRY.restore(state.node, caseId);
    }

    function _restart(bytes32 caseId, CaseState memory state) private {
        ++state.round;
        state.reviewers = new address[](0);
        state.seats = new uint8[](0);
        state.commitments = new bytes32[](0);
        state.seed = 0;
        state.drawer = address(0);
        state.committer = address(0);
        state.seeder = address(0);
        _enter(caseId, state, CasePhase.Opened);
        emit CaseRestarted(caseId, state);
    }

    function _settle(bytes32 caseId, CaseState memory state, Finding memory finding) private {
        Rules memory rules = REGISTRY.rulesOf(state.executionClass);
        bool pooled = finding.pooled && _pool(caseId, state, rules);
        (address convict, Fault fault) = _convict(state, finding.outcome, pooled);
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        bool refunds = convict != address(0) && !pooled && !isVoided(state.order, state.segment);
        if (convict != address(0)) _takePenalty(draft, state, convict, rules.penalty, refunds);
        if (finding.paid) _payReviewers(draft, state, finding.cluster);
        uint256 since = draft.movements.length;
        _payGas(draft, state, rules, msg.sender, since);
        if (convict != address(0)) _payOpener(draft, state, rules, since);
        else if (finding.outcome == Outcome.Refunded) draft.pay(state.opener, draft.left, since);
        draft.burnRest();
        bool overturned = finding.outcome == Outcome.Upheld;
        if (convict == state.node) state.locked = 0;
        _unlock(draft, state, rules.penalty, overturned ? PotKind.Burnt : PotKind.Stake);
        if (overturned) _fineVerifiers(draft, state, Opinion.Reject);
        if (finding.outcome == Outcome.Convicted) _fineVerifiers(draft, state, Opinion.Accept);
        _fineReviewers(draft, state, finding.silent | finding.wrong);
        if (finding.outcome == Outcome.Refunded) _void(caseId, state);
        _end(caseId, state, finding.outcome, finding.cluster, finding.score, finding.spread);
        BANK.move(caseId, draft.movements);
        if (state.suspends) REGISTRY.restore(state.node, caseId);
        if (convict != address(0)) {
            bytes32 subject = convict == state.node ? state.result : caseId;
            REGISTRY.convict(convict, fault, subject, state.referenceBlock);
        }
    }

    /// @dev Whom an outcome convicts, if anybody.
    function _convict(CaseState memory state, Outcome outcome, bool pooled)
        private
        pure
        returns (address convict, Fault fault)
    {
        if (pooled) return (state.node, Fault.Pooled);
        if (outcome == Outcome.Convicted) return (state.node, Fault.FalseResult);
        if (outcome == Outcome.NodeMissing) return (state.node, Fault.NothingShown);
        if (outcome == Outcome.SchedulerMissing) return (state.scheduler, Fault.NothingShown);
    }

    /// @dev Takes L: what was locked for this case, then free stake. The client's refund comes first and out of it alone, so
    ///      that no opener pays for a convict without stake.
    function _takePenalty(
        Ledger.Draft memory draft,
        CaseState memory state,
        address convict,
        uint256 penalty,
        bool refunds
    ) private view {
        uint256 taken = convict == state.node ? state.locked : 0;
        draft.take(PotKind.Locked, convict, taken);
        if (taken < penalty) {
            uint256 stake = _stakeOf(convict);
            uint256 rest = penalty - taken < stake ? penalty - taken : stake;
            draft.take(PotKind.Stake, convict, rest);
            taken += rest;
        }
        if (refunds) draft.pay(state.client, state.fee < taken ? state.fee : taken, draft.movements.length);
    }

    function _payReviewers(Ledger.Draft memory draft, CaseState memory state, uint256 cluster) private pure {
        uint256 reward = Prices.REWARD_UNITS * state.unit;
        for (uint256 i = 0; i < state.reviewers.length; ++i) {
            if (cluster >> i & 1 != 0) {
                draft.pay(state.reviewers[i], reward * state.seats[i], draft.movements.length);
            }
        }
    }

    /// @dev Gas of this round, to those who paid it.
    function _payGas(
        Ledger.Draft memory draft,
        CaseState memory state,
        Rules memory rules,
        address decider,
        uint256 since
    ) private view {
        uint256 price = _gasPrice();
        if (price == 0) return;
        if (state.drawer != address(0)) draft.pay(state.drawer, CaseGas.worth(CaseGas.drawing(rules), price), since);
        if (state.committer != address(0)) {
            draft.pay(state.committer, CaseGas.worth(CaseGas.committing(rules), price), since);
        }
        if (state.seeder != address(0)) draft.pay(state.seeder, CaseGas.worth(CaseGas.seeding(), price), since);
        if (decider != address(0)) draft.pay(decider, CaseGas.worth(CaseGas.deciding(rules), price), since);
    }

    /// @dev Bond, gas and reward. Anyone can bring a rejection, and so can anyone who sees it on its way: then half of the reward
    ///      is the rejecters', whose work it is.
    function _payOpener(Ledger.Draft memory draft, CaseState memory state, Rules memory rules, uint256 since)
        private
        view
    {
        uint256 reward = (rules.penalty > state.bond ? rules.penalty : state.bond) / 10;
        uint256 shared = state.kind == CaseKind.Rejection && _isStranger(state) ? reward / 2 : 0;
        uint256 back = state.bond + CaseGas.worth(CaseGas.opening(), _gasPrice());
        draft.pay(state.opener, back + reward - shared, since);
        if (shared == 0) return;
        uint256 rejecting = 0;
        for (uint256 v = 0; v < state.opinions.length; ++v) {
            if (state.opinions[v] == uint8(Opinion.Reject)) ++rejecting;
        }
        for (uint256 v = 0; v < state.opinions.length; ++v) {
            if (state.opinions[v] == uint8(Opinion.Reject)) draft.pay(state.verifiers[v], shared / rejecting, since);
        }
    }

    function _isStranger(CaseState memory state) private pure returns (bool) {
        if (state.opener == state.client) return false;
        for (uint256 v = 0; v < state.opinions.length; ++v) {
            if (state.verifiers[v] == state.opener && state.opinions[v] == uint8(Opinion.Reject)) return false;
        }
        return true;
    }

    /// @dev What is still locked of the node is free again; the rejecters' locks go back, or are lost.
    function _unlock(Ledger.Draft memory draft, CaseState memory state, uint256 penalty, PotKind rejecters) private pure {
        bytes32 node = Ledger.id(state.node);
        draft.shift(PotKind.Locked, node, PotKind.Stake, node, state.locked);
        if (state.suspends) _shiftLocks(draft, state, penalty, PotKind.Locked, rejecters);
    }

    /// @dev Verifiers of the check whose opinion fell.
    function _fineVerifiers(Ledger.Draft memory draft, CaseState memory state, Opinion fallen) private view {
        for (uint256 v = 0; v < state.opinions.length; ++v) {
            if (state.opinions[v] == uint8(fallen)) _fine(draft, state, state.verifiers[v], _seatsFrom(state, v));
        }
    }

    function _fineReviewers(Ledger.Draft memory draft, CaseState memory state, uint256 fined) private view {
        for (uint256 i = 0; i < state.reviewers.length; ++i) {
            if (fined >> i & 1 != 0) _fine(draft, state, state.reviewers[i], state.seats[i]);
        }
    }

    function _fine(Ledger.Draft memory draft, CaseState memory state, address operator, uint256 seats) private view {
        if (seats == 0) return;
        uint256 stake = _stakeOf(operator);
        uint256 fine = Prices.PENALTY_UNITS * state.unit * seats;
        draft.shift(PotKind.Stake, Ledger.id(operator), PotKind.Burnt, 0, fine < stake ? fine : stake);
    }

    /// @dev Counts an outcome against the node's owner.
    /// @return beyond whether there are more than honest noise gives; then counting begins anew
    function _pool(bytes32 caseId, CaseState memory state, Rules memory rules) private returns (bool beyond) {
        address owner = REGISTRY.ownerOf(state.node);
        Pool memory pool = _pools[owner][state.executionClass];
        if (pool.count == 0 || block.number > uint256(pool.since) + rules.poolWindow) {
            pool = Pool({since: uint40(block.number), count: 0});
        }
        ++pool.count;
        emit Pooled(owner, state.executionClass, caseId, pool.count);
        beyond = pool.count > rules.poolLimit;
        if (beyond) pool.count = 0;
        _pools[owner][state.executionClass] = pool;
    }

    /// @dev The leaf falls, unless a drawn case over it has made its client whole already.
    function _void(bytes32 caseId, CaseState memory state) private {
        if (state.kind == CaseKind.Doubt) {
            Outcome outcome = Outcome(uint8(uint256(_ended(Messages.caseId(state.order, state.segment)))));
            if (outcome == Outcome.Convicted || outcome >= Outcome.SchedulerMissing) return;
        }
        _voided[state.order] |= 1 << state.segment;
        emit LeafVoided(state.order, state.segment, caseId);
    }

    function _end(
        bytes32 caseId,
        CaseState memory state,
        Outcome outcome,
        uint256 cluster,
        uint32 score,
        uint32 spread
    ) private {
        uint256 lives = uint256(state.round) / 2 + 1;
        _cases[caseId] = bytes32(block.number << 16 | lives << 8 | uint256(outcome));
        emit CaseDecided(caseId, state.order, outcome, cluster, score, spread);
    }

    // --------------------------------------------------------------------------------------------------------- helpers

    function _load(bytes32 caseId, CaseState calldata given) private view returns (CaseState memory state) {
        state = given;
        bytes32 hash = keccak256(abi.encode(state));
        if (_cases[caseId] != hash) revert StateMismatch(caseId, _cases[caseId], hash);
    }

    function _load(bytes32 caseId, CaseState calldata given, CasePhase phase)
        private
        view
        returns (CaseState memory state)
    {
        state = _load(caseId, given);
        if (state.phase != phase) revert WrongPhase(caseId, state.phase);
    }

    /// @dev Tolerant classes show once their tiles are known, exact ones once all have committed.
    function _loadShowing(bytes32 caseId, CaseState calldata given) private view returns (CaseState memory state) {
        state = _load(caseId, given);
        if (state.phase == CasePhase.Seeded) return state;
        if (state.phase == CasePhase.Committed && REGISTRY.rulesOf(state.executionClass).exact) return state;
        revert WrongPhase(caseId, state.phase);
    }

    function _enter(bytes32 caseId, CaseState memory state, CasePhase phase) private {
        state.phase = phase;
        state.phaseBlock = uint40(block.number);
        _cases[caseId] = keccak256(abi.encode(state));
    }

    function _requireNotAfter(uint256 lastBlock) private view {
        if (block.number > lastBlock) revert TooLate(block.number, lastBlock);
    }

    function _requireAfter(uint256 lastBlock) private view {
        if (block.number <= lastBlock) revert TooEarly(block.number, lastBlock + 1);
    }

    function _stakeOf(address operator) private view returns (uint256) {
        return BANK.balanceOf(PotKind.Stake, Ledger.id(operator));
    }

    /// @dev Gas is paid back at the block's price, at most at the ceiling; a token's ceiling is all that is known of it.
    function _gasPrice() private view returns (uint256) {
        if (!IS_COIN) return GAS_PRICE;
        uint256 price = block.basefee * 1e9;
        return price < GAS_PRICE ? price : GAS_PRICE;
    }

    /// @dev Most movements of an outcome: penalty (two), refund, gas (four), opener, rest, the node's lock, and one for each
    ///      reviewer, and three for each verifier.
    function _room(CaseState memory state) private pure returns (uint256) {
        return 10 + state.reviewers.length + 3 * state.verifiers.length;
    }

    function _ended(bytes32 caseId) private view returns (bytes32 ended) {
        ended = _cases[caseId];
        if (uint256(ended) >> 96 != 0) return 0;
    }

    // ----------------------------------------------------------------------------------------------------------- reads

    /// @inheritdoc ICourt
    function caseOf(bytes32 caseId) external view returns (bytes32) {
        bytes32 stored = _cases[caseId];
        return uint256(stored) >> 96 != 0 ? stored : stored & bytes32(uint256(0xff));
    }

    /// @inheritdoc ICourt
    function caseIdOf(bytes32 order, uint8 segment) external pure returns (bytes32) {
        return Messages.caseId(order, segment);
    }

    /// @inheritdoc ICourt
    function isVoided(bytes32 order, uint8 segment) public view returns (bool) {
        uint256 voided = _voided[order];
        return segment == ANY_SEGMENT ? voided != 0 : voided >> segment & 1 != 0;
    }

    /// @inheritdoc ICourt
    function postOf(bytes32 caseId, uint8 round, address reviewer) external view returns (bytes32) {
        return _posts[Messages.hearing(caseId, round)][reviewer];
    }

    /// @inheritdoc ICourt
    function revealOf(bytes32 caseId, uint8 round, address party) external view returns (bytes32) {
        return _reveals[Messages.hearing(caseId, round)][party];
    }

    /// @inheritdoc ICourt
    function pooledOf(address owner, bytes32 executionClass) external view returns (uint16 count, uint40 since) {
        Pool memory pool = _pools[owner][executionClass];
        return (pool.count, pool.since);
    }

    /// @inheritdoc ICourt
    function bondFor(bytes32 executionClass, uint256 rows) public view returns (uint96) {
        Rules memory rules = REGISTRY.rulesOf(executionClass);
        uint256 units = Prices.BOND_UNITS + Prices.REWARD_UNITS * rules.reviewers;
        uint256 work = units * Prices.unit(rules, rows + 1);
        return SafeCast.toUint96(work + CaseGas.worth(CaseGas.whole(rules), GAS_PRICE));
    }
}
