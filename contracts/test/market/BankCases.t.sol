// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {PotKind} from "../../market/interfaces/MarketTypes.sol";
import {Ledger} from "../../market/libraries/Ledger.sol";
import {BankTest} from "./support/BankTest.sol";

/// @title The movements of a case, as they are drawn up and made
contract BankCasesTest is BankTest {
    using Ledger for Ledger.Draft;

    bytes32 private constant CASE = keccak256("case");

    address private first = makeAddr("first");
    address private second = makeAddr("second");

    function one(PotKind from, PotKind to, address account, uint96 amount) private pure returns (bytes memory) {
        return abi.encodePacked(uint8(uint256(from) << 4 | uint256(to)), account, amount);
    }

    function pay(address account, uint96 amount) private pure returns (bytes memory) {
        return one(PotKind.Bond, PotKind.Credit, account, amount);
    }

    function make(bytes memory movements) private {
        vm.prank(court);
        bank.moveMany(CASE, movements);
    }

    function test_PaymentsAndOtherMovementsAreMadeInTheirOrder() public {
        collect(PotKind.Bond, CASE, 5 ether);
        collect(PotKind.Stake, account_(first), 2 ether);
        bytes memory movements = bytes.concat(
            pay(first, 1 ether),
            pay(second, 2 ether),
            one(PotKind.Stake, PotKind.Bond, first, 2 ether),
            // Of what was taken a moment before.
            pay(second, 3 ether),
            one(PotKind.Bond, PotKind.Burnt, address(0), 1 ether)
        );
        vm.expectEmit(address(bank));
        emit IBank.MovedMany(CASE, movements);
        make(movements);
        assertEq(creditOf(first), 1 ether);
        assertEq(creditOf(second), 5 ether);
        assertEq(bank.balanceOf(PotKind.Bond, CASE), 0);
        assertEq(bank.balanceOf(PotKind.Stake, account_(first)), 0);
        assertEq(bank.balanceOf(PotKind.Burnt, 0), 1 ether);
    }

    /// @dev Bank and Ledger have this number by itself, where their assembly needs a constant.
    function test_APaymentIsFromABondToACredit() public pure {
        assertEq(pay(address(1), 1)[0], bytes1(0x40));
    }

    function test_ABondPaysWhatItHoldsOrNothing() public {
        collect(PotKind.Bond, CASE, 1 ether);
        vm.expectRevert(
            abi.encodeWithSelector(IBank.InsufficientPot.selector, PotKind.Bond, CASE, 0.4 ether, 0.6 ether)
        );
        make(bytes.concat(pay(first, 0.6 ether), pay(second, 0.6 ether)));
        assertEq(creditOf(first), 0);
    }

    /// @dev A token of which there is more than 96 bits hold.
    function test_ACreditHoldsNoMoreThanItsBits() public {
        collect(PotKind.Bond, CASE, 1 ether);
        bytes32 slot = keccak256(abi.encode(account_(first), creditsSlot()));
        vm.store(address(bank), slot, bytes32(uint256(type(uint96).max - 1)));
        make(pay(first, 1));
        vm.expectRevert(abi.encodeWithSelector(IBank.AmountTooLarge.selector, uint256(type(uint96).max) + 1));
        make(pay(first, 1));
        assertEq(creditOf(first), type(uint96).max);
    }

    /// @dev Where in the Bank credits are: the mapping whose element a credit changes.
    function creditsSlot() private returns (uint256 slot) {
        bank.credit{value: 1}(second, 1);
        while (uint96(uint256(vm.load(address(bank), keccak256(abi.encode(account_(second), slot))))) != 1) ++slot;
    }

    function test_NobodyIsPaidAndNoBytesAreLeftOver() public {
        collect(PotKind.Bond, CASE, 1 ether);
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidPot.selector, PotKind.Credit, bytes32(0)));
        make(pay(address(0), 1));
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidMovements.selector, 34));
        make(bytes.concat(pay(first, 1), hex"00"));
        make("");
        vm.expectRevert(abi.encodeWithSelector(IBank.NotAuthorised.selector, stranger));
        vm.prank(stranger);
        bank.moveMany(CASE, pay(stranger, 1));
    }

    function drawnUp(address[] calldata accounts, bytes calldata seats, uint256 members, uint256 left, uint256 room)
        external
        pure
        returns (bytes memory written, uint256 rest)
    {
        Ledger.Draft memory draft = Ledger.start(CASE, left, room);
        uint256 position;
        assembly ("memory-safe") {
            position := accounts.offset
        }
        draft.payMany(position, seats, members, 10);
        return (draft.toCall(), draft.left);
    }

    function test_EachMemberIsPaidForItsSeatsWhileTheBondLasts() public {
        address[] memory accounts = new address[](4);
        (accounts[0], accounts[1], accounts[2], accounts[3]) = (first, second, payee, stranger);
        bytes memory seats = hex"01020003";
        (bytes memory written, uint256 rest) = this.drawnUp(accounts, seats, 11, 35, 3);
        bytes memory expected = bytes.concat(pay(first, 10), pay(second, 20), pay(stranger, 5));
        assertEq(written, abi.encodeCall(IBank.moveMany, (CASE, expected)));
        assertEq(rest, 0);
        (written, rest) = this.drawnUp(accounts, seats, 6, 100, 3);
        assertEq(written, abi.encodeCall(IBank.moveMany, (CASE, pay(second, 20))));
        assertEq(rest, 80);
        vm.expectRevert(abi.encodeWithSelector(Ledger.TooManyMovements.selector, 1));
        this.drawnUp(accounts, seats, 3, 100, 1);
    }
}
