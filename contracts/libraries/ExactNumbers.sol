// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Products of vectors of floating-point numbers as integers, and how far an honest machine's may be from them
/// @notice A finite number is m · 2^(e - 150), m below 2^24. A product of two is (m · m') · 2^(e + e' - 300), taken in units
///         of 2^-96: what is below a unit is cut off, of its size and not of its sign. Sums of such integers are exact, so
///         that no order of summation matters.
/// @dev The same integers are `troth.protocol.exact_numbers`; tests hold the two together.
library ExactNumbers {
    enum Format {
        Float32,
        BFloat16,
        Float16
    }

    /// @notice The numbers of a vector, one to a word: m in bits 0 to 23, e from bit 64 on, the sign in bit 255.
    struct Numbers {
        uint256[] words;
        bool finite;
    }

    /// @notice A product in units of 2^-96: the sum of its terms, and the sum of their sizes.
    struct Product {
        int256 sum;
        uint256 size;
    }

    /// @notice A vector that ends in the middle of a number, or two of different lengths.
    error WrongLength(uint256 given, uint256 expected);
    /// @notice A term is above 2^142, where sums would not fit a word.
    error TermTooLarge();
    error TooManyTerms(uint256 terms);

    /// @dev Terms of the longest sum: each is below 2^238 units.
    uint256 private constant MOST_TERMS = 65_536;

    /// @notice Bytes of one number.
    function width(Format format) internal pure returns (uint256) {
        return format == Format.Float32 ? 4 : 2;
    }

    /// @notice Little-endian numbers of the calldata.
    /// @param rounded float32 numbers are first rounded to bfloat16, to nearest, ties to even
    function read(bytes calldata data, Format format, bool rounded) internal pure returns (Numbers memory numbers) {
        if (format == Format.Float32) return _read32(data, rounded);
        return format == Format.BFloat16 ? _read16(data, 7, 0xff, 16) : _read16(data, 10, 0x1f, 125);
    }

    /// @dev A word holds eight numbers.
    function _read32(bytes calldata data, bool rounded) private pure returns (Numbers memory numbers) {
        if (data.length & 3 != 0) revert WrongLength(data.length, data.length & ~uint256(3));
        uint256[] memory words = new uint256[](data.length >> 2);
        uint256 infinite;
        assembly ("memory-safe") {
            let to := add(words, 0x20)
            let end := add(to, shl(3, data.length))
            for { let from := data.offset } lt(to, end) { from := add(from, 0x20) } {
                let raw := calldataload(from)
                let low := 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff
                raw := or(and(shr(8, raw), low), shl(8, and(raw, low)))
                low := 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff
                raw := or(and(shr(16, raw), low), shl(16, and(raw, low)))
                for { let shift := 256 } and(iszero(iszero(shift)), lt(to, end)) {} {
                    shift := sub(shift, 32)
                    let bits := and(shr(shift, raw), 0xffffffff)
                    if rounded {
                        bits := and(add(bits, add(0x7fff, and(shr(16, bits), 1))), 0xffff0000)
                    }
                    let exponent := and(shr(23, bits), 0xff)
                    infinite := or(infinite, eq(exponent, 0xff))
                    let small := iszero(exponent)
                    bits := or(or(and(bits, 0x7fffff), shl(23, iszero(small))), shl(224, and(bits, 0x80000000)))
                    mstore(to, or(bits, shl(64, add(exponent, small))))
                    to := add(to, 0x20)
                }
            }
        }
        numbers = Numbers({words: words, finite: infinite == 0});
    }

    /// @dev A word holds sixteen numbers with `mantissa` bits; e is their exponent and `offset`.
    function _read16(bytes calldata data, uint256 mantissa, uint256 most, uint256 offset)
        private
        pure
        returns (Numbers memory numbers)
    {
        if (data.length & 1 != 0) revert WrongLength(data.length, data.length & ~uint256(1));
        uint256[] memory words = new uint256[](data.length >> 1);
        uint256 infinite;
        assembly ("memory-safe") {
            let to := add(words, 0x20)
            let end := add(to, shl(4, data.length))
            let leading := shl(mantissa, 1)
            for { let from := data.offset } lt(to, end) { from := add(from, 0x20) } {
                let raw := calldataload(from)
                let low := 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff
                raw := or(and(shr(8, raw), low), shl(8, and(raw, low)))
                for { let shift := 256 } and(iszero(iszero(shift)), lt(to, end)) {} {
                    shift := sub(shift, 16)
                    let bits := and(shr(shift, raw), 0xffff)
                    let exponent := and(shr(mantissa, bits), most)
                    infinite := or(infinite, eq(exponent, most))
                    let small := iszero(exponent)
                    let value := or(and(bits, sub(leading, 1)), mul(leading, iszero(small)))
                    value := or(value, shl(240, and(bits, 0x8000)))
                    mstore(to, or(value, shl(64, add(add(exponent, small), offset))))
                    to := add(to, 0x20)
                }
            }
        }
        numbers = Numbers({words: words, finite: infinite == 0});
    }

    /// @notice The product of two vectors of one length.
    function multiply(uint256[] memory one, uint256[] memory other) internal pure returns (Product memory product) {
        if (one.length != other.length) revert WrongLength(other.length, one.length);
        if (one.length > MOST_TERMS) revert TooManyTerms(one.length);
        uint256 size;
        uint256 negative;
        uint256 large;
        assembly ("memory-safe") {
            let a := add(one, 0x20)
            let b := add(other, 0x20)
            for { let end := add(a, shl(5, mload(one))) } lt(a, end) { a := add(a, 0x20) } {
                let left := mload(a)
                let right := mload(b)
                let exponent := and(shr(64, add(left, right)), 0x1ff)
                let term := mul(and(left, 0xffffff), and(right, 0xffffff))
                // One of the two shifts is by more than a word, which leaves nothing.
                term := or(shl(sub(exponent, 204), term), shr(sub(203, exponent), shr(1, term)))
                large := or(large, gt(exponent, 394))
                size := add(size, term)
                negative := add(negative, mul(term, shr(255, xor(left, right))))
                b := add(b, 0x20)
            }
        }
        if (large != 0) revert TermTooLarge();
        // Sums are below 2^254.
        product = Product({sum: int256(size) - 2 * int256(negative), size: size});
    }

    /// @notice How far a machine's own sum may be from the exact one, whatever order and whatever fused steps it takes: with
    ///         n terms and u = 2^-24, each rounding of float32 loses a share of at most u, and n u / (1 - n u) of the sizes is
    ///         not exceeded (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). In bfloat16 the sum is
    ///         rounded once more, by at most 2^-8.
    function slack(Product memory product, uint256 terms, bool rounded) internal pure returns (uint256 units) {
        units = ((product.size >> 24) + 1) * (terms + 2 + terms / 128);
        if (rounded) {
            uint256 size = product.sum < 0 ? uint256(-product.sum) : uint256(product.sum);
            units += (size + units >> 8) + 1;
        }
    }
}
