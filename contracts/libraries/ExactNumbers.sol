// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Two logits of one state as integers, and how far an honest machine's may be from them
/// @notice A number is m · 2^(e - 150): e is its stored exponent as a float32, m its mantissa, with the leading bit unless e is
///         zero (numbers below 2^-126 count half). A product of two is (m · m') · 2^(e + e' - 300), taken in units of 2^-56:
///         what is below a unit is cut off, of its size and not of its sign. Sums of such integers are exact, so that no
///         order of summation matters.
/// @dev The same integers are `troth.protocol.exact_numbers`; tests hold the two together. Eight numbers are worked on at a
///      time, one to 32 bits of a word.
library ExactNumbers {
    enum Format {
        Float32,
        BFloat16
    }

    /// @notice In units of 2^-56.
    /// @param own the logit of the claimed token; others: of its rival
    /// @param size sum of the sizes of all terms of both
    /// @param isState whether every number of the state is below 2^40; else the logits mean nothing
    struct Logits {
        int256 own;
        int256 others;
        uint256 size;
        bool isState;
    }

    /// @dev Where the next eight numbers of each row are, and how many bytes they take.
    struct Cursor {
        uint256 state;
        uint256 claimed;
        uint256 better;
        uint256 end;
        uint256 stateStep;
        uint256 weightStep;
        bool rounded;
        uint256 large;
        uint256 heavy;
    }

    error WrongLength(uint256 given, uint256 read);
    /// @notice Weights of 2^15 and more, infinities and NaN are not weighed.
    error WeightTooLarge();
    /// @notice Numbers come in eights, at most 65,536.
    error WrongCount(uint256 columns);

    uint256 private constant MOST_COLUMNS = 65_536;
    /// @dev In each lane: a size of 2^40 (2^15) and more carries into the lane's highest bit.
    uint256 private constant STATE_LIMIT = 0x2c8000002c8000002c8000002c8000002c8000002c8000002c8000002c800000;
    uint256 private constant WEIGHT_LIMIT = 0x3900000039000000390000003900000039000000390000003900000039000000;
    uint256 private constant TWOS = 0x0000000200000002000000020000000200000002000000020000000200000002;
    uint256 private constant SIGNS = 0x8000000080000000800000008000000080000000800000008000000080000000;

    /// @notice Bytes of one number.
    function width(Format format) internal pure returns (uint256) {
        return format == Format.Float32 ? 4 : 2;
    }

    /// @notice Both logits of a state; rows have the lengths of `columns` numbers.
    /// @param rounded float32 weights are rounded to bfloat16 first, to nearest, ties to even
    function logits(
        bytes calldata state,
        Format stateFormat,
        bytes calldata claimed,
        bytes calldata better,
        Format weightFormat,
        uint256 columns,
        bool rounded
    ) internal pure returns (Logits memory) {
        if (columns == 0 || columns & 7 != 0 || columns > MOST_COLUMNS) revert WrongCount(columns);
        _requireLength(state.length, columns * width(stateFormat));
        _requireLength(claimed.length, columns * width(weightFormat));
        _requireLength(better.length, columns * width(weightFormat));
        Cursor memory cursor;
        uint256 end;
        assembly ("memory-safe") {
            mstore(cursor, state.offset)
            mstore(add(cursor, 0x20), claimed.offset)
            mstore(add(cursor, 0x40), better.offset)
            end := add(state.offset, state.length)
        }
        cursor.end = end;
        (cursor.stateStep, cursor.weightStep) = (8 * width(stateFormat), 8 * width(weightFormat));
        cursor.rounded = rounded && weightFormat == Format.Float32;
        return _sum(cursor);
    }

    function _requireLength(uint256 given, uint256 expected) private pure {
        if (given != expected) revert WrongLength(given, expected);
    }

    /// @dev Eight numbers after eight; within them from the last to the first.
    // The names of one assembly block end with it: in pieces it would pay for memory at each element.
    // solhint-disable-next-line function-max-lines
    function _sum(Cursor memory cursor) private pure returns (Logits memory made) {
        uint256 own;
        uint256 others;
        assembly ("memory-safe") {
            // Eight float32 numbers, the first in the highest lane.
            function load(from, step) -> lanes {
                lanes := calldataload(from)
                let low := 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff
                lanes := or(and(shr(8, lanes), low), shl(8, and(lanes, low)))
                switch step
                case 32 {
                    low := 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff
                    lanes := or(and(shr(16, lanes), low), shl(16, and(lanes, low)))
                }
                default {
                    // Sixteen bytes: each bfloat16 goes to the upper half of a lane.
                    lanes := shr(128, lanes)
                    lanes := and(or(lanes, shl(64, lanes)), 0xffffffffffffffff0000000000000000ffffffffffffffff)
                    lanes := and(
                        or(lanes, shl(32, lanes)), 0x00000000ffffffff00000000ffffffff00000000ffffffff00000000ffffffff
                    )
                    lanes := and(
                        or(lanes, shl(16, lanes)), 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff
                    )
                    lanes := shl(16, lanes)
                }
            }
            // To nearest, ties to even. Lanes hold weights below 2^15, which carry into no other lane.
            function round(lanes) -> rounded {
                let odd := and(shr(16, lanes), 0x0000000100000001000000010000000100000001000000010000000100000001)
                rounded := add(lanes, 0x00007fff00007fff00007fff00007fff00007fff00007fff00007fff00007fff)
                rounded := and(add(rounded, odd), 0xffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000)
            }
            // Exponent in the upper eight bits of a lane, mantissa with its leading bit in the others.
            function split(lanes) -> parts {
                let exponents := and(shl(1, lanes), 0xff000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000)
                let leading := add(
                    shr(8, exponents), 0x00ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff0000
                )
                // Carries from bit 23 to bit 24 exactly if the exponent is not zero.
                leading := and(shr(1, leading), 0x0080000000800000008000000080000000800000008000000080000000800000)
                parts := and(lanes, 0x007fffff007fffff007fffff007fffff007fffff007fffff007fffff007fffff)
                parts := or(or(exponents, leading), parts)
            }
            for {} lt(mload(cursor), mload(add(cursor, 0x60))) {} {
                let a := load(mload(cursor), mload(add(cursor, 0x80)))
                let b := load(mload(add(cursor, 0x20)), mload(add(cursor, 0xa0)))
                let c := load(mload(add(cursor, 0x40)), mload(add(cursor, 0xa0)))
                mstore(cursor, add(mload(cursor), mload(add(cursor, 0x80))))
                mstore(add(cursor, 0x20), add(mload(add(cursor, 0x20)), mload(add(cursor, 0xa0))))
                mstore(add(cursor, 0x40), add(mload(add(cursor, 0x40)), mload(add(cursor, 0xa0))))
                let flags := add(cursor, 0xe0)
                mstore(flags, or(mload(flags), add(and(a, not(SIGNS)), STATE_LIMIT)))
                flags := add(cursor, 0x100)
                mstore(flags, or(mload(flags), add(and(b, not(SIGNS)), WEIGHT_LIMIT)))
                mstore(flags, or(mload(flags), add(and(c, not(SIGNS)), WEIGHT_LIMIT)))
                if mload(add(cursor, 0xc0)) {
                    b := round(b)
                    c := round(c)
                }
                // In each lane: bit 0 where the first product is positive, bit 1 where the second is.
                let signs := not(or(and(shr(31, xor(a, b)), shr(1, TWOS)), and(shr(30, xor(a, c)), TWOS)))
                a := split(a)
                b := split(b)
                c := split(c)
                // Each sum holds the sizes of all terms in its lower half, and those of the positive ones in its upper.
                for {} a {} {
                    own := add(
                        own,
                        mul(
                            shr(
                                144,
                                shl(
                                    sub(add(and(shr(24, a), 0xff), and(shr(24, b), 0xff)), 100),
                                    mul(and(a, 0xffffff), and(b, 0xffffff))
                                )
                            ),
                            add(1, shl(128, and(signs, 1)))
                        )
                    )
                    others := add(
                        others,
                        mul(
                            shr(
                                144,
                                shl(
                                    sub(add(and(shr(24, a), 0xff), and(shr(24, c), 0xff)), 100),
                                    mul(and(a, 0xffffff), and(c, 0xffffff))
                                )
                            ),
                            add(1, shl(127, and(signs, 2)))
                        )
                    )
                    a := shr(32, a)
                    b := shr(32, b)
                    c := shr(32, c)
                    signs := shr(32, signs)
                }
            }
        }
        if (cursor.heavy & SIGNS != 0) revert WeightTooLarge();
        // Sums of 65,536 terms below 2^111 are below 2^127.
        made.own = _signed(own);
        made.others = _signed(others);
        made.size = uint256(uint128(own)) + uint128(others);
        made.isState = cursor.large & SIGNS == 0;
    }

    /// @notice How far a machine's own difference of the two may be from the exact one, whatever order and fused steps its sums
    ///         take: with n terms and u = 2^-24, each rounding of float32 loses a share of at most u, and n u / (1 - n u) of
    ///         the sizes is not exceeded (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). In bfloat16
    ///         each logit is rounded once more, by at most 2^-8.
    function slack(Logits memory found, uint256 columns, bool rounded) internal pure returns (uint256 units) {
        units = ((found.size >> 24) + 1) * (columns + 2 + columns / 128);
        if (rounded) units += (_size(found.own) + _size(found.others) + units >> 8) + 1;
    }

    /// @dev Twice what is positive, less all.
    function _signed(uint256 sum) private pure returns (int256) {
        return 2 * int256(sum >> 128) - int256(uint256(uint128(sum)));
    }

    function _size(int256 value) private pure returns (uint256) {
        return value < 0 ? uint256(-value) : uint256(value);
    }
}
