// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITicketPayer, PayerCall} from "../../tickets/ITicketPayer.sol";
import {ITickets, LostTicket, Purchase, Spending, TicketKey} from "../../tickets/ITickets.sol";
import {TicketCurve} from "../../tickets/TicketCurve.sol";
import {TicketsTest} from "./support/TicketsTest.sol";

/// @notice Buying, spending, change and refunds, as they are meant to go.
contract TicketsGoodTest is TicketsTest {
    /// @dev RFC 9380's suite under our tag, by another implementation (arkworks): the name 0x1111…11.
    function test_aNameHashesAsElsewhere() external view {
        bytes memory point = TicketCurve.pointOf(0x1111111111111111111111111111111111111111);
        assertEq(keccak256(compact(point)), 0x41de35208a32d1bc35dc88ae590115cfbf4ac295a5385112a0804dab7dd24cdd);
    }

    function test_ticketsFillATab() external {
        buy(0, 1, 0, 3);
        assertEq(address(tickets).balance, 0.03 ether);
        spend(0, 1, spending(0, 1, 0, 2, 0.001 ether));
        assertEq(payee.balance, 0.002 ether);
        assertEq(address(bank).balance, 0.018 ether);
        assertEq(bank.tabOf(tabOf()).balance, 0.018 ether);
        assertEq(tickets.outstanding(0, 1), 1);
        address[] memory names = new address[](3);
        (names[0], names[1], names[2]) = (nameOf(0), nameOf(1), nameOf(2));
        assertEq(tickets.spent(names), 3);
    }

    function test_moreTicketsAddToTheSameTab() external {
        buy(0, 0, 0, 2);
        spend(0, 0, spending(0, 0, 0, 1, 0));
        spend(0, 0, spending(0, 0, 1, 1, 0));
        assertEq(bank.tabOf(tabOf()).balance, 0.002 ether);
    }

    function test_oneCallTakesTicketsOfSeveralClientsDenominationsAndEpochs() external {
        buy(0, 0, 0, 2);
        vm.roll(1000 + EPOCH);
        register(1);
        buy(1, 2, 2, 1);
        TicketKey[] memory keys = new TicketKey[](2);
        (keys[0], keys[1]) = (keyOf(0, 0), keyOf(1, 2));
        Spending[] memory all = new Spending[](2);
        all[0] = spendingTo(payee, tabKey, 0, 0, 0, 2, 0);
        all[1] = spendingTo(payee, makeAddr("other key"), 1, 2, 2, 1, 0);
        all[1].tickets[0].key = 1;
        tickets.spend(keys, all);
        assertEq(address(bank).balance, 0.102 ether);
        assertEq(address(tickets).balance, 0);
    }

    function test_changeComesBackAsSmallerTickets() external {
        uint256 key = 0xabcdef;
        address tab = vm.addr(key);
        buy(0, 1, 0, 1);
        spend(0, 1, spendingTo(payee, tab, 0, 1, 0, 1, 0));
        ITicketPayer payer = ITicketPayer(tickets.payerOf(tab));
        bank.end(keccak256(abi.encode(payer, payee, tab)), 0.0069 ether);
        assertEq(address(payer).balance, 0.0031 ether);
        PayerCall[] memory calls = new PayerCall[](1);
        bytes memory data = abi.encodeCall(ITickets.buy, (0, 0, 3, rootOf(10, 3)));
        calls[0] = PayerCall(address(tickets), 0.003 ether, data);
        address carrier = makeAddr("carrier");
        bytes memory order = commanded(payer, key, calls, 0.0001 ether);
        vm.prank(carrier);
        payer.command(calls, 0.0001 ether, 2000, order);
        assertEq(carrier.balance, 0.0001 ether);
        assertEq(address(payer).balance, 0);
        assertEq(tickets.outstanding(0, 0), 3);
        // It is a purchase like any other, and its tickets are spent like any others.
        spend(0, 0, spendingTo(payee, makeAddr("next"), 0, 0, 10, 3, 0));
        vm.expectRevert(abi.encodeWithSelector(ITicketPayer.NotTabKey.selector, wrongSigner(payer, calls, order), tab));
        payer.command(calls, 0.0001 ether, 2000, order);
    }

    function test_aCommandIsTheTabKeysAndInTime() external {
        uint256 key = 0xabcdef;
        buy(0, 1, 0, 1);
        spend(0, 1, spendingTo(payee, vm.addr(key), 0, 1, 0, 1, 0));
        ITicketPayer payer = ITicketPayer(tickets.payerOf(vm.addr(key)));
        PayerCall[] memory calls = new PayerCall[](0);
        bytes memory order = commanded(payer, 0xbad, calls, 0);
        vm.expectRevert(abi.encodeWithSelector(ITicketPayer.NotTabKey.selector, vm.addr(0xbad), vm.addr(key)));
        payer.command(calls, 0, 2000, order);
        vm.roll(2001);
        vm.expectRevert(abi.encodeWithSelector(ITicketPayer.CommandTooLate.selector, 2000, 2001));
        payer.command(calls, 0, 2000, order);
        vm.expectRevert(abi.encodeWithSelector(ITicketPayer.NotTickets.selector, address(this)));
        payer.fill(payee, 1, "");
    }

    function test_aTabThatTakesNothingLeavesTheMoneyWithItsPayer() external {
        buy(0, 1, 0, 1);
        bank.refuse(true);
        vm.expectEmit();
        emit ITickets.SpendingPaid(tickets.payerOf(tabKey), payee, tabKey, 0.01 ether, 0, false);
        spend(0, 1, spending(0, 1, 0, 1, 0));
        assertEq(tickets.payerOf(tabKey).balance, 0.01 ether);
    }

    function test_aLostTicketIsRefundedOnceItCannotBeSpent() external {
        Purchase memory purchase = buy(0, 1, 0, 5);
        uint256 before = buyer.balance;
        LostTicket memory last = lost(0, 5, 4);
        vm.roll(1000 + 2 * EPOCH - 1);
        vm.expectRevert(abi.encodeWithSelector(ITickets.NotLostYet.selector, 0, 1));
        refund(purchase, last);
        vm.roll(1000 + 2 * EPOCH);
        refund(purchase, last);
        refund(purchase, lost(0, 5, 2));
        assertEq(buyer.balance, before + 0.02 ether);
        bytes32 id = keccak256(abi.encode(purchase));
        assertEq(tickets.refunded(id), 20);
        vm.expectRevert(abi.encodeWithSelector(ITickets.AlreadyRefunded.selector, id, 4));
        refund(purchase, last);
        // Both places of a call are looked at, too.
        (LostTicket[] memory twice, LostTicket memory first) = (new LostTicket[](2), lost(0, 5, 0));
        (twice[0], twice[1]) = (first, first);
        vm.expectRevert(abi.encodeWithSelector(ITickets.AlreadyRefunded.selector, id, 0));
        tickets.refund(purchase, twice);
    }

    function tabOf() private view returns (bytes32) {
        return keccak256(abi.encode(tickets.payerOf(tabKey), payee, tabKey));
    }

    function commanded(ITicketPayer payer, uint256 key, PayerCall[] memory calls, uint96 fee)
        private
        view
        returns (bytes memory)
    {
        return signed(key, commandDigest(payer, calls, fee, payer.nonce()));
    }

    function wrongSigner(ITicketPayer payer, PayerCall[] memory calls, bytes memory order)
        private
        view
        returns (address)
    {
        (bytes32 r, bytes32 s) = abi.decode(order, (bytes32, bytes32));
        return ecrecover(commandDigest(payer, calls, 0.0001 ether, 1), uint8(order[64]), r, s);
    }

    function commandDigest(ITicketPayer payer, PayerCall[] memory calls, uint96 fee, uint64 number)
        private
        view
        returns (bytes32)
    {
        bytes32 kind = keccak256("PayerCommand(bytes32 calls,uint96 fee,uint64 nonce,uint64 lastBlock)");
        bytes32 structHash = keccak256(abi.encode(kind, keccak256(abi.encode(calls)), fee, number, uint64(2000)));
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("Troth"),
                keccak256("1"),
                block.chainid,
                payer
            )
        );
        return keccak256(abi.encodePacked(hex"1901", domain, structHash));
    }
}
