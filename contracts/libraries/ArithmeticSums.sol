// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArithmeticRounding} from "./ArithmeticRounding.sol";
import {ExactNumbers} from "./ExactNumbers.sol";

/// @title Exact sums of products of float32 numbers
/// @notice A finite number is m · 2^(e - 150) with e from 1 to 254, so that a product of two is a whole number of 2^-298. A
///         sum is an integer in those units, of 768 bits in two's complement. The smallest such integer stands for the sum
///         of terms one of which was no finite number, and stays.
/// @dev Eight numbers are decoded at a time, one to 32 bits of a word. Products whose unit is 2^-171 to 2^19, which nearly
///      all of a model's are, are added in one word. Where one of eight is not, all eight are added in three words: those
///      below 2^170, 2^340 and 2^510 units.
library ArithmeticSums {
    /// @param rounded float32 numbers that are to be rounded to bfloat16 first, to nearest, ties to even
    struct Operand {
        ExactNumbers.Format format;
        bool rounded;
        bytes numbers;
    }

    /// @dev What the assembly reads: where numbers are, bytes of one, whether to round; then sums and masks.
    struct Work {
        uint256 first;
        uint256 firstStep;
        uint256 firstRounded;
        uint256 second;
        uint256 secondStep;
        uint256 secondRounded;
        uint256 count;
        uint256 special;
        int256 near;
        int256[3] bins;
    }

    /// @notice Bytes that are no whole number of numbers, or operands of different lengths.
    error WrongOperand(uint256 bytesGiven, uint256 numbers);

    uint256 private constant NEAR_SHIFT = 127;
    uint256 private constant BIN_BITS = 170;
    uint256 private constant MOST_TERMS = 65_536;
    uint256 private constant NO_SUM = 1 << 255;

    /// @notice How many numbers an operand has.
    function count(Operand calldata operand) internal pure returns (uint256 numbers) {
        uint256 width = ExactNumbers.width(operand.format);
        numbers = operand.numbers.length / width;
        if (numbers * width != operand.numbers.length || numbers > MOST_TERMS) {
            revert WrongOperand(operand.numbers.length, numbers);
        }
    }

    /// @notice Adds the products of two operands' numbers.
    function addProducts(ArithmeticRounding.Wide memory soFar, Operand calldata first, Operand calldata second)
        internal
        pure
        returns (ArithmeticRounding.Wide memory)
    {
        Work memory work;
        work.count = count(first);
        if (count(second) != work.count) revert WrongOperand(second.numbers.length, work.count);
        (work.first, work.firstStep, work.firstRounded) = _place(first);
        (work.second, work.secondStep, work.secondRounded) = _place(second);
        return _added(soFar, work);
    }

    /// @notice Adds an operand's numbers, as products with one.
    function addNumbers(ArithmeticRounding.Wide memory soFar, Operand calldata operand)
        internal
        pure
        returns (ArithmeticRounding.Wide memory)
    {
        Work memory work;
        work.count = count(operand);
        (work.first, work.firstStep, work.firstRounded) = _place(operand);
        return _added(soFar, work);
    }

    function isNumber(ArithmeticRounding.Wide memory sum) internal pure returns (bool) {
        return sum.high != NO_SUM || sum.middle | sum.low != 0;
    }

    function noNumber() internal pure returns (ArithmeticRounding.Wide memory) {
        return ArithmeticRounding.Wide(NO_SUM, 0, 0);
    }

    function _place(Operand calldata operand) private pure returns (uint256 place, uint256 step, uint256 rounded) {
        bytes calldata numbers = operand.numbers;
        assembly ("memory-safe") {
            place := numbers.offset
        }
        step = ExactNumbers.width(operand.format);
        rounded = operand.rounded && operand.format == ExactNumbers.Format.Float32 ? 1 : 0;
    }

    function _added(ArithmeticRounding.Wide memory soFar, Work memory work)
        private
        pure
        returns (ArithmeticRounding.Wide memory sum)
    {
        if (!isNumber(soFar)) return soFar;
        _sum(work);
        if (work.special != 0) return noNumber();
        sum = ArithmeticRounding.addShifted(soFar, work.near, NEAR_SHIFT);
        for (uint256 i = 0; i < 3; ++i) {
            if (work.bins[i] != 0) sum = ArithmeticRounding.addShifted(sum, work.bins[i], BIN_BITS * i);
        }
    }

    /// @dev Sums of terms, and flags of those that are no finite numbers.
    // The names of one assembly block end with it: in pieces it would pay for memory at each element.
    // solhint-disable-next-line function-max-lines
    function _sum(Work memory work) private pure {
        int256[3] memory bins = work.bins;
        assembly ("memory-safe") {
            // Eight bfloat16 numbers as float32 ones, which have two bytes of zeros before them.
            function widen(lanes) -> widened {
                lanes := shr(128, lanes)
                lanes := and(or(lanes, shl(64, lanes)), 0xffffffffffffffff0000000000000000ffffffffffffffff)
                lanes := and(
                    or(lanes, shl(32, lanes)), 0x00000000ffffffff00000000ffffffff00000000ffffffff00000000ffffffff
                )
                widened := and(
                    or(lanes, shl(16, lanes)), 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff
                )
            }
            // Eight numbers, those beyond the last as zeros.
            function read(place, step, remaining) -> lanes {
                lanes := calldataload(place)
                if eq(step, 2) { lanes := widen(lanes) }
                if lt(remaining, 8) { lanes := and(lanes, not(shr(shl(5, remaining), not(0)))) }
            }
            // Bit 8 of a lane: its exponent is 255.
            function specials(lanes) -> flags {
                let mask := mload(0)
                flags := add(
                    and(or(shl(1, and(lanes, mask)), and(shr(15, lanes), mload(0x20))), mask), mload(0x20)
                )
            }
            // To nearest, ties to even, of lanes whose bytes are little-endian and stay so.
            function round(lanes) -> rounded {
                let mask := mload(0)
                let bits := or(
                    or(and(shr(24, lanes), mask), shl(8, and(shr(16, lanes), mask))),
                    or(
                        shl(16, and(shr(8, lanes), mask)),
                        shl(24, and(lanes, 0x0000007f0000007f0000007f0000007f0000007f0000007f0000007f0000007f))
                    )
                )
                bits := add(
                    add(bits, and(shr(16, bits), mload(0x20))),
                    0x00007fff00007fff00007fff00007fff00007fff00007fff00007fff00007fff
                )
                rounded := or(
                    or(and(lanes, 0x0000008000000080000000800000008000000080000000800000008000000080), and(shr(24, bits), mask)),
                    shl(8, and(shr(16, bits), mask))
                )
            }
            // Exponents from 1, and mantissas of 24 bits.
            function decode(lanes) -> exponents, mantissas {
                let mask := mload(0)
                let ones := mload(0x20)
                let third := and(shr(8, lanes), mask)
                exponents := and(or(shl(1, and(lanes, mask)), shr(7, third)), mask)
                let normal := and(shr(8, add(exponents, mask)), ones)
                mantissas := or(
                    or(and(shr(24, lanes), mask), shl(8, and(shr(16, lanes), mask))),
                    shl(
                        16,
                        or(
                            and(third, 0x0000007f0000007f0000007f0000007f0000007f0000007f0000007f0000007f),
                            shl(7, normal)
                        )
                    )
                )
                exponents := add(exponents, xor(normal, ones))
            }
            // A product with its sign, of lane 7 - i shifted down by 32 i bits already; `sign` is 0x80 or 0.
            function term(m, n, sign) -> product {
                product := mul(mul(and(m, 0xffffff), and(n, 0xffffff)), sub(1, shr(6, sign)))
            }
            // Masks lie where reading is cheap: the optimizer would compute each of them anew wherever it is used.
            mstore(0, 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff)
            mstore(0x20, 0x0000000100000001000000010000000100000001000000010000000100000001)
            let near := 0
            let remaining := mload(add(work, 0xc0))
            for {} remaining {} {
                let a := read(mload(work), mload(add(work, 0x20)), remaining)
                // Ones, unless there is a second operand.
                let b := 0x0000803f0000803f0000803f0000803f0000803f0000803f0000803f0000803f
                let step := mload(add(work, 0x80))
                if step { b := read(mload(add(work, 0x60)), step, remaining) }
                mstore(work, add(mload(work), shl(3, mload(add(work, 0x20)))))
                mstore(add(work, 0x60), add(mload(add(work, 0x60)), shl(3, step)))
                let flags := or(specials(a), specials(b))
                if mload(add(work, 0x40)) {
                    a := round(a)
                    flags := or(flags, specials(a))
                }
                if mload(add(work, 0xa0)) {
                    b := round(b)
                    flags := or(flags, specials(b))
                }
                mstore(add(work, 0xe0), or(mload(add(work, 0xe0)), flags))
                let signs := and(xor(a, b), 0x0000008000000080000000800000008000000080000000800000008000000080)
                let e, other
                e, a := decode(a)
                other, b := decode(b)
                e := add(e, other)
                // In bit 9: whether the sum of exponents is below 129, or 319 and more.
                let shifts := add(e, 0x0000017f0000017f0000017f0000017f0000017f0000017f0000017f0000017f)
                let out := or(
                    not(shifts),
                    add(
                        and(shifts, 0x000001ff000001ff000001ff000001ff000001ff000001ff000001ff000001ff),
                        0x0000014200000142000001420000014200000142000001420000014200000142
                    )
                )
                // Of products that are not zero.
                out := and(
                    and(out, 0x0000020000000200000002000000020000000200000002000000020000000200),
                    shr(
                        15,
                        and(
                            add(a, 0x00ffffff00ffffff00ffffff00ffffff00ffffff00ffffff00ffffff00ffffff),
                            add(b, 0x00ffffff00ffffff00ffffff00ffffff00ffffff00ffffff00ffffff00ffffff)
                        )
                    )
                )
                switch out
                case 0 {
                    near := add(near, shl(byte(3, shifts), term(shr(224, a), shr(224, b), byte(3, signs))))
                    near := add(near, shl(byte(7, shifts), term(shr(192, a), shr(192, b), byte(7, signs))))
                    near := add(near, shl(byte(11, shifts), term(shr(160, a), shr(160, b), byte(11, signs))))
                    near := add(near, shl(byte(15, shifts), term(shr(128, a), shr(128, b), byte(15, signs))))
                    near := add(near, shl(byte(19, shifts), term(shr(96, a), shr(96, b), byte(19, signs))))
                    near := add(near, shl(byte(23, shifts), term(shr(64, a), shr(64, b), byte(23, signs))))
                    near := add(near, shl(byte(27, shifts), term(shr(32, a), shr(32, b), byte(27, signs))))
                    near := add(near, shl(byte(31, shifts), term(a, b, byte(31, signs))))
                }
                default {
                    for { let i := 0 } lt(i, 256) { i := add(i, 32) } {
                        let shift := sub(and(shr(i, e), 0x1ff), 2)
                        let bin := add(bins, shl(5, div(shift, 170)))
                        let product := term(shr(i, a), shr(i, b), and(shr(i, signs), 0x80))
                        mstore(bin, add(mload(bin), shl(mod(shift, 170), product)))
                    }
                }
                remaining := sub(remaining, 8)
                if gt(remaining, 65536) { remaining := 0 }
            }
            mstore(add(work, 0x100), near)
            mstore(
                add(work, 0xe0),
                and(mload(add(work, 0xe0)), 0x0000010000000100000001000000010000000100000001000000010000000100)
            )
        }
    }
}
