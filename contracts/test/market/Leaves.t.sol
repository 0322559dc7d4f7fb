// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {ICourt} from "../../market/interfaces/ICourt.sol";
import {CheckLeaf, ILeaves} from "../../market/interfaces/ILeaves.sol";
import {LeafKind, Rules, Tab} from "../../market/interfaces/MarketTypes.sol";
import {Fault, NodeReveal} from "../../market/interfaces/Proceedings.sol";
import {Opinion, Order, Promise, Result, Verdict, Work} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Orders} from "../../market/libraries/Orders.sol";
import {Prices} from "../../market/libraries/Prices.sol";
import {BrokenKey} from "./support/BankMocks.sol";
import {ContractKey, EvidenceTest} from "./support/EvidenceTest.sol";

/// @title What a claimed leaf is worth
contract LeavesTest is EvidenceTest {
    bytes private stored;

    function halfNodes() internal pure override returns (uint256) {
        return 6;
    }

    function setUp() public override {
        super.setUp();
        stored = abi.encode(distinct());
    }

    /// @dev Of two nodes: who is drawn depends on addresses, and with them on the bytes of the contracts.
    function distinct() private view returns (Play memory made) {
        Order memory order = newOrder(exact, HALVES, 3);
        for (uint256 i = 0; i < 64; ++i) {
            order.requestHash = keccak256(abi.encode("request", i));
            made = play(order);
            if (made.nodes[0] != made.nodes[1]) return made;
        }
        revert("one node was drawn for both halves each time");
    }

    function load() private view returns (Play memory) {
        return abi.decode(stored, (Play));
    }

    function leafOf(Play memory made) private pure returns (bytes memory) {
        return abi.encode(made.order, made.results, made.resultSignatures, made.draw, made.drawSignature);
    }

    function worth(Play memory made) private view returns (uint96) {
        return leaves.leafWorth(clientTab(), LeafKind.Order, 3, leafOf(made));
    }

    function worthless(Play memory made, bytes4 failure) private {
        vm.expectPartialRevert(failure);
        leaves.leafWorth(clientTab(), LeafKind.Order, 3, leafOf(made));
    }

    // ---- orders

    function test_AnOrdersLeafIsWorthItsFee() public view {
        Play memory made = load();
        Rules memory rules = registry.rulesOf(exact);
        uint256 fee = Prices.fee(made.order.order, rules, 2, made.results[1]);
        assertGt(fee, 0);
        assertEq(worth(made), fee);
    }

    function test_ALeafOfAnotherTabOrNumberIsWorthNothing() public {
        Play memory made = load();
        bytes memory leaf = leafOf(made);
        vm.expectRevert(abi.encodeWithSelector(ILeaves.WrongSequence.selector, 3, 4));
        leaves.leafWorth(clientTab(), LeafKind.Order, 4, leaf);
        Tab memory tab = clientTab();
        tab.payer = stranger;
        vm.expectPartialRevert(Orders.ForeignTab.selector);
        leaves.leafWorth(tab, LeafKind.Order, 3, leaf);
        // The order of one tab, dressed as one of another.
        made.order.client = stranger;
        leaf = leafOf(made);
        vm.expectPartialRevert(Orders.ForeignTab.selector);
        leaves.leafWorth(clientTab(), LeafKind.Order, 3, leaf);
    }

    function test_AnOrderThatTheKeyDidNotSignIsWorthNothing() public {
        Play memory made = load();
        made.order.signature = sign(CLIENT_KEY, Messages.hash(made.order.order));
        worthless(made, Orders.InvalidOrder.selector);
        made.order.signature = foreign(TAB_KEY, Messages.hash(made.order.order));
        worthless(made, Orders.InvalidOrder.selector);
        made.order.signature = malleated(sign(TAB_KEY, Messages.hash(made.order.order)));
        worthless(made, Orders.InvalidOrder.selector);
    }

    /// @dev An account that takes on code (EIP-7702) cannot deny what it signed.
    function test_AnAccountWithCodeHasSignedItsOrders() public {
        Play memory made = load();
        uint256 before = worth(made);
        assertGt(before, 0);
        vm.etch(tabKey, address(new BrokenKey(0)).code);
        assertEq(worth(made), before);
    }

    function test_AContractMayBeTheKey() public {
        ContractKey key = new ContractKey();
        tabKey = address(key);
        Play memory made = play(exact, HALVES, 3);
        worthless(made, Orders.InvalidOrder.selector);
        key.agree(made.id);
        assertGt(worth(made), 0);
    }

    function test_ResultsMustBeTheNodesAndTheDraws() public {
        Play memory made = load();
        made.resultSignatures[0] = sign(0xbad, Messages.hash(made.results[0]));
        worthless(made, ILeaves.WrongParty.selector);
        made = load();
        made.resultSignatures[0] = signAs(tolerantNode(0), Messages.hash(made.results[0]));
        worthless(made, Orders.Mismatch.selector);
        made = load();
        made.results[1].written += 1;
        worthless(made, Orders.HeadsApart.selector);
        made = load();
        made.results[1].outputHash = keccak256("another answer");
        made.resultSignatures[1] = signAs(made.nodes[1], Messages.hash(made.results[1]));
        worthless(made, Orders.Mismatch.selector);
    }

    /// @dev A scheduler that fed its node another prompt is owed nothing for what came of it.
    function test_ResultsOverAnotherRequestAreWorthNothing() public {
        Play memory made = load();
        made.results[0].inputHead = keccak256("another request");
        bytes32[] memory hashes = new bytes32[](2);
        for (uint256 s = 0; s < 2; ++s) {
            hashes[s] = Messages.hash(made.results[s]);
            made.resultSignatures[s] = signAs(made.nodes[s], hashes[s]);
        }
        made.draw.results = Messages.resultsHash(hashes);
        signAgain(made);
        worthless(made, Orders.Mismatch.selector);
    }

    /// @dev A node and its scheduler sign a length that nobody ordered. Without this they would be paid the order's bound for
    ///      any answer, and no case would ever be opened: its bond is for a committee over that length.
    function test_AnAnswerLongerThanItsOrderPaysForIsWorthNothing() public {
        Order memory order = newOrder(exact, HALVES, 3);
        order.maxFee = worth(play(order));
        Play memory made = play(order);
        assertEq(worth(made), order.maxFee);
        lengthen(made, 5);
        vm.expectPartialRevert(ILeaves.LongerThanOrdered.selector);
        leaves.leafWorth(clientTab(), LeafKind.Order, 3, leafOf(made));
        lengthen(made, type(uint32).max);
        worthless(made, ILeaves.LongerThanOrdered.selector);
        assertGt(court.bondFor(exact, type(uint32).max), 100 * uint256(PENALTY));
        // Nor for the class's cap.
        order.maxFee = 1 ether;
        made = play(order);
        assertGt(worth(made), 0);
        lengthen(made, type(uint32).max);
        worthless(made, ILeaves.LongerThanOrdered.selector);
    }

    function lengthen(Play memory made, uint32 cached) private view {
        for (uint256 s = 0; s < made.results.length; ++s) made.results[s].cached = cached;
        bytes32[] memory hashes = new bytes32[](made.results.length);
        for (uint256 s = 0; s < hashes.length; ++s) {
            hashes[s] = Messages.hash(made.results[s]);
            made.resultSignatures[s] = signAs(made.nodes[s], hashes[s]);
        }
        made.draw.results = Messages.resultsHash(hashes);
        signAgain(made);
    }

    /// @dev A client that never got this answer must be able to draw it and to doubt it, from now on.
    function test_ALeafNeedsADrawThatWasSignedLately() public {
        Play memory made = load();
        made.drawSignature = sign(CLIENT_KEY, Messages.hash(made.draw));
        worthless(made, Orders.WrongSigner.selector);
        signAgain(made);
        vm.roll(uint256(made.draw.blockNumber) + parameters().summonsWindow);
        assertGt(worth(made), 0);
        pass(1);
        worthless(made, ILeaves.LeafStale.selector);
        made.draw.blockNumber = uint64(vm.getBlockNumber() + 1);
        signAgain(made);
        worthless(made, ILeaves.LeafStale.selector);
        made.draw.blockNumber = uint64(vm.getBlockNumber());
        made.draw.order = keccak256("another");
        signAgain(made);
        worthless(made, Orders.WrongPlace.selector);
    }

    /// @dev Who objects late does not strike a claim by that alone: the scheduler signs its draw again.
    function test_AnOldOrderWithANewDrawKeepsItsWorth() public {
        Play memory made = load();
        pass(parameters().claimDelay);
        made.draw.blockNumber = uint64(vm.getBlockNumber());
        signAgain(made);
        assertGt(worth(made), 0);
    }

    function test_ResultsOfWhoHasNothingToLoseAreWorthNothing() public {
        Play memory made = load();
        slash(made.nodes[0], NODE_STAKE - PENALTY + 1);
        worthless(made, ILeaves.NotBonded.selector);
    }

    /// @dev What is locked for a case can be lost, too.
    function test_LockedStakeIsPartOfWhatANodeCanLose() public {
        Play memory made = load();
        bytes memory asked = abi.encodeCall(IBank.stakeOf, (made.nodes[0]));
        vm.mockCall(address(bank), asked, abi.encode(PENALTY - 1, uint96(1)));
        assertGt(worth(made), 0);
        vm.mockCall(address(bank), asked, abi.encode(PENALTY - 2, uint96(1)));
        worthless(made, ILeaves.NotBonded.selector);
    }

    function test_AVoidedOrderIsWorthNothing() public {
        Play memory made = load();
        vm.mockCall(address(court), abi.encodeCall(ICourt.isVoided, (made.id, 255)), abi.encode(true));
        worthless(made, ILeaves.LeafVoid.selector);
    }

    function test_AConvictedSchedulersLeavesAreVoid() public {
        Play memory made = load();
        vm.prank(address(court));
        registry.convict(scheduler, Fault.Unanswered, 0, uint64(vm.getBlockNumber()));
        worthless(made, ILeaves.LeafVoid.selector);
    }

    // ---- promises

    function promiseLeaf(Play memory made, Promise memory promised, uint8 segment) private view returns (bytes memory) {
        return abi.encode(
            promised,
            sign(SCHEDULER_KEY, Messages.hash(promised)),
            made.results[segment],
            made.resultSignatures[segment]
        );
    }

    /// @dev A check of an exact class: the verifier's own trace, to which its verdict committed, beside the node's.
    function checkLeaf(Play memory made, Promise memory promised, Verdict memory verdict, address node, bytes32 root)
        private
        view
        returns (bytes memory)
    {
        NodeReveal memory own;
        NodeReveal memory judged;
        (own.root, own.salt) = (root, keccak256("verifier's salt"));
        (judged.root, judged.salt) = (traceRoot(verdict.segment), traceSalt(verdict.segment));
        verdict.commitment = keccak256(abi.encode(made.id, verdict.segment, node, own.root, own.salt));
        return shown(made, promised, verdict, node, own, judged);
    }

    function shown(
        Play memory made,
        Promise memory promised,
        Verdict memory verdict,
        address node,
        NodeReveal memory own,
        NodeReveal memory judged
    ) private view returns (bytes memory) {
        CheckLeaf memory check;
        (check.verdict, check.signature) = (verdict, signAs(node, Messages.hash(verdict)));
        (check.draw, check.drawSignature) = (made.draw, made.drawSignature);
        check.results = new bytes32[](made.results.length);
        for (uint256 s = 0; s < made.results.length; ++s) {
            check.results[s] = Messages.hash(made.results[s]);
        }
        check.result = made.results[verdict.segment];
        check.resultSignature = made.resultSignatures[verdict.segment];
        (check.own, check.judged) = (own, judged);
        return abi.encode(promised, sign(SCHEDULER_KEY, Messages.hash(promised)), check);
    }

    function inference() private view returns (Play memory made, Promise memory promised, Tab memory tab) {
        made = load();
        promised = promiseOf(made, made.nodes[1], 1, Work.Inference);
        tab = nodeTab(made.nodes[1]);
    }

    function promiseFails(Tab memory tab, bytes memory leaf, bytes4 failure) private {
        vm.expectPartialRevert(failure);
        leaves.leafWorth(tab, LeafKind.Promise, 1, leaf);
    }

    function test_APromiseOfInferenceIsWorthItsPositionsAtMostItsPrice() public view {
        (Play memory made, Promise memory promised, Tab memory tab) = inference();
        uint256 worth_ = Prices.promiseWorth(promised, made.results[1]);
        assertEq(worth_, uint256(ASK) * 32 / 1e9);
        assertEq(leaves.leafWorth(tab, LeafKind.Promise, 1, promiseLeaf(made, promised, 1)), worth_);
        promised.price = 7;
        assertEq(leaves.leafWorth(tab, LeafKind.Promise, 1, promiseLeaf(made, promised, 1)), 7);
    }

    /// @dev Whoever computed is owed its work whatever it says, so that nobody gains by saying yes.
    function test_APromiseOfACheckIsWorthItsPriceForTracesThatAgreeWhateverTheVerdict() public {
        Play memory made = load();
        address node = exactNode(0);
        Promise memory promised = promiseOf(made, node, 0, Work.Check);
        for (uint8 opinion = 0; opinion < 5; ++opinion) {
            Verdict memory verdict = verdictOf(made, 0, Opinion(opinion));
            bytes memory leaf = checkLeaf(made, promised, verdict, node, traceRoot(0));
            if (opinion != 0 && opinion < 4) {
                assertEq(leaves.leafWorth(nodeTab(node), LeafKind.Promise, 1, leaf), promised.price);
            } else {
                promiseFails(nodeTab(node), leaf, ILeaves.NoOpinion.selector);
            }
        }
    }

    /// @dev A no that shows no work costs nothing to say: it is owed where the result fell, and nowhere else.
    function test_ANoWithoutTracesThatAgreeIsOwedOnceTheResultFell() public {
        Play memory made = load();
        address node = exactNode(0);
        Promise memory promised = promiseOf(made, node, 0, Work.Check);
        NodeReveal memory nothing;
        for (uint8 opinion = uint8(Opinion.Reject); opinion <= uint8(Opinion.CannotTell); ++opinion) {
            vm.clearMockedCalls();
            Verdict memory verdict = verdictOf(made, 0, Opinion(opinion));
            bytes memory silent = shown(made, promised, verdict, node, nothing, nothing);
            bytes memory other = checkLeaf(made, promised, verdict, node, keccak256("made up"));
            promiseFails(nodeTab(node), silent, ILeaves.NotRejected.selector);
            promiseFails(nodeTab(node), other, ILeaves.NotChecked.selector);
            vm.mockCall(address(court), abi.encodeCall(ICourt.isVoided, (made.id, 0)), abi.encode(true));
            assertEq(leaves.leafWorth(nodeTab(node), LeafKind.Promise, 1, silent), promised.price);
            promiseFails(nodeTab(node), other, ILeaves.NotChecked.selector);
        }
    }

    /// @dev A node that shows its trace to nobody leaves its verifiers without a verdict: once it was convicted for that
    ///      their work is owed.
    function test_ANodeThatOpensToNobodyDoesNotStarveItsVerifiers() public {
        Play memory made = load();
        address node = exactNode(0);
        Promise memory promised = promiseOf(made, node, 0, Work.Check);
        NodeReveal memory nothing;
        bytes memory leaf =
            shown(made, promised, verdictOf(made, 0, Opinion.CannotTell), node, nothing, nothing);
        promiseFails(nodeTab(node), leaf, ILeaves.NotRejected.selector);
        vm.prank(address(court));
        registry.convict(made.nodes[0], Fault.NothingShown, 0, uint64(vm.getBlockNumber()));
        assertEq(leaves.leafWorth(nodeTab(node), LeafKind.Promise, 1, leaf), promised.price);
    }

    /// @dev The verifier's dilemma: who always says yes saves the work, and must not be paid by a claim either.
    function test_AVerifierThatAlwaysSaysYesIsNotPaidByAClaim() public {
        Play memory made = load();
        address node = exactNode(0);
        Promise memory promised = promiseOf(made, node, 0, Work.Check);
        Verdict memory verdict = verdictOf(made, 0, Opinion.Accept);
        // It had committed to something before it was shown the node's rows.
        bytes memory leaf = checkLeaf(made, promised, verdict, node, keccak256("made up"));
        promiseFails(nodeTab(node), leaf, ILeaves.NotChecked.selector);
        // It copies the root afterwards: that is not what it had committed to.
        NodeReveal memory copied;
        (copied.root, copied.salt) = (traceRoot(0), traceSalt(0));
        leaf = shown(made, promised, verdict, node, copied, copied);
        promiseFails(nodeTab(node), leaf, Orders.Mismatch.selector);
        // It shows another node's trace as the one that it judged.
        NodeReveal memory own;
        NodeReveal memory judged;
        (own.root, own.salt) = (keccak256("made up"), keccak256("verifier's salt"));
        (judged.root, judged.salt) = (own.root, own.salt);
        leaf = shown(made, promised, verdict, node, own, judged);
        promiseFails(nodeTab(node), leaf, Orders.Mismatch.selector);
        // Or its verdict is over a result of its own making, which no draw names.
        verdict.result = keccak256("a result of its own");
        leaf = shown(made, promised, verdict, node, own, own);
        promiseFails(nodeTab(node), leaf, Orders.Mismatch.selector);
    }

    function test_APromiseOfAnotherTabNumberOrKeyIsWorthNothing() public {
        (Play memory made, Promise memory promised, Tab memory tab) = inference();
        bytes memory leaf = promiseLeaf(made, promised, 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaves.WrongSequence.selector, 1, 2));
        leaves.leafWorth(tab, LeafKind.Promise, 2, leaf);
        promiseFails(nodeTab(exactNode(0)), leaf, Orders.ForeignTab.selector);
        leaf = abi.encode(
            promised, sign(CLIENT_KEY, Messages.hash(promised)), made.results[1], made.resultSignatures[1]
        );
        promiseFails(tab, leaf, Orders.InvalidOrder.selector);
    }

    function test_OtherWorkThanWasPromisedIsWorthNothing() public {
        (Play memory made, Promise memory promised, Tab memory tab) = inference();
        promiseFails(tab, promiseLeaf(made, promised, 0), Orders.WrongPlace.selector);
        made.resultSignatures[1] = signAs(exactNode(0), Messages.hash(made.results[1]));
        promiseFails(tab, promiseLeaf(made, promised, 1), Orders.WrongSigner.selector);
        Verdict memory verdict = verdictOf(made, 1, Opinion.Accept);
        bytes memory leaf = checkLeaf(made, promised, verdict, tab.payee, traceRoot(1));
        vm.expectRevert();
        leaves.leafWorth(tab, LeafKind.Promise, 1, leaf);
        promised.work = 2;
        promiseFails(tab, promiseLeaf(made, promised, 1), ILeaves.WorkMismatch.selector);
    }

    function test_AVoidedSegmentOrAConvictedNodeIsNotPaidByClaims() public {
        (Play memory made, Promise memory promised, Tab memory tab) = inference();
        bytes memory leaf = promiseLeaf(made, promised, 1);
        vm.mockCall(address(court), abi.encodeCall(ICourt.isVoided, (made.id, 0)), abi.encode(true));
        assertGt(leaves.leafWorth(tab, LeafKind.Promise, 1, leaf), 0);
        vm.mockCall(address(court), abi.encodeCall(ICourt.isVoided, (made.id, 1)), abi.encode(true));
        promiseFails(tab, leaf, ILeaves.LeafVoid.selector);
        vm.clearMockedCalls();
        vm.prank(address(court));
        registry.convict(made.nodes[0], Fault.FalseResult, 0, uint64(vm.getBlockNumber()));
        assertGt(leaves.leafWorth(tab, LeafKind.Promise, 1, leaf), 0);
        vm.prank(address(court));
        registry.convict(made.nodes[1], Fault.FalseResult, 0, uint64(vm.getBlockNumber()));
        promiseFails(tab, leaf, ILeaves.LeafVoid.selector);
    }

    function testFuzz_GarbageIsNoLeaf(bytes calldata garbage, bool order) public {
        vm.expectRevert();
        leaves.leafWorth(clientTab(), order ? LeafKind.Order : LeafKind.Promise, 3, garbage);
    }
}
