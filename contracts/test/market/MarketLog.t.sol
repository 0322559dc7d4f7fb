// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILog, LogCounts} from "../../market/interfaces/ILog.sol";
import {MarketStage} from "./support/MarketStage.sol";

/// @title Roots that schedulers post
contract MarketLogTest is MarketStage {
    LogCounts private counts = LogCounts(1000, 123_456, 50, 49, 1, 2, 0.5 ether);

    function wholeNodes() internal pure override returns (uint256) {
        return 1;
    }

    function post(uint64 number) private {
        vm.prank(scheduler);
        marketLog.post(number, keccak256(abi.encode("root", number)), counts, "data");
    }

    function test_EntriesAreChained() public {
        bytes24 before;
        for (uint64 number = 1; number < 4; ++number) {
            bytes32 root = keccak256(abi.encode("root", number));
            bytes32 chain = keccak256(abi.encode(before, number, root, counts, bytes32("data")));
            vm.expectEmit(address(marketLog));
            emit ILog.EntryLogged(scheduler, number, root, counts, "data", chain);
            post(number);
            before = bytes24(chain);
            (uint64 last_, bytes24 head) = marketLog.headOf(scheduler);
            assertEq(last_, number);
            assertEq(head, before);
        }
        (uint64 none,) = marketLog.headOf(stranger);
        assertEq(none, 0);
    }

    function test_NumbersHaveNoGaps() public {
        post(1);
        uint64[4] memory wrong = [0, 1, 3, type(uint64).max];
        for (uint256 i = 0; i < 4; ++i) {
            vm.expectRevert(abi.encodeWithSelector(ILog.WrongNumber.selector, wrong[i], 2));
            post(wrong[i]);
        }
    }

    /// @dev The hash is made of the calldata as it lies there: a word with dirty bits is no entry.
    function test_ABadlyPaddedEntryIsNone() public {
        bytes memory call_ = abi.encodeCall(marketLog.post, (1, keccak256("root"), counts, "data"));
        for (uint256 word = 2; word < 9; ++word) {
            bytes memory dirty = bytes.concat(call_);
            dirty[4 + 32 * word] = 0x01;
            vm.prank(scheduler);
            (bool success,) = address(marketLog).call(dirty);
            assertFalse(success);
        }
        vm.prank(scheduler);
        (bool clean,) = address(marketLog).call(call_);
        assertTrue(clean);
    }

    function test_OnlySchedulersPost() public {
        address[2] memory others = [stranger, exactNode(0)];
        for (uint256 i = 0; i < 2; ++i) {
            vm.prank(others[i]);
            vm.expectRevert(abi.encodeWithSelector(ILog.NotScheduler.selector, others[i]));
            marketLog.post(1, "root", counts, "data");
        }
    }

    /// @dev A transaction's base and calldata are on top of what the call costs; a call's 2,600 for a cold address is
    ///      not.
    function test_GasOfAnEntry() public {
        post(1);
        bytes memory data = abi.encodeCall(marketLog.post, (2, keccak256("root"), counts, keccak256("data")));
        Coolness(address(vm)).cool(address(marketLog));
        Coolness(address(vm)).cool(address(registry));
        vm.prank(scheduler);
        uint256 start = gasleft();
        (bool success,) = address(marketLog).call(data);
        uint256 gas = start - gasleft() + 21_000 - 2600;
        assertTrue(success);
        for (uint256 i = 0; i < data.length; ++i) {
            gas += data[i] == 0 ? 4 : 16;
        }
        emit log_named_uint("a log entry, all in", gas);
        assertLe(gas, 40_000);
    }
}

/// @dev A cheat code that the pinned forge-std does not declare yet.
interface Coolness {
    function cool(address target) external;
}
