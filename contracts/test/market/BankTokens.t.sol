// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IBank} from "../../market/interfaces/IBank.sol";
import {ClaimState, PotKind, Tab} from "../../market/interfaces/MarketTypes.sol";
import {BadToken, GoodToken, SilentToken} from "./support/BankMocks.sol";
import {BankTest} from "./support/BankTest.sol";

interface IAnyToken {
    function mint(address to, uint256 amount) external;
    function approve(address spender, uint256 amount) external;
    function balanceOf(address account) external view returns (uint256);
}

/// @title A tab's life in a token
abstract contract BankTokenTest is BankTest {
    function fund(address account, uint256 amount) internal override {
        IAnyToken(asset()).mint(account, amount);
        vm.prank(account);
        IAnyToken(asset()).approve(address(bank), type(uint256).max);
    }

    function held() internal view override returns (uint256) {
        return IAnyToken(asset()).balanceOf(address(bank));
    }

    function balance(address account) internal view returns (uint256) {
        return IAnyToken(asset()).balanceOf(account);
    }

    /// @dev Deposit, voucher, claim with an objection, closing, withdrawal: nothing is left.
    function life() internal {
        open(DEPOSIT);
        vm.prank(stranger);
        bank.topUp(id, 1 ether);
        redeem(2 ether);
        uint96[] memory amounts = four(1 ether, 1 ether, 0, 0);
        ClaimState memory state = file(claimOf(6, amounts), voucherOf(2 ether, 5 ether, 5));
        object(state, 6);
        answer(state, amounts, 6);
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        collect(PotKind.Bond, SUBJECT, 1 ether);
        moveOne(PotKind.Bond, SUBJECT, PotKind.Credit, account_(payee), 1 ether);
        close();
        pass(CLOSE_DELAY);
        bank.finishClosing(tab);
        bank.withdraw(payee);
        // At the deployment's price: what a token costs in coins nobody knows here.
        uint256 back = (100_000 + ANSWER_GAS) * 5 gwei;
        assertEq(balance(payee), 5 ether + back);
        assertEq(balance(payer), 1000 ether - 3 ether - back);
        assertEq(held(), 0);
    }

    function refusesCoins() internal {
        bytes memory agreed = consent();
        vm.deal(payer, 1 ether);
        (bytes32 r, bytes32 vs) = compact(agreed);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 1, 0));
        vm.prank(payer);
        bank.openTabInCoin{value: 1}(payee, key, r, vs);
        vm.startPrank(payer);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 1, 0));
        bank.openTab{value: 1}(payee, key, 1, agreed);
        bank.openTab(payee, key, 1 ether, agreed);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 1, 0));
        bank.topUp{value: 1}(id, 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 1, 0));
        bank.credit{value: 1}(payee, 1);
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 1, 0));
        vm.prank(court);
        bank.collect{value: 1}(SUBJECT, payer, PotKind.Bond, SUBJECT, 1);
        ClaimState memory state = file(claimOf(6, four(1, 0, 0, 0)), voucherOf(0, 1, 5));
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 1, 0));
        vm.prank(payer);
        bank.object{value: 1}(tab, state, 6);
    }
}

