// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {ISummons} from "./interfaces/ISummons.sol";
import {Parameters, PotKind, Rules, Tab} from "./interfaces/MarketTypes.sol";
import {Fault, SummonsKind, SummonsState} from "./interfaces/Proceedings.sol";
import {Admission, Draw, Opinion, Promise, Result, Signature, SignedOrder, Word, Work} from "./interfaces/Signed.sol";
import {Fines} from "./libraries/Fines.sol";
import {Messages} from "./libraries/Messages.sol";
import {Orders} from "./libraries/Orders.sol";
import {SummonedWork} from "./libraries/SummonedWork.sol";

/// @title A scheduler that owes results or a check is asked for them on chain, and convicted if it gives none
/// @dev One summons per order, kind and segment, ever. Its life: asked -> (passed on -> responded or silent)* ->
///      answered or unanswered. Deposits are credited at once to who will have the gas to pay; a silent party's stake
///      pays them back.
contract Summons is ISummons {
    /// @dev Gas that is paid back, a little below what each call takes, so that nobody earns by calling.
    uint256 private constant SUMMON_GAS = 80_000;
    uint256 private constant CHECK_GAS = 84_000;
    uint256 private constant RESULTS_GAS = 50_000;
    uint256 private constant PASS_GAS = 150_000;
    uint256 private constant RESPONSE_GAS = 70_000;
    uint256 private constant CONVICT_GAS = 80_000;
    uint256 private constant SENTENCE_GAS = 100_000;
    /// @dev How often a check is passed on. Three honest seats among the first nine draws are there but for 3 in 10,000
    ///      where 80 % are honest, and an honest scheduler needs no more than three.
    uint256 private constant MOST_PASSES = 6;
    /// @dev An order's price is six units, silence costs two.
    uint256 private constant SILENCE_SHARE = 3;
    bytes32 private constant ANSWERED = bytes32(uint256(1));
    bytes32 private constant UNANSWERED = bytes32(uint256(2));

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    bool private immutable COIN;
    uint32 private immutable LAG;
    uint32 private immutable WINDOW;
    uint96 private immutable GAS_PRICE;
    uint256 private immutable CHAIN;
    bytes32 private immutable DOMAIN;

    mapping(bytes32 summonsId => bytes32) private _summons;
    mapping(bytes32 summonsId => address[]) private _silent;
    mapping(bytes32 summonsId => address[]) private _responded;
    mapping(bytes32 summonsId => uint96) private _passDeposit;

    constructor() {
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        BANK = IBank(contracts.bank);
        REGISTRY = IRegistry(contracts.registry);
        COIN = parameters.asset == address(0);
        LAG = parameters.lag;
        WINDOW = parameters.summonsWindow;
        GAS_PRICE = parameters.gasPrice;
        CHAIN = block.chainid;
        DOMAIN = Messages.separator(contracts.bank);
    }

    // ------------------------------------------------------------------------------------------------------- summons

    /// @inheritdoc ISummons
    function summonResults(SignedOrder calldata order, Admission calldata admission, bytes calldata signature)
        external
        payable
        returns (bytes32 summonsId)
    {
        bytes32 domain = _domain();
        SummonsState memory state = _stateOf(domain, SummonsKind.Results, order, 0);
        Orders.requirePlace(admission.order, 0, state.order, 0);
        uint256 position;
        assembly ("memory-safe") {
            position := admission
        }
        bytes32 structHash = Messages.hashAt(Messages.ADMISSION_TYPE, position, 3);
        Orders.requireSigner(domain, structHash, signature, order.scheduler);
        state.offenceBlock = admission.blockNumber;
        state.named = admission.nodes;
        _requireWithin(uint256(admission.blockNumber) + WINDOW, uint256(admission.blockNumber) + LAG);
        summonsId = _open(state);
    }

    /// @inheritdoc ISummons
    function summonCheck(
        SignedOrder calldata order,
        Draw calldata draw,
        bytes calldata drawSignature,
        uint8 segment,
        bytes32 secret
    ) external payable returns (bytes32 summonsId) {
        bytes32 domain = _domain();
        SummonsState memory state = _stateOf(domain, SummonsKind.Check, order, segment);
        Orders.requirePlace(draw.order, 0, state.order, 0);
        uint256 position;
        assembly ("memory-safe") {
            position := draw
        }
        bytes32 structHash = Messages.hashAt(Messages.DRAW_TYPE, position, 4);
        Orders.requireSigner(domain, structHash, drawSignature, order.scheduler);
        SummonedWork.requireHit(order.order.drawHash, secret, draw.beta, order.order.checkRate);
        state.offenceBlock = draw.blockNumber;
        state.results = draw.results;
        state.named = draw.beta;
        state.secret = secret;
        _requireWithin(draw.blockNumber, uint256(draw.blockNumber) + LAG / 2);
        summonsId = _open(state);
    }

    function _stateOf(bytes32 domain, SummonsKind kind, SignedOrder calldata order, uint8 segment)
        private
        view
        returns (SummonsState memory state)
    {
        if (segment >= Orders.segmentCount(order.order.ends)) {
            revert Orders.UnknownSegment(segment, order.order.ends);
        }
        state.kind = kind;
        state.segment = segment;
        state.order = Orders.digestAt(domain, order);
        state.referenceBlock = order.order.referenceBlock;
        state.executionClass = order.order.executionClass;
        state.ends = order.order.ends;
        state.fee = order.order.maxFee;
        state.client = order.client;
        state.scheduler = order.scheduler;
        state.summoner = msg.sender;
    }

    /// @dev Stores a new summons and gives its deposit to the scheduler.
    function _open(SummonsState memory state) private returns (bytes32 summonsId) {
        summonsId = summonsIdOf(state.order, state.kind, state.segment);
        if (_summons[summonsId] != 0) revert AlreadySummoned(summonsId);
        state.deadline = uint40(block.number + WINDOW);
        state.deposit = _depositOf(_answerGas(state.kind));
        _summons[summonsId] = SummonedWork.hashOf(state);
        emit Summoned(summonsId, state.order, state.scheduler, state);
        _collect(summonsId, state.scheduler, state.deposit);
    }

    // ------------------------------------------------------------------------------------------------------- answers

    /// @inheritdoc ISummons
    function answerResults(
        bytes32 summonsId,
        SummonsState memory state,
        address[] memory nodes,
        Result[] calldata results,
        Signature[] calldata signatures,
        Draw memory draw,
        bytes memory drawSignature
    ) public {
        _requireLive(summonsId, state, SummonsKind.Results);
        _requireUntil(state.deadline);
        bytes32 resultsHash = SummonedWork.admittedResults(_domain(), state, nodes, results, signatures);
        Orders.requirePlace(draw.order, 0, state.order, 0);
        Orders.requireEqual(resultsHash, draw.results);
        Orders.requireSigner(_domain(), Messages.hash(draw), drawSignature, state.scheduler);
        // The client may have no other draw than this one: its lottery must not be over.
        _requireWithin(draw.blockNumber, uint256(draw.blockNumber) + WINDOW + block.number - state.deadline);
        _summons[summonsId] = ANSWERED;
        emit SummonsAnswered(summonsId, msg.sender, resultsHash);
    }

    /// @inheritdoc ISummons
    function answerCheck(
        bytes32 summonsId,
        SummonsState memory state,
        Result[] calldata results,
        Signature[] calldata resultSignatures,
        Word[] calldata words,
        bytes memory hints
    ) public {
        _requireLive(summonsId, state, SummonsKind.Check);
        _requireUntil(state.deadline);
        (bool possible, address[] memory drawn, bytes32 result) =
            _verifiers(summonsId, state, results, resultSignatures, hints);
        bytes32 evidence = 0;
        if (possible) {
            uint8[] memory opinions =
                Orders.opinionsOf(_domain(), state.order, state.segment, result, drawn, words);
            _requireAll(summonsId, drawn, opinions);
            evidence = keccak256(abi.encode(drawn, opinions));
        }
        _summons[summonsId] = ANSWERED;
        emit SummonsAnswered(summonsId, msg.sender, evidence);
    }

    /// @dev Every drawn seat has an opinion; that of a node which only responded is CannotTell.
    function _requireAll(bytes32 summonsId, address[] memory drawn, uint8[] memory opinions) private view {
        for (uint256 seat = 0; seat < drawn.length; ++seat) {
            if (opinions[seat] != 0) continue;
            if (!_contains(_responded[summonsId], drawn[seat])) revert VerdictMissing(drawn[seat]);
            opinions[seat] = uint8(Opinion.CannotTell);
        }
    }

    /// @dev Nobody was silent before it was passed on.
    function _verifiers(
        bytes32 summonsId,
        SummonsState memory state,
        Result[] calldata results,
        Signature[] calldata signatures,
        bytes memory hints
    ) private view returns (bool possible, address[] memory drawn, bytes32 result) {
        address[] memory silent = state.extended ? _silent[summonsId] : new address[](0);
        return SummonedWork.verifiersOf(REGISTRY, _domain(), state, silent, results, signatures, hints);
    }

    // ---------------------------------------------------------------------------------------------------- passing on

    /// @inheritdoc ISummons
    function passOnResults(
        bytes32 summonsId,
        SummonsState memory state,
        address[] memory nodes,
        Tab memory tab,
        Promise memory promised,
        bytes memory signature
    ) public payable {
        _requireLive(summonsId, state, SummonsKind.Results);
        if (state.extended) revert PassedOnTooOften(1);
        SummonedWork.requireNodes(state, nodes);
        if (promised.segment >= nodes.length || nodes[promised.segment] != tab.payee) revert Orders.NotDrawn(tab.payee);
        _passOn(summonsId, state, tab, promised, signature, Work.Inference);
    }

    /// @inheritdoc ISummons
    function passOnCheck(
        bytes32 summonsId,
        SummonsState memory state,
        Result[] calldata results,
        Signature[] calldata resultSignatures,
        Tab memory tab,
        Promise memory promised,
        bytes memory signature,
        bytes memory hints
    ) public payable {
        _requireLive(summonsId, state, SummonsKind.Check);
        uint256 passes = _silent[summonsId].length + _responded[summonsId].length;
        if (passes >= MOST_PASSES) revert PassedOnTooOften(passes);
        if (_contains(_responded[summonsId], tab.payee)) revert AlreadyPassedOn(tab.payee);
        if (promised.segment != state.segment) {
            revert WrongPromise(promised.order, promised.segment, promised.work, promised.referenceBlock);
        }
        (, address[] memory drawn,) = _verifiers(summonsId, state, results, resultSignatures, hints);
        bool found = false;
        for (uint256 seat = 0; seat < drawn.length; ++seat) found = found || drawn[seat] == tab.payee;
        if (!found) revert Orders.NotDrawn(tab.payee);
        _passOn(summonsId, state, tab, promised, signature, Work.Check);
    }

    /// @dev The scheduler pays the node's response in advance; a silent node's stake pays it back.
    function _passOn(
        bytes32 summonsId,
        SummonsState memory state,
        Tab memory tab,
        Promise memory promised,
        bytes memory signature,
        Work work
    ) private {
        if (msg.sender != state.scheduler) revert NotPassedTo(msg.sender, state.scheduler);
        _requireUntil(state.deadline);
        if (state.passedTo != address(0)) revert AlreadyPassedOn(state.passedTo);
        SummonedWork.requirePromise(_domain(), state, tab, promised, signature, work);
        uint96 deposit = _depositOf(RESPONSE_GAS);
        _passDeposit[summonsId] = deposit;
        state.extended = true;
        state.passedTo = tab.payee;
        _extend(summonsId, state);
        emit PassedOn(summonsId, tab.payee, state, promised, signature);
        _collect(summonsId, tab.payee, deposit);
    }

    /// @inheritdoc ISummons
    function respond(bytes32 summonsId, SummonsState memory state, bytes memory word) public {
        _requireLive(summonsId, state, state.kind);
        _requireUntil(state.deadline);
        address node = state.passedTo;
        if (msg.sender != node && (node == address(0) || msg.sender != REGISTRY.ownerOf(node))) {
            revert NotPassedTo(msg.sender, node);
        }
        _responded[summonsId].push(node);
        state.passedTo = address(0);
        _extend(summonsId, state);
        emit Responded(summonsId, node, state, word);
    }

    /// @dev Another window for who must act now.
    function _extend(bytes32 summonsId, SummonsState memory state) private {
        state.deadline = uint40(block.number + WINDOW);
        _summons[summonsId] = SummonedWork.hashOf(state);
    }

    // ------------------------------------------------------------------------------------------------------- outcome

    /// @inheritdoc ISummons
    function convict(bytes32 summonsId, SummonsState memory state) public {
        _requireLive(summonsId, state, state.kind);
        if (block.number <= state.deadline) revert TooEarly(uint256(state.deadline) + 1, block.number);
        if (state.passedTo != address(0)) return _endSilence(summonsId, state);
        _summons[summonsId] = UNANSWERED;
        // Whether the node or the scheduler kept results back nobody can tell where the node spoke. Nothing is owed for
        // an order without results, so that who keeps them back gains nothing.
        if (state.extended && state.kind == SummonsKind.Results) return _endResults(summonsId, state);
        (uint256 free, uint256 taken) = _available(state.scheduler, REGISTRY.rulesOf(state.executionClass).penalty);
        Fines.Payee[] memory payees = new Fines.Payee[](2);
        payees[0] = Fines.Payee(state.summoner, state.deposit + _gasCost(SUMMON_GAS) + taken / Fines.REWARD_SHARE);
        payees[1] = Fines.Payee(msg.sender, _gasCost(SENTENCE_GAS));
        Fines.take(BANK, summonsId, state.scheduler, free, taken, payees);
        REGISTRY.convict(state.scheduler, Fault.Unanswered, summonsId, _offenceBlock(state));
        emit SummonsUnanswered(summonsId, state.scheduler, uint96(taken));
    }

    /// @dev A silent node pays. A check goes on without its owner's seats; results cannot come any more.
    function _endSilence(bytes32 summonsId, SummonsState memory state) private {
        address node = state.passedTo;
        state.passedTo = address(0);
        Fines.Payee[] memory payees = new Fines.Payee[](3);
        payees[0] = Fines.Payee(msg.sender, _gasCost(CONVICT_GAS));
        payees[1] = Fines.Payee(state.scheduler, _passDeposit[summonsId]);
        if (state.kind == SummonsKind.Results) {
            _summons[summonsId] = UNANSWERED;
            payees[2] = Fines.Payee(state.summoner, state.deposit + _gasCost(SUMMON_GAS));
        } else {
            _silent[summonsId].push(node);
            _extend(summonsId, state);
            payees[2] = Fines.Payee(state.scheduler, _gasCost(PASS_GAS));
        }
        uint96 taken = _fine(summonsId, state, node, payees);
        emit NodeSilent(summonsId, node, state, taken);
    }

    /// @dev The scheduler pays what a summons cost, and for its order's failure.
    function _endResults(bytes32 summonsId, SummonsState memory state) private {
        Fines.Payee[] memory payees = new Fines.Payee[](2);
        payees[0] = Fines.Payee(state.summoner, state.deposit + _gasCost(SUMMON_GAS));
        payees[1] = Fines.Payee(msg.sender, _gasCost(CONVICT_GAS));
        uint96 taken = _fine(summonsId, state, state.scheduler, payees);
        emit SummonsUnanswered(summonsId, state.scheduler, taken);
    }

    /// @dev Two units and what the payees get. A node whose stake no longer covers its seats loses those at once.
    function _fine(bytes32 summonsId, SummonsState memory state, address party, Fines.Payee[] memory payees)
        private
        returns (uint96)
    {
        Rules memory rules = REGISTRY.rulesOf(state.executionClass);
        uint256 fine = (state.fee < rules.feeCap ? state.fee : rules.feeCap) / SILENCE_SHARE;
        for (uint256 i = 0; i < payees.length; ++i) fine += payees[i].amount;
        (uint256 free, uint256 taken) = _available(party, fine);
        Fines.take(BANK, summonsId, party, free, taken, payees);
        // Reverts where nothing has to change, and anyone may call it again.
        // solhint-disable-next-line no-empty-blocks
        if (party != state.scheduler) try REGISTRY.evict(party) {} catch {}
        return uint96(taken);
    }

    /// @dev Who has left is out of reach: whoever summons looks first whether there is anything to take.
    function _available(address operator, uint256 penalty) private view returns (uint256 free, uint256 taken) {
        (,, uint40 exitBlock) = REGISTRY.roleOf(operator);
        if (exitBlock == 0 || block.number <= exitBlock) (free, taken) = Fines.available(BANK, operator, penalty);
    }

    /// @dev Not beyond this block, which an order's reference block can be.
    function _offenceBlock(SummonsState memory state) private view returns (uint64) {
        return state.referenceBlock < block.number ? state.referenceBlock : uint64(block.number);
    }

    // ------------------------------------------------------------------------------------------------------- deposits

    /// @dev What the caller puts up for so much gas. For a coin it is the value: the base fee moves until the call is
    ///      included.
    function _depositOf(uint256 spent) private view returns (uint96) {
        uint256 least = _gasCost(spent);
        if (!COIN) {
            if (msg.value != 0) revert WrongDeposit(msg.value, 0, 0);
            return uint96(least);
        }
        if (msg.value < least || msg.value > 2 * least) revert WrongDeposit(msg.value, least, 2 * least);
        return uint96(msg.value);
    }

    /// @dev Below what the answer takes: a scheduler that lets itself be summoned for what it could hand over earns
    ///      nothing.
    function _answerGas(SummonsKind kind) private pure returns (uint256) {
        return kind == SummonsKind.Check ? CHECK_GAS : RESULTS_GAS;
    }

    /// @dev Takes the caller's deposit to the credit of who will need it.
    function _collect(bytes32 summonsId, address account, uint96 deposit) private {
        if (deposit == 0) return;
        // What a token keeps of it is the caller's loss; a conviction pays back what was put up.
        // slither-disable-next-line unused-return
        BANK.collect{value: msg.value}(summonsId, msg.sender, PotKind.Credit, Fines.toId(account), deposit);
    }

    function _gasCost(uint256 spent) private view returns (uint256) {
        return Fines.gasCost(spent, COIN, GAS_PRICE, block.basefee);
    }

    // -------------------------------------------------------------------------------------------------------- checks

    function _requireLive(bytes32 summonsId, SummonsState memory state, SummonsKind kind) private view {
        bytes32 given = SummonedWork.hashOf(state);
        if (_summons[summonsId] != given) revert SummonsMismatch(summonsId, _summons[summonsId], given);
        if (state.kind != kind) revert WrongKind(state.kind, kind);
    }

    function _requireUntil(uint256 until) private view {
        if (block.number > until) revert TooLate(until, block.number);
    }

    function _requireWithin(uint256 from, uint256 until) private view {
        if (block.number < from) revert TooEarly(from, block.number);
        _requireUntil(until);
    }

    function _contains(address[] storage list, address item) private view returns (bool) {
        uint256 length = list.length;
        for (uint256 i = 0; i < length; ++i) {
            if (list[i] == item) return true;
        }
        return false;
    }

    function _domain() private view returns (bytes32) {
        // A fork that changes the chain's number gets a domain of its own.
        return block.chainid == CHAIN ? DOMAIN : Messages.separator(address(BANK));
    }

    // --------------------------------------------------------------------------------------------------------- reads

    /// @inheritdoc ISummons
    function summonsOf(bytes32 summonsId) external view returns (bytes32) {
        return _summons[summonsId];
    }

    /// @inheritdoc ISummons
    function summonsIdOf(bytes32 order, SummonsKind kind, uint8 segment) public pure returns (bytes32) {
        return Messages.summonsId(order, kind, segment);
    }

    /// @inheritdoc ISummons
    function silentOf(bytes32 summonsId) external view returns (address[] memory) {
        return _silent[summonsId];
    }

    /// @inheritdoc ISummons
    function respondedOf(bytes32 summonsId) external view returns (address[] memory) {
        return _responded[summonsId];
    }

    /// @inheritdoc ISummons
    function depositFor(SummonsKind kind, uint256 baseFee) external view returns (uint96) {
        return uint96(Fines.gasCost(_answerGas(kind), COIN, GAS_PRICE, baseFee));
    }

    /// @inheritdoc ISummons
    function passDepositFor(uint256 baseFee) external view returns (uint96) {
        return uint96(Fines.gasCost(RESPONSE_GAS, COIN, GAS_PRICE, baseFee));
    }
}
