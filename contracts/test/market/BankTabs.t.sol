// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {PotKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {BrokenKey, Receiver, TicketKey} from "./support/BankMocks.sol";
import {BankTest} from "./support/BankTest.sol";

/// @title Opening, vouchers, closing
contract BankTabsTest is BankTest {
    uint256 private constant ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

    // ---- opening

    function test_OpensATab() public {
        bytes memory agreed = consent();
        vm.expectEmit(address(bank));
        emit IBank.TabOpened(id, payer, payee, key, DEPOSIT);
        vm.prank(payer);
        bank.openTab{value: DEPOSIT}(payee, key, DEPOSIT, agreed);
        equal(bank.tabOf(id), DEPOSIT, 0, 0, true);
        assertEq(bank.balanceOf(PotKind.Tab, id), DEPOSIT);
        assertEq(held(), DEPOSIT);
    }

    function test_RefusesASecondOpening() public {
        open(DEPOSIT);
        bytes memory agreed = consent();
        vm.startPrank(payer);
        vm.expectRevert(abi.encodeWithSelector(IBank.TabAlreadyOpen.selector, id));
        bank.openTab{value: 1}(payee, key, 1, agreed);
        bank.close(tab);
        uint40 closesAt = uint40(1000 + CLOSE_DELAY);
        vm.expectRevert(abi.encodeWithSelector(IBank.TabIsClosing.selector, id, closesAt));
        bank.openTab{value: 1}(payee, key, 1, agreed);
        vm.expectRevert(abi.encodeWithSelector(IBank.TabIsClosing.selector, id, closesAt));
        bank.topUp{value: 1}(id, 1);
    }

    function test_RefusesWrongAmountsAndAddresses() public {
        bytes memory agreed = consent();
        bytes memory forNobody = signed(KEY, consentHash(payer, address(0)));
        vm.startPrank(payer);
        vm.expectRevert(IBank.ZeroAmount.selector);
        bank.openTab(payee, key, 0, agreed);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 1, 2));
        bank.openTab{value: 1}(payee, key, 2, agreed);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 0, type(uint96).max));
        bank.openTab(payee, key, type(uint96).max, agreed);
        vm.expectRevert(IBank.ZeroAddress.selector);
        bank.openTab{value: 1}(address(0), key, 1, forNobody);
    }

    /// @dev ecrecover's zero must never be the key.
    function test_RefusesTheZeroKey() public {
        bytes memory none = new bytes(65);
        bytes32 other = keccak256(abi.encode(payer, payee, address(0)));
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, address(0), other));
        vm.prank(payer);
        bank.openTab{value: 1}(payee, address(0), 1, none);
    }

    function test_RefusesConsentsThatAreNotTheKeys() public {
        refusesConsent(signed(OTHER_KEY, consentHash(payer, payee)));
        refusesConsent(signed(KEY, consentHash(payer, stranger)));
        refusesConsent(signed(KEY, consentHash(stranger, payee)));
        refusesConsent("");
        refusesConsent(bytes.concat(consent(), hex"00"));
        bytes[4] memory wrong = malleated(consentHash(payer, payee));
        for (uint256 i = 0; i < 4; ++i) {
            refusesConsent(wrong[i]);
        }
        vm.chainId(99);
        bytes memory foreign = consent();
        vm.chainId(31337);
        refusesConsent(foreign);
    }

    function refusesConsent(bytes memory wrong) private {
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, key, id));
        vm.prank(payer);
        bank.openTab{value: 1}(payee, key, 1, wrong);
    }

    /// @dev The other s, v of 0 or 1, a flipped v, and the short form.
    function malleated(bytes32 structHash) private view returns (bytes[4] memory wrong) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(KEY, digestOf(structHash));
        wrong[0] = abi.encodePacked(r, bytes32(ORDER - uint256(s)), v ^ 7);
        wrong[1] = abi.encodePacked(r, s, v - 27);
        wrong[2] = abi.encodePacked(r, s, v ^ 7);
        wrong[3] = abi.encodePacked(r, bytes32(uint256(s) | uint256(v - 27) << 255));
    }

    // ---- topping up

    function test_AnybodyTopsUp() public {
        open(DEPOSIT);
        vm.startPrank(stranger);
        vm.expectEmit(address(bank));
        emit IBank.TabToppedUp(id, 2 ether, 12 ether);
        bank.topUp{value: 2 ether}(id, 2 ether);
        assertEq(tabBalance(), 12 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.UnknownTab.selector, SUBJECT));
        bank.topUp{value: 1}(SUBJECT, 1);
        vm.expectRevert(IBank.ZeroAmount.selector);
        bank.topUp(id, 0);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 3, 2));
        bank.topUp{value: 3}(id, 2);
    }

    function test_OverflowOfATabIsRefused() public {
        uint96 most = type(uint96).max;
        vm.deal(payer, most);
        open(most);
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, uint256(most) + 1));
        vm.prank(stranger);
        bank.topUp{value: 1}(id, 1);
        assertEq(redeem(most), most);
        assertEq(redeemed(), most);
        equal(bank.tabOf(id), 0, most, 0, true);
    }

    // ---- vouchers

    function test_AVoucherPaysWhatIsNotYetRedeemed() public {
        open(DEPOSIT);
        Voucher memory voucher = voucherOf(3 ether, 4 ether, 20);
        bytes memory signature = sign(voucher);
        vm.expectEmit(address(bank));
        emit IBank.TabRedeemed(id, 3 ether);
        vm.prank(stranger);
        assertEq(bank.redeem(tab, voucher, signature), 3 ether);
        assertEq(redeem(5 ether), 2 ether);
        equal(bank.tabOf(id), 5 ether, 5 ether, 0, true);
        assertEq(creditOf(payee), 5 ether);
        assertEq(held(), DEPOSIT);
    }

    function test_AVoucherThatIsNotCoveredPaysInPartAndIsNotBurnt() public {
        open(DEPOSIT);
        assertEq(redeem(12 ether), DEPOSIT);
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToRedeem.selector, id, 12 ether, DEPOSIT));
        this.redeemOutside(12 ether);
        vm.prank(stranger);
        bank.topUp{value: 5 ether}(id, 5 ether);
        assertEq(redeem(12 ether), 2 ether);
        equal(bank.tabOf(id), 3 ether, 12 ether, 0, true);
    }

    function redeemOutside(uint96 spent) external {
        redeem(spent);
    }

    function test_RefusesVouchersThatAreNotThisTabs() public {
        open(DEPOSIT);
        Voucher memory voucher = voucherOf(1 ether);
        voucher.tab = SUBJECT;
        bytes memory signature = sign(voucher);
        vm.expectRevert(abi.encodeWithSelector(IBank.ForeignVoucher.selector, id, SUBJECT));
        bank.redeem(tab, voucher, signature);
        // The same word about the tab of somebody else.
        Tab memory other = Tab(stranger, payee, key);
        voucher = voucherOf(1 ether);
        signature = sign(voucher);
        vm.expectRevert(
            abi.encodeWithSelector(IBank.ForeignVoucher.selector, keccak256(abi.encode(other)), id)
        );
        bank.redeem(other, voucher, signature);
        vm.expectRevert(abi.encodeWithSelector(IBank.UnknownTab.selector, keccak256(abi.encode(other))));
        voucher.tab = keccak256(abi.encode(other));
        bank.redeem(other, voucher, signature);
    }

    function test_RefusesSignaturesThatAreNotTheKeys() public {
        open(DEPOSIT);
        Voucher memory voucher = voucherOf(1 ether);
        refusesVoucher(voucher, signed(OTHER_KEY, voucherHash(voucher)));
        refusesVoucher(voucher, "");
        refusesVoucher(voucher, new bytes(65));
        refusesVoucher(voucher, bytes.concat(sign(voucher), hex"00"));
        bytes[4] memory wrong = malleated(voucherHash(voucher));
        for (uint256 i = 0; i < 4; ++i) {
            refusesVoucher(voucher, wrong[i]);
        }
        bytes memory signature = sign(voucher);
        voucher.exceptions = 1;
        refusesVoucher(voucher, signature);
        (voucher.exceptions, voucher.sequence) = (0, 21);
        refusesVoucher(voucher, signature);
        (voucher.sequence, voucher.acknowledgedThrough) = (20, 19);
        refusesVoucher(voucher, signature);
        (voucher.acknowledgedThrough, voucher.spent) = (20, 1 ether - 1);
        refusesVoucher(voucher, signature);
        (voucher.spent, voucher.authorised) = (1 ether, 2 ether);
        refusesVoucher(voucher, signature);
        voucher.authorised = 1 ether;
        assertEq(bank.redeem(tab, voucher, signature), 1 ether);
    }

    function refusesVoucher(Voucher memory voucher, bytes memory wrong) private {
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidVoucher.selector, key, voucherHash(voucher)));
        bank.redeem(tab, voucher, wrong);
        assertEq(tabBalance(), DEPOSIT);
    }

    function test_RefusesMoreSpentThanAuthorised() public {
        open(DEPOSIT);
        Voucher memory voucher = voucherOf(2 ether, 2 ether - 1, 20);
        bytes memory signature = sign(voucher);
        vm.expectRevert(abi.encodeWithSelector(IBank.SpentAboveAuthorised.selector, 2 ether, 2 ether - 1));
        bank.redeem(tab, voucher, signature);
    }

    /// @dev Fields are read and hashed as they come: what has bits above its type is refused, whoever signed it.
    function test_RefusesFieldsWiderThanTheirTypes() public {
        open(DEPOSIT);
        Voucher memory voucher = voucherOf(1 ether);
        bytes memory data = abi.encodeCall(IBank.redeem, (tab, voucher, sign(voucher)));
        for (uint256 field = 0; field < 8; ++field) {
            if (field == 3) continue;
            bytes memory wrong = bytes.concat(data);
            wrong[4 + 32 * field] = 0x80;
            (bool success,) = address(bank).call(wrong);
            assertFalse(success, vm.toString(field));
        }
        // Signed as it is: both sums beyond 96 bits.
        uint256 wide = uint256(1) << 200;
        bytes32 structHash = keccak256(
            abi.encode(
                keccak256(
                    "Voucher(bytes32 tab,uint96 spent,uint96 authorised,uint64 sequence,uint64 acknowledgedThrough,uint256 exceptions)"
                ),
                id,
                wide,
                wide,
                20,
                20,
                0
            )
        );
        bytes memory head =
            abi.encodePacked(IBank.redeem.selector, abi.encode(tab), abi.encode(id, wide, wide, 20, 20, 0));
        bytes memory signature = signed(KEY, structHash);
        (bool done, bytes memory reason) =
            address(bank).call(bytes.concat(head, abi.encode(320, 65), signature, new bytes(31)));
        assertFalse(done);
        assertEq(reason, abi.encodeWithSelector(IBank.AmountTooLarge.selector, wide));
    }

    // ---- many vouchers

    function test_ManyVouchersOfManyPayees() public {
        (Tab[] memory tabs, Voucher[] memory vouchers, bytes[] memory signatures) = many();
        assertEq(bank.redeemMany(tabs, vouchers, signatures), 7 ether);
        assertEq(creditOf(payee), 6 ether);
        assertEq(creditOf(stranger), 1 ether);
        assertEq(bank.redeemMany(tabs, vouchers, signatures), 0);
        assertEq(creditOf(payee) + creditOf(stranger), 7 ether);
    }

    /// @dev payee, payee again with a lower word, stranger, nobody's tab, payee.
    function many() private returns (Tab[] memory tabs, Voucher[] memory vouchers, bytes[] memory signatures) {
        open(DEPOSIT);
        Tab memory other = Tab(payer, stranger, key);
        bytes memory agreed = signed(KEY, consentHash(payer, stranger));
        vm.prank(payer);
        bank.openTab{value: 1 ether}(stranger, key, 1 ether, agreed);
        (tabs, vouchers, signatures) = (new Tab[](5), new Voucher[](5), new bytes[](5));
        (tabs[0], tabs[1], tabs[2], tabs[3], tabs[4]) = (tab, tab, other, Tab(stranger, payer, key), tab);
        uint96[5] memory spent = [uint96(2 ether), 1 ether, 3 ether, 1 ether, 6 ether];
        for (uint256 i = 0; i < 5; ++i) {
            vouchers[i] = voucherOf(spent[i]);
            vouchers[i].tab = keccak256(abi.encode(tabs[i]));
            signatures[i] = sign(vouchers[i]);
        }
    }

    function test_OneInvalidVoucherRevertsAll() public {
        (Tab[] memory tabs, Voucher[] memory vouchers, bytes[] memory signatures) = many();
        signatures[4] = signed(OTHER_KEY, voucherHash(vouchers[4]));
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidVoucher.selector, key, voucherHash(vouchers[4])));
        bank.redeemMany(tabs, vouchers, signatures);
        assertEq(creditOf(payee), 0);
    }

    function test_ManyOfDifferentLengthsAreRefused() public {
        (Tab[] memory tabs, Voucher[] memory vouchers, bytes[] memory signatures) = many();
        vm.expectRevert(abi.encodeWithSelector(IBank.LengthsDiffer.selector, 5, 5, 4));
        bank.redeemMany(tabs, vouchers, new bytes[](4));
        vm.expectRevert(abi.encodeWithSelector(IBank.LengthsDiffer.selector, 5, 6, 5));
        bank.redeemMany(tabs, new Voucher[](6), signatures);
        vm.expectRevert(abi.encodeWithSelector(IBank.LengthsDiffer.selector, 0, 5, 5));
        bank.redeemMany(new Tab[](0), vouchers, signatures);
        assertEq(bank.redeemMany(new Tab[](0), new Voucher[](0), new bytes[](0)), 0);
    }

    /// @dev Signatures are found without the compiler's checks: a wrong offset finds nothing that counts.
    function testFuzz_WrongOffsetsOfSignaturesPayNothing(uint256 offset) public {
        (Tab[] memory tabs, Voucher[] memory vouchers, bytes[] memory signatures) = many();
        bytes memory data = abi.encodeCall(IBank.redeemMany, (tabs, vouchers, signatures));
        uint256 at = 4 + 32 * (3 + 1 + 15 + 1 + 30 + 1);
        uint256 right = 5 * 32;
        vm.assume(offset != right);
        assembly {
            if iszero(eq(mload(add(add(data, 0x20), at)), right)) { revert(0, 0) }
            mstore(add(add(data, 0x20), at), offset)
        }
        (bool success,) = address(bank).call{gas: 5_000_000}(data);
        assertFalse(success);
    }

    // ---- closing

    function test_ClosesInTwoSteps() public {
        open(DEPOSIT);
        uint40 closesAt = uint40(1000 + CLOSE_DELAY);
        vm.expectEmit(address(bank));
        emit IBank.TabClosing(id, closesAt);
        close();
        equal(bank.tabOf(id), DEPOSIT, 0, closesAt, true);
        vm.expectRevert(abi.encodeWithSelector(IBank.TabStillClosing.selector, id, closesAt, closesAt - 1));
        vm.roll(closesAt - 1);
        bank.finishClosing(tab);
        assertEq(redeem(4 ether), 4 ether);
        vm.roll(closesAt);
        uint256 before = payer.balance;
        vm.expectEmit(address(bank));
        emit IBank.TabClosed(id, 6 ether);
        vm.prank(stranger);
        bank.finishClosing(tab);
        assertEq(payer.balance - before, 6 ether);
        equal(bank.tabOf(id), 0, 4 ether, 0, false);
        assertEq(held(), 4 ether);
    }

    function test_RefusesToCloseOutOfOrder() public {
        vm.expectRevert(abi.encodeWithSelector(IBank.UnknownTab.selector, id));
        close();
        vm.expectRevert(abi.encodeWithSelector(IBank.UnknownTab.selector, id));
        bank.finishClosing(tab);
        open(DEPOSIT);
        vm.expectRevert(abi.encodeWithSelector(IBank.TabNotClosing.selector, id));
        bank.finishClosing(tab);
        address[3] memory others = [payee, key, stranger];
        for (uint256 i = 0; i < 3; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IBank.NotPayer.selector, id, others[i]));
            vm.prank(others[i]);
            bank.close(tab);
        }
        close();
        vm.expectRevert(abi.encodeWithSelector(IBank.TabIsClosing.selector, id, 1000 + CLOSE_DELAY));
        close();
    }

    function test_AnEmptyTabClosesToo() public {
        open(DEPOSIT);
        redeem(DEPOSIT);
        close();
        pass(CLOSE_DELAY);
        bank.finishClosing(tab);
        vm.expectRevert(abi.encodeWithSelector(IBank.UnknownTab.selector, id));
        bank.finishClosing(tab);
        equal(bank.tabOf(id), 0, DEPOSIT, 0, false);
    }

    function test_APayerThatTakesNothingGetsCredit() public {
        Receiver receiver = receiverWithTab();
        receiver.refuse(true);
        bytes32 other = keccak256(abi.encode(Tab(address(receiver), payee, key)));
        vm.expectEmit(address(bank));
        emit IBank.TabClosed(other, 1 ether);
        vm.expectEmit(address(bank));
        emit IBank.Collected(
            other, address(receiver), PotKind.Credit, account_(address(receiver)), 1 ether, 1 ether
        );
        bank.finishClosing(Tab(address(receiver), payee, key));
        assertEq(creditOf(address(receiver)), 1 ether);
        receiver.refuse(false);
        bank.withdraw(address(receiver));
        assertEq(held(), 0);
    }

    function test_ClosingCannotBeReentered() public {
        Receiver receiver = receiverWithTab();
        Tab memory other = Tab(address(receiver), payee, key);
        open(DEPOSIT);
        receiver.callBack(address(bank), abi.encodeCall(IBank.finishClosing, (other)));
        bank.finishClosing(other);
        assertFalse(receiver.called());
        assertEq(bytes4(receiver.refusal()), IBank.UnknownTab.selector);
        assertEq(held(), DEPOSIT);
    }

    /// @dev Who folds events would otherwise see a tab open that is open, and refuse all that the chain says from there on.
    function test_ATabThatItsPayerOpensAgainOnBeingPaidWasClosedBefore() public {
        Receiver receiver = receiverWithTab();
        bytes memory agreed = signed(KEY, consentHash(address(receiver), payee));
        bytes memory opening = abi.encodeCall(IBank.openTab, (payee, key, 1 ether, agreed));
        receiver.callBack(address(receiver), abi.encodeCall(Receiver.execute, (address(bank), 1 ether, opening)));
        bytes32 other = keccak256(abi.encode(Tab(address(receiver), payee, key)));
        vm.expectEmit(address(bank));
        emit IBank.TabClosed(other, 1 ether);
        vm.expectEmit(address(bank));
        emit IBank.TabOpened(other, address(receiver), payee, key, 1 ether);
        bank.finishClosing(Tab(address(receiver), payee, key));
        assertTrue(receiver.called(), "it was opened again");
        equal(bank.tabOf(other), 1 ether, 0, 0, true);
        assertEq(held(), 1 ether);
    }

    function receiverWithTab() private returns (Receiver receiver) {
        receiver = new Receiver();
        vm.deal(address(receiver), 1 ether);
        bytes memory agreed = signed(KEY, consentHash(address(receiver), payee));
        receiver.execute(address(bank), 1 ether, abi.encodeCall(IBank.openTab, (payee, key, 1 ether, agreed)));
        receiver.execute(address(bank), 0, abi.encodeCall(IBank.close, (Tab(address(receiver), payee, key))));
        pass(CLOSE_DELAY);
    }

    // ---- keys that are contracts

    /// @dev The seam: what counts as the payer's word is the key's business, as long as sums are.
    function test_AnotherKindOfVoucherVerifier() public {
        bytes32 ticket = keccak256("ticket");
        TicketKey tickets = new TicketKey(keccak256(abi.encode(ticket)));
        tab.key = address(tickets);
        id = keccak256(abi.encode(tab));
        vm.prank(payer);
        bank.openTab{value: DEPOSIT}(payee, address(tickets), DEPOSIT, abi.encode(ticket));
        Voucher memory voucher = voucherOf(1 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidVoucher.selector, tickets, voucherHash(voucher)));
        bank.redeem(tab, voucher, "");
        assertEq(bank.redeem(tab, voucher, abi.encode(ticket)), 1 ether);
        voucher = voucherOf(2 ether);
        tickets.approve(digestOf(voucherHash(voucher)), true);
        assertEq(bank.redeem(tab, voucher, ""), 1 ether);
    }

    function test_KeysThatAnswerWrongly() public {
        for (uint256 kind = 0; kind < 3; ++kind) {
            address broken = address(new BrokenKey(kind));
            bytes32 other = keccak256(abi.encode(payer, payee, broken));
            vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, broken, other));
            vm.prank(payer);
            bank.openTab{value: 1}(payee, broken, 1, "");
        }
    }

    /// @dev An account that delegates to code (EIP-7702) signs as before.
    function test_AnAccountWithCodeSignsItself() public {
        open(DEPOSIT);
        vm.etch(key, address(new BrokenKey(0)).code);
        assertEq(redeem(1 ether), 1 ether);
    }

    // ---- in the coin, by an account's key

    function openInCoin(uint256 amount, bytes32 r, bytes32 vs) private {
        vm.prank(payer);
        bank.openTabInCoin{value: amount}(payee, key, r, vs);
    }

    function test_ATabInTheCoinOpensByAnAccountsKey() public {
        (bytes32 r, bytes32 vs) = compact(consent());
        vm.expectEmit(address(bank));
        emit IBank.TabOpened(id, payer, payee, key, DEPOSIT);
        openInCoin(DEPOSIT, r, vs);
        equal(bank.tabOf(id), DEPOSIT, 0, 0, true);
        vm.expectRevert(abi.encodeWithSelector(IBank.TabAlreadyOpen.selector, id));
        openInCoin(DEPOSIT, r, vs);
    }

    function test_ATabInTheCoinNeedsItsKeysConsentAndMoney() public {
        bytes memory refused = abi.encodeWithSelector(IBank.InvalidTabConsent.selector, key, id);
        (bytes32 r, bytes32 vs) = compact(consent());
        vm.expectRevert(IBank.ZeroAmount.selector);
        openInCoin(0, r, vs);
        vm.expectRevert(refused);
        openInCoin(1, r, vs ^ bytes32(uint256(1) << 255));
        vm.expectRevert(refused);
        openInCoin(1, 0, 0);
        (bytes32 otherR, bytes32 otherVs) = compact(signed(OTHER_KEY, consentHash(payer, payee)));
        vm.expectRevert(refused);
        openInCoin(1, otherR, otherVs);
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, uint256(1) << 96));
        vm.deal(payer, 1 << 97);
        openInCoin(1 << 96, r, vs);
        vm.expectRevert(IBank.ZeroAddress.selector);
        vm.prank(payer);
        bank.openTabInCoin{value: 1}(address(0), key, r, vs);
        // No signature that nobody made stands for nobody.
        vm.expectPartialRevert(IBank.InvalidTabConsent.selector);
        vm.prank(payer);
        bank.openTabInCoin{value: 1}(payee, address(0), bytes32(uint256(1)), bytes32(uint256(1)));
    }
}
