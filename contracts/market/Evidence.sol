// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "./interfaces/IBank.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IEvidence} from "./interfaces/IEvidence.sol";
import {IProver} from "./interfaces/IProver.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {DrawRequest, Parameters, Role, Rules, Tab} from "./interfaces/MarketTypes.sol";
import {Fault} from "./interfaces/Proceedings.sol";
import {
    Admission,
    Draw,
    Order,
    Result,
    Row,
    SignedOrder,
    TraceCommitment,
    Verdict,
    VrfProof
} from "./interfaces/Signed.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {Fines} from "./libraries/Fines.sol";
import {Messages} from "./libraries/Messages.sol";
import {Orders} from "./libraries/Orders.sol";
import {Prices} from "./libraries/Prices.sol";

/// @title What signatures prove by themselves: one-transaction convictions
/// @dev A scheduler is convicted by its own signatures over an order's digest; the tab key's is not looked at.
contract Evidence is IEvidence {
    /// @dev Two messages of one type in the calldata, whose first `same` words say for which place they are.
    struct Words {
        Fault fault;
        bytes32 typeHash;
        uint256 fields;
        uint256 same;
        uint256 one;
        uint256 other;
    }

    /// @dev Gas that is paid back, a little below what the cheapest conviction takes, so that nobody earns by calling.
    uint256 private constant CONVICT_GAS = 118_000;
    /// @dev The same without what a prover takes and its evidence as calldata.
    uint256 private constant PROOF_GAS = 95_000;
    uint256 private constant RESULT_FIELDS = 9;
    uint256 private constant VERDICT_FIELDS = 6;
    /// @dev What a scheduler pays on top of a shortfall: one in this many.
    uint256 private constant SHORT_SHARE = 10;
    /// @dev Of what a conviction takes, what is paid for gas in a token: at most one in this many.
    uint256 private constant TOKEN_SHARE = 2;

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    ICourt private immutable COURT;
    IProver private immutable PROVER;
    bool private immutable COIN;
    uint32 private immutable REFERENCE_AGE;
    uint96 private immutable SCHEDULER_STAKE;
    uint96 private immutable GAS_PRICE;
    uint256 private immutable CHAIN;
    bytes32 private immutable DOMAIN;

    mapping(bytes32 subject => bool) private _proven;
    /// @dev What a tab owed, in all, up to which that it did not cover it was fined.
    mapping(bytes32 tab => uint96) private _fined;

    constructor() {
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        BANK = IBank(contracts.bank);
        REGISTRY = IRegistry(contracts.registry);
        COURT = ICourt(contracts.court);
        PROVER = IProver(parameters.prover == address(0) ? contracts.proofs : parameters.prover);
        COIN = parameters.asset == address(0);
        REFERENCE_AGE = parameters.referenceAge;
        SCHEDULER_STAKE = parameters.schedulerStake;
        GAS_PRICE = parameters.gasPrice;
        CHAIN = block.chainid;
        DOMAIN = Messages.separator(contracts.bank);
    }

    // -------------------------------------------------------------------------------------------- two words of a node

    /// @inheritdoc IEvidence
    function convictResults(
        Result calldata one,
        bytes calldata oneSignature,
        Result calldata other,
        bytes calldata otherSignature
    ) external {
        Words memory words = Words(Fault.TwoResults, Messages.RESULT_TYPE, RESULT_FIELDS, 2, 0, 0);
        assembly ("memory-safe") {
            mstore(add(words, 0x80), one)
            mstore(add(words, 0xa0), other)
        }
        _convictTwice(words, oneSignature, otherSignature);
    }

    /// @inheritdoc IEvidence
    function convictRows(
        Row calldata one,
        bytes calldata oneSignature,
        Row calldata other,
        bytes calldata otherSignature
    ) external {
        Words memory words = Words(Fault.TwoRows, Messages.ROW_TYPE, 5, 3, 0, 0);
        assembly ("memory-safe") {
            mstore(add(words, 0x80), one)
            mstore(add(words, 0xa0), other)
        }
        _convictTwice(words, oneSignature, otherSignature);
    }

    /// @inheritdoc IEvidence
    function convictVerdicts(
        Verdict calldata one,
        bytes calldata oneSignature,
        Verdict calldata other,
        bytes calldata otherSignature
    ) external {
        // A verifier that adds its lock later says nothing else.
        if (one.opinion == other.opinion && one.commitment == other.commitment) revert SameMessage(one.commitment);
        Words memory words = Words(Fault.TwoVerdicts, Messages.VERDICT_TYPE, VERDICT_FIELDS, 3, 0, 0);
        assembly ("memory-safe") {
            mstore(add(words, 0x80), one)
            mstore(add(words, 0xa0), other)
        }
        _convictTwice(words, oneSignature, otherSignature);
    }

    /// @inheritdoc IEvidence
    function convictCommitment(
        TraceCommitment calldata before,
        bytes calldata beforeSignature,
        Verdict calldata verdict,
        bytes calldata verdictSignature
    ) external {
        Orders.requirePlace(verdict.order, verdict.segment, before.order, before.segment);
        Orders.requireEqual(verdict.result, before.result);
        if (before.commitment == verdict.commitment) revert SameMessage(before.commitment);
        address signer = Orders.signerOf(_domain(), Messages.hash(before), beforeSignature);
        Orders.requireSigner(_domain(), Messages.hash(verdict), verdictSignature, signer);
        // As by two verdicts: it is one offence.
        _convictNode(Fault.TwoVerdicts, signer, _placeOf(before.order, before.segment));
    }

    /// @dev What a conviction of a node is about, with fault and node: the first two words of its messages.
    function _placeOf(bytes32 order, uint8 segment) private pure returns (bytes32) {
        return keccak256(abi.encode(order, segment));
    }

    function _convictNode(Fault fault, address node, bytes32 place) private {
        uint256 penalty = _requireSlashable(node, Role.Node);
        _convict(_subjectOf(fault, node, place), fault, node, penalty, _oldestReference(), CONVICT_GAS);
    }

    function _subjectOf(Fault fault, address operator, bytes32 place) private pure returns (bytes32) {
        return keccak256(abi.encode(fault, operator, place));
    }

    /// @inheritdoc IEvidence
    function date(Fault fault, address node, uint8 segment, SignedOrder memory order) public {
        bytes32 subject = _subjectOf(fault, node, _placeOf(Orders.digestOf(_domain(), order), segment));
        if (!_proven[subject]) revert NotProven(subject);
        bytes32 dated = keccak256(abi.encode(subject));
        if (_proven[dated]) revert AlreadyProven(dated);
        _proven[dated] = true;
        REGISTRY.date(node, fault, subject, order.order.referenceBlock);
        emit FaultProven(dated, node, msg.sender, fault, 0);
    }

    /// @dev Where the order is not shown: its reference block is at most so old.
    function _oldestReference() private view returns (uint64) {
        return uint64(block.number > REFERENCE_AGE ? block.number - REFERENCE_AGE : 0);
    }

    /// @dev Two different messages of a node for one place. They are read where they lie: a word with dirty bits is a
    ///      message that nobody signs.
    function _convictTwice(Words memory words, bytes calldata oneSignature, bytes calldata otherSignature) private {
        (bytes32 one, bytes32 other) = (_wordsAt(words.one, words.same), _wordsAt(words.other, words.same));
        Orders.requireEqual(other, one);
        bytes32 place = _wordsAt(words.one, 2);
        one = Messages.hashAt(words.typeHash, words.one, words.fields);
        other = Messages.hashAt(words.typeHash, words.other, words.fields);
        if (one == other) revert SameMessage(one);
        address signer = Orders.signerOf(_domain(), one, oneSignature);
        address otherSigner = Orders.signerOf(_domain(), other, otherSignature);
        if (signer != otherSigner) revert DifferentSigners(signer, otherSigner);
        _convictNode(words.fault, signer, place);
    }

    /// @dev keccak256 of the first words of a message in the calldata.
    function _wordsAt(uint256 position, uint256 count) private pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, position, shl(5, count))
            hash := keccak256(free, shl(5, count))
        }
    }

    // -------------------------------------------------------------------------------------- a scheduler's wrong words

    /// @inheritdoc IEvidence
    function convictAdmissions(
        SignedOrder memory order,
        Admission calldata one,
        bytes calldata oneSignature,
        Admission calldata other,
        bytes calldata otherSignature
    ) public {
        bytes32 digest = _requireAdmission(order, one, oneSignature);
        _requireAdmission(order, other, otherSignature);
        if (one.nodes == other.nodes) revert NoContradiction(one.nodes, other.nodes);
        _convictScheduler(Fault.TwoAdmissions, digest, order);
    }

    /// @inheritdoc IEvidence
    function convictDraws(
        SignedOrder memory order,
        Draw calldata one,
        bytes calldata oneSignature,
        Draw calldata other,
        bytes calldata otherSignature
    ) public {
        bytes32 digest = _requireDraw(order, one, oneSignature);
        _requireDraw(order, other, otherSignature);
        if (one.results == other.results && one.beta == other.beta) revert NoContradiction(one.results, other.results);
        _convictScheduler(Fault.TwoDraws, digest, order);
    }

    /// @inheritdoc IEvidence
    function convictNodes(
        SignedOrder memory order,
        Admission calldata admission,
        bytes calldata signature,
        address[] memory nodes,
        uint8 segment,
        VrfProof calldata proof,
        bytes memory hints
    ) public {
        bytes32 digest = _requireAdmission(order, admission, signature);
        Orders.requireEqual(Messages.nodesHash(nodes), admission.nodes);
        uint256 count = Orders.segmentCount(order.order.ends);
        if (segment >= count || segment >= nodes.length) revert Orders.UnknownSegment(segment, order.order.ends);
        bytes32 beta = _output(order.scheduler, Messages.inferAlpha(digest), proof);
        address[] memory drawn = REGISTRY.draw(_inferencers(order.order, segment, beta, hints));
        for (uint256 i = 0; i < drawn.length; ++i) {
            if (drawn[i] == nodes[segment]) revert NodeWasDrawn(drawn[i]);
        }
        _convictScheduler(Fault.WrongNodes, digest, order);
    }

    /// @inheritdoc IEvidence
    function convictBeta(
        SignedOrder memory order,
        Draw calldata draw,
        bytes calldata signature,
        VrfProof calldata proof
    ) public {
        bytes32 digest = _requireDraw(order, draw, signature);
        bytes32 beta = _output(order.scheduler, Messages.drawAlpha(digest), proof);
        if (beta == draw.beta) revert BetaIsRight(beta);
        _convictScheduler(Fault.WrongBeta, digest, order);
    }

    /// @inheritdoc IEvidence
    function convictHeads(
        SignedOrder memory order,
        Draw calldata draw,
        bytes calldata signature,
        Result[] memory results
    ) public {
        bytes32 digest = _requireDraw(order, draw, signature);
        bytes32[] memory hashes = new bytes32[](results.length);
        bool meet = results.length == Orders.segmentCount(order.order.ends);
        for (uint256 s = 0; s < results.length; ++s) {
            hashes[s] = Messages.hash(results[s]);
            meet = meet && results[s].order == digest && results[s].segment == s
                && (s == 0 ? results[0].inputHead == order.order.requestHash : Orders.meet(results[s - 1], results[s]));
        }
        bytes32 shown = Messages.resultsHash(hashes);
        Orders.requireEqual(shown, draw.results);
        if (meet) revert HeadsMeet(shown);
        _convictScheduler(Fault.HeadsApart, digest, order);
    }

    /// @dev The digest of an order that this scheduler admitted with these words.
    function _requireAdmission(SignedOrder memory order, Admission calldata admission, bytes calldata signature)
        private
        view
        returns (bytes32)
    {
        uint256 position;
        assembly ("memory-safe") {
            position := admission
        }
        return _requireWord(order, admission.order, Messages.hashAt(Messages.ADMISSION_TYPE, position, 3), signature);
    }

    /// @dev The digest of an order over which this scheduler signed this draw.
    function _requireDraw(SignedOrder memory order, Draw calldata draw, bytes calldata signature)
        private
        view
        returns (bytes32)
    {
        uint256 position;
        assembly ("memory-safe") {
            position := draw
        }
        return _requireWord(order, draw.order, Messages.hashAt(Messages.DRAW_TYPE, position, 4), signature);
    }

    function _requireWord(SignedOrder memory order, bytes32 named, bytes32 structHash, bytes calldata signature)
        private
        view
        returns (bytes32 digest)
    {
        digest = Orders.digestOf(_domain(), order);
        Orders.requirePlace(named, 0, digest, 0);
        Orders.requireSigner(_domain(), structHash, signature, order.scheduler);
    }

    /// @dev Output of the scheduler's VRF, or a revert of EcVrf.
    function _output(address scheduler, bytes32 alpha, VrfProof calldata proof) private view returns (bytes32) {
        (uint256 x, uint256 y) = REGISTRY.vrfKeyOf(scheduler);
        return EcVrf.verify(x, y, alpha, proof.proof, proof.hints);
    }

    /// @dev The draw of those who may infer a segment.
    function _inferencers(Order memory order, uint8 segment, bytes32 beta, bytes memory hints)
        private
        view
        returns (DrawRequest memory request)
    {
        Rules memory rules = REGISTRY.rulesOf(order.executionClass);
        request.executionClass = order.executionClass;
        (request.first, request.end) = Orders.layersOf(order.ends, segment);
        request.blockNumber = order.referenceBlock;
        request.seed = Messages.segmentSeed(beta, segment);
        request.count = rules.candidates;
        request.distinct = true;
        request.bound = Prices.bound(order, request.end - request.first, rules.layers);
        request.hints = hints;
    }

    /// @dev L is that of the order's class: the scheduler took its price, and the class was made for it.
    function _convictScheduler(Fault fault, bytes32 digest, SignedOrder memory order) private {
        _requireSlashable(order.scheduler, Role.Scheduler);
        uint256 penalty = REGISTRY.rulesOf(order.order.executionClass).penalty;
        bytes32 subject = _subjectOf(fault, order.scheduler, digest);
        _convict(subject, fault, order.scheduler, penalty, order.order.referenceBlock, CONVICT_GAS);
    }

    // ------------------------------------------------------------------------------------------ payers and the prover

    /// @inheritdoc IEvidence
    function convictPayer(Tab memory tab) public {
        bytes32 tabId = Messages.tabId(tab);
        (uint96 short, uint40 settledAt) = BANK.shortOf(tabId);
        if (short == 0) revert NothingShort(tabId);
        bytes32 subject = keccak256(abi.encode(Fault.PromiseBroken, tabId, settledAt));
        _begin(subject);
        _requireSlashable(tab.key, Role.Scheduler);
        (uint256 free, uint256 stake) = _available(tab.key, type(uint96).max);
        uint256 paid = stake > SCHEDULER_STAKE ? stake - SCHEDULER_STAKE : 0;
        if (paid > short) paid = short;
        uint256 fine = _fineOf(tabId, short, paid, stake - paid);
        if (paid + fine == 0) revert AlreadyFined(tabId, short);
        uint256 reward = _gasCost(CONVICT_GAS) + fine / Fines.REWARD_SHARE;
        Fines.Payee[] memory payees = new Fines.Payee[](2);
        payees[0] = Fines.Payee(tab.payee, paid);
        payees[1] = Fines.Payee(msg.sender, reward);
        _end(subject, Fault.PromiseBroken, tab.key, free, paid + fine, payees, settledAt);
        if (paid != 0) BANK.forgive(tabId, uint96(paid));
    }

    /// @dev What stays unpaid and a tenth of the shortfall, as far as `most` reaches. A debt is fined once: its payee may
    ///      claim it again and again, of which it would have a tenth of each fine until there is no stake.
    function _fineOf(bytes32 tabId, uint256 short, uint256 paid, uint256 most) private returns (uint256 fine) {
        uint256 owed = BANK.tabOf(tabId).redeemed + short;
        uint256 fresh = owed - _fined[tabId];
        if (fresh > short) fresh = short;
        uint256 due = short - paid;
        if (due > fresh) due = fresh;
        due += fresh / SHORT_SHARE;
        fine = due > most ? most : due;
        // What could not be taken is fined when there is stake again.
        if (fine != 0) _fined[tabId] = uint96(owed - fresh + fresh * fine / due);
    }

    /// @inheritdoc IEvidence
    function convictByProof(bytes calldata evidence) external {
        uint256 left = gasleft();
        (address party, uint64 offenceBlock, bytes32 proven) = PROVER.proven(evidence);
        bytes32 subject = keccak256(abi.encode(Fault.ByProof, proven));
        (Role role, uint40 exitBlock, uint256 penalty) = REGISTRY.bondOf(party);
        if (role == Role.None) revert WrongParty(party, role, Role.Scheduler);
        _requireHere(party, exitBlock);
        // A scheduler serves many classes: a proof takes the stake that each must have.
        if (role == Role.Scheduler) penalty = SCHEDULER_STAKE;
        // Every byte of a proof costs its sender four gas at least.
        uint256 spent = PROOF_GAS + left - gasleft() + 4 * evidence.length;
        _convict(subject, Fault.ByProof, party, penalty, offenceBlock, spent);
    }

    // ------------------------------------------------------------------------------------------------------ conviction

    /// @dev Takes the penalty, or what is there of it: gas and a tenth to the caller, the rest burnt. Nobody knows here what
    ///      gas costs in a token: where it is cheap, a cheat's own proofs would be as dear as its penalties.
    function _convict(
        bytes32 subject,
        Fault fault,
        address operator,
        uint256 penalty,
        uint256 offenceBlock,
        uint256 spent
    ) private {
        _begin(subject);
        (uint256 free, uint256 taken) = _available(operator, penalty);
        Fines.Payee[] memory payees = new Fines.Payee[](1);
        uint256 paidBack = _gasCost(spent);
        if (!COIN && paidBack > taken / TOKEN_SHARE) paidBack = taken / TOKEN_SHARE;
        payees[0] = Fines.Payee(msg.sender, paidBack + taken / Fines.REWARD_SHARE);
        _end(subject, fault, operator, free, taken, payees, offenceBlock);
    }

    /// @dev Each subject once.
    function _begin(bytes32 subject) private {
        if (_proven[subject]) revert AlreadyProven(subject);
        _proven[subject] = true;
    }

    /// @dev Only parties that can still be slashed.
    /// @return penalty L of a node's class
    function _requireSlashable(address operator, Role expected) private view returns (uint256 penalty) {
        Role role;
        uint40 exitBlock;
        if (expected == Role.Node) (role, exitBlock, penalty) = REGISTRY.bondOf(operator);
        else (role,, exitBlock) = REGISTRY.roleOf(operator);
        if (role != expected) revert WrongParty(operator, role, expected);
        _requireHere(operator, exitBlock);
    }

    function _requireHere(address operator, uint40 exitBlock) private view {
        if (exitBlock != 0 && block.number > exitBlock) revert PartyLeft(operator, exitBlock, block.number);
    }

    /// @dev Without stake nothing would be proven to anybody's use, and the subject stays open.
    function _available(address operator, uint256 penalty) private view returns (uint256 free, uint256 taken) {
        (free, taken) = Fines.available(BANK, operator, penalty);
        if (taken == 0) revert NothingAtStake(operator);
    }

    function _end(
        bytes32 subject,
        Fault fault,
        address operator,
        uint256 free,
        uint256 taken,
        Fines.Payee[] memory payees,
        uint256 offenceBlock
    ) private {
        Fines.take(BANK, subject, operator, free, taken, payees);
        // Not beyond this block, which a foolish order's reference block can be.
        if (offenceBlock > block.number) offenceBlock = block.number;
        REGISTRY.convict(operator, fault, subject, uint64(offenceBlock));
        emit FaultProven(subject, operator, msg.sender, fault, uint96(taken));
    }

    function _gasCost(uint256 spent) private view returns (uint256) {
        return Fines.gasCost(spent, COIN, GAS_PRICE, block.basefee);
    }

    // ----------------------------------------------------------------------------------------------------------- reads

    /// @inheritdoc IEvidence
    function isProven(bytes32 subject) external view returns (bool) {
        return _proven[subject];
    }

    function _domain() private view returns (bytes32) {
        // A fork that changes the chain's number gets a domain of its own.
        return block.chainid == CHAIN ? DOMAIN : Messages.separator(address(BANK));
    }
}