contract BankGoodTokenTest is BankTokenTest {
    uint256 private constant OWNER = 0x0817e7;
    bytes32 private constant PERMIT =
        keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");

    GoodToken private token = new GoodToken();
    uint8 private v;
    bytes32 private r;
    bytes32 private s;

    function asset() internal view override returns (address) {
        return address(token);
    }

    function test_ATabsLife() public {
        life();
    }

    /// @dev Gas at the deployment's price is more than such a claim brings: it would have doubled it.
    function test_ASmallClaimBringsATenthMoreAndNotTwiceItsSum() public {
        open(DEPOSIT);
        ClaimState memory state = file(claimOf(6, four(0.0003 ether, 0.0001 ether, 0, 0)), voucherOf(0, 1 ether, 5));
        pass(CLAIM_DELAY);
        bank.settle(tab, state);
        assertEq(creditOf(payee), 0.0004 ether + 0.00004 ether);
    }

    function test_RefusesCoins() public {
        refusesCoins();
    }

    function test_RefusesWhatWasNotAllowed() public {
        address poor = makeAddr("poor");
        bytes memory agreed = signed(KEY, consentHash(poor, payee));
        vm.expectRevert();
        vm.prank(poor);
        bank.openTab(payee, key, 1, agreed);
    }

    function permitted(uint96 amount) private returns (bytes memory agreed) {
        payer = vm.addr(OWNER);
        (tab.payer, id) = (payer, keccak256(abi.encode(Tab(payer, payee, key))));
        token.mint(payer, DEPOSIT);
        bytes32 structHash = keccak256(abi.encode(PERMIT, payer, address(bank), amount, 0, type(uint256).max));
        (v, r, s) =
            vm.sign(OWNER, keccak256(abi.encodePacked(hex"1901", token.DOMAIN_SEPARATOR(), structHash)));
        return consent();
    }

    function test_OpensWithAPermitInOneTransaction() public {
        bytes memory agreed = permitted(DEPOSIT);
        vm.prank(payer);
        bank.openTabWithPermit(payee, key, DEPOSIT, agreed, type(uint256).max, v, r, s);
        equal(bank.tabOf(id), DEPOSIT, 0, 0, true);
    }

    function test_AFrontRunPermitStopsNobody() public {
        bytes memory agreed = permitted(DEPOSIT);
        vm.prank(stranger);
        token.permit(payer, address(bank), DEPOSIT, type(uint256).max, v, r, s);
        vm.prank(payer);
        bank.openTabWithPermit(payee, key, DEPOSIT, agreed, type(uint256).max, v, r, s);
        assertEq(tabBalance(), DEPOSIT);
    }

    function test_APermitOfSomebodyElseOpensNothing() public {
        bytes memory agreed = permitted(DEPOSIT);
        vm.expectRevert();
        vm.prank(makeAddr("thief"));
        bank.openTabWithPermit(payee, key, DEPOSIT, agreed, type(uint256).max, v, r, s);
        vm.expectRevert();
        vm.prank(payer);
        bank.openTabWithPermit(payee, key, DEPOSIT, agreed, type(uint256).max, v, r, bytes32(uint256(s) ^ 1));
    }

    /// @dev A false claim above the balance leaves nothing free in the tab: the payer's own tokens are the deposit.
    function test_AnObjectionOfAPayerWhoseTabIsShort() public {
        open(DEPOSIT);
        ClaimState memory state = file(claimOf(6, four(20 ether, 0, 0, 0)), voucherOf(0, 30 ether, 5));
        uint256 before = balance(payer);
        object(state, 6);
        assertEq(before - balance(payer), ANSWER_GAS * 5 gwei);
        pass(ANSWER_WINDOW + 1);
        bank.strike(tab, state, 6);
        assertEq(tabBalance(), DEPOSIT + ANSWER_GAS * 5 gwei);
    }
}

contract BankSilentTokenTest is BankTokenTest {
    SilentToken private token = new SilentToken();

    function asset() internal view override returns (address) {
        return address(token);
    }

    function test_ATabsLifeInATokenThatReturnsNothing() public {
        life();
    }

    function test_ATokenWithoutPermitUsesItsAllowance() public {
        bytes memory agreed = consent();
        vm.prank(payer);
        bank.openTabWithPermit(payee, key, DEPOSIT, agreed, 0, 0, 0, 0);
        assertEq(tabBalance(), DEPOSIT);
    }
}

