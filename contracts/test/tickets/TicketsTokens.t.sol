// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {LostTicket, Purchase, Spending} from "../../tickets/ITickets.sol";
import {BadToken} from "../market/support/BankMocks.sol";
import {TicketsTest} from "./support/TicketsTest.sol";

/// @notice Tickets in a token that turns bad after they were sold: nobody is paid out of what other tickets are worth.
contract TicketsTokensTest is TicketsTest {
    BadToken private token;

    function setUp() public override {
        token = new BadToken();
        asset = address(token);
        super.setUp();
        token.mint(buyer, 1000 ether);
        vm.prank(buyer);
        token.approve(address(tickets), type(uint256).max);
    }

    function test_AFeeOnTopOfAPayeesFeeIsPaidByNobodyElse() external {
        buy(0, 1, 0, 2);
        token.set(BadToken.Vice.TakesFromSender);
        Spending memory made = spending(0, 1, 0, 1, 0.01 ether);
        refused(0, 1, made, abi.encodeWithSelector(IBank.TokenTookMore.selector, 0.0101 ether, 0.01 ether));
        token.set(BadToken.Vice.None);
        spend(0, 1, made);
        assertEq(token.balanceOf(payee), 0.01 ether);
        assertEq(token.balanceOf(address(tickets)), 0.01 ether);
    }

    function test_AFeeOnTopOfWhatFillsATabIsPaidByNobodyElse() external {
        buy(0, 1, 0, 2);
        token.set(BadToken.Vice.TakesFromSender);
        Spending memory made = spending(0, 1, 0, 1, 0);
        refused(0, 1, made, abi.encodeWithSelector(IBank.TokenTookMore.selector, 0.0101 ether, 0.01 ether));
        assertEq(token.balanceOf(address(tickets)), 0.02 ether);
    }

    function test_AFeeOnTopOfARefundIsPaidByNobodyElse() external {
        Purchase memory first = buy(0, 1, 0, 1);
        Purchase memory second = buy(0, 1, 1, 1);
        vm.roll(1000 + 2 * EPOCH);
        token.set(BadToken.Vice.TakesFromSender);
        LostTicket memory one = lost(0, 1, 0);
        vm.expectRevert(abi.encodeWithSelector(IBank.TokenTookMore.selector, 0.0101 ether, 0.01 ether));
        refund(first, one);
        token.set(BadToken.Vice.None);
        refund(first, one);
        refund(second, lost(1, 1, 0));
        assertEq(token.balanceOf(address(tickets)), 0);
        assertEq(token.balanceOf(buyer), 1000 ether);
    }

    /// @dev A part that is kept is the receiver's loss: what its tab was to hold lies with its payer, less that part.
    function test_APartThatIsKeptIsTheReceiversLoss() external {
        buy(0, 1, 0, 2);
        token.set(BadToken.Vice.TakesFee);
        spend(0, 1, spending(0, 1, 0, 1, 0.005 ether));
        assertEq(token.balanceOf(payee), 0.00495 ether);
        assertEq(token.balanceOf(tickets.payerOf(tabKey)), 0.00495 ether);
        assertEq(token.balanceOf(address(tickets)), 0.01 ether);
    }

    /// @dev Of an ordinary token: what each call keeps back of its gas is enough to go on.
    function test_ACallThatIsStarvedOfGasSpendsNoTicket() external {
        buy(0, 1, 0, 1);
        address payer = tickets.payerOf(tabKey);
        bytes memory sent = sentFor(0, 1, spending(0, 1, 0, 1, 0));
        bool spent;
        for (uint256 gas_ = 300_000; !spent; gas_ += 100) {
            (spent,) = address(tickets).call{gas: gas_}(sent);
        }
        assertEq(token.balanceOf(payer), 0);
        assertEq(token.balanceOf(address(bank)), 0.01 ether);
    }
}
