// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Agreement of two openings, element by element (VeriLLM, equation 29)
/// @notice Two numbers agree if sign and exponent are equal and the mantissas, cut to `bits` bits, differ by at most
/// `steps`.
/// @dev The same rule is `troth.protocol.agreement`. Numbers are big-endian, several to a word, and all of a word are
/// judged at once: mantissas leave the bits of sign and exponent free, so that a sum or difference of theirs stays in
/// its lane.
library Agreement {
    /// @notice The openings differ in length, are empty, too long, or not whole 32-byte words.
    error WrongLengths(uint256 first, uint256 second);
    /// @notice The execution class names a number format that no rule covers, or more bits than its mantissa has.
    error UnknownFormat(uint8 dtype, uint8 bits);

    /// @dev A word with 1 in each lane.
    uint256 private constant ONES_FLOAT32 = 0x0000000100000001000000010000000100000001000000010000000100000001;
    uint256 private constant ONES_BFLOAT16 = 0x0001000100010001000100010001000100010001000100010001000100010001;

    /// @dev Bytes above which a lane's counter could overflow, far above what a class can sample.
    uint256 private constant MAXIMUM_BYTES = 1 << 20;

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
        if (length != second.length || length == 0 || length % 32 != 0 || length > MAXIMUM_BYTES) {
            revert WrongLengths(length, second.length);
        }
        uint256 mantissa = dtype == 0 ? 23 : 7;
        if (dtype > 1 || bits > mantissa) revert UnknownFormat(dtype, bits);
        // No two mantissas are further apart than this, and no lane overflows.
        uint256 limit = steps > 1 << bits ? 1 << bits : steps;
        total = length / (dtype == 0 ? 4 : 2);
        agreed = dtype == 0
            ? _count(first, second, ONES_FLOAT32, 32, mantissa, mantissa - bits, limit)
            : _count(first, second, ONES_BFLOAT16, 16, mantissa, mantissa - bits, limit);
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

/// 
    /// @dev Counts agreeing elements of `width` bits; the top bit of each lane is its guard. guard + steps + a - b
    /// keeps the guard iff b - a <= steps, and guard - (sign and exponent of a xor b, halved) keeps it iff both are equal.
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
        uint256 guards = ones << (width - 1);
        uint256 compared = ones * ((1 << mantissa) - (1 << dropped));
        uint256 scale = ones * ((1 << width) - (1 << mantissa));
        uint256 slack = guards + ones * (steps << dropped);
        assembly ("memory-safe") {
            let apart := sub(second, first)
            let end := add(add(first, 0x20), mload(first))
            for { let at := add(first, 0x20) } lt(at, end) { at := add(at, 0x20) } {
                let a := mload(at)
                let b := mload(add(at, apart))
                let kept := sub(guards, shr(1, and(xor(a, b), scale)))
                a := and(a, compared)
                b := and(b, compared)
                kept := and(kept, and(sub(add(slack, a), b), sub(add(slack, b), a)))
                agreed := add(agreed, shr(sub(width, 1), and(kept, guards)))
            }
            // Neighbouring counters are added in lanes twice as wide; modulo 2^lane - 1 a word is the sum of its lanes.
            let half := sub(shl(width, 1), 1)
            let wide := sub(shl(add(width, width), 1), 1)
            let evens := mul(half, div(not(0), wide))
            agreed := mod(add(and(agreed, evens), and(shr(width, agreed), evens)), wide)
        }
    }
}
