// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";

import {ExactNumbers} from "../libraries/ExactNumbers.sol";

/// @title What holds for the integers of any numbers; the numbers themselves are compared with the Python rules
contract ExactNumbersTest is Test {
    uint256 private constant COLUMNS = 16;
    /// @dev Of states below 2^40 and weights below 2^15.
    uint256 private constant UNIT_BITS = 56;

    function logits(bytes calldata state, bytes calldata claimed, bytes calldata better, bool rounded)
        external
        pure
        returns (ExactNumbers.Logits memory)
    {
        ExactNumbers.Format format = ExactNumbers.Format.Float32;
        return ExactNumbers.logits(state, format, claimed, better, format, COLUMNS, rounded, UNIT_BITS);
    }

    /// @dev Little-endian float32 numbers below `limit`, the order of columns turned by `turn`, with other signs or not.
    function row(uint256 seed, uint256 limit, uint256 turn, bool negated) private pure returns (bytes memory data) {
        for (uint256 i = 0; i < COLUMNS; ++i) {
            uint256 drawn = uint256(keccak256(abi.encode(seed, (i + turn) % COLUMNS)));
            uint32 bits = uint32(drawn % limit) | uint32(drawn >> 255 << 31);
            if (negated) bits ^= 0x80000000;
            data = bytes.concat(data, abi.encodePacked(uint8(bits), uint8(bits >> 8), uint8(bits >> 16), uint8(bits >> 24)));
        }
    }

    function testFuzz_TheOrderOfColumnsDoesNotMatter(uint256 a, uint256 b, uint256 c, uint256 turn, bool rounded)
        public
        view
    {
        turn %= COLUMNS;
        ExactNumbers.Logits memory one =
            this.logits(row(a, 0x53800000, 0, false), row(b, 0x47000000, 0, false), row(c, 0x47000000, 0, false), rounded);
        ExactNumbers.Logits memory other = this.logits(
            row(a, 0x53800000, turn, false), row(b, 0x47000000, turn, false), row(c, 0x47000000, turn, false), rounded
        );
        assertEq(abi.encode(one), abi.encode(other));
        assertTrue(one.isState);
    }

    function testFuzz_SignsAndSidesChangeNothingElse(uint256 a, uint256 b, uint256 c, bool rounded) public view {
        bytes memory state = row(a, 0x53800000, 0, false);
        (bytes memory left, bytes memory right) = (row(b, 0x47000000, 0, false), row(c, 0x47000000, 0, false));
        ExactNumbers.Logits memory one = this.logits(state, left, right, rounded);
        ExactNumbers.Logits memory swapped = this.logits(state, right, left, rounded);
        assertEq(swapped.own, one.others);
        assertEq(swapped.others, one.own);
        assertEq(swapped.size, one.size);
        ExactNumbers.Logits memory negated = this.logits(row(a, 0x53800000, 0, true), left, right, rounded);
        assertEq(negated.own, -one.own);
        assertEq(negated.others, -one.others);
        assertEq(negated.size, one.size);
        assertLe(uint256(one.own < 0 ? -one.own : one.own), one.size);
        assertEq(ExactNumbers.slack(swapped, COLUMNS, rounded), ExactNumbers.slack(one, COLUMNS, rounded));
        assertGe(ExactNumbers.slack(one, COLUMNS, true), ExactNumbers.slack(one, COLUMNS, false));
    }

    function testFuzz_WhatIsNoStateIsTold(uint256 a, uint256 place, uint32 size) public view {
        bytes memory state = row(a, 0x53800000, 0, false);
        uint32 bits = uint32(bound(size, 0x53800000, 0x7fffffff));
        place %= COLUMNS;
        for (uint256 i = 0; i < 4; ++i) state[4 * place + i] = bytes1(uint8(bits >> 8 * i));
        bytes memory plain = row(a, 0x47000000, 0, false);
        assertFalse(this.logits(state, plain, plain, false).isState);
    }

    function test_RowsOfAnotherLengthAreRefused() public {
        bytes memory state = row(1, 0x53800000, 0, false);
        vm.expectRevert(abi.encodeWithSelector(ExactNumbers.WrongLength.selector, 60, 64));
        this.logits(state, state, new bytes(60), false);
    }
}
