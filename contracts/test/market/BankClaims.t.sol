// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Claim, ClaimState, LeafKind, PotKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {SumTree} from "../../market/libraries/SumTree.sol";
import {MockEvidence} from "./support/BankMocks.sol";
import {BankTest} from "./support/BankTest.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title Claims: filing, objections, answers, settlement
contract BankClaimsTest is BankTest {
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

    // ---- filing

    function test_AClaimThatNobodyDoubtsIsPaid() public {
        Claim memory claim = claimOf(6, amounts);
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        ClaimState memory state = stateOf(claim, voucher);
        bytes memory signature = sign(voucher);
        vm.expectEmit(address(bank));
        emit IBank.Claimed(id, claimIdOf(state), state);
        vm.prank(payee);
        bank.claim(tab, voucher, signature, claim);
        (bytes32 claimId, uint16 objections) = bank.claimOf(id);
        assertEq(claimId, claimIdOf(state));
        assertEq(objections, 0);
        vm.roll(state.settlesAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.ClaimNotDue.selector, state.settlesAt, state.settlesAt - 1));
        bank.settle(tab, state);
        vm.roll(state.settlesAt);
        vm.expectEmit(address(bank));
        emit IBank.ClaimSettled(id, claimId, 3 ether, 3 ether, 0);
        vm.prank(stranger);
        bank.settle(tab, state);
        assertEq(creditOf(payee), 3 ether + claimGas());
        equal(bank.tabOf(id), DEPOSIT - 3 ether - claimGas(), 3 ether, 0, true);
        (claimId,) = bank.claimOf(id);
        assertEq(claimId, 0);
        assertEq(held(), DEPOSIT);
    }

    function test_OnlyThePayeeOrItsOwnerClaims() public {
        address owner = makeAddr("owner");
        registry.setOwner(payee, owner);
        Claim memory claim = claimOf(6, amounts);
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        bytes memory signature = sign(voucher);
        address[3] memory others = [payer, key, stranger];
        for (uint256 i = 0; i < 3; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IBank.NotPayee.selector, id, others[i]));
            vm.prank(others[i]);
            bank.claim(tab, voucher, signature, claim);
        }
        vm.prank(owner);
        bank.claim(tab, voucher, signature, claim);
        ClaimState memory state = stateOf(claim, voucher);
        state.claimer = owner;
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        assertEq(creditOf(payee), 3 ether);
        assertEq(creditOf(owner), claimGas());
    }

    function test_OneClaimATabAtATime() public {
        ClaimState memory state = filed();
        bytes memory reason = abi.encodeWithSelector(IBank.ClaimUnderWay.selector, id);
        refuses(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5), reason);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        file(claimOf(6, four(1 ether, 1 ether, 0, 1 ether)), voucherOf(1 ether, 4 ether, 5));
    }

    function fileOutside(Claim memory claim, Voucher memory voucher) external {
        file(claim, voucher);
    }

    function refuses(Claim memory claim, Voucher memory voucher, bytes memory reason) private {
        vm.expectRevert(reason);
        this.fileOutside(claim, voucher);
    }

    function invalid(Claim memory claim) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IBank.InvalidClaim.selector, claim.first, claim.last, claim.total);
    }

    function test_RefusesNumbersThatAreNotTheVouchers() public {
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        Claim memory claim = claimOf(6, amounts);
        (claim.first, claim.last) = (10, 9);
        refuses(claim, voucher, invalid(claim));
        (claim.first, claim.last) = (0, 9);
        refuses(claim, voucher, invalid(claim));
        (claim.first, claim.last) = (6, 21);
        refuses(claim, voucher, invalid(claim));
        (claim.first, claim.last) = (6, type(uint64).max);
        refuses(claim, voucher, invalid(claim));
        voucher.sequence = type(uint64).max;
        refuses(claim, voucher, invalid(claim));
        (claim.last, claim.total) = (9, 0);
        refuses(claim, voucher, invalid(claim));
    }

    function test_RefusesAcknowledgedNumbers() public {
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 8);
        Claim memory claim = claimOf(6, amounts);
        refuses(claim, voucher, invalid(claim));
        // 6 and 7 are not acknowledged, 8 is; then 8 is left out.
        voucher.exceptions = 6;
        refuses(claim, voucher, invalid(claim));
        claim.exceptions = 4;
        file(claim, voucher);
    }

    /// @dev A model that goes through all numbers, against the contract's masks.
    function testFuzz_NumbersAreUnacknowledgedOrLeftOut(
        uint64 first,
        uint16 count,
        uint16 through,
        uint256 open,
        uint256 leftOut
    ) public {
        first = uint64(bound(first, 1, 600));
        uint64 last = first + uint64(bound(count, 0, 300));
        Voucher memory voucher = voucherOf(1 ether, 4 ether, uint64(bound(through, 0, 1000)));
        voucher.sequence = 1000;
        if (open % 8 != 0) voucher.exceptions = open % 8 < 4 ? type(uint256).max : open;
        Claim memory claim = Claim(first, last, leftOut, 1 ether, SUBJECT);
        if (!allowed(claim, voucher)) refuses(claim, voucher, invalid(claim));
        else file(claim, voucher);
    }

    function allowed(Claim memory claim, Voucher memory voucher) private pure returns (bool) {
        uint64 through = voucher.acknowledgedThrough;
        // A claim begins in the window: what is older is acknowledged.
        if (through >= claim.first && through - claim.first > 255) return false;
        for (uint64 number = claim.first; number <= claim.last && number <= through; ++number) {
            bool acknowledged = voucher.exceptions >> (through - number) & 1 == 0;
            bool leftOut = number - claim.first <= 255 && claim.exceptions >> (number - claim.first) & 1 == 1;
            if (acknowledged && !leftOut) return false;
        }
        return true;
    }

    function test_RefusesSumsBeyondTheVoucher() public {
        Claim memory claim = claimOf(6, amounts);
        refuses(
            claim,
            voucherOf(1 ether, 3 ether - 1, 5),
            abi.encodeWithSelector(IBank.ClaimAboveAuthorised.selector, 3 ether, 3 ether - 1)
        );
        claim.total = type(uint96).max;
        uint256 sum = uint256(type(uint96).max) + 1 ether;
        refuses(
            claim,
            voucherOf(1 ether, type(uint96).max, 5),
            abi.encodeWithSelector(IBank.ClaimAboveAuthorised.selector, sum, type(uint96).max)
        );
        refuses(
            claim,
            voucherOf(2 ether, 1 ether, 5),
            abi.encodeWithSelector(IBank.SpentAboveAuthorised.selector, 2 ether, 1 ether)
        );
    }

    function test_RefusesWhatPaysNothingAndForeignVouchers() public {
        redeem(3 ether);
        refuses(
            claimOf(6, amounts),
            voucherOf(1 ether, 4 ether, 5),
            abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 3 ether, 3 ether)
        );
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        voucher.tab = SUBJECT;
        refuses(claimOf(6, amounts), voucher, abi.encodeWithSelector(IBank.ForeignVoucher.selector, id, SUBJECT));
    }

    function test_RefusesSignaturesThatAreNotTheKeys() public {
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        Claim memory claim = claimOf(6, amounts);
        bytes memory wrong = signed(OTHER_KEY, voucherHash(voucher));
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidVoucher.selector, key, voucherHash(voucher)));
        vm.prank(payee);
        bank.claim(tab, voucher, wrong, claim);
        (bytes32 claimId,) = bank.claimOf(id);
        assertEq(claimId, 0);
    }

    function test_RefusesClaimsOnTabsThatDoNotStand() public {
        Tab memory other = Tab(stranger, payee, key);
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        voucher.tab = keccak256(abi.encode(other));
        bytes memory signature = sign(voucher);
        Claim memory claim = claimOf(6, amounts);
        vm.expectRevert(abi.encodeWithSelector(IBank.UnknownTab.selector, voucher.tab));
        vm.prank(payee);
        bank.claim(other, voucher, signature, claim);
        close();
        pass(CLOSE_DELAY - 1);
        filed();
        ClaimState memory state = stateOf(claim, voucherOf(1 ether, 4 ether, 5));
        pass(1);
        vm.expectRevert(abi.encodeWithSelector(IBank.ClaimUnderWay.selector, id));
        bank.finishClosing(tab);
        pass(CLAIM_DELAY - 1);
        bank.settle(tab, state);
        refuses(
            claimOf(10, amounts),
            voucherOf(3 ether, 5 ether, 9),
            abi.encodeWithSelector(IBank.TabIsClosing.selector, id, 1000 + CLOSE_DELAY)
        );
        bank.finishClosing(tab);
        assertEq(held(), creditOf(payee));
    }

    /// @dev Then it is its payer's to take what is left, and no claim of that block keeps it waiting.
    function test_NothingIsClaimedFromTheBlockOnInWhichATabMayBeClosed() public {
        close();
        pass(CLOSE_DELAY);
        bytes memory reason = abi.encodeWithSelector(IBank.TabIsClosing.selector, id, vm.getBlockNumber());
        refuses(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5), reason);
        bank.finishClosing(tab);
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
        refuses(
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
