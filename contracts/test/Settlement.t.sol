// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Outcome} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";

contract SettlementTest is TaskTest {
    function test_AcceptsAnHonestTask() public {
        Play memory play = committedPlay(tolerant, WHOLE);
        settle(play);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(Outcome.Accepted));
    }
}