contract BankBadTokenTest is BankTokenTest {
    BadToken private token = new BadToken();

    function asset() internal view override returns (address) {
        return address(token);
    }

    function test_ATabsLifeWhileTheTokenBehaves() public {
        life();
    }

    function test_ATokenThatReturnsFalse() public {
        open(DEPOSIT);
        redeem(1 ether);
        token.set(BadToken.Vice.ReturnsFalse);
        vm.expectRevert(abi.encodeWithSelector(SafeERC20.SafeERC20FailedOperation.selector, token));
        vm.prank(stranger);
        bank.topUp(id, 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.TransferFailed.selector, payee, 1 ether));
        bank.withdraw(payee);
        closesToCredit();
    }

    function test_ATokenThatPauses() public {
        open(DEPOSIT);
        redeem(1 ether);
        token.set(BadToken.Vice.Pauses);
        vm.expectRevert("paused");
        vm.prank(stranger);
        bank.topUp(id, 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.TransferFailed.selector, payee, 1 ether));
        bank.withdraw(payee);
        closesToCredit();
    }

    /// @dev Money waits as credit until the token moves again.
    function closesToCredit() private {
        close();
        pass(CLOSE_DELAY);
        bank.finishClosing(tab);
        assertEq(creditOf(payer), DEPOSIT - 1 ether);
        token.set(BadToken.Vice.None);
        bank.withdraw(payer);
        bank.withdraw(payee);
        assertEq(held(), 0);
        assertEq(balance(payer), 999 ether);
    }

    function test_AFeeAtTheOpeningCountsOnlyWhatArrived() public {
        token.set(BadToken.Vice.TakesFee);
        open(DEPOSIT);
        assertEq(tabBalance(), DEPOSIT * 99 / 100);
        vm.prank(stranger);
        bank.topUp(id, 1 ether);
        assertEq(tabBalance(), 10.89 ether);
        collect(PotKind.Stake, account_(payee), 1 ether);
        assertEq(bank.balanceOf(PotKind.Stake, account_(payee)), 0.99 ether);
        assertEq(held(), 11.88 ether);
        redeem(1 ether);
        bank.withdraw(payee);
        assertEq(balance(payee), 0.99 ether);
        assertEq(held(), 10.88 ether);
    }

    function test_ATokenThatTakesAll() public {
        token.set(BadToken.Vice.TakesAll);
        bytes memory agreed = consent();
        vm.expectRevert(IBank.ZeroAmount.selector);
        vm.prank(payer);
        bank.openTab(payee, key, DEPOSIT, agreed);
    }

    function test_ATokenThatGivesMoreThanAPotHolds() public {
        token.set(BadToken.Vice.GivesMore);
        bytes memory agreed = consent();
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, uint256(type(uint96).max) + 1));
        vm.prank(payer);
        bank.openTab(payee, key, 1, agreed);
    }

    /// @dev A fee on top of what is sent would be paid by everybody else.
    function test_ATokenThatTakesFromTheSender() public {
        open(DEPOSIT);
        redeem(1 ether);
        token.set(BadToken.Vice.TakesFromSender);
        vm.expectRevert(abi.encodeWithSelector(IBank.TokenTookMore.selector, 1.01 ether, 1 ether));
        bank.withdraw(payee);
        assertEq(creditOf(payee), 1 ether);
    }

    /// @dev What has left is credited to nobody again.
    function test_ATokenThatTakesAndSaysThatItFailed() public {
        open(DEPOSIT);
        close();
        pass(CLOSE_DELAY);
        token.set(BadToken.Vice.FailsAfterTaking);
        vm.expectRevert(abi.encodeWithSelector(IBank.TokenTookMore.selector, DEPOSIT, DEPOSIT));
        bank.finishClosing(tab);
        assertEq(creditOf(payer), 0);
        assertEq(held(), DEPOSIT);
    }

    /// @dev During a payment everything that measures or pays tokens, and all of claims, is closed.
    function test_ATokenThatReenters() public {
        open(DEPOSIT);
        ClaimState memory state = file(claimOf(6, four(20 ether, 0, 0, 0)), voucherOf(0, 30 ether, 5));
        bytes[6] memory calls = [
            abi.encodeCall(IBank.credit, (payee, 1 ether)),
            abi.encodeCall(IBank.topUp, (id, 1 ether)),
            abi.encodeCall(IBank.object, (tab, state, 7)),
            abi.encodeCall(IBank.strike, (tab, state, 6)),
            abi.encodeCall(IBank.settle, (tab, state)),
            abi.encodeCall(IBank.openTab, (payee, key, 1, ""))
        ];
        for (uint256 i = 0; i < 6; ++i) {
            token.reenter(address(bank), calls[i]);
            vm.prank(stranger);
            bank.topUp(id, 1 ether);
            assertFalse(token.called(), vm.toString(i));
        }
        assertEq(tabBalance(), 16 ether);
        assertEq(held(), 16 ether);
    }

    /// @dev What is deposited is not counted twice, and a struck claim does not come back.
    function test_AnObjectionThatIsReentered() public {
        open(DEPOSIT);
        ClaimState memory state = file(claimOf(6, four(20 ether, 0, 0, 0)), voucherOf(0, 30 ether, 5));
        object(state, 7);
        pass(ANSWER_WINDOW + 1);
        token.reenter(address(bank), abi.encodeCall(IBank.strike, (tab, state, 7)));
        object(state, 6);
        assertFalse(token.called());
        (, uint16 objections) = bank.claimOf(id);
        assertEq(objections, 2);
    }
}
