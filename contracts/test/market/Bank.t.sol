// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Movement, PotKind} from "../../market/interfaces/MarketTypes.sol";
import {Receiver} from "./support/BankMocks.sol";
import {BankTest} from "./support/BankTest.sol";

/// @title Pots, movements, the doors
contract BankMoneyTest is BankTest {
    bytes32 private constant BOND = keccak256("bond");

    address private operator = makeAddr("operator");
    bytes32 private stake = account_(operator);

    // ---- who may

    function test_OnlyTheContractsMove() public {
        collect(PotKind.Bond, BOND, 4 ether);
        Movement[] memory movements = new Movement[](1);
        movements[0] = Movement(PotKind.Bond, BOND, PotKind.Credit, stake, 1 ether);
        address[4] memory contracts_ = [address(registry), court, summons, address(evidence)];
        for (uint256 i = 0; i < 4; ++i) {
            vm.prank(contracts_[i]);
            bank.move(SUBJECT, movements);
        }
        assertEq(creditOf(operator), 4 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotAuthorised.selector, stranger));
        vm.prank(stranger);
        bank.move(SUBJECT, movements);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotAuthorised.selector, stranger));
        vm.prank(stranger);
        bank.move(SUBJECT, new Movement[](0));
    }

    function test_OnlyThreeContractsCollect() public {
        address[3] memory collectors = [address(registry), court, summons];
        for (uint256 i = 0; i < 3; ++i) {
            vm.deal(collectors[i], 1 ether);
            vm.prank(collectors[i]);
            assertEq(bank.collect{value: 1 ether}(SUBJECT, stranger, PotKind.Stake, stake, 1 ether), 1 ether);
        }
        assertEq(bank.balanceOf(PotKind.Stake, stake), 3 ether);
        address[2] memory others = [address(evidence), stranger];
        for (uint256 i = 0; i < 2; ++i) {
            vm.deal(others[i], 1 ether);
            vm.expectRevert(abi.encodeWithSelector(IBank.NotAuthorised.selector, others[i]));
            vm.prank(others[i]);
            bank.collect{value: 1 ether}(SUBJECT, stranger, PotKind.Stake, stake, 1 ether);
        }
    }

    // ---- movements

    function test_MovementsKeepTheSumAndAreAnnounced() public {
        collect(PotKind.Stake, stake, 5 ether);
        vm.expectEmit(address(bank));
        emit IBank.Moved(SUBJECT, PotKind.Stake, stake, PotKind.Locked, stake, 2 ether, 3 ether, 2 ether);
        moveOne(PotKind.Stake, stake, PotKind.Locked, stake, 2 ether);
        (uint96 free, uint96 locked) = bank.stakeOf(operator);
        assertEq(free, 3 ether);
        assertEq(locked, 2 ether);
        assertEq(bank.balanceOf(PotKind.Locked, stake), 2 ether);
        vm.expectEmit(address(bank));
        emit IBank.Moved(SUBJECT, PotKind.Locked, stake, PotKind.Burnt, 0, 1.5 ether, 0.5 ether, 1.5 ether);
        moveOne(PotKind.Locked, stake, PotKind.Burnt, 0, 1.5 ether);
        moveOne(PotKind.Locked, stake, PotKind.Stake, stake, 0.5 ether);
        moveOne(PotKind.Stake, stake, PotKind.Bond, BOND, 1 ether);
        moveOne(PotKind.Bond, BOND, PotKind.Credit, account_(payee), 1 ether);
        assertEq(bank.balanceOf(PotKind.Stake, stake), 2.5 ether);
        assertEq(bank.balanceOf(PotKind.Burnt, 0), 1.5 ether);
        assertEq(creditOf(payee), 1 ether);
        assertEq(held(), 5 ether);
    }

    function test_AMovementWithinOnePotChangesNothing() public {
        collect(PotKind.Stake, stake, 5 ether);
        moveOne(PotKind.Stake, stake, PotKind.Stake, stake, 5 ether);
        assertEq(bank.balanceOf(PotKind.Stake, stake), 5 ether);
    }

    function test_AMovementOfNothingIsPassedOver() public {
        vm.recordLogs();
        moveOne(PotKind.Tab, id, PotKind.Burnt, bytes32(uint256(5)), 0);
        assertEq(vm.getRecordedLogs().length, 0);
    }

    function test_AllMovementsOrNone() public {
        collect(PotKind.Bond, BOND, 1 ether);
        Movement[] memory movements = new Movement[](2);
        movements[0] = Movement(PotKind.Bond, BOND, PotKind.Credit, stake, 0.6 ether);
        movements[1] = Movement(PotKind.Bond, BOND, PotKind.Burnt, 0, 0.6 ether);
        vm.expectRevert(
            abi.encodeWithSelector(IBank.InsufficientPot.selector, PotKind.Bond, BOND, 0.4 ether, 0.6 ether)
        );
        vm.prank(court);
        bank.move(SUBJECT, movements);
        assertEq(creditOf(operator), 0);
    }

    function test_RefusesMoreThanAPotHolds() public {
        collect(PotKind.Stake, stake, 1 ether);
        PotKind[4] memory kinds = [PotKind.Credit, PotKind.Stake, PotKind.Locked, PotKind.Bond];
        uint96[4] memory found = [uint96(0), 1 ether, 0, 0];
        for (uint256 i = 0; i < 4; ++i) {
            vm.expectRevert(
                abi.encodeWithSelector(
                    IBank.InsufficientPot.selector, kinds[i], stake, found[i], type(uint96).max
                )
            );
            moveOne(kinds[i], stake, PotKind.Bond, BOND, type(uint96).max);
        }
    }

    function test_WhatIsBurntStaysBurnt() public {
        collect(PotKind.Bond, BOND, 1 ether);
        moveOne(PotKind.Bond, BOND, PotKind.Burnt, 0, 1 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.InsufficientPot.selector, PotKind.Burnt, bytes32(0), 0, 1));
        moveOne(PotKind.Burnt, 0, PotKind.Credit, stake, 1);
    }

    function test_NoContractReachesATabOrLosesMoney() public {
        open(DEPOSIT);
        collect(PotKind.Bond, BOND, 1 ether);
        refuses(PotKind.Tab, id, PotKind.Credit, stake, PotKind.Tab, id);
        refuses(PotKind.Bond, BOND, PotKind.Tab, id, PotKind.Tab, id);
        bytes32 dirty = stake | bytes32(uint256(1) << 160);
        refuses(PotKind.Bond, BOND, PotKind.Credit, dirty, PotKind.Credit, dirty);
        refuses(PotKind.Bond, BOND, PotKind.Stake, dirty, PotKind.Stake, dirty);
        refuses(PotKind.Bond, BOND, PotKind.Locked, dirty, PotKind.Locked, dirty);
        refuses(PotKind.Bond, BOND, PotKind.Credit, 0, PotKind.Credit, 0);
        refuses(PotKind.Bond, BOND, PotKind.Burnt, BOND, PotKind.Burnt, BOND);
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidPot.selector, PotKind.Tab, id));
        collect(PotKind.Tab, id, 1 ether);
    }

    function refuses(PotKind from, bytes32 fromId, PotKind to, bytes32 toId, PotKind wrong, bytes32 wrongId) private {
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidPot.selector, wrong, wrongId));
        moveOne(from, fromId, to, toId, 1);
    }

    function test_OverflowOfAPotIsRefused() public {
        uint96 most = type(uint96).max;
        vm.deal(court, uint256(most) + 1);
        collect(PotKind.Bond, BOND, most);
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, uint256(most) + 1));
        collect(PotKind.Bond, BOND, 1);
        collect(PotKind.Stake, stake, 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, uint256(most) + 1));
        moveOne(PotKind.Stake, stake, PotKind.Bond, BOND, 1);
        moveOne(PotKind.Bond, BOND, PotKind.Locked, stake, most);
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, uint256(most) + 1));
        moveOne(PotKind.Stake, stake, PotKind.Locked, stake, 1);
        assertEq(bank.balanceOf(PotKind.Stake, stake), 1);
    }

    function testFuzz_MovementsSumToZero(uint96 collected, uint96[6] calldata amounts, uint256 path) public {
        collected = uint96(bound(collected, 1, 900 ether));
        collect(PotKind.Stake, stake, collected);
        PotKind[4] memory kinds = [PotKind.Credit, PotKind.Stake, PotKind.Locked, PotKind.Bond];
        for (uint256 i = 0; i < 6; ++i) {
            (PotKind from, PotKind to) = (kinds[path & 3], kinds[path >> 2 & 3]);
            path >>= 4;
            uint96 there = bank.balanceOf(from, stake);
            if (amounts[i] <= there) moveOne(from, stake, to, stake, amounts[i]);
        }
        uint256 sum;
        for (uint256 i = 0; i < 4; ++i) {
            sum += bank.balanceOf(kinds[i], stake);
        }
        assertEq(sum, collected);
    }

    // ---- doors

    function test_TheValueIsTheAmount() public {
        vm.deal(court, 3 ether);
        uint256[3] memory values = [uint256(0), 1 ether - 1, 1 ether + 1];
        for (uint256 i = 0; i < 3; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, values[i], 1 ether));
            vm.prank(court);
            bank.collect{value: values[i]}(SUBJECT, stranger, PotKind.Bond, BOND, 1 ether);
        }
        vm.expectRevert(IBank.ZeroAmount.selector);
        vm.prank(court);
        bank.collect(SUBJECT, stranger, PotKind.Bond, BOND, 0);
    }

    function test_AnybodyAddsCredit() public {
        vm.expectEmit(address(bank));
        emit IBank.Collected(account_(payee), stranger, PotKind.Credit, account_(payee), 2 ether, 2 ether);
        vm.prank(stranger);
        bank.credit{value: 2 ether}(payee, 2 ether);
        assertEq(creditOf(payee), 2 ether);
        vm.startPrank(stranger);
        vm.expectRevert(IBank.ZeroAddress.selector);
        bank.credit{value: 1}(address(0), 1);
        vm.expectRevert(IBank.ZeroAmount.selector);
        bank.credit(payee, 0);
        vm.expectRevert(abi.encodeWithSelector(IBank.WrongValue.selector, 0, type(uint96).max));
        bank.credit(payee, type(uint96).max);
    }

    function test_CreditIsPaidToThePayout() public {
        address payout = makeAddr("payout");
        registry.setPayout(payee, payout);
        vm.startPrank(stranger);
        bank.credit{value: 2 ether}(payee, 2 ether);
        vm.expectEmit(address(bank));
        emit IBank.Withdrawn(payee, payout, 2 ether);
        bank.withdraw(payee);
        assertEq(payout.balance, 2 ether);
        assertEq(creditOf(payee), 0);
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToWithdraw.selector, payee));
        bank.withdraw(payee);
        bank.credit{value: 1 ether}(payee, 1 ether);
        assertEq(creditOf(payee), 1 ether);
    }

    function test_WhoCannotBePaidKeepsItsCredit() public {
        Receiver receiver = new Receiver();
        receiver.refuse(true);
        vm.prank(stranger);
        bank.credit{value: 2 ether}(address(receiver), 2 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.TransferFailed.selector, address(receiver), 2 ether));
        bank.withdraw(address(receiver));
        assertEq(creditOf(address(receiver)), 2 ether);
        receiver.refuse(false);
        bank.withdraw(address(receiver));
        assertEq(address(receiver).balance, 2 ether);
    }

    function test_AWithdrawalCannotBeReentered() public {
        Receiver receiver = new Receiver();
        vm.startPrank(stranger);
        bank.credit{value: 2 ether}(address(receiver), 2 ether);
        bank.credit{value: 5 ether}(payee, 5 ether);
        receiver.callBack(address(bank), abi.encodeCall(IBank.withdraw, (payee)));
        bank.withdraw(address(receiver));
        assertFalse(receiver.called());
        assertGt(receiver.refusal().length, 0);
        assertEq(creditOf(payee), 5 ether);
        assertEq(held(), 5 ether);
    }

    function test_NobodyDonatesByMistake() public {
        vm.prank(stranger);
        (bool success,) = address(bank).call{value: 1}("");
        assertFalse(success, "the bank took a coin that is nobody's");
        vm.prank(stranger);
        (success,) = address(bank).call{value: 1}(abi.encodeCall(IBank.withdraw, (payee)));
        assertFalse(success, "a call that takes no coin took one");
    }

    function test_TheDomainIsTheBanks() public {
        bytes32 domain = bank.domainSeparator();
        assertEq(keccak256(abi.encodePacked(hex"1901", domain, SUBJECT)), digestOf(SUBJECT));
        vm.chainId(777);
        assertNotEq(bank.domainSeparator(), domain);
        assertEq(keccak256(abi.encodePacked(hex"1901", bank.domainSeparator(), SUBJECT)), digestOf(SUBJECT));
        assertEq(bank.ASSET(), address(0));
    }
}
