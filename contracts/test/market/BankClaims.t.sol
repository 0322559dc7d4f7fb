// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Claim, ClaimState, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {BankTest} from "./support/BankTest.sol";

/// @title Claims: who files which, and what is paid when nobody doubts them
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
        refusesClaim(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5), reason);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        file(claimOf(6, four(1 ether, 1 ether, 0, 1 ether)), voucherOf(1 ether, 4 ether, 5));
    }

    function invalid(Claim memory claim) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IBank.InvalidClaim.selector, claim.first, claim.last, claim.total);
    }

    function test_RefusesNumbersThatAreNotTheVouchers() public {
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        Claim memory claim = claimOf(6, amounts);
        (claim.first, claim.last) = (10, 9);
        refusesClaim(claim, voucher, invalid(claim));
        (claim.first, claim.last) = (0, 9);
        refusesClaim(claim, voucher, invalid(claim));
        (claim.first, claim.last) = (6, 21);
        refusesClaim(claim, voucher, invalid(claim));
        (claim.first, claim.last) = (6, type(uint64).max);
        refusesClaim(claim, voucher, invalid(claim));
        voucher.sequence = type(uint64).max;
        refusesClaim(claim, voucher, invalid(claim));
        (claim.last, claim.total) = (9, 0);
        refusesClaim(claim, voucher, invalid(claim));
    }

    function test_RefusesAcknowledgedNumbers() public {
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 8);
        Claim memory claim = claimOf(6, amounts);
        refusesClaim(claim, voucher, invalid(claim));
        // 6 and 7 are not acknowledged, 8 is; then 8 is left out.
        voucher.exceptions = 6;
        refusesClaim(claim, voucher, invalid(claim));
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
        if (!allowed(claim, voucher)) refusesClaim(claim, voucher, invalid(claim));
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
        refusesClaim(
            claim,
            voucherOf(1 ether, 3 ether - 1, 5),
            abi.encodeWithSelector(IBank.ClaimAboveAuthorised.selector, 3 ether, 3 ether - 1)
        );
        claim.total = type(uint96).max;
        uint256 sum = uint256(type(uint96).max) + 1 ether;
        refusesClaim(
            claim,
            voucherOf(1 ether, type(uint96).max, 5),
            abi.encodeWithSelector(IBank.ClaimAboveAuthorised.selector, sum, type(uint96).max)
        );
        refusesClaim(
            claim,
            voucherOf(2 ether, 1 ether, 5),
            abi.encodeWithSelector(IBank.SpentAboveAuthorised.selector, 2 ether, 1 ether)
        );
    }

    function test_RefusesWhatPaysNothingAndForeignVouchers() public {
        redeem(3 ether);
        refusesClaim(
            claimOf(6, amounts),
            voucherOf(1 ether, 4 ether, 5),
            abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 3 ether, 3 ether)
        );
        Voucher memory voucher = voucherOf(1 ether, 4 ether, 5);
        voucher.tab = SUBJECT;
        refusesClaim(claimOf(6, amounts), voucher, abi.encodeWithSelector(IBank.ForeignVoucher.selector, id, SUBJECT));
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
        refusesClaim(
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
        refusesClaim(claimOf(6, amounts), voucherOf(1 ether, 4 ether, 5), reason);
        bank.finishClosing(tab);
    }
}
