// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {StdInvariant} from "@uniswap/v4-core/lib/forge-std/src/StdInvariant.sol";
import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {BankActors} from "./support/BankActors.sol";

/// @dev The test runner fuzzes contracts of this file only.
contract BankEverybody is BankActors {}

/// @title What holds of the Bank after any sequence of calls
contract BankInvariantsTest is Test {
    BankEverybody private everybody;
    bytes4[] private calls;

    function setUp() public {
        everybody = new BankEverybody();
        everybody.setUp();
        calls = [
            everybody.openOne.selector,
            everybody.topUpOne.selector,
            everybody.collectOne.selector,
            everybody.withdrawOne.selector,
            everybody.moveSome.selector,
            everybody.redeemOne.selector,
            everybody.closeOne.selector,
            everybody.finishOne.selector,
            everybody.claimOne.selector,
            everybody.objectOne.selector,
            everybody.answerOne.selector,
            everybody.strikeOne.selector,
            everybody.settleOne.selector,
            everybody.wait.selector
        ];
        targetContract(address(everybody));
        targetSelector(StdInvariant.FuzzSelector({addr: address(everybody), selectors: calls}));
    }

    function invariant_MoneyIsInOrder() public view {
        holds();
    }

    function holds() private view {
        assertEq(everybody.pots(), everybody.inBank(), "the pots are not what the bank holds");
        assertEq(everybody.inBank() + everybody.paidOut(), everybody.paidIn(), "more or less came out than went in");
        assertEq(everybody.overdrawn(), 0, "more was redeemed than was authorised");
    }

    /// @dev No money that cannot move, whatever happened before.
    function testFuzz_AllMoneyLeavesButWhatWasBurnt(uint256 seed) public {
        for (uint256 i = 0; i < 60; ++i) {
            step(uint256(keccak256(abi.encode(seed, i))));
        }
        holds();
        everybody.end();
        holds();
        assertEq(everybody.inBank(), everybody.burnt(), "money was left behind");
    }

    function step(uint256 dice) private {
        uint256 choice = dice % 16;
        (uint256 seed, uint96 amount) = (dice >> 8, uint96(dice >> 100));
        if (choice < 2) everybody.openOne(seed, amount);
        else if (choice == 2) everybody.topUpOne(seed, amount);
        else if (choice == 3) everybody.collectOne(amount, seed);
        else if (choice == 4) everybody.moveSome(amount, seed);
        else if (choice == 5) everybody.redeemOne(seed, amount);
        else if (choice == 6) everybody.closeOne(seed);
        else if (choice == 7) everybody.finishOne(seed);
        else if (choice < 10) everybody.claimOne(seed, [amount, amount / 2, 0, amount / 3]);
        else if (choice < 12) everybody.objectOne(seed, uint64(amount), dice >> 250 & 1 == 1);
        else if (choice == 12) everybody.answerOne(seed, uint64(amount));
        else if (choice == 13) everybody.strikeOne(seed);
        else if (choice == 14) everybody.settleOne(seed);
        else everybody.wait(seed);
    }

    /// @dev The rules above would hold of calls that do nothing: these go through a claim's life to a shortfall that is
    /// forgiven.
    function test_TheActorsReachEverything() public {
        everybody.openOne(0, 1 ether);
        everybody.claimOne(0, [uint96(1 ether), 1 ether, 0, 0]);
        everybody.objectOne(0, 6, false);
        everybody.objectOne(0, 7, true);
        everybody.answerOne(0, 6);
        uint256 before = everybody.pots();
        everybody.wait(50);
        everybody.strikeOne(1);
        assertEq(everybody.pots(), before);
        everybody.claimOne(0, [uint96(1 ether), 1 ether, 0, 0]);
        everybody.wait(50);
        everybody.wait(50);
        everybody.settleOne(0);
        holds();
        everybody.closeOne(0);
        everybody.end();
        assertGt(everybody.paidOut(), 1 ether);
        assertEq(everybody.inBank(), 0);
    }
}
