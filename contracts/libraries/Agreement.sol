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

    /// @notice A rule, as words that judge all elements of a word at once. Made once, for many comparisons.
    /// @param ones a word with 1 in each lane
    /// @param width bits of an element
    /// @param guards the top bit of each lane
    /// @param compared the mantissas' bits that are compared
    /// @param scale sign and exponent
    /// @param slack guards and the largest difference
    /// @param telling compared and scale: words that differ in no such bit agree in all elements
    struct Rule {
        uint256 ones;
        uint256 width;
        uint256 guards;
        uint256 compared;
        uint256 scale;
        uint256 slack;
        uint256 telling;
    }

    /// @notice The rule of an execution class, into an empty one.
    /// @param dtype 0 float32, 1 bfloat16
    /// @param bits mantissa bits that are compared
    /// @param steps largest difference, counted at that precision
    function set(Rule memory rule, uint8 dtype, uint8 bits, uint16 steps) internal pure {
        uint256 mantissa = dtype == 0 ? 23 : 7;
        if (dtype > 1 || bits > mantissa) revert UnknownFormat(dtype, bits);
        (uint256 ones, uint256 width) = dtype == 0 ? (ONES_FLOAT32, 32) : (ONES_BFLOAT16, 16);
        unchecked {
            // No two mantissas are further apart than this, and no lane overflows.
            uint256 limit = steps > 1 << bits ? 1 << bits : steps;
            uint256 dropped = mantissa - bits;
            (rule.ones, rule.width) = (ones, width);
            rule.guards = ones << (width - 1);
            rule.compared = ones * ((1 << mantissa) - (1 << dropped));
            rule.scale = ones * ((1 << width) - (1 << mantissa));
            rule.slack = rule.guards + ones * (limit << dropped);
            rule.telling = rule.compared | rule.scale;
        }
    }

    /// @notice The same as a new one.
    function ruleOf(uint8 dtype, uint8 bits, uint16 steps) internal pure returns (Rule memory rule) {
        set(rule, dtype, bits, steps);
    }

    /// @notice Number of agreeing elements, and of all elements.
    /// @param first tiles of one party
    /// @param second tiles of another, of the same length
    function agreeing(Rule memory rule, bytes memory first, bytes memory second)
        internal
        pure
        returns (uint256 agreed, uint256 total)
    {
        uint256 length = first.length;
        if (length != second.length || length == 0 || length % 32 != 0 || length > MAXIMUM_BYTES) {
            revert WrongLengths(length, second.length);
        }
        unchecked {
            // Of a length that is bounded.
            total = length * 8 / rule.width;
        }
        agreed = _sum(_count(rule, first, second), rule.width);
    }

    /// @notice Whether the share of agreeing elements is at least `theta` basis points.
    function agrees(Rule memory rule, bytes memory first, bytes memory second, uint16 theta)
        internal
        pure
        returns (bool)
    {
        (uint256 agreed, uint256 total) = agreeing(rule, first, second);
        unchecked {
            // Both are counts of a bounded length.
            return agreed * 10_000 >= uint256(theta) * total;
        }
    }

    /// @dev Counts agreeing elements, each lane by itself. In a lane guard + steps + a - b keeps the guard iff
    /// b - a <= steps, and guard - (sign and exponent of a xor b, halved) keeps it iff both are equal. Honest traces
    /// differ in hardly more than bits that do not tell: four words that do are taken at once. The rule is read from
    /// memory for each word, which the compiler would make anew from the class's numbers.
    function _count(Rule memory rule, bytes memory first, bytes memory second) private pure returns (uint256 counts) {
        assembly ("memory-safe") {
            let apart := sub(second, first)
            let at := add(first, 0x20)
            let end := add(at, mload(first))
            for { } lt(at, end) { } {
                let next := add(at, 0x80)
                if iszero(gt(next, end)) {
                    let other := add(at, apart)
                    let differing := or(xor(mload(at), mload(other)), xor(mload(add(at, 0x20)), mload(add(other, 0x20))))
                    differing := or(differing, xor(mload(add(at, 0x40)), mload(add(other, 0x40))))
                    differing := or(differing, xor(mload(add(at, 0x60)), mload(add(other, 0x60))))
                    if iszero(and(differing, mload(add(rule, 0xc0)))) {
                        counts := add(counts, shl(2, mload(rule)))
                        at := next
                        continue
                    }
                }
                for { } and(lt(at, next), lt(at, end)) { at := add(at, 0x20) } {
                    let a := mload(at)
                    let b := mload(add(at, apart))
                    let kept := sub(mload(add(rule, 0x40)), shr(1, and(xor(a, b), mload(add(rule, 0x80)))))
                    a := and(a, mload(add(rule, 0x60)))
                    b := and(b, mload(add(rule, 0x60)))
                    let slack := mload(add(rule, 0xa0))
                    kept := and(kept, and(sub(add(slack, a), b), sub(add(slack, b), a)))
                    counts := add(counts, shr(sub(mload(add(rule, 0x20)), 1), and(kept, mload(add(rule, 0x40)))))
                }
            }
        }
    }

    /// @dev Neighbouring counters are added in lanes twice as wide; modulo 2^lane - 1 a word is the sum of its lanes.
    function _sum(uint256 counts, uint256 width) private pure returns (uint256 sum) {
        assembly ("memory-safe") {
            let half := sub(shl(width, 1), 1)
            let wide := sub(shl(add(width, width), 1), 1)
            let evens := mul(half, div(not(0), wide))
            sum := mod(add(and(counts, evens), and(shr(width, counts), evens)), wide)
        }
    }
}
