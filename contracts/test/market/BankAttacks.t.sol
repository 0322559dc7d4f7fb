// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Claim, ClaimState, LeafKind, PotKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {SumTree} from "../../market/libraries/SumTree.sol";
import {MockEvidence} from "./support/BankMocks.sol";
import {BankTest} from "./support/BankTest.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title Attacks on tabs and claims, each named after what it tries
contract BankAttacksTest is BankTest {
    uint96[] private amounts;

    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        amounts = four(1 ether, 0.5 ether, 0.25 ether, 0.25 ether);
    }

    function settled(Claim memory claim, Voucher memory voucher) private {
        ClaimState memory state = file(claim, voucher);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
    }

    function redeemOutside(uint96 spent) external {
        redeem(spent);
    }

    function answerOutside(ClaimState memory state, uint96[] memory leaves, uint64 sequence) external {
        answer(state, leaves, sequence);
    }

    // ---- paid twice

    function test_ALeafPaidByVoucherAndByClaim() public {
        settled(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        assertEq(redeemed(), 3 ether);
        // The payer acknowledges the same leaves afterwards.
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 3 ether, 3 ether));
        this.redeemOutside(3 ether);
        assertEq(redeem(3.5 ether), 0.5 ether);
    }

    function test_ALeafPaidByClaimAfterAVoucher() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        redeem(3 ether);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        assertEq(redeemed(), 3 ether);
        assertEq(creditOf(payee), 3 ether, "no gas for a claim that brought nothing");
    }

    function test_AVoucherRedeemedTwiceInOneCall() public {
        (Tab[] memory tabs, Voucher[] memory vouchers, bytes[] memory signatures) =
            (new Tab[](2), new Voucher[](2), new bytes[](2));
        for (uint256 i = 0; i < 2; ++i) {
            (tabs[i], vouchers[i]) = (tab, voucherOf(2 ether));
            signatures[i] = sign(vouchers[i]);
        }
        assertEq(bank.redeemMany(tabs, vouchers, signatures), 2 ether);
        assertEq(creditOf(payee), 2 ether);
    }

    function test_TheSameClaimSettledTwice() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        vm.expectRevert(
            abi.encodeWithSelector(IBank.ClaimMismatch.selector, id, bytes32(0), claimIdOf(state))
        );
        bank.settle(tab, state);
    }

    function test_AnOldVoucherInAClaim() public {
        // 6 to 9 were acknowledged at half of what they might have cost; the old word covers them all.
        Claim memory claim = claimOf(6, amounts);
        Voucher memory old = voucherOf(1 ether, 4 ether, 5);
        redeem(3 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 3 ether, 3 ether));
        this.fileOutside(claim, old);
    }

    function test_AShortfallPaidByStakeAndByTheTab() public {
        settled(claimOf(6, four(8 ether, 5 ether, 0, 0)), voucherOf(1 ether, 20 ether, 5));
        evidence.forgive(bank, id, 4 ether);
        vm.prank(stranger);
        bank.topUp{value: 10 ether}(id, 10 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 14 ether, 14 ether));
        this.redeemOutside(14 ether);
    }

    function test_AShortfallPaidByTheTabAndByStake() public {
        settled(claimOf(6, four(8 ether, 5 ether, 0, 0)), voucherOf(1 ether, 20 ether, 5));
        vm.prank(stranger);
        bank.topUp{value: 10 ether}(id, 10 ether);
        redeem(14 ether);
        (uint96 short,) = bank.shortOf(id);
        assertEq(short, 0);
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, 1));
        evidence.forgive(bank, id, 1);
    }

    // ---- vouchers and tabs

    function test_VouchersThatGoBackwards() public {
        redeem(3 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 2 ether, 3 ether));
        this.redeemOutside(2 ether);
        assertEq(redeemed(), 3 ether);
    }

    function test_VouchersOfAReopenedTabReplay() public {
        redeem(3 ether);
        close();
        pass(CLOSE_DELAY);
        bank.finishClosing(tab);
        vm.expectRevert(abi.encodeWithSelector(IBank.UnknownTab.selector, id));
        this.redeemOutside(5 ether);
        open(DEPOSIT);
        equal(bank.tabOf(id), DEPOSIT, 3 ether, 0, true);
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 3 ether, 3 ether));
        this.redeemOutside(3 ether);
        assertEq(redeem(4 ether), 1 ether);
    }

    function test_VouchersOfAnotherDeployment() public {
        Voucher memory voucher = voucherOf(1 ether);
        bytes memory signature = sign(voucher);
        bytes memory agreed = consent();
        bank = deploy();
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, key, id));
        vm.prank(payer);
        bank.openTab{value: 1}(payee, key, 1, agreed);
        open(DEPOSIT);
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidVoucher.selector, key, voucherHash(voucher)));
        bank.redeem(tab, voucher, signature);
    }

    function test_VouchersOfAForkThatChangedItsNumber() public {
        Voucher memory voucher = voucherOf(1 ether);
        bytes memory signature = sign(voucher);
        vm.chainId(777);
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidVoucher.selector, key, voucherHash(voucher)));
        bank.redeem(tab, voucher, signature);
    }

    function test_ATabSpentWithTwoPayees() public {
        Tab memory other = Tab(payer, stranger, key);
        bytes memory agreed = signed(KEY, consentHash(payer, stranger));
        vm.prank(payer);
        bank.openTab{value: 1 ether}(stranger, key, 1 ether, agreed);
        Voucher memory voucher = voucherOf(1 ether);
        bytes memory signature = sign(voucher);
        bytes32 otherId = keccak256(abi.encode(other));
        vm.expectRevert(abi.encodeWithSelector(IBank.ForeignVoucher.selector, otherId, id));
        bank.redeem(other, voucher, signature);
    }

    function test_AStolenTabKeyTakesItsTabAtMost() public {
        Tab memory other = Tab(payer, payee, vm.addr(OTHER_KEY));
        bytes memory agreed = signed(OTHER_KEY, consentHash(payer, payee));
        vm.prank(payer);
        bank.openTab{value: DEPOSIT}(payee, other.key, DEPOSIT, agreed);
        assertEq(redeem(type(uint96).max), DEPOSIT);
        assertEq(bank.tabOf(keccak256(abi.encode(other))).balance, DEPOSIT);
    }

    function test_ATabClosedUnderRunningOrders() public {
        close();
        pass(CLOSE_DELAY - 1);
        // The payee still redeems and claims, and the tab waits for the claim.
        redeem(1 ether);
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        pass(1);
        vm.expectRevert(abi.encodeWithSelector(IBank.ClaimUnderWay.selector, id));
        vm.prank(payer);
        bank.finishClosing(tab);
        pass(CLAIM_DELAY - 1);
        bank.settle(tab, state);
        bank.finishClosing(tab);
        assertEq(creditOf(payee), 3 ether + claimGas());
    }

    function test_APayeeThatKeepsATabOpenByClaims() public {
        close();
        pass(CLOSE_DELAY - 1);
        ClaimState memory state = file(claimOf(6, four(1, 0, 0, 0)), voucherOf(0, 4 ether, 5));
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        vm.expectPartialRevert(IBank.TabIsClosing.selector);
        this.fileOutside(SumTrees.claim(6, four(2, 0, 0, 0)), voucherOf(0, 4 ether, 5));
        bank.finishClosing(tab);
    }

    function test_ClosingBeforeARedemptionOfManyDoesNotStopTheRest() public {
        Tab memory other = Tab(stranger, payee, key);
        bytes memory agreed = signed(KEY, consentHash(stranger, payee));
        vm.prank(stranger);
        bank.openTab{value: 1 ether}(payee, key, 1 ether, agreed);
        (Tab[] memory tabs, Voucher[] memory vouchers, bytes[] memory signatures) =
            (new Tab[](2), new Voucher[](2), new bytes[](2));
        (tabs[0], tabs[1]) = (tab, other);
        for (uint256 i = 0; i < 2; ++i) {
            vouchers[i] = voucherOf(1 ether);
            vouchers[i].tab = keccak256(abi.encode(tabs[i]));
            signatures[i] = sign(vouchers[i]);
        }
        close();
        pass(CLOSE_DELAY);
        bank.finishClosing(tab);
        assertEq(bank.redeemMany(tabs, vouchers, signatures), 1 ether);
    }

    function test_AnOpeningFrontRun() public {
        // The consent is for one payer: nobody else opens with it, or in its name.
        bytes memory agreed = signed(KEY, consentHash(stranger, payee));
        bytes32 mine = keccak256(abi.encode(payee, payee, key));
        vm.deal(payee, 1 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, key, mine));
        vm.prank(payee);
        bank.openTab{value: 1}(payee, key, 1, agreed);
        vm.prank(stranger);
        bank.openTab{value: 1}(payee, key, 1, agreed);
    }

    // ---- claims

    function test_ATabDrainedByManyClaims() public {
        uint96 before = tabBalance();
        for (uint96 i = 1; i <= 5; ++i) {
            settled(claimOf(6, four(i, 0, 0, 0)), voucherOf(0, 4 ether, 5));
        }
        // Five claims of one unit each: five units, and as much for their gas.
        assertEq(before - tabBalance(), 10);
    }

    function test_APayerThatVanishes() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        pass(CLAIM_DELAY + 1_000_000);
        vm.prank(stranger);
        bank.settle(tab, state);
        assertEq(creditOf(payee), 3 ether + claimGas());
        bank.withdraw(payee);
    }

    function test_APayeeThatClaimsWhatWasRefunded() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        evidence.refund(7);
        object(state, 7);
        vm.expectRevert(abi.encodeWithSelector(MockEvidence.LeafVoid.selector, 7));
        this.answerOutside(state, amounts, 7);
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 7);
        equal(bank.tabOf(id), DEPOSIT, uint96(STRUCK_GAS * BASE_FEE), 0, true);
        // Without it, the rest is paid.
        settled(claimOf(6, four(1 ether, 0, 0.25 ether, 0.25 ether)), voucherOf(1 ether, 4 ether, 5));
        assertEq(redeemed(), 2.5 ether);
    }

    function test_ARefundAfterAnAnswer() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        object(state, 7);
        answer(state, amounts, 7);
        evidence.refund(7);
        object(state, 7);
        vm.expectRevert(abi.encodeWithSelector(MockEvidence.LeafVoid.selector, 7));
        this.answerOutside(state, amounts, 7);
    }

    function test_OneLeafUnderTwoNumbers() public {
        // The leaf of number 6 at the places of 6 and 7.
        ClaimState memory state = file(claimOf(6, four(1 ether, 1 ether, 0, 0)), voucherOf(1 ether, 4 ether, 5));
        object(state, 7);
        (bytes32[] memory siblings, uint96[] memory sums) =
            SumTrees.path(6, four(1 ether, 1 ether, 0, 0), 1);
        vm.expectRevert(abi.encodeWithSelector(MockEvidence.LeafVoid.selector, 7));
        vm.prank(payee);
        bank.answer(tab, state, 7, LeafKind.Order, 1 ether, siblings, sums, abi.encode(uint64(6)));
    }

    /// @dev A tree of four places for three numbers: the fourth holds what nobody could object to.
    function test_MoneyBeyondTheLastNumber() public {
        uint96[] memory hiding = four(1, 1, 1, 2 ether);
        evidence.setWorth(6, 1);
        Claim memory claim = SumTrees.claim(6, 8, hiding);
        ClaimState memory state = file(claim, voucherOf(1 ether, 4 ether, 5));
        object(state, 9);
        evidence.setWorth(9, 2 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotClaimed.selector, 9));
        this.answerOutside(state, hiding, 9);
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(6, hiding, 3);
        vm.expectPartialRevert(IBank.WrongPath.selector);
        vm.prank(payee);
        bank.answer(tab, state, 9, LeafKind.Order, 0, siblings, sums, "");
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 9);
    }

    function test_MoneyUnderANumberThatIsLeftOut() public {
        Claim memory claim = claimOf(6, amounts);
        claim.exceptions = 2;
        ClaimState memory state = file(claim, voucherOf(1 ether, 4 ether, 5));
        object(state, 7);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotClaimed.selector, 7));
        this.answerOutside(state, amounts, 7);
    }

    function test_EmptyPlacesAreShown() public {
        uint96[] memory some = four(1 ether, 0, 1 ether, 0);
        Claim memory claim = claimOf(6, some);
        claim.exceptions = 2;
        ClaimState memory state = file(claim, voucherOf(1 ether, 4 ether, 5));
        object(state, 7);
        answer(state, some, 7);
        assertEq(creditOf(payee), 48_000 * BASE_FEE, "an empty place is answered more cheaply");
        object(state, 9);
        answer(state, some, 9);
        assertEq(tabBalance() + creditOf(payee), DEPOSIT);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        assertEq(redeemed(), 3 ether);
    }

    function test_ATotalThatTheTreeDoesNotHave() public {
        Claim memory claim = claimOf(6, amounts);
        claim.total = 3 ether;
        (bytes32 top,) = SumTrees.root(6, amounts);
        claim.root = keccak256(abi.encodePacked(hex"02", top, claim.total, claim.first, claim.last));
        ClaimState memory state = file(claim, voucherOf(1 ether, 4 ether, 5));
        object(state, 6);
        vm.expectPartialRevert(IBank.WrongPath.selector);
        this.answerOutside(state, amounts, 6);
    }

    function test_OverflowOfSums() public {
        // Two halves of 2^95 and one unit: a sum that wrapped around would be one.
        Claim memory claim = claimOf(6, four(1, 0, 0, 0));
        ClaimState memory state = file(claim, voucherOf(1 ether, 4 ether, 5));
        object(state, 6);
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(6, four(1, 0, 0, 0), 0);
        (sums[0], sums[1]) = (1 << 95, 1 << 95);
        vm.expectRevert(abi.encodeWithSelector(SumTree.SumTooLarge.selector, 1, (uint256(1) << 96) + 1));
        vm.prank(payee);
        bank.answer(tab, state, 6, LeafKind.Order, 1, siblings, sums, abi.encode(uint64(6)));
    }

    // ---- objections

    function test_ObjectionSpam() public {
        uint96[] memory many = new uint96[](40);
        for (uint256 i = 0; i < 40; ++i) {
            many[i] = 1;
        }
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        voucher.sequence = 100;
        ClaimState memory state = file(claimOf(6, many), voucher);
        for (uint64 i = 0; i < 32; ++i) {
            object(state, 6 + i);
        }
        vm.expectRevert(abi.encodeWithSelector(IBank.TooManyObjections.selector, claimIdOf(state), 32));
        object(state, 38);
        // The payer pays each answer, and an answer makes room.
        answer(state, many, 10);
        object(state, 38);
        assertEq(creditOf(payee), answerGas());
        assertEq(DEPOSIT - tabBalance(), 33 * answerGas());
    }

    /// @dev A payer that objects before each answer must not make the answers invalid.
    function test_AnAnswerFrontRunByAnObjection() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        object(state, 6);
        object(state, 7);
        answer(state, amounts, 6);
        object(state, 8);
        answer(state, amounts, 7);
        answer(state, amounts, 8);
        (, uint16 objections) = bank.claimOf(id);
        assertEq(objections, 0);
    }

    /// @dev Objections must not be paid with what the claim is about to pay.
    function test_ObjectionsPaidWithThePayeesMoney() public {
        redeem(7 ether);
        ClaimState memory state = file(claimOf(6, four(3 ether, 0, 0, 0)), voucherOf(7 ether, 10 ether, 5));
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 0, answerGas()));
        object(state, 6);
        vm.prank(payer);
        bank.object{value: answerGas()}(tab, state, 6);
        answer(state, four(3 ether, 0, 0, 0), 6);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        assertEq(creditOf(payee), DEPOSIT + answerGas());
    }

    function test_AStrikeByAThirdParty() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IBank.NoObjection.selector, claimIdOf(state), 6));
        bank.strike(tab, state, 6);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotPayer.selector, id, stranger));
        bank.object(tab, state, 6);
        vm.stopPrank();
        object(state, 6);
        vm.expectPartialRevert(IBank.AnswerStillPossible.selector);
        vm.prank(stranger);
        bank.strike(tab, state, 6);
        pass(ANSWER_WINDOW + 1);
        vm.prank(stranger);
        bank.strike(tab, state, 6);
        assertEq(tabBalance(), DEPOSIT);
        assertEq(creditOf(stranger), 0);
    }

    /// @dev A deposit of a struck claim must not come back to a tab of somebody else.
    function test_ADepositReturnedToAnotherTab() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        object(state, 6);
        pass(ANSWER_WINDOW + 1);
        Tab memory other = Tab(stranger, payee, key);
        vm.expectRevert(
            abi.encodeWithSelector(IBank.ForeignVoucher.selector, keccak256(abi.encode(other)), id)
        );
        bank.strike(other, state, 6);
    }

    /// @dev An earlier objection must not strike a later claim.
    function test_AnOldObjectionAgainstANewClaim() public {
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        object(state, 6);
        object(state, 7);
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 6);
        ClaimState memory again = file(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5));
        bank.strike(tab, state, 7);
        (bytes32 claimId, uint16 objections) = bank.claimOf(id);
        assertEq(claimId, claimIdOf(again));
        assertEq(objections, 0);
    }

    function test_AClaimFiledForThePayeeToBlockIt() public {
        Claim memory claim = claimOf(6, four(1, 0, 0, 0));
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        bytes memory signature = sign(voucher);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotPayee.selector, id, payer));
        vm.prank(payer);
        bank.claim(tab, voucher, signature, claim);
    }

    /// @dev The Registry knows no owner of such a payee: the zero address is nobody.
    function testFuzz_NobodyClaimsForAStranger(address caller) public {
        vm.assume(caller != payee);
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        bytes memory signature = sign(voucher);
        Claim memory claim = claimOf(6, amounts);
        vm.assume(caller != address(0));
        vm.expectRevert(abi.encodeWithSelector(IBank.NotPayee.selector, id, caller));
        vm.prank(caller);
        bank.claim(tab, voucher, signature, claim);
    }

    // ---- free gas

    /// @dev On a chain without a base fee an objection costs nothing. Where a claim takes more than the tab holds, whoever
    ///      objects adds one unit: the Bank takes no call for an amount of nothing.
    function test_WhereGasIsFreeAFalseClaimOfMoreThanATabHoldsIsObjectedToForOneUnit() public {
        vm.fee(0);
        ClaimState memory state = file(claimOf(6, four(20 ether, 0, 0, 0)), voucherOf(0, 30 ether, 5));
        vm.expectRevert(IBank.ZeroAmount.selector);
        object(state, 6);
        vm.prank(payer);
        bank.object{value: 1}(tab, state, 6);
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 6);
        assertEq(tabBalance(), DEPOSIT + 1);
        assertEq(redeemed(), 0);
    }
}
