// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {CheckLeaf} from "../../market/interfaces/ILeaves.sol";
import {Claim, ClaimState, LeafKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {Fault, NodeReveal} from "../../market/interfaces/Proceedings.sol";
import {Opinion, Promise, Verdict, Work} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {EvidenceTest} from "./support/EvidenceTest.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title What the cheapest answers to an objection cost on the real deployment, beside what they are paid
/// @notice One segment, one leaf, so that its path is empty; everything cold but the answerer's credit.
abstract contract AnswerGasTest is EvidenceTest {
    /// @dev A refund of the slot that the deposit leaves.
    uint256 private constant CLEARED = 4800;
    address internal answerer;
    bytes internal call_;
    string internal name;

    function setUp() public override {
        super.setUp();
        prepare();
        bank.credit{value: 1}(answerer, 1);
    }

    function prepare() internal virtual;

    function wholeNodes() internal pure override returns (uint256) {
        return 6;
    }

    /// @dev A claim of one leaf, and an objection to it.
    function objected(Tab memory tab, uint256 key, LeafKind kind, uint64 number, uint96 amount, bytes memory leaf)
        internal
    {
        uint96[] memory amounts = new uint96[](1);
        amounts[0] = amount;
        Claim memory claimed = SumTrees.claim(number, amounts);
        Voucher memory voucher = Voucher(Messages.tabId(tab), 0, DEPOSIT / 2, number, 0, 0);
        uint40 settlesAt = uint40(vm.getBlockNumber() + parameters().claimDelay);
        bytes memory signature = sign(key, Messages.hash(voucher));
        vm.prank(tab.payee);
        bank.claim(tab, voucher, signature, claimed);
        ClaimState memory state = ClaimState(claimed, voucher, amount, settlesAt, tab.payee);
        vm.prank(tab.payer);
        bank.object(tab, state, number);
        answerer = tab.payee;
        call_ = abi.encodeCall(
            IBank.answer, (tab, state, number, kind, amount, new bytes32[](0), new uint96[](0), leaf)
        );
    }

    function test_AnAnswerCostsALittleMoreThanItIsPaid() public {
        uint256 used = transact(name, address(bank), answerer, 0, call_);
        uint256 paid = (creditOf(answerer) - 1) / block.basefee;
        assertGt(used, paid + CLEARED, "a profit");
        assertLt(used, paid + CLEARED + slack(), "who is honest and is asked pays too much of it");
    }

    /// @dev Most that an answer may cost beyond what it is paid.
    function slack() internal pure virtual returns (uint256) {
        return 12_000;
    }

    function shownPromise(Promise memory promised) internal view returns (bytes memory) {
        return sign(SCHEDULER_KEY, Messages.hash(promised));
    }
}

contract OrderAnswerGasTest is AnswerGasTest {
    function prepare() internal override {
        name = "answer with an order";
        openClientTab();
        Play memory made = play(exact, WHOLE, 1);
        bytes memory leaf =
            abi.encode(made.order, made.results, made.resultSignatures, made.draw, made.drawSignature);
        uint96 worth = leaves.leafWorth(clientTab(), LeafKind.Order, 1, leaf);
        objected(clientTab(), TAB_KEY, LeafKind.Order, 1, worth, leaf);
    }
}

contract PromiseAnswerGasTest is AnswerGasTest {
    function prepare() internal override {
        name = "answer with a promise of inference";
        Play memory made = play(exact, WHOLE, 1);
        openNodeTab(made.nodes[0]);
        Tab memory tab = nodeTab(made.nodes[0]);
        Promise memory promised = promiseOf(made, tab.payee, 0, Work.Inference);
        bytes memory leaf =
            abi.encode(promised, shownPromise(promised), made.results[0], made.resultSignatures[0]);
        objected(tab, SCHEDULER_KEY, LeafKind.Promise, 1, leaves.leafWorth(tab, LeafKind.Promise, 1, leaf), leaf);
    }
}

contract CheckAnswerGasTest is AnswerGasTest {
    function opinion() internal pure virtual returns (Opinion) {
        return Opinion.Accept;
    }

    /// @dev A yes shows two traces beside what a no shows.
    function slack() internal pure override returns (uint256) {
        return 20_000;
    }

    function prepare() internal override {
        name = "answer with a promise of a check";
        Play memory made = play(exact, WHOLE, 1);
        (address[] memory seats,) = seatsOf(made, 0, new address[](0));
        openNodeTab(seats[0]);
        Tab memory tab = nodeTab(seats[0]);
        Promise memory promised = promiseOf(made, tab.payee, 0, Work.Check);
        bytes memory leaf = abi.encode(promised, shownPromise(promised), checkLeaf(made, tab.payee));
        if (opinion() == Opinion.Reject) {
            vm.prank(address(court));
            registry.convict(made.nodes[0], Fault.FalseResult, 0, uint64(vm.getBlockNumber()));
        }
        objected(tab, SCHEDULER_KEY, LeafKind.Promise, 1, promised.price, leaf);
    }

    function checkLeaf(Play memory made, address verifier) private view returns (CheckLeaf memory check) {
        Verdict memory verdict = verdictOf(made, 0, opinion());
        if (opinion() == Opinion.Accept) {
            check.own = NodeReveal(traceRoot(0), "salt", "", new bytes32[](0));
            check.judged = NodeReveal(traceRoot(0), traceSalt(0), "", new bytes32[](0));
            verdict.commitment =
                keccak256(abi.encode(made.id, uint8(0), verifier, check.own.root, check.own.salt));
        }
        (check.verdict, check.signature) = (verdict, signAs(verifier, Messages.hash(verdict)));
        (check.draw, check.drawSignature) = (made.draw, made.drawSignature);
        check.results = new bytes32[](1);
        check.results[0] = Messages.hash(made.results[0]);
        (check.result, check.resultSignature) = (made.results[0], made.resultSignatures[0]);
    }
}

/// @dev The cheapest is a no to a result that fell: it shows no trace.
contract RejectAnswerGasTest is CheckAnswerGasTest {
    function opinion() internal pure override returns (Opinion) {
        return Opinion.Reject;
    }
}
