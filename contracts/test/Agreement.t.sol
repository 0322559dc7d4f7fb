// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Agreement} from "../libraries/Agreement.sol";
import {HarnessTest} from "./support/HarnessTest.sol";

/// @dev Of LibraryHarness.
interface IAgreement {
    function agreeing(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps)
        external
        view
        returns (uint256 agreed, uint256 total, uint256 used);
    function agrees(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps, uint16 theta)
        external
        pure
        returns (bool);
}

contract AgreementTest is HarnessTest {
    IAgreement private agreement;

    function setUp() public {
        agreement = IAgreement(deployed("LibraryHarness.sol:LibraryHarness"));
    }

    function count(bytes memory first, bytes memory second, uint8 dtype, uint8 bits)
        external
        view
        returns (uint256 agreed)
    {
        (agreed,,) = agreement.agreeing(first, second, dtype, bits, 1);
    }

    /// @dev One element at a time, by the rule's words.
    function plainly(bytes memory first, bytes memory second, uint256 width, uint256 mantissa, uint8 bits, uint16 steps)
        private
        pure
        returns (uint256 agreed)
    {
        for (uint256 at = 0; at < first.length; at += width) {
            uint256 a;
            uint256 b;
            for (uint256 i = 0; i < width; ++i) {
                a = (a << 8) | uint8(first[at + i]);
                b = (b << 8) | uint8(second[at + i]);
            }
            if (a >> mantissa != b >> mantissa) continue;
            (a, b) = (a >> (mantissa - bits), b >> (mantissa - bits));
            if ((a > b ? a - b : b - a) <= steps) ++agreed;
        }
    }

    /// @dev Random words, the second near the first in all elements so that both sides of the limit are met.
    function openings(uint256 seed, uint256 noise) private pure returns (bytes memory first, bytes memory second) {
        first = new bytes(512);
        second = new bytes(512);
        for (uint256 i = 0; i < 512; ++i) {
            uint256 random = uint256(keccak256(abi.encode(seed, i)));
            first[i] = bytes1(uint8(random));
            second[i] = first[i];
            if ((random >> 8) % 16 < noise) second[i] = bytes1(uint8(random) ^ uint8(1 << ((random >> 16) % 8)));
        }
    }

    function testFloat32EqualsThePlainCount(uint256 seed, uint8 bits, uint16 steps) public view {
        bits = uint8(bound(bits, 0, 23));
        (bytes memory first, bytes memory second) = openings(seed, seed % 8);
        (uint256 agreed, uint256 total,) = agreement.agreeing(first, second, 0, bits, steps);
        assertEq(agreed, plainly(first, second, 4, 23, bits, steps));
        assertEq(total, 128);
    }

    function testBfloat16EqualsThePlainCount(uint256 seed, uint8 bits, uint16 steps) public view {
        bits = uint8(bound(bits, 0, 7));
        (bytes memory first, bytes memory second) = openings(seed, seed % 8);
        (uint256 agreed, uint256 total,) = agreement.agreeing(first, second, 1, bits, steps % 130);
        assertEq(agreed, plainly(first, second, 2, 7, bits, steps % 130));
        assertEq(total, 256);
    }

    /// @dev Words are taken four at a time where nothing tells them apart; what is left over, one by one.
    function testAnyNumberOfWordsEqualsThePlainCount(uint256 seed, uint8 bits, uint16 steps) public view {
        bits = uint8(bound(bits, 0, 23));
        (bytes memory first, bytes memory second) = openings(seed, seed % 3);
        uint256 length = 32 * (1 + seed % 16);
        assembly ("memory-safe") {
            mstore(first, length)
            mstore(second, length)
        }
        (uint256 agreed, uint256 total,) = agreement.agreeing(first, second, 0, bits, steps);
        assertEq(agreed, plainly(first, second, 4, 23, bits, steps));
        assertEq(total, length / 4);
    }

    /// @dev The lowest byte of each mantissa is not compared; in the 70th element a bit is that tells.
    function testBitsThatDoNotTellChangeNothing(uint256 seed) public view {
        (bytes memory first, bytes memory second) = openings(seed, 0);
        for (uint256 i = 3; i < 512; i += 4) second[i] = bytes1(uint8(first[i]) ^ uint8(seed >> (i % 31)));
        assertEq(this.count(first, second, 0, 10), 128);
        second[4 * 70] ^= 0x80;
        assertEq(this.count(first, second, 0, 10), 127);
    }

    function testASharesLimitIsInclusive() public view {
        bytes memory first = new bytes(512);
        bytes memory second = new bytes(512);
        for (uint256 i = 0; i < 32; ++i) second[4 * i] = 0x80;
        assertTrue(agreement.agrees(first, second, 0, 10, 8, 7500));
        assertFalse(agreement.agrees(first, second, 0, 10, 8, 7501));
    }

    function testNumbersOnTwoSidesOfAPowerOfTwoDisagree() public view {
        bytes memory first = new bytes(32);
        bytes memory second = new bytes(32);
        (first[0], first[1], first[2], first[3]) = (0x3f, 0x80, 0, 0);
        (second[0], second[1], second[2], second[3]) = (0x3f, 0x7f, 0xff, 0xff);
        assertEq(this.count(first, second, 0, 23), 7);
    }

    function testRefusesWhatItCannotCompare() public {
        vm.expectRevert(abi.encodeWithSelector(Agreement.WrongLengths.selector, 512, 480));
        this.count(new bytes(512), new bytes(480), 0, 10);
        vm.expectRevert(abi.encodeWithSelector(Agreement.WrongLengths.selector, 0, 0));
        this.count("", "", 0, 10);
        vm.expectRevert(abi.encodeWithSelector(Agreement.WrongLengths.selector, 33, 33));
        this.count(new bytes(33), new bytes(33), 0, 10);
        vm.expectRevert(abi.encodeWithSelector(Agreement.UnknownFormat.selector, 2, 7));
        this.count(new bytes(32), new bytes(32), 2, 7);
        vm.expectRevert(abi.encodeWithSelector(Agreement.UnknownFormat.selector, 1, 8));
        this.count(new bytes(32), new bytes(32), 1, 8);
    }
}
