// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {ClaimState, LeafKind, Tab} from "../../market/interfaces/MarketTypes.sol";
import {SumTree} from "../../market/libraries/SumTree.sol";
import {MockEvidence} from "./support/BankMocks.sol";
import {BankTest} from "./support/BankTest.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title Objections to a claim, answers, deposits, and what was not covered
contract BankObjectionsTest is BankTest {
    uint96[] private amounts;

    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        amounts = four(1 ether, 0.5 ether, 0.25 ether, 0.25 ether);
    }

    /// @dev Two paid through number 5; claimed are 6 to 9.
    function filed() private returns (ClaimState memory state) {
        return file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
    }

    // ---- objections and answers

    function test_AnAnsweredObjectionPaysTheAnswer() public {
        ClaimState memory state = filed();
        bytes32 claimId = claimIdOf(state);
        uint40 deadline = uint40(1000 + ANSWER_WINDOW);
        vm.expectEmit(address(bank));
        emit IBank.Objected(id, claimId, 7, payer, answerGas(), deadline);
        object(state, 7);
        (uint96 deposit, uint40 found) = bank.objectionOf(claimId, 7);
        assertEq(deposit, answerGas());
        assertEq(found, deadline);
        assertEq(tabBalance(), DEPOSIT - answerGas());
        vm.roll(deadline);
        vm.expectEmit(address(bank));
        emit IBank.ObjectionAnswered(id, claimId, 7, 0.5 ether);
        answer(state, amounts, 7);
        assertEq(creditOf(payee), answerGas());
        (, uint16 objections) = bank.claimOf(id);
        assertEq(objections, 0);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        assertEq(redeemed(), 3 ether);
        assertEq(held(), DEPOSIT);
    }

    function test_PayerAndKeyObject() public {
        ClaimState memory state = filed();
        address[2] memory others = [payee, stranger];
        for (uint256 i = 0; i < 2; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IBank.NotPayer.selector, id, others[i]));
            vm.prank(others[i]);
            bank.object(tab, state, 7);
        }
        object(state, 7);
        vm.expectRevert(abi.encodeWithSelector(IBank.AlreadyObjected.selector, claimIdOf(state), 7));
        vm.prank(key);
        bank.object(tab, state, 7);
        vm.prank(key);
        bank.object(tab, state, 8);
        (, uint16 objections) = bank.claimOf(id);
        assertEq(objections, 2);
    }

    function test_RefusesObjectionsOutOfPlaceOrTime() public {
        ClaimState memory state = filed();
        uint64[4] memory wrong = [uint64(0), 5, 10, type(uint64).max];
        for (uint256 i = 0; i < 4; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IBank.NotClaimed.selector, wrong[i]));
            object(state, wrong[i]);
        }
        vm.roll(state.settlesAt - ANSWER_WINDOW - 1);
        object(state, 6);
        vm.roll(state.settlesAt - ANSWER_WINDOW);
        vm.expectRevert(
            abi.encodeWithSelector(
                IBank.TooLateToObject.selector, state.settlesAt, state.settlesAt - ANSWER_WINDOW
            )
        );
        object(state, 7);
    }

    function test_RefusesStatesThatAreNotTheClaims() public {
        ClaimState memory state = filed();
        bytes32 right = claimIdOf(state);
        for (uint256 i = 0; i < 6; ++i) {
            ClaimState memory wrong = abi.decode(abi.encode(state), (ClaimState));
            if (i == 0) wrong.owed += 1;
            if (i == 1) wrong.settlesAt -= 1;
            if (i == 2) wrong.claimer = stranger;
            if (i == 3) wrong.claim.total += 1;
            if (i == 4) wrong.voucher.spent += 1;
            if (i == 5) wrong.claim.root = 0;
            bytes memory reason =
                abi.encodeWithSelector(IBank.ClaimMismatch.selector, id, right, claimIdOf(wrong));
            vm.expectRevert(reason);
            object(wrong, 7);
            vm.expectRevert(reason);
            bank.settle(tab, wrong);
            vm.expectRevert(reason);
            this.answerOutside(wrong, 7);
            vm.expectRevert(abi.encodeWithSelector(IBank.NoObjection.selector, claimIdOf(wrong), 7));
            bank.strike(tab, wrong, 7);
        }
        vm.expectRevert(
            abi.encodeWithSelector(
                IBank.ClaimMismatch.selector, keccak256(abi.encode(Tab(stranger, payee, key))), bytes32(0), right
            )
        );
        bank.settle(Tab(stranger, payee, key), state);
    }

    function answerOutside(ClaimState memory state, uint64 sequence) external {
        answer(state, amounts, sequence);
    }

    function test_AnAnswerShowsTheLeaf() public {
        ClaimState memory state = filed();
        vm.expectRevert(abi.encodeWithSelector(IBank.NoObjection.selector, claimIdOf(state), 7));
        this.answerOutside(state, 7);
        object(state, 7);
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(6, amounts, 1);
        bytes memory leaf = abi.encode(uint64(7));
        vm.startPrank(payee);
        vm.expectPartialRevert(IBank.WrongPath.selector);
        bank.answer(tab, state, 7, LeafKind.Order, 0.5 ether - 1, siblings, sums, leaf);
        vm.expectRevert(abi.encodeWithSelector(MockEvidence.LeafVoid.selector, 7));
        bank.answer(tab, state, 7, LeafKind.Order, 0.5 ether, siblings, sums, abi.encode(uint64(8)));
        vm.expectRevert(abi.encodeWithSelector(SumTree.WrongDepth.selector, 1, 2, 2));
        bank.answer(tab, state, 7, LeafKind.Order, 0.5 ether, new bytes32[](1), sums, leaf);
        evidence.setWorth(7, 0.5 ether - 1);
        vm.expectRevert(
            abi.encodeWithSelector(IBank.LeafWorthLess.selector, 7, 0.5 ether - 1, 0.5 ether)
        );
        bank.answer(tab, state, 7, LeafKind.Order, 0.5 ether, siblings, sums, leaf);
        evidence.setWorth(7, 0.5 ether);
        vm.stopPrank();
        vm.prank(stranger);
        bank.answer(tab, state, 7, LeafKind.Order, 0.5 ether, siblings, sums, leaf);
        assertEq(creditOf(stranger), answerGas());
        // What was answered before a case ended may be asked again after it.
        object(state, 7);
    }

    function test_AnAnswerComesInTime() public {
        ClaimState memory state = filed();
        object(state, 7);
        uint40 deadline = uint40(1000 + ANSWER_WINDOW);
        vm.roll(deadline);
        vm.expectRevert(abi.encodeWithSelector(IBank.AnswerStillPossible.selector, deadline, deadline));
        bank.strike(tab, state, 7);
        vm.roll(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.AnswerTooLate.selector, deadline, deadline + 1));
        this.answerOutside(state, 7);
        vm.expectRevert(abi.encodeWithSelector(IBank.ObjectionsOpen.selector, claimIdOf(state), 1));
        bank.settle(tab, state);
        vm.expectEmit(address(bank));
        emit IBank.ClaimStruck(id, claimIdOf(state), 7);
        bank.strike(tab, state, 7);
        assertEq(tabBalance(), DEPOSIT);
        vm.expectRevert(abi.encodeWithSelector(IBank.NoObjection.selector, claimIdOf(state), 7));
        bank.strike(tab, state, 7);
    }

    function test_AStruckClaimReturnsAllDepositsAndMayBeFiledAgain() public {
        ClaimState memory state = filed();
        object(state, 6);
        object(state, 8);
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 6);
        assertEq(tabBalance(), DEPOSIT - answerGas());
        ClaimState memory again = filed();
        bank.strike(tab, state, 8);
        assertEq(tabBalance(), DEPOSIT);
        assertEq(redeemed(), struckGas());
        pass(CLAIM_DELAY);
        bank.settle(tab, again);
        assertEq(redeemed(), 3 ether);
        assertEq(creditOf(payee), 3 ether - struckGas() + claimGas());
    }

    function struckGas() private pure returns (uint96) {
        return uint96(STRUCK_GAS * BASE_FEE);
    }

    /// @dev What objection and strike cost its payer is the payee's loss, so that false claims without end cost their
    ///      payee at least as much: once, and never more than was authorised.
    function test_AStruckClaimCostsItsPayeeWhatItCostThePayer() public {
        ClaimState memory state = filed();
        object(state, 6);
        object(state, 8);
        pass(ANSWER_WINDOW + 1);
        vm.expectEmit(address(bank));
        emit IBank.TabForgiven(id, struckGas(), struckGas());
        bank.strike(tab, state, 6);
        bank.strike(tab, state, 8);
        assertEq(redeemed(), struckGas(), "once for each claim");
        assertEq(tabBalance(), DEPOSIT);
        redeem(2 ether);
        assertEq(creditOf(payee), 2 ether - struckGas());
    }

    function test_FalseClaimsEndWhereNothingIsAuthorisedAnyMore() public {
        uint96 authorised = struckGas() + 1;
        for (uint256 i = 0; i < 2; ++i) {
            ClaimState memory state = file(claimOf(6, four(authorised, 0, 0, 0)), voucherOf(0, authorised, 5));
            object(state, 6);
            pass(ANSWER_WINDOW + 1);
            bank.strike(tab, state, 6);
        }
        assertEq(redeemed(), authorised);
        refusesClaim(
            claimOf(6, four(authorised, 0, 0, 0)),
            voucherOf(0, authorised, 5),
            abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, authorised, authorised)
        );
    }

    /// @dev A promise costs less to show than an order: what it does not need goes back to the tab.
    function test_AnAnsweredPromiseIsPaidLess() public {
        ClaimState memory state = filed();
        uint256 paid = 0;
        for (uint256 work = 0; work < 2; ++work) {
            object(state, 7);
            (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(6, amounts, 1);
            bytes memory leaf = abi.encode(uint64(7), 0, 0, 0, work);
            vm.prank(payee);
            bank.answer(tab, state, 7, LeafKind.Promise, 0.5 ether, siblings, sums, leaf);
            paid += (work == 0 ? PROMISE_GAS : CHECK_GAS) * BASE_FEE;
            assertEq(creditOf(payee), paid);
            assertEq(tabBalance(), DEPOSIT - paid);
        }
    }

    function test_DepositsOfAClosedTabGoToThePayer() public {
        close();
        pass(CLOSE_DELAY - 1);
        ClaimState memory state = filed();
        object(state, 6);
        object(state, 8);
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 6);
        bank.finishClosing(tab);
        bank.strike(tab, state, 8);
        assertEq(creditOf(payer), answerGas());
        bank.withdraw(payer);
        assertEq(held(), 0);
    }

    /// @dev The deposit of a caller that gives value is what it gave, and goes to the tab if the claim falls.
    function test_AnObjectionWithValue() public {
        ClaimState memory state = filed();
        vm.deal(key, 1 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, answerGas() - 1, answerGas()));
        vm.prank(key);
        bank.object{value: answerGas() - 1}(tab, state, 6);
        vm.prank(key);
        bank.object{value: 2 * answerGas()}(tab, state, 6);
        (uint96 deposit,) = bank.objectionOf(claimIdOf(state), 6);
        assertEq(deposit, 2 * answerGas());
        assertEq(tabBalance(), DEPOSIT);
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 6);
        assertEq(tabBalance(), DEPOSIT + 2 * answerGas());
    }

    function test_GasIsPaidBackAtTheBlocksPriceUpToACeiling() public {
        ClaimState memory state = filed();
        vm.fee(100 gwei);
        object(state, 6);
        (uint96 deposit,) = bank.objectionOf(claimIdOf(state), 6);
        assertEq(deposit, ANSWER_GAS * 5 gwei);
        vm.fee(0);
        object(state, 7);
        (deposit,) = bank.objectionOf(claimIdOf(state), 7);
        assertEq(deposit, 0);
        answer(state, amounts, 7);
        answer(state, amounts, 6);
        assertEq(creditOf(payee), ANSWER_GAS * 5 gwei);
    }

    // ---- what was not covered

    function test_AShortfallIsRecordedAndForgiven() public {
        uint96[] memory large = four(8 ether, 5 ether, 0, 0);
        ClaimState memory state = file(claimOf(6, large), voucherOf(1 ether, 20 ether, 5));
        vm.roll(state.settlesAt);
        vm.expectEmit(address(bank));
        emit IBank.ClaimSettled(id, claimIdOf(state), 14 ether, DEPOSIT, 4 ether);
        bank.settle(tab, state);
        (uint96 short, uint40 blockNumber) = bank.shortOf(id);
        assertEq(short, 4 ether);
        assertEq(blockNumber, state.settlesAt);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotAuthorised.selector, stranger));
        vm.prank(stranger);
        bank.forgive(id, 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, 4 ether + 1));
        evidence.forgive(bank, id, 4 ether + 1);
        vm.expectEmit(address(bank));
        emit IBank.TabForgiven(id, 3 ether, 13 ether);
        evidence.forgive(bank, id, 3 ether);
        (short,) = bank.shortOf(id);
        assertEq(short, 1 ether);
    }

    function test_ALowerClaimDoesNotHideAShortfall() public {
        ClaimState memory state = file(claimOf(6, four(8 ether, 5 ether, 0, 0)), voucherOf(1 ether, 20 ether, 5));
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        state = file(claimOf(6, four(8 ether, 3 ether, 0, 0)), voucherOf(1 ether, 20 ether, 5));
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        (uint96 short,) = bank.shortOf(id);
        assertEq(short, 4 ether);
    }
}
