// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {ExactNumbers} from "./ExactNumbers.sol";

/// @title Real numbers rounded to float32 and bfloat16, and integers of 768 bits that sums of their products fit into
/// @notice To nearest, ties to even; +0 for zero; NOT_A_NUMBER beyond the largest finite number. Numbers are the bits of a
///         float32; those of a bfloat16 have sixteen zeros below. The same rules are `troth.protocol.arithmetic.rounding`.
library ArithmeticRounding {
    /// @dev Three words of a number in two's complement, or without a sign where a function says so.
    struct Wide {
        uint256 high;
        uint256 middle;
        uint256 low;
    }

    uint256 internal constant NOT_A_NUMBER = 0x7fc00000;
    uint256 internal constant INFINITY = 0x7f800000;
    uint256 private constant SIGN = 0x80000000;

    function isFinite(uint256 bits) internal pure returns (bool) {
        return bits & INFINITY != INFINITY;
    }

    function isNegative(uint256 bits) internal pure returns (bool) {
        return bits & SIGN != 0;
    }

    /// @notice The size of a finite number is `mantissa` · 2^(`exponent` - 149); exponents are 0 to 253.
    function parts(uint256 bits) internal pure returns (uint256 mantissa, uint256 exponent) {
        unchecked {
            exponent = bits >> 23 & 0xff;
            mantissa = bits & 0x7fffff;
            if (exponent != 0) {
                mantissa |= 0x800000;
                --exponent;
            }
        }
    }

    /// @notice The bits nearest to a number of size `size` · 2^`exponent`, or, if `inexact`, between that and
    ///         (`size` + 1) · 2^`exponent`.
    /// @param size below 2^200; where inexact, 2^32 at least
    function round(uint256 size, int256 exponent, bool negative, bool inexact, ExactNumbers.Format format)
        internal
        pure
        returns (uint256 bits)
    {
        if (size == 0) return 0;
        unchecked {
            int256 cut = format == ExactNumbers.Format.Float32 ? int256(0) : int256(16);
            // The last place: of a number of this size, or of all that are too small for a mantissa of their own.
            int256 place = int256(Math.log2(size)) + 1 + exponent - 24 + cut;
            if (place < -149 + cut) place = -149 + cut;
            int256 shift = place - exponent;
            uint256 mantissa;
            if (shift <= 0) {
                mantissa = size << uint256(-shift);
            } else if (shift <= 200) {
                mantissa = size >> uint256(shift);
                uint256 rest = size & (1 << uint256(shift)) - 1;
                uint256 half = 1 << uint256(shift - 1);
                if (rest > half || (rest == half && (inexact || mantissa & 1 == 1))) ++mantissa;
            }
            // A mantissa without its first bit is one of exponent 1, so that both are added as one number; it may carry.
            bits = ((uint256(place + 149 - cut) << uint256(23 - cut)) + mantissa) << uint256(cut);
            if (bits >= INFINITY) return NOT_A_NUMBER;
            if (negative && bits != 0) bits |= SIGN;
        }
    }

    /// @notice The bits nearest to `number` · 2^`exponent`, in two's complement.
    function roundWide(Wide memory number, int256 exponent, ExactNumbers.Format format) internal pure returns (uint256) {
        bool negative = number.high >> 255 == 1;
        if (negative) number = negate(number);
        (uint256 size, uint256 shift, bool inexact) = leading(number);
        return round(size, exponent + int256(shift), negative, inexact, format);
    }

    /// @notice The leading 128 bits of a number without a sign, how far they are shifted, and whether any are left out.
    function leading(Wide memory number) internal pure returns (uint256 size, uint256 shift, bool inexact) {
        (uint256 high, uint256 middle, uint256 low) = (number.high, number.middle, number.low);
        unchecked {
            if (high == 0) {
                if (middle == 0) {
                    if (low >> 128 == 0) return (low, 0, false);
                    uint256 some = Math.log2(low) - 127;
                    return (low >> some, some, low & (1 << some) - 1 != 0);
                }
                (high, middle, low) = (middle, low, 0);
            } else {
                shift = 256;
            }
            uint256 top = Math.log2(high);
            uint256 word = high << 255 - top;
            uint256 rest = middle;
            if (top != 255) {
                word |= middle >> top + 1;
                rest = middle << 255 - top;
            }
            inexact = (word & type(uint128).max) | rest | low != 0;
            return (word >> 128, shift + top + 129, inexact);
        }
    }

    /// @notice `number` + `value` · 2^`shift`, in two's complement; the shift is below 768.
    function addShifted(Wide memory number, int256 value, uint256 shift) internal pure returns (Wide memory) {
        uint256 bits = uint256(value);
        uint256 sign = value < 0 ? type(uint256).max : 0;
        (uint256 high, uint256 middle, uint256 low) = (sign, sign, bits);
        unchecked {
            if (shift >= 256) (middle, low) = (bits, 0);
            if (shift >= 512) (high, middle) = (bits, 0);
            uint256 some = shift & 255;
            if (some != 0) {
                high = high << some | middle >> 256 - some;
                middle = middle << some | low >> 256 - some;
                low <<= some;
            }
        }
        return add(number, Wide(high, middle, low));
    }

    function add(Wide memory a, Wide memory b) internal pure returns (Wide memory sum) {
        unchecked {
            sum.low = a.low + b.low;
            uint256 carry = sum.low < a.low ? 1 : 0;
            uint256 some = a.middle + b.middle;
            sum.middle = some + carry;
            carry = (some < a.middle ? 1 : 0) + (sum.middle < some ? 1 : 0);
            sum.high = a.high + b.high + carry;
        }
    }

    function negate(Wide memory number) internal pure returns (Wide memory) {
        return add(Wide(~number.high, ~number.middle, ~number.low), Wide(0, 0, 1));
    }

    /// @notice `number` · `factor` of numbers in two's complement, where the product fits.
    function multiply(Wide memory number, uint256 factor) internal pure returns (Wide memory product) {
        unchecked {
            uint256 carry;
            (carry, product.low) = Math.mul512(number.low, factor);
            (uint256 upper, uint256 lower) = Math.mul512(number.middle, factor);
            product.middle = lower + carry;
            product.high = number.high * factor + upper + (product.middle < lower ? 1 : 0);
        }
    }

    /// @notice Whether a < b, of numbers without a sign.
    function isLess(Wide memory a, Wide memory b) internal pure returns (bool) {
        if (a.high != b.high) return a.high < b.high;
        if (a.middle != b.middle) return a.middle < b.middle;
        return a.low < b.low;
    }
}
