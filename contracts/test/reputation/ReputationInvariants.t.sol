// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {StdInvariant} from "@uniswap/v4-core/lib/forge-std/src/StdInvariant.sol";
import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {ReputationActors} from "./support/ReputationActors.sol";

/// @dev The test runner fuzzes contracts of this file only.
contract ReputationEverybody is ReputationActors {}

/// @title What holds of Reputation after any sequence of calls
contract ReputationInvariantsTest is Test {
    ReputationEverybody private everybody;
    bytes4[] private calls;

    function setUp() public {
        everybody = new ReputationEverybody();
        everybody.setUp();
        calls = [
            everybody.enrollOne.selector,
            everybody.leaveOne.selector,
            everybody.withdrawOne.selector,
            everybody.expelOne.selector,
            everybody.settleOne.selector,
            everybody.reportOne.selector,
            everybody.wait.selector
        ];
        targetContract(address(everybody));
        targetSelector(StdInvariant.FuzzSelector({addr: address(everybody), selectors: calls}));
    }

    function invariant_BondsAndScoresAreInOrder() public view {
        holds();
    }

    /// @dev The rules above would hold of calls that do nothing: these go through all of them.
    function test_TheActorsReachEverything() public {
        everybody.settleOne(1);
        everybody.wait(40);
        everybody.settleOne(27); // it scores one node of three
        for (uint256 node = 0; node < 3; ++node) {
            everybody.reportOne(node);
        }
        everybody.leaveOne(3);
        everybody.expelOne(4);
        everybody.wait(59);
        everybody.wait(59);
        everybody.withdrawOne(3);
        holds();
        everybody.enrollOne(3);
        holds();
        assertEq(everybody.settlements(), 2);
        assertGt(everybody.silences(), 0);
        assertEq(everybody.returned(), 1 ether);
        assertEq(everybody.burnt(), 0.9 ether);
        assertGt(everybody.highestScore(), 0.5e9);
    }

    function holds() private view {
        assertEq(everybody.held(), everybody.bonded() + everybody.burnt(), "money that nobody's bond explains");
        assertEq(everybody.reporter().balance, everybody.rewarded());
        assertLe(everybody.highestScore(), 1e9);
        assertTrue(everybody.isInOrder());
    }
}
