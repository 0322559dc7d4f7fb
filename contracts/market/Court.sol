// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IBank} from "./interfaces/IBank.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IDocket} from "./interfaces/IDocket.sol";
import {Finding, IJudgement} from "./interfaces/IJudgement.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {Parameters, PotKind} from "./interfaces/MarketTypes.sol";
import {CaseKind, CasePhase, CaseState, NodeReveal, Outcome} from "./interfaces/Proceedings.sol";
import {Draw, Result, SignedOrder, Verdict, VrfProof} from "./interfaces/Signed.sol";
import {HandedOn} from "./libraries/HandedOn.sol";
import {Marks} from "./libraries/Marks.sol";
import {Messages} from "./libraries/Messages.sol";
import {ReviewCommitments} from "./libraries/ReviewCommitments.sol";
import {States} from "./libraries/States.sol";
import {Windows} from "./libraries/Windows.sol";

/// @title Decides one result by a committee drawn by RANDAO
/// @dev Keeps one word of each case, the state of which travels in calldata, and acts. Docket reads what a case is
///      opened with, Judgement what the reviewers show; both only read. Bank moves the money.
contract Court is ICourt, ReentrancyGuardTransient {
    using Address for address;
    using HandedOn for address;
    using States for States.Copy;

    /// @dev Room for the arrays of the largest committee, 31 reviewers and their seats.
    uint256 private constant MOST_ARRAYS = 2 * 32 * 31;
    uint256 private constant ANY_SEGMENT = 255;
    /// @dev Openings under one id: their rounds are counted in eight bits.
    uint256 private constant MOST_OPENINGS = 128;

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    address private immutable DOCKET;
    address private immutable JUDGEMENT;
    uint256 private immutable OPENING_WINDOW;
    uint256 private immutable COMMIT_WINDOW;

    /// @dev Outcomes that were counted against an owner since a block.
    struct Pool {
        uint40 since;
        uint16 count;
    }

    /// @dev Hash of the state of a live case; of an ended one block << 16 | openings << 8 | outcome.
    mapping(bytes32 caseId => bytes32) private _cases;
    /// @dev Library Marks.
    mapping(bytes32 hearing => uint256) private _marks;
    mapping(bytes32 hearing => mapping(address reviewer => bytes32)) private _posts;
    mapping(bytes32 hearing => mapping(address party => bytes32)) private _reveals;
    /// @dev Bit s: the leaf of segment s fell.
    mapping(bytes32 order => uint256) private _voided;
    mapping(address owner => mapping(bytes32 executionClass => Pool)) private _pools;

    constructor() {
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        BANK = IBank(contracts.bank);
        REGISTRY = IRegistry(contracts.registry);
        DOCKET = contracts.docket;
        JUDGEMENT = contracts.judgement;
        OPENING_WINDOW = Windows.opening(parameters);
        COMMIT_WINDOW = parameters.commitWindow;
    }

    // ------------------------------------------------------------------------------------------------------- opening

    /// @inheritdoc ICourt
    function open(
        SignedOrder calldata,
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
        (States.Copy memory state, bytes memory locks) = States.taken(DOCKET.handOn(IDocket.examine.selector, 0));
        (bytes32 order, bool suspends) = (bytes32(state.get(States.ORDER)), state.get(States.SUSPENDS) != 0);
        address node = address(uint160(state.get(States.NODE)));
        uint8 round;
        (caseId, round) = _requireOpenable(order, state);
        uint96 bond = uint96(state.get(States.BOND));
        state.set(States.ROUND, round);
        state.set(States.BOND, BANK.collect{value: msg.value}(caseId, msg.sender, PotKind.Bond, caseId, bond));
        _enter(caseId, state, CasePhase.Opened);
        state.announce(CaseOpened.selector, caseId, order, node);
        _move(locks);
        if (suspends && !REGISTRY.suspend(node, caseId)) revert NotSuspended(node);
    }

    /// @dev In time, and not decided. A case that was lost for lack of data or interest leaves the leaf open: whoever
    ///      has the data gets the whole window again. A Doubt needs a leaf that no drawn case is or was about.
    /// @return caseId of this order and segment
    /// @return round first round of this opening
    function _requireOpenable(bytes32 order, States.Copy memory state)
        private
        view
        returns (bytes32 caseId, uint8 round)
    {
        uint256 segment = state.get(States.SEGMENT);
        caseId = Messages.caseId(order, segment);
        if (state.get(States.KIND) == uint256(CaseKind.Doubt)) {
            _requireReopenable(caseId);
            caseId = Messages.caseId(order, Messages.DOUBTS + segment);
        }
        uint256 ended = _requireReopenable(caseId);
        uint256 openings = uint8(ended >> 8);
        uint256 lastBlock = (ended == 0 ? state.get(States.ANSWERED_AT) : ended >> 16) + OPENING_WINDOW;
        if (openings == MOST_OPENINGS) revert CaseClosed(caseId, Outcome(uint8(ended)));
        if (block.number > lastBlock) revert TooLate(block.number, lastBlock);
        round = uint8(2 * openings);
    }

    function _requireReopenable(bytes32 caseId) private view returns (uint256 ended) {
        ended = uint256(_cases[caseId]);
        if (_isLive(ended)) revert CaseUnderWay(caseId);
        Outcome outcome = Outcome(uint8(ended));
        if (ended != 0 && outcome != Outcome.OpenerMissing && outcome != Outcome.Lapsed) {
            revert CaseClosed(caseId, outcome);
        }
    }

    // ----------------------------------------------------------------------------------------------------- committee

    /// @inheritdoc ICourt
    function draw(bytes32 caseId, CaseState calldata given, bytes calldata, bytes calldata) external {
        States.Copy memory state = _load(caseId, given, MOST_ARRAYS);
        bytes memory drawn = DOCKET.handOn(IDocket.drawReviewers.selector, 0);
        (address[] memory reviewers, bytes memory seats) = _readDrawn(drawn);
        state.setReviewers(reviewers, seats);
        state.set(States.DRAWER, uint160(msg.sender));
        _enter(caseId, state, CasePhase.Drawn);
        _announceDrawn(caseId, msg.sender, given.round, drawn);
    }

    /// @inheritdoc ICourt
    /// @dev The windows of the draw and of the commitments protect who has not spoken: here everybody has.
    function convene(
        bytes32 caseId,
        CaseState calldata given,
        bytes calldata,
        bytes calldata,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) external {
        States.Copy memory state = _load(caseId, given, MOST_ARRAYS + 32 * commitments.length);
        bytes memory drawn = DOCKET.handOn(IDocket.drawReviewers.selector, 0);
        (address[] memory reviewers, bytes memory seats) = _readDrawn(drawn);
        if (commitments.length != reviewers.length) revert WrongCount(commitments.length, reviewers.length);
        bytes32 domain = Messages.separator(address(BANK));
        ReviewCommitments.requireSigned(domain, caseId, given.round, reviewers, commitments, signatures);
        state.setReviewers(reviewers, seats);
        state.setCommitments(commitments);
        state.set(States.COMMITTER, uint160(msg.sender));
        _enter(caseId, state, CasePhase.Committed);
        _announceDrawn(caseId, address(0), given.round, drawn);
        emit ReviewsCommitted(caseId, msg.sender, commitments);
    }

    /// @dev abi.decode without copies and checks: the Docket is one of our own.
    function _readDrawn(bytes memory drawn) private pure returns (address[] memory reviewers, bytes memory seats) {
        assembly ("memory-safe") {
            let data := add(drawn, 0x20)
            reviewers := add(data, mload(add(data, 0x20)))
            seats := add(data, mload(add(data, 0x40)))
        }
    }

    /// @dev ReviewersDrawn: what the Docket said, with the round before it. Nothing can be read of `drawn` afterwards.
    function _announceDrawn(bytes32 caseId, address drawer, uint8 round, bytes memory drawn) private {
        bytes32 selector = ReviewersDrawn.selector;
        assembly ("memory-safe") {
            let size := add(mload(drawn), 0x20)
            mstore(drawn, and(round, 0xff))
            let offset := add(drawn, 0x40)
            mstore(offset, add(mload(offset), 0x20))
            offset := add(drawn, 0x60)
            mstore(offset, add(mload(offset), 0x20))
            log3(drawn, size, selector, caseId, drawer)
        }
    }

    /// @inheritdoc ICourt
    function post(bytes32 caseId, CaseState calldata given, bytes32 commitment) external {
        _requireState(caseId, given);
        _requireCommitting(given);
        if (commitment == 0) revert ZeroCommitment(caseId);
        bytes32 hearing = Messages.hearing(caseId, given.round);
        address[] calldata reviewers = given.reviewers;
        uint256 place = 0;
        while (place < reviewers.length && reviewers[place] != msg.sender) ++place;
        if (place == reviewers.length) revert NotReviewer(msg.sender, caseId);
        _mark(hearing, 1 << place);
        _posts[hearing][msg.sender] = commitment;
        emit ReviewPosted(caseId, msg.sender, given.round, commitment);
    }

    /// @inheritdoc ICourt
    function commit(
        bytes32 caseId,
        CaseState calldata given,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) external {
        _requireCommitting(given);
        uint256 count = given.reviewers.length;
        if (commitments.length != count) revert WrongCount(commitments.length, count);
        States.Copy memory state = _load(caseId, given, 32 * count);
        bytes32 hearing = Messages.hearing(caseId, given.round);
        bytes32[] memory united = ReviewCommitments.united(
            Messages.separator(address(BANK)),
            hearing,
            given.reviewers,
            _marks[hearing],
            _posts[hearing],
            commitments,
            signatures
        );
        ReviewCommitments.requireEnough(given, united, COMMIT_WINDOW);
        state.setCommitments(united);
        state.set(States.COMMITTER, uint160(msg.sender));
        _enter(caseId, state, CasePhase.Committed);
        emit ReviewsCommitted(caseId, msg.sender, united);
    }

    function _requireCommitting(CaseState calldata given) private view {
        if (given.phase != CasePhase.Drawn) revert WrongPhase(given.phase);
        uint256 lastBlock = given.phaseBlock + COMMIT_WINDOW;
        if (block.number > lastBlock) revert TooLate(block.number, lastBlock);
    }

    /// @inheritdoc ICourt
    function seed(bytes32 caseId, CaseState calldata given, bytes calldata) external {
        States.Copy memory state = _load(caseId, given, 0);
        bytes32 seed_ = abi.decode(DOCKET.handOn(IDocket.drawTiles.selector, 0), (bytes32));
        state.set(States.SEED, uint256(seed_));
        state.set(States.SEEDER, uint160(msg.sender));
        _enter(caseId, state, CasePhase.Seeded);
        emit CaseSeeded(caseId, msg.sender, seed_);
    }

    // ------------------------------------------------------------------------------------------------------- showing

    /// @inheritdoc ICourt
    function reveal(bytes32 caseId, CaseState calldata given, uint256 reviewer, bytes calldata reveal_) external {
        _requireState(caseId, given);
        JUDGEMENT.handOn(IJudgement.reveal.selector, 0);
        _show(caseId, given.round, 1 << (Marks.REVEALS + reviewer), keccak256(reveal_));
    }

    /// @inheritdoc ICourt
    function revealNode(bytes32 caseId, CaseState calldata given, NodeReveal calldata reveal_) external {
        _requireState(caseId, given);
        JUDGEMENT.handOn(IJudgement.revealNode.selector, 0);
        _show(caseId, given.round, Marks.NODE, keccak256(abi.encode(reveal_)));
    }

    /// @dev From now on this party cannot be left out. What it shows follows from what it committed to, so that
    ///      nobody can show anything else in its name.
    function _show(bytes32 caseId, uint8 round, uint256 mark, bytes32 revealHash) private {
        bytes32 hearing = Messages.hearing(caseId, round);
        _mark(hearing, mark);
        _reveals[hearing][msg.sender] = revealHash;
        emit Revealed(caseId, msg.sender, round, revealHash);
    }

    function _mark(bytes32 hearing, uint256 mark) private {
        uint256 marks = _marks[hearing];
        if (marks & mark != 0) revert AlreadyDone(msg.sender, hearing);
        _marks[hearing] = marks | mark;
    }

    // ------------------------------------------------------------------------------------------------------- outcome

    /// @inheritdoc ICourt
    function decide(bytes32 caseId, CaseState calldata given, NodeReveal calldata, bytes calldata)
        external
        nonReentrant
    {
        _conclude(caseId, given, IJudgement.decide.selector);
    }

    /// @inheritdoc ICourt
    function conclude(bytes32 caseId, CaseState calldata given, bytes calldata, NodeReveal calldata, bytes calldata)
        external
        nonReentrant
    {
        _conclude(caseId, given, IJudgement.conclude.selector);
    }

    /// @inheritdoc ICourt
    function expire(bytes32 caseId, CaseState calldata given) external nonReentrant {
        _conclude(caseId, given, IJudgement.expire.selector);
    }

    function _conclude(bytes32 caseId, CaseState calldata given, bytes4 question) private {
        _requireState(caseId, given);
        uint256 marks = _marks[Messages.hearing(caseId, given.round)];
        if (isVoided(given.order, given.segment)) marks |= Marks.VOIDED;
        (Finding memory finding, bytes memory transfers) = _readFinding(JUDGEMENT.handOn(question, marks));
        if (finding.seed != 0) emit CaseSeeded(caseId, address(0), finding.seed);
        if (finding.outcome == Outcome.None) {
            _restart(caseId, given, finding.left);
            _move(transfers);
            return;
        }
        if (finding.poolOwner != address(0)) _pool(caseId, given.executionClass, finding);
        if (finding.outcome == Outcome.Refunded || finding.outcome == Outcome.Undecided) _void(caseId, given);
        uint256 openings = uint256(given.round) / 2 + 1;
        _cases[caseId] = bytes32(block.number << 16 | openings << 8 | uint256(finding.outcome));
        emit CaseDecided(caseId, given.order, finding.outcome, finding.cluster, finding.score, finding.spread);
        _move(transfers);
        if (given.suspends) REGISTRY.restore(given.node, caseId);
        if (finding.convict != address(0)) {
            bytes32 subject = finding.convict == given.node ? given.result : caseId;
            REGISTRY.convict(finding.convict, finding.fault, subject, given.referenceBlock);
        }
    }

    /// @dev As `_readDrawn`: a struct of eleven words, and where the bytes begin.
    function _readFinding(bytes memory answer) private pure returns (Finding memory finding, bytes memory transfers) {
        assembly ("memory-safe") {
            finding := add(answer, 0x20)
            transfers := add(finding, mload(add(finding, 0x160)))
        }
    }

    /// @dev A second round, with reviewers of a later block.
    function _restart(bytes32 caseId, CaseState calldata given, uint96 bond) private {
        CaseState memory state = given;
        ++state.round;
        state.bond = bond;
        state.reviewers = new address[](0);
        state.seats = "";
        state.commitments = new bytes32[](0);
        state.seed = 0;
        state.drawer = address(0);
        state.committer = address(0);
        state.seeder = address(0);
        _enter(caseId, state, CasePhase.Opened);
        emit CaseRestarted(caseId, state.round, bond);
    }

    /// @dev A count that convicts is spent.
    function _pool(bytes32 caseId, bytes32 executionClass, Finding memory finding) private {
        uint16 count = finding.convict == address(0) ? finding.poolCount : 0;
        _pools[finding.poolOwner][executionClass] = Pool({since: finding.poolSince, count: count});
        emit Pooled(finding.poolOwner, executionClass, caseId, finding.poolCount);
    }

    /// @dev The leaf falls, unless a drawn case over it has made its client whole already.
    function _void(bytes32 caseId, CaseState calldata given) private {
        if (given.kind == CaseKind.Doubt) {
            uint256 drawn = uint256(_cases[Messages.caseId(given.order, given.segment)]);
            Outcome outcome = _isLive(drawn) ? Outcome.None : Outcome(uint8(drawn));
            bool whole = outcome == Outcome.Convicted || outcome == Outcome.SchedulerMissing
                || outcome == Outcome.NodeMissing;
            if (whole) return;
        }
        _voided[given.order] |= 1 << given.segment;
        emit LeafVoided(given.order, given.segment, caseId);
    }

    // ------------------------------------------------------------------------------------------------------- helpers

    function _requireState(bytes32 caseId, CaseState calldata given) private view {
        _load(caseId, given, 0);
    }

    /// @dev The state that is under way, with room for so many bytes more.
    function _load(bytes32 caseId, CaseState calldata given, uint256 room)
        private
        view
        returns (States.Copy memory state)
    {
        state = States.copyOf(given, room);
        bytes32 hash = state.hash();
        if (_cases[caseId] != hash) revert StateMismatch(caseId, _cases[caseId], hash);
    }

    function _enter(bytes32 caseId, States.Copy memory state, CasePhase phase) private {
        state.enter(phase);
        _cases[caseId] = state.hash();
    }

    function _enter(bytes32 caseId, CaseState memory state, CasePhase phase) private {
        state.phase = phase;
        state.phaseBlock = uint40(block.number);
        _cases[caseId] = keccak256(abi.encode(state));
    }

    /// @dev Makes the movements that a reader drew up.
    function _move(bytes memory transfers) private {
        if (transfers.length != 0) address(BANK).functionCall(transfers);
    }

    function _isLive(uint256 stored) private pure returns (bool) {
        return stored >> 96 != 0;
    }

    // --------------------------------------------------------------------------------------------------------- reads

    /// @inheritdoc ICourt
    function caseOf(bytes32 caseId) external view returns (bytes32) {
        bytes32 stored = _cases[caseId];
        return _isLive(uint256(stored)) ? stored : stored & bytes32(uint256(0xff));
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
    function bondFor(bytes32 executionClass, uint256 rows) external view returns (uint96) {
        return IDocket(DOCKET).bondFor(executionClass, rows);
    }
}
