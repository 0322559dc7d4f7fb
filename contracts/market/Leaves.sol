// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Agreement} from "../libraries/Agreement.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {IBank} from "./interfaces/IBank.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {CheckLeaf, ILeaves} from "./interfaces/ILeaves.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {ISummons} from "./interfaces/ISummons.sol";
import {LeafKind, Parameters, Role, Rules, Tab} from "./interfaces/MarketTypes.sol";
import {NodeReveal, SummonsKind} from "./interfaces/Proceedings.sol";
import {Draw, Opinion, Order, Promise, Result, SignedOrder, Verdict, Work} from "./interfaces/Signed.sol";
import {Messages} from "./libraries/Messages.sol";
import {Orders} from "./libraries/Orders.sol";
import {Prices} from "./libraries/Prices.sol";
import {Traces} from "./libraries/Traces.sol";
import {Windows} from "./libraries/Windows.sol";

/// @title What a claimed leaf is worth
contract Leaves is ILeaves {
    /// @dev A segment that stands for all of an order, at the court.
    uint8 private constant ANY_SEGMENT = 255;
    /// @dev What Summons keeps of one that nobody answered.
    bytes32 private constant UNANSWERED = bytes32(uint256(2));

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    ICourt private immutable COURT;
    ISummons private immutable SUMMONS;
    uint256 private immutable WINDOW;
    uint256 private immutable ANSWER_AGE;

    constructor() {
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        BANK = IBank(contracts.bank);
        REGISTRY = IRegistry(contracts.registry);
        COURT = ICourt(contracts.court);
        SUMMONS = ISummons(contracts.summons);
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        (WINDOW, ANSWER_AGE) = (parameters.summonsWindow, Windows.answerAge(parameters));
    }

    /// @inheritdoc ILeaves
    function leafWorth(Tab memory tab, LeafKind kind, uint64 sequence, bytes calldata leaf) public view returns (uint96) {
        // At most the order's bound or the promise's price, which have 96 bits.
        return uint96(kind == LeafKind.Order ? _orderWorth(tab, sequence, leaf) : _promiseWorth(tab, sequence, leaf));
    }

    // -------------------------------------------------------------------------------------------------------- promises

    function _promiseWorth(Tab memory tab, uint64 sequence, bytes calldata leaf) private view returns (uint256) {
        (Promise memory promised, bytes memory signature) = abi.decode(leaf, (Promise, bytes));
        _requireLeaf(tab, promised.tab, promised.sequence, sequence);
        Orders.requireKey(Messages.digest(_domain(), Messages.hash(promised)), tab.key, signature);
        if (promised.work == uint8(Work.Inference)) {
            _requireNotVoid(tab.payee, promised.referenceBlock, promised.order, promised.segment);
            return _inferenceWorth(tab.payee, promised, leaf);
        }
        if (promised.work != uint8(Work.Check)) revert WorkMismatch(promised.work);
        // A check is owed whether or not the result stands.
        if (REGISTRY.isVoidByAny(tab.payee, promised.referenceBlock)) revert LeafVoid(promised.order, promised.segment);
        _requireChecked(tab, promised, leaf);
        return promised.price;
    }

    /// @dev The node signed a result for the place that was promised.
    function _inferenceWorth(address node, Promise memory promised, bytes calldata leaf) private view returns (uint256) {
        (,, Result memory result, bytes memory signature) = abi.decode(leaf, (Promise, bytes, Result, bytes));
        Orders.requirePlace(result.order, result.segment, promised.order, promised.segment);
        Orders.requireSigner(_domain(), Messages.hash(result), signature, node);
        return Prices.promiseWorth(promised, result);
    }

    /// @dev The verifier signed a verdict for that place over the result that the scheduler drew. A yes needs a trace that
    ///      agrees, which proves that it computed. Any other word is owed for the same, or once the result fell: a node that
    ///      opens its trace to nobody would else have its verifiers work for nothing.
    function _requireChecked(Tab memory tab, Promise memory promised, bytes calldata leaf) private view {
        (,, CheckLeaf memory check) = abi.decode(leaf, (Promise, bytes, CheckLeaf));
        Verdict memory verdict = check.verdict;
        Orders.requirePlace(verdict.order, verdict.segment, promised.order, promised.segment);
        Orders.requireSigner(_domain(), Messages.hash(verdict), check.signature, tab.payee);
        _requireDrawn(tab, promised, check);
        bool accepts = verdict.opinion == uint8(Opinion.Accept);
        if (!accepts && verdict.opinion != uint8(Opinion.Reject) && verdict.opinion != uint8(Opinion.CannotTell)) {
            revert NoOpinion(verdict.opinion);
        }
        if (accepts || check.own.root != 0) return _requireAgreement(tab.payee, check);
        address node = Orders.signerOf(_domain(), Messages.hash(check.result), check.resultSignature);
        bool fell = COURT.isVoided(promised.order, promised.segment)
            || REGISTRY.isVoidByAny(node, promised.referenceBlock);
        if (!fell) revert NotRejected(promised.order, promised.segment);
    }

    /// @dev The judged result is that of a draw which the payer, a scheduler, signed over this order.
    function _requireDrawn(Tab memory tab, Promise memory promised, CheckLeaf memory check) private view {
        Orders.requirePlace(check.draw.order, promised.segment, promised.order, promised.segment);
        Orders.requireSigner(_domain(), Messages.hash(check.draw), check.drawSignature, tab.key);
        Orders.requireEqual(Messages.resultsHash(check.results), check.draw.results);
        if (promised.segment >= check.results.length) revert WorkMismatch(promised.segment);
        Orders.requireEqual(Messages.hash(check.result), check.results[promised.segment]);
        Orders.requireEqual(check.results[promised.segment], check.verdict.result);
    }

    function _requireAgreement(address verifier, CheckLeaf memory check) private view {
        (NodeReveal memory own, NodeReveal memory judged) = (check.own, check.judged);
        Verdict memory verdict = check.verdict;
        Orders.requireEqual(keccak256(abi.encode(judged.root, judged.salt)), check.result.traceCommitment);
        Orders.requireEqual(
            keccak256(abi.encode(verdict.order, verdict.segment, verifier, own.root, own.salt)), verdict.commitment
        );
        bool agrees = _agree(REGISTRY.rulesOf(REGISTRY.classOf(verifier)), check.result, own, judged);
        if (!agrees) revert NotChecked(own.root, judged.root);
    }

    /// @dev Whether two traces agree: their roots, or the tile of each that both roots together pick.
    function _agree(Rules memory rules, Result memory result, NodeReveal memory own, NodeReveal memory judged)
        private
        pure
        returns (bool)
    {
        if (rules.exact) return own.root == judged.root;
        bytes32 seed = keccak256(abi.encode(own.root, judged.root));
        uint256 rows = Traces.rowsOf(result, rules);
        Orders.requireEqual(_opened(rules, seed, result.segment, rows, own), own.root);
        Orders.requireEqual(_opened(rules, seed, result.segment, rows, judged), judged.root);
        Agreement.Rule memory rule = Agreement.ruleOf(rules.dtype, rules.mantissaBits, rules.steps);
        return Agreement.agrees(rule, own.tiles, judged.tiles, rules.theta);
    }

    /// @dev The trace root that one opened tile leads to.
    function _opened(Rules memory rules, bytes32 seed, uint256 segment, uint256 rows, NodeReveal memory shown)
        private
        pure
        returns (bytes32)
    {
        return TileTree.openingRoot(
            seed, segment, rows, rules.hiddenSize, rules.dtype, 1, shown.tiles, shown.siblings
        );
    }

    // ---------------------------------------------------------------------------------------------------------- orders

    function _orderWorth(Tab memory tab, uint64 sequence, bytes calldata leaf) private view returns (uint256) {
        (SignedOrder memory signed, Result[] memory results, bytes[] memory signatures, Draw memory draw, bytes memory drawn)
        = abi.decode(leaf, (SignedOrder, Result[], bytes[], Draw, bytes));
        Order memory order = signed.order;
        _requireLeaf(tab, order.tab, order.sequence, sequence);
        bytes32 digest = Orders.verified(_domain(), signed);
        // The first segment read the request: inputs that the scheduler made up are nobody's order.
        if (results.length != 0) Orders.requireEqual(results[0].inputHead, order.requestHash);
        (bytes32[] memory hashes, address[] memory signers) =
            Orders.resultsOf(_domain(), digest, order.ends, results, signatures);
        _requireFresh(draw, digest, Messages.resultsHash(hashes), order.referenceBlock);
        Orders.requireSigner(_domain(), Messages.hash(draw), drawn, tab.payee);
        Rules memory rules = REGISTRY.rulesOf(order.executionClass);
        for (uint256 s = 0; s < signers.length; ++s) _requireBonded(signers[s], order.executionClass, rules.penalty);
        _requireNotVoid(tab.payee, order.referenceBlock, digest, ANY_SEGMENT);
        return _priceWithin(order, rules, results.length, results[results.length - 1]);
    }

    /// @dev Who signs more positions than the order pays for makes a case over them dearer than anybody would pay, and a
    ///      conviction dearer than L: such an answer is owed by nobody.
    function _priceWithin(Order memory order, Rules memory rules, uint256 segments, Result memory last)
        private
        pure
        returns (uint256 price)
    {
        price = Prices.price(order, rules, segments, last);
        uint256 most = Prices.most(order, rules);
        if (price > most) revert LongerThanOrdered(price, most);
    }

    /// @dev A leaf is of its tab, and at its place.
    function _requireLeaf(Tab memory tab, bytes32 given, uint64 sequence, uint64 expected) private pure {
        bytes32 tabId = Messages.tabId(tab);
        if (given != tabId) revert Orders.ForeignTab(given, tabId);
        if (sequence != expected) revert WrongSequence(sequence, expected);
    }

    /// @dev Neither the payee nor the result was found wrong, and nobody was asked for the results in vain.
    function _requireNotVoid(address payee, uint64 referenceBlock, bytes32 order, uint8 segment) private view {
        bytes32 asked = SUMMONS.summonsOf(SUMMONS.summonsIdOf(order, SummonsKind.Results, 0));
        if (asked == UNANSWERED) revert LeafVoid(order, segment);
        if (REGISTRY.isVoidByAny(payee, referenceBlock) || COURT.isVoided(order, segment)) revert LeafVoid(order, segment);
    }

    /// @dev A draw over these results that was signed lately: who objects may see them for the first time, and has as long for
    ///      its lottery and for the court as if it had been answered. A draw that the court would not hear any more is none.
    function _requireFresh(Draw memory draw, bytes32 digest, bytes32 results, uint256 referenceBlock) private view {
        Orders.requirePlace(draw.order, 0, digest, 0);
        Orders.requireEqual(results, draw.results);
        bool late = uint256(draw.blockNumber) + WINDOW < block.number || draw.blockNumber > referenceBlock + ANSWER_AGE;
        if (draw.blockNumber > block.number || late) revert LeafStale(draw.blockNumber, block.number);
    }

    /// @dev A node of the class that can lose its penalty.
    function _requireBonded(address node, bytes32 executionClass, uint256 penalty) private view {
        _requireSlashable(node);
        Orders.requireEqual(REGISTRY.classOf(node), executionClass);
        (uint96 stake, uint96 locked) = BANK.stakeOf(node);
        if (uint256(stake) + locked < penalty) revert NotBonded(node, stake, locked, penalty);
    }

    /// @dev A node that can still be slashed.
    function _requireSlashable(address node) private view {
        (Role role,, uint40 exitBlock) = REGISTRY.roleOf(node);
        if (role != Role.Node) revert WrongParty(node, role, Role.Node);
        if (exitBlock != 0 && block.number > exitBlock) revert PartyLeft(node, exitBlock, block.number);
    }

    function _domain() private view returns (bytes32) {
        return Messages.separator(address(BANK));
    }
}
