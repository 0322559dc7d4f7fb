// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Agreement of two openings, element by element (VeriLLM, equation 29)
/// @notice Two numbers agree if sign and exponent are equal and the mantissas, cut to `bits` bits, differ by at most `steps`.
/// @dev The same rule is `troth.protocol.agreement`. Numbers are big-endian, several to a word, and all lanes of a word are
/// judged at once. Each word is split in two, so that a lane has as many spare bits above it as the number itself has.
library Agreement {
    /// @notice The openings differ in length, are empty, or are not whole 32-byte words.
    error WrongLengths(uint256 first, uint256 second);
    /// @notice The execution class names a number format that no rule covers, or more bits than its mantissa has.
    error UnknownFormat(uint8 dtype, uint8 bits);

    /// @notice Lanes of a word that hold every second number, for float32 (four lanes) and bfloat16 (eight lanes).
    uint256 private constant ONES_FLOAT32 = 0x0000000000000001000000000000000100000000000000010000000000000001;
    uint256 private constant ONES_BFLOAT16 = 0x0000000100000001000000010000000100000001000000010000000100000001;

    /// @notice Number of agreeing elements, and of all elements.
    /// @param first tiles of one party
    /// @param second tiles of another, of the same length
    /// @param dtype 0 float32, 1 bfloat16
    /// @param bits mantissa bits that are compared
    /// @param steps largest difference, counted at that precision
    function agreeing(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps)
        internal
        pure
        returns (uint256 agreed, uint256 total)
    {
        uint256 length = first.length;
        if (length != second.length || length == 0 || length % 32 != 0) revert WrongLengths(length, second.length);
        uint256 mantissa = dtype == 0 ? 23 : 7;
        if (dtype > 1 || bits > mantissa) revert UnknownFormat(dtype, bits);
        total = length / (dtype == 0 ? 4 : 2);
        agreed = dtype == 0
            ? _count(first, second, ONES_FLOAT32, 32, mantissa, mantissa - bits, steps)
            : _count(first, second, ONES_BFLOAT16, 16, mantissa, mantissa - bits, steps);
    }

    /// @notice Whether the share of agreeing elements is at least `theta` basis points.
    function agrees(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps, uint16 theta)
        internal
        pure
        returns (bool)
    {
        (uint256 agreed, uint256 total) = agreeing(first, second, dtype, bits, steps);
        return agreed * 10_000 >= uint256(theta) * total;
    }

    /// @dev Counts agreeing elements of `width` bits. Within a lane of twice that width, with a guard bit above the number:
    /// guard + a - b + steps keeps the guard iff b - a <= steps, and guard - (a xor b) keeps it iff the bits are equal.
    /// @param ones a word with 1 in each lane
    /// @param dropped mantissa bits that are not compared
    function _count(
        bytes memory first,
        bytes memory second,
        uint256 ones,
        uint256 width,
        uint256 mantissa,
        uint256 dropped,
        uint256 steps
    ) private pure returns (uint256 agreed) {
        assembly ("memory-safe") {
            let guards := shl(add(width, 8), ones)
            let kept := mul(ones, sub(shl(width, 1), shl(dropped, 1)))
            let scale := mul(ones, sub(shl(width, 1), shl(mantissa, 1)))
            let slack := add(guards, mul(ones, shl(dropped, steps)))
            let lanes := 0
            let apart := sub(second, first)
            let end := add(add(first, 0x20), mload(first))
            for { let at := add(first, 0x20) } lt(at, end) { at := add(at, 0x20) } {
                let a := mload(at)
                let b := mload(add(at, apart))
                let low := and(a, kept)
                let other := and(b, kept)
                let both := and(sub(add(slack, low), other), sub(add(slack, other), low))
                let unequal := and(xor(a, b), scale)
                both := and(and(both, sub(guards, unequal)), guards)
                lanes := add(lanes, shr(add(width, 8), both))

                low := and(shr(width, a), kept)
                other := and(shr(width, b), kept)
                both := and(sub(add(slack, low), other), sub(add(slack, other), low))
                unequal := and(shr(width, xor(a, b)), scale)
                both := and(and(both, sub(guards, unequal)), guards)
                lanes := add(lanes, shr(add(width, 8), both))
            }
            // Modulo 2^lane - 1 a word is the sum of its lanes.
            agreed := mod(lanes, sub(shl(mul(2, width), 1), 1))
        }
    }
}
