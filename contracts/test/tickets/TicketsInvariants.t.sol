// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Purchase, Spending} from "../../tickets/ITickets.sol";
import {TicketsTest} from "./support/TicketsTest.sol";

/// @notice Random purchases, spendings and refunds: what the contract holds is what its tickets are worth, to the wei.
contract TicketsInvariantsTest is TicketsTest {
    struct Bought {
        Purchase purchase;
        uint256 first;
        uint256 taken;
    }

    Bought[] private bought;
    uint256 private numbers;
    uint256 private paid;
    uint256 private refunded;

    /// forge-config: default.fuzz.runs = 24
    function testFuzz_moneyIsConserved(uint256 seed) external {
        uint256 funds = buyer.balance;
        for (uint256 step = 0; step < 8; ++step) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 kind = seed % 4;
            if (kind == 0 || bought.length == 0) purchaseSome(seed >> 8);
            else if (kind == 3) vm.roll(block.number + EPOCH / 2);
            else takeSome(seed >> 8);
            require(address(tickets).balance == worth(), "the contract holds what tickets are worth");
            require(buyer.balance == funds - paid + refunded, "the buyer has the rest");
            require(funds == buyer.balance + address(tickets).balance + address(bank).balance + payee.balance, "wei");
        }
    }

    function purchaseSome(uint256 seed) private {
        uint64 epoch = tickets.epochNow();
        if (tickets.keysOf(epoch).length == 0) register(epoch);
        (uint8 denomination, uint16 count) = (uint8(seed % 3), uint16(1 + (seed >> 8) % 3));
        bought.push(Bought(buy(epoch, denomination, numbers, count), numbers, 0));
        numbers += count;
        paid += uint256(prices[denomination]) * count;
    }

    /// @dev Spends a ticket while that is possible, and has it refunded after that.
    function takeSome(uint256 seed) private {
        Bought storage one = bought[seed % bought.length];
        Purchase memory purchase = one.purchase;
        if (one.taken == purchase.count) return;
        uint16 index = uint16(one.taken++);
        if (tickets.epochNow() > purchase.epoch + 1) {
            refund(purchase, lost(one.first, purchase.count, index));
            refunded += prices[purchase.denomination];
            return;
        }
        uint96 fee = uint96((seed >> 16) % (prices[purchase.denomination] + 1));
        Spending memory made = spendingTo(
            payee, tabKey, purchase.epoch, purchase.denomination, one.first + index, 1, fee
        );
        spend(purchase.epoch, purchase.denomination, made);
    }

    function worth() private view returns (uint256 sum) {
        for (uint64 epoch = 0; epoch <= tickets.epochNow(); ++epoch) {
            for (uint8 i = 0; i < prices.length; ++i) {
                sum += tickets.outstanding(epoch, i) * prices[i];
            }
        }
    }
}
