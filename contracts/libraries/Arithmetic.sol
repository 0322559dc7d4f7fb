// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {ArithmeticFunctions} from "./ArithmeticFunctions.sol";
import {ArithmeticRounding} from "./ArithmeticRounding.sol";
import {ArithmeticSums} from "./ArithmeticSums.sol";
import {ExactNumbers} from "./ExactNumbers.sol";

/// @title One element of a decoder layer from its operands
/// @notice Each is the correctly rounded value of an exact real expression, so that it depends on no order of summation
///         (docs/reference/arithmetic.md). Elements and constants are the bits of float32 numbers. Whether the operands are
///         those of the step is for the caller to check. The same rules are `troth.protocol.arithmetic.steps`.
library Arithmetic {
    using ArithmeticRounding for ArithmeticRounding.Wide;

    /// @notice The expressions; the values are `troth.protocol.arithmetic.operations.StepKind`'s.
    enum Kind {
        Factor,
        Norm,
        Product,
        Cosine,
        Sine,
        Rotation,
        Score,
        Cap,
        Maximum,
        Exponential,
        Sum,
        Quotient,
        Addition,
        Gating
    }

    /// @notice The kind has other operands or constants.
    error WrongStep(Kind kind, uint256 operands, uint256 constants);
    error NotOneNumber(uint256 operand, uint256 numbers);
    /// @notice A position is below 2^20, a frequency from 0 to 1; a sum has a term.
    error OutOfRange(uint256 value);

    ExactNumbers.Format private constant FLOAT32 = ExactNumbers.Format.Float32;
    uint256 private constant NOT_A_NUMBER = ArithmeticRounding.NOT_A_NUMBER;
    uint256 private constant ONE = 0x3f800000;
    uint256 private constant MOST_POSITIONS = 1 << 20;

    /// @notice Whether the claimed bits are the element's.
    function check(
        Kind kind,
        ArithmeticSums.Operand[] calldata operands,
        uint256[] calldata constants,
        ExactNumbers.Format format,
        uint256 claimed
    ) internal pure returns (bool) {
        return evaluate(kind, operands, constants, format) == claimed;
    }

    /// @notice The bits of the element.
    function evaluate(
        Kind kind,
        ArithmeticSums.Operand[] calldata operands,
        uint256[] calldata constants,
        ExactNumbers.Format format
    ) internal pure returns (uint256) {
        if (kind == Kind.Maximum) {
            _requireShape(kind, operands, constants, 1, 0);
            return largest(operands[0]);
        }
        if (!isSum(kind)) return _single(kind, operands, constants, format);
        bool biased = kind == Kind.Product && operands.length == 3;
        bool scaled = kind == Kind.Factor || kind == Kind.Score;
        _requireShape(kind, operands, constants, _factors(kind) + (biased ? 1 : 0), scaled ? 1 : 0);
        ArithmeticRounding.Wide memory total;
        total = _added(kind, total, operands);
        uint256 last = biased ? number(operands, 2) : scaled ? constants[0] : 0;
        return conclude(kind, total, ArithmeticSums.count(operands[0]), last, format);
    }

    /// @notice Whether the element is made of one long sum, which may be taken in parts.
    function isSum(Kind kind) internal pure returns (bool) {
        return kind == Kind.Factor || kind == Kind.Product || kind == Kind.Score || kind == Kind.Sum;
    }

    /// @notice The exact sum so far and some more terms, in units of 2^-298.
    function add(Kind kind, ArithmeticRounding.Wide memory soFar, ArithmeticSums.Operand[] calldata operands)
        internal
        pure
        returns (ArithmeticRounding.Wide memory)
    {
        if (!isSum(kind) || operands.length != _factors(kind)) revert WrongStep(kind, operands.length, 0);
        return _added(kind, soFar, operands);
    }

    /// @notice The element of a sum over `count` terms.
    /// @param last a factor's epsilon, a score's scale, a product's bias; 0 if there is none
    function conclude(
        Kind kind,
        ArithmeticRounding.Wide memory total,
        uint256 count,
        uint256 last,
        ExactNumbers.Format format
    ) internal pure returns (uint256) {
        if (!isSum(kind)) revert WrongStep(kind, 0, 0);
        if (count == 0 || count > MOST_POSITIONS) revert OutOfRange(count);
        if (!ArithmeticSums.isNumber(total) || !ArithmeticRounding.isFinite(last)) return NOT_A_NUMBER;
        (uint256 mantissa, uint256 exponent) = ArithmeticRounding.parts(last);
        if (kind == Kind.Score) {
            if (ArithmeticRounding.isNegative(last)) total = total.negate();
            return total.multiply(mantissa).roundWide(int256(exponent) - 447, format);
        }
        if (kind == Kind.Factor) mantissa *= count;
        int256 more = ArithmeticRounding.isNegative(last) ? -int256(mantissa) : int256(mantissa);
        total = total.addShifted(more, exponent + 149);
        return kind == Kind.Factor ? _inverseRoot(total, count, format) : total.roundWide(-298, format);
    }

    /// @notice The largest of at least one number.
    function largest(ArithmeticSums.Operand calldata operand) internal pure returns (uint256 found) {
        uint256 count = ArithmeticSums.count(operand);
        if (count == 0) revert OutOfRange(count);
        // Bits of numbers that are not negative are in their order; of others in the opposite one.
        uint256 greatest = 0;
        for (uint256 i = 0; i < count; ++i) {
            uint256 bits = numberAt(operand, i);
            if (!ArithmeticRounding.isFinite(bits)) return NOT_A_NUMBER;
            uint256 order = ArithmeticRounding.isNegative(bits) ? ~bits & 0xffffffff : bits | 0x80000000;
            if (order > greatest) greatest = order;
        }
        found = greatest & 0x80000000 != 0 ? greatest & 0x7fffffff : ~greatest & 0xffffffff;
        if (found == 0x80000000) found = 0;
    }

    /// @notice The one number of an operand.
    function number(ArithmeticSums.Operand[] calldata operands, uint256 which) internal pure returns (uint256) {
        uint256 count = ArithmeticSums.count(operands[which]);
        if (count != 1) revert NotOneNumber(which, count);
        return numberAt(operands[which], 0);
    }

    /// @notice One of an operand's numbers, of which there are more.
    function numberAt(ArithmeticSums.Operand calldata operand, uint256 place) internal pure returns (uint256 bits) {
        bytes calldata numbers = operand.numbers;
        unchecked {
            if (operand.format == ExactNumbers.Format.BFloat16) {
                return uint256(uint8(numbers[2 * place])) << 16 | uint256(uint8(numbers[2 * place + 1])) << 24;
            }
            uint256 at = 4 * place;
            bits = uint256(uint8(numbers[at])) | uint256(uint8(numbers[at + 1])) << 8
                | uint256(uint8(numbers[at + 2])) << 16 | uint256(uint8(numbers[at + 3])) << 24;
            if (operand.rounded && ArithmeticRounding.isFinite(bits)) {
                bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
            }
        }
    }

    /// @dev How many operands a sum's terms come from.
    function _factors(Kind kind) private pure returns (uint256) {
        return kind == Kind.Product || kind == Kind.Score ? 2 : 1;
    }

    function _added(
        Kind kind,
        ArithmeticRounding.Wide memory soFar,
        ArithmeticSums.Operand[] calldata operands
    ) private pure returns (ArithmeticRounding.Wide memory) {
        if (_factors(kind) == 2) return ArithmeticSums.addProducts(soFar, operands[0], operands[1]);
        if (kind == Kind.Factor) return ArithmeticSums.addProducts(soFar, operands[0], operands[0]);
        return ArithmeticSums.addNumbers(soFar, operands[0]);
    }

    /// @dev The kinds whose operands are single numbers.
    function _single(
        Kind kind,
        ArithmeticSums.Operand[] calldata operands,
        uint256[] calldata constants,
        ExactNumbers.Format format
    ) private pure returns (uint256) {
        if (kind == Kind.Cosine || kind == Kind.Sine) {
            _requireShape(kind, operands, constants, 0, 2);
            return _turn(kind, constants, format);
        }
        if (kind == Kind.Cap) {
            _requireShape(kind, operands, constants, 1, 1);
            uint256 ratio = _quotient(number(operands, 0), constants[0], FLOAT32);
            return _product(ArithmeticFunctions.hyperbolicTangent(ratio), constants[0], format);
        }
        if (kind == Kind.Norm || kind == Kind.Rotation) return _several(kind, operands, constants, format);
        _requireShape(kind, operands, constants, 2, kind == Kind.Gating ? 1 : 0);
        (uint256 x, uint256 y) = (number(operands, 0), number(operands, 1));
        if (kind == Kind.Exponential) {
            return _product(ArithmeticFunctions.exponential(_sum(x, y ^ 0x80000000, FLOAT32)), ONE, format);
        }
        if (kind == Kind.Quotient) return _quotient(x, y, format);
        if (kind == Kind.Addition) return _sum(x, y, format);
        return _product(ArithmeticFunctions.activation(x, ArithmeticFunctions.Activation(constants[0])), y, format);
    }

    /// @dev Norms and rotations, which have three and four numbers.
    function _several(
        Kind kind,
        ArithmeticSums.Operand[] calldata operands,
        uint256[] calldata constants,
        ExactNumbers.Format format
    ) private pure returns (uint256) {
        _requireShape(kind, operands, constants, kind == Kind.Norm ? 3 : 4, 1);
        if (constants[0] > 1) revert OutOfRange(constants[0]);
        bool shifted = constants[0] == 1;
        ArithmeticRounding.Wide memory total = _exactProduct(number(operands, 0), number(operands, 1));
        uint256 third = number(operands, 2);
        if (kind == Kind.Rotation) {
            uint256 last = number(operands, 3);
            ArithmeticRounding.Wide memory other = _exactProduct(third, shifted ? last : last ^ 0x80000000);
            if (!ArithmeticSums.isNumber(total) || !ArithmeticSums.isNumber(other)) return NOT_A_NUMBER;
            return total.add(other).roundWide(-298, format);
        }
        if (shifted) third = _sum(third, ONE, FLOAT32);
        if (!ArithmeticSums.isNumber(total) || !ArithmeticRounding.isFinite(third)) return NOT_A_NUMBER;
        if (ArithmeticRounding.isNegative(third)) total = total.negate();
        (uint256 mantissa, uint256 exponent) = ArithmeticRounding.parts(third);
        return total.multiply(mantissa).roundWide(int256(exponent) - 447, format);
    }

    function _turn(Kind kind, uint256[] calldata constants, ExactNumbers.Format format) private pure returns (uint256) {
        if (constants[0] >= MOST_POSITIONS) revert OutOfRange(constants[0]);
        if (constants[1] > ONE) revert OutOfRange(constants[1]);
        (uint256 mantissa, uint256 exponent) = ArithmeticRounding.parts(constants[1]);
        uint256 angle = ArithmeticRounding.round(constants[0] * mantissa, int256(exponent) - 149, false, false, FLOAT32);
        return _product(
            kind == Kind.Cosine ? ArithmeticFunctions.cosine(angle) : ArithmeticFunctions.sine(angle), ONE, format
        );
    }

    function _product(uint256 x, uint256 y, ExactNumbers.Format format) private pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(x) || !ArithmeticRounding.isFinite(y)) return NOT_A_NUMBER;
        (uint256 mantissa, uint256 exponent) = ArithmeticRounding.parts(x);
        (uint256 other, uint256 more) = ArithmeticRounding.parts(y);
        return ArithmeticRounding.round(
            mantissa * other, int256(exponent + more) - 298, ArithmeticRounding.isNegative(x ^ y), false, format
        );
    }

    function _quotient(uint256 x, uint256 z, ExactNumbers.Format format) private pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(x) || !ArithmeticRounding.isFinite(z)) return NOT_A_NUMBER;
        (uint256 mantissa, uint256 exponent) = ArithmeticRounding.parts(x);
        (uint256 divisor, uint256 less) = ArithmeticRounding.parts(z);
        if (divisor == 0) return NOT_A_NUMBER;
        return ArithmeticRounding.round(
            (mantissa << 64) / divisor,
            int256(exponent) - int256(less) - 64,
            ArithmeticRounding.isNegative(x ^ z),
            (mantissa << 64) % divisor != 0,
            format
        );
    }

    function _sum(uint256 x, uint256 y, ExactNumbers.Format format) private pure returns (uint256) {
        if (!ArithmeticRounding.isFinite(x) || !ArithmeticRounding.isFinite(y)) return NOT_A_NUMBER;
        return _exactProduct(x, ONE).add(_exactProduct(y, ONE)).roundWide(-298, format);
    }

    /// @dev In units of 2^-298.
    function _exactProduct(uint256 x, uint256 y) private pure returns (ArithmeticRounding.Wide memory product) {
        if (!ArithmeticRounding.isFinite(x) || !ArithmeticRounding.isFinite(y)) return ArithmeticSums.noNumber();
        (uint256 mantissa, uint256 exponent) = ArithmeticRounding.parts(x);
        (uint256 other, uint256 more) = ArithmeticRounding.parts(y);
        int256 value = int256(mantissa * other);
        return product.addShifted(ArithmeticRounding.isNegative(x ^ y) ? -value : value, exponent + more);
    }

    /// @dev The bits nearest to 1 / sqrt(total · 2^-298 / count).
    function _inverseRoot(ArithmeticRounding.Wide memory total, uint256 count, ExactNumbers.Format format)
        private
        pure
        returns (uint256)
    {
        if (total.high >> 255 == 1 || total.high | total.middle | total.low == 0) return NOT_A_NUMBER;
        (uint256 size, uint256 shift,) = total.leading();
        // count / size · 2^even is a square of 96 to 100 bits or more; the size is between this one and the next.
        uint256 places = 220 - Math.log2(count);
        if ((places + shift) & 1 == 1) --places;
        int256 exponent = (298 - int256(shift) - int256(places)) / 2;
        uint256 low = Math.sqrt((count << places) / (size + 1));
        uint256 high = Math.sqrt((count << places) / size) + 1;
        uint256 least = ArithmeticRounding.round(low, exponent, false, false, format);
        uint256 most = ArithmeticRounding.round(high, exponent, false, false, format);
        return least == most ? least : _nearer(total, count, low, high, exponent, format);
    }

    /// @dev The root is at the middle between two neighbours, or to one side of it: the square of the middle tells.
    function _nearer(
        ArithmeticRounding.Wide memory total,
        uint256 count,
        uint256 low,
        uint256 high,
        int256 exponent,
        ExactNumbers.Format format
    ) private pure returns (uint256) {
        // Between the bounds lies one number of few bits: with as many zeros below as may be.
        uint256 zeros = Math.log2(low ^ high);
        uint256 middle = high >> zeros;
        int256 place = exponent + int256(zeros);
        // Whether middle^2 · 2^(2 place) is below count · 2^298 / total.
        ArithmeticRounding.Wide memory product = total.multiply(middle * middle);
        ArithmeticRounding.Wide memory other;
        other = other.addShifted(int256(count), uint256(298 - 2 * place));
        uint256 chosen = product.isLess(other) ? (middle << 64) + 1 : (middle << 64) - 1;
        return ArithmeticRounding.round(chosen, place - 64, false, true, format);
    }

    function _requireShape(
        Kind kind,
        ArithmeticSums.Operand[] calldata operands,
        uint256[] calldata constants,
        uint256 numbers,
        uint256 fixedOnes
    ) private pure {
        if (operands.length != numbers || constants.length != fixedOnes) {
            revert WrongStep(kind, operands.length, constants.length);
        }
    }
}
