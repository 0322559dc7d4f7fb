// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArithmeticRounding} from "./ArithmeticRounding.sol";
import {ExactNumbers} from "./ExactNumbers.sol";

/// @title Exponential, tanh, activations, cosine and sine of float32 numbers, correctly rounded to float32
/// @notice Each is computed between two bounds, and both round alike. How near these functions come to a number at which
///         rounding changes is known for every float32 (docs/reference/arithmetic.md); the bounds are closer.
/// @dev The same numbers are `troth.protocol.arithmetic.functions`. Fixed-point numbers have 128 bits behind the point.
library ArithmeticFunctions {
    enum Activation {
        Silu,
        GeluTanh
    }

    /// @notice The bounds do not round alike: no number is known for which this happens.
    error Undecided(uint256 bits);

    ExactNumbers.Format private constant FLOAT32 = ExactNumbers.Format.Float32;
    uint256 private constant ONE_BITS = 0x3f800000;
    uint256 private constant ONE = 1 << 128;
    /// @dev ln 2 and 2 sqrt(2 / pi) in units of 2^-128; pi / 2 in units of 2^-180.
    uint256 private constant LN_2 = 235865763225513294137944142764154484399;
    uint256 private constant TWO_ROOT = 543012093759344928650364028703141847807;
    uint256 private constant HALF_PI = 2407238366421696601854996748563021104914972029442149625;
    /// @dev What is computed below is wrong by less than this many of its units.
    uint256 private constant DOUBT = 1 << 24;
    uint256 private constant TURNED_DOUBT = 1 << 7;
    uint256 private constant MOST_TERMS = 36;

    /// @notice [exp x].
    function exponential(uint256 bits) internal pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(bits)) return ArithmeticRounding.NOT_A_NUMBER;
        uint256 size = bits & 0x7fffffff;
        // Below 2^-30 it is nearer to one than half a place.
        if (size < 0x30800000) return ONE_BITS;
        bool negative = ArithmeticRounding.isNegative(bits);
        // Beyond e^89, and below e^-104, which is half of the smallest number.
        if (!negative && size >= 0x42b20000) return ArithmeticRounding.NOT_A_NUMBER;
        if (negative && size >= 0x42d00000) return 0;
        uint256 x = _fixed(size, 128);
        // exp(x) is 2^k exp(-r) where r = k ln 2 - x.
        uint256 k = negative ? x / LN_2 : x / LN_2 + 1;
        uint256 value = _decay(negative ? x - k * LN_2 : k * LN_2 - x);
        int256 exponent = negative ? -int256(k) - 128 : int256(k) - 128;
        return _decided(value - DOUBT, value + DOUBT, exponent, false, bits);
    }

    /// @notice [tanh x].
    function hyperbolicTangent(uint256 bits) internal pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(bits)) return ArithmeticRounding.NOT_A_NUMBER;
        uint256 size = bits & 0x7fffffff;
        bool negative = ArithmeticRounding.isNegative(bits);
        // Below 2^-13 it is nearer to x than half a place, and from 16 on to one.
        if (size < 0x39000000) return size == 0 ? 0 : bits;
        if (size >= 0x41800000) return negative ? ONE_BITS | 0x80000000 : ONE_BITS;
        uint256 y = 2 * _fixed(size, 128);
        uint256 e = _decay(y % LN_2) >> y / LN_2;
        return _decided(
            (ONE - e - DOUBT << 100) / (ONE + e + DOUBT), (ONE - e + DOUBT << 100) / (ONE + e - DOUBT) + 1, -100, negative, bits
        );
    }

    /// @notice [act x].
    function activation(uint256 bits, Activation kind) internal pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(bits)) return ArithmeticRounding.NOT_A_NUMBER;
        uint256 size = bits & 0x7fffffff;
        bool negative = ArithmeticRounding.isNegative(bits);
        if (size == 0) return 0;
        (uint256 mantissa, uint256 shifted) = ArithmeticRounding.parts(bits);
        int256 exponent = int256(shifted) - 149;
        // Below 2^-30 it is above x / 2 by less than half a place: a middle between two numbers is left upwards.
        if (size < 0x30800000) {
            uint256 half = mantissa << 40;
            return ArithmeticRounding.round(negative ? half - 1 : half, exponent - 41, negative, true, FLOAT32);
        }
        bool silu = kind == Activation.Silu;
        // From 32 (and 8) on it is nearer to x than half a place; to zero below -128 (and -16).
        if (size >= (negative ? (silu ? 0x43000000 : 0x41800000) : (silu ? 0x42000000 : 0x41000000))) {
            return negative ? 0 : bits;
        }
        uint256 y = silu ? _fixed(size, 128) : _cubic(size);
        uint256 k = y / LN_2;
        uint256 value = _decay(y - k * LN_2);
        uint256 e = value >> k;
        if (!negative) {
            return _decided(
                (mantissa << 228) / (ONE + e + DOUBT), (mantissa << 228) / (ONE + e - DOUBT) + 1, exponent - 100, false, bits
            );
        }
        return _decided(
            mantissa * (value - DOUBT << 100) / (ONE + e + DOUBT),
            mantissa * (value + DOUBT << 100) / (ONE + e - DOUBT) + 1,
            exponent - 100 - int256(k),
            true,
            bits
        );
    }

    /// @notice [cos x] of a number from 0 to 2^20.
    function cosine(uint256 bits) internal pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(bits)) return ArithmeticRounding.NOT_A_NUMBER;
        // Below 2^-13 it is nearer to one than half a place.
        return bits < 0x39000000 ? ONE_BITS : _turned(bits, 1);
    }

    /// @notice [sin x] of a number from 0 to 2^20.
    function sine(uint256 bits) internal pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(bits)) return ArithmeticRounding.NOT_A_NUMBER;
        // Below 2^-13 it is nearer to x than half a place.
        return bits < 0x39000000 ? bits : _turned(bits, 0);
    }

    /// @dev A number from 2^-36 to 2^22 of which `size` are the bits, exactly, with `places` bits behind the point.
    function _fixed(uint256 size, uint256 places) private pure returns (uint256) {
        (uint256 mantissa, uint256 exponent) = ArithmeticRounding.parts(size);
        return mantissa << places + exponent - 149;
    }

    /// @dev 2 sqrt(2 / pi) (x + 0.044715 x^3) of a number from 2^-30 to 16.
    function _cubic(uint256 size) private pure returns (uint256) {
        // With 54 bits behind the point x is exact.
        uint256 x = _fixed(size, 54);
        uint256 sum = (1_000_000 * x << 108) + 44_715 * x * x * x;
        return (sum >> 64) * (TWO_ROOT >> 14) / 1_000_000 >> 84;
    }

    /// @dev exp(-x) of x from 0 to ln 2.
    function _decay(uint256 x) private pure returns (uint256 value) {
        unchecked {
            uint256 term = ONE;
            value = ONE;
            for (uint256 n = 1; n < MOST_TERMS; n += 2) {
                term = (term * x >> 128) / n;
                value -= term;
                term = (term * x >> 128) / (n + 1);
                value += term;
            }
        }
    }

    /// @dev sin(x + quarters · pi / 2).
    function _turned(uint256 bits, uint256 quarters) private pure returns (uint256) {
        unchecked {
            uint256 x = _fixed(bits, 180);
            uint256 k = x / HALF_PI;
            uint256 r = x - k * HALF_PI >> 54;
            quarters += k;
            uint256 square = r * r >> 126;
            uint256 n = quarters & 1 == 0 ? 2 : 1;
            uint256 term = n == 2 ? r : 1 << 126;
            uint256 sum = term;
            for (uint256 i = 0; i < 10; ++i) {
                term = (term * square >> 126) / (n * (n + 1));
                sum -= term;
                term = (term * square >> 126) / ((n + 2) * (n + 3));
                sum += term;
                n += 4;
            }
            return _decided(sum - TURNED_DOUBT, sum + TURNED_DOUBT, -126, quarters & 2 == 2, bits);
        }
    }

    function _decided(uint256 low, uint256 high, int256 exponent, bool negative, uint256 bits)
        private
        pure
        returns (uint256 found)
    {
        found = ArithmeticRounding.round(low, exponent, negative, true, FLOAT32);
        if (found != ArithmeticRounding.round(high, exponent, negative, true, FLOAT32)) revert Undecided(bits);
    }
}
