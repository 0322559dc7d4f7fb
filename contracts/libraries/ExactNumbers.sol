// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Two logits of one state as integers, and how far an honest machine's may be from them
/// @notice A number is m · 2^(e - 150): e is its stored exponent as a float32, m its mantissa with bit 23 set (so zeros and
///         numbers below 2^-126 count as 2^-127 and more). A product of two is m · m' · 2^(e + e' - 300). It is taken in
///         units of 2^-u as m · m' · 2^s, where s = e + e' - 300 + u, or zero where that is negative. u is chosen with the
///         numbers, as large as the largest s allows. Sums of such integers are exact, so that no order of summation matters,
///         and what was chosen is far below what machines lose.
/// @dev The same integers are `troth.protocol.exact_numbers`; tests hold the two together. Eight numbers are decoded at a
///      time, one to 32 bits of a word. A negative term is shifted by 128 bits more, so that a sum holds what is positive in
///      its lower half and the sizes of all else in its upper.
library ExactNumbers {
    enum Format {
        Float32,
        BFloat16
    }

    /// @notice In units of 2^-u.
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
        uint256 flags;
        uint256 base;
    }

    error WrongLength(uint256 given, uint256 read);
    /// @notice Weights of 2^15 and more, infinities and NaN are not weighed.
    error WeightTooLarge();
    /// @notice Numbers come in eights, at most 65,536.
    error WrongCount(uint256 columns);
    /// @notice u is from 55 to 120, and no larger than the largest product allows.
    error WrongUnit(uint256 unitBits);

    uint256 private constant MOST_COLUMNS = 65_536;
    uint256 private constant LEAST_BITS = 55;
    uint256 private constant MOST_BITS = 120;
    /// @dev Flags of a lane: 89 was added to an exponent of 167 (2^40) and more; 114 to one of 142 (2^15); s is 64 and
    ///      more.
    uint256 private constant BEYOND = 0x0000010000000100000001000000010000000100000001000000010000000100;
    uint256 private constant HEAVY = 0x0002000000020000000200000002000000020000000200000002000000020000;
    uint256 private constant TOO_FAR = 0x0700000007000000070000000700000007000000070000000700000007000000;
    uint256 private constant ONES = 0x0000000100000001000000010000000100000001000000010000000100000001;

    /// @notice Bytes of one number.
    function width(Format format) internal pure returns (uint256) {
        return format == Format.Float32 ? 4 : 2;
    }

    /// @notice Both logits of a state; rows have the lengths of `columns` numbers.
    /// @param rounded float32 weights are rounded to bfloat16 first, to nearest, ties to even
    /// @param unitBits u
    function logits(
        bytes calldata state,
        Format stateFormat,
        bytes calldata claimed,
        bytes calldata better,
        Format weightFormat,
        uint256 columns,
        bool rounded,
        uint256 unitBits
    ) internal pure returns (Logits memory made) {
        if (columns == 0 || columns & 7 != 0 || columns > MOST_COLUMNS) revert WrongCount(columns);
        if (unitBits < LEAST_BITS || unitBits > MOST_BITS) revert WrongUnit(unitBits);
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
        cursor.base = (512 - 300 + unitBits) * ONES;
        (uint256 own, uint256 others) = _sum(cursor);
        if (cursor.flags & HEAVY != 0) revert WeightTooLarge();
        made.isState = cursor.flags & BEYOND == 0;
        if (!made.isState) return made;
        if (cursor.flags & TOO_FAR != 0) revert WrongUnit(unitBits);
        // Sums of 65,536 terms below 2^111 are below 2^127.
        made.own = _signed(own);
        made.others = _signed(others);
        made.size = (own & type(uint128).max) + (own >> 128) + (others & type(uint128).max) + (others >> 128);
    }

    function _requireLength(uint256 given, uint256 expected) private pure {
        if (given != expected) revert WrongLength(given, expected);
    }

    /// @dev Both sums of terms.
    // The names of one assembly block end with it: in pieces it would pay for memory at each element.
    // solhint-disable-next-line function-max-lines
    function _sum(Cursor memory cursor) private pure returns (uint256 own, uint256 others) {
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
            // Exponent and mantissa of each lane, whose bytes are little-endian.
            function decode(lanes) -> exponents, mantissas {
                let mask := mload(0)
                let third := and(shr(8, lanes), mask)
                exponents := and(or(shl(1, and(lanes, mask)), shr(7, third)), mask)
                mantissas := or(
                    or(and(shr(24, lanes), mask), shl(8, and(shr(16, lanes), mask))), shl(16, or(third, mload(0x20)))
                )
            }
            // To nearest, ties to even: of exponent and mantissa as one number of 31 bits, so that no lane carries.
            function round(e, m) -> exponents, mantissas {
                let bits := or(shl(23, e), and(m, 0x007fffff007fffff007fffff007fffff007fffff007fffff007fffff007fffff))
                let odd := and(shr(16, bits), 0x0000000100000001000000010000000100000001000000010000000100000001)
                bits := add(add(bits, odd), 0x00007fff00007fff00007fff00007fff00007fff00007fff00007fff00007fff)
                exponents := and(shr(23, bits), 0x000001ff000001ff000001ff000001ff000001ff000001ff000001ff000001ff)
                mantissas := or(and(bits, 0x007f0000007f0000007f0000007f0000007f0000007f0000007f0000007f0000), 0x0080000000800000008000000080000000800000008000000080000000800000)
            }
            // s in each lane. Sums of two exponents carry into bit 9 exactly where it is not negative.
            function shifts(sums) -> found {
                found := and(sums, mul(and(shr(9, sums), mload(0)), 0x1ff))
            }
            // Four columns, those of the lower halves of `a`, `p` and `q`. Of every other column `even` has the claimed
            // mantissa in its lower half, and the rival's in its upper, each in 64 bits; `odd` has the others. One product
            // is both.
            function terms(a, even, odd, p, q) -> first, second {
                let m := mul(and(shr(96, a), 0xffffff), shr(64, even))
                first := shl(byte(19, p), and(m, 0xffffffffffff))
                second := shl(byte(19, q), and(shr(128, m), 0xffffffffffff))
                m := mul(and(shr(64, a), 0xffffff), shr(64, odd))
                first := add(first, shl(byte(23, p), and(m, 0xffffffffffff)))
                second := add(second, shl(byte(23, q), and(shr(128, m), 0xffffffffffff)))
                m := mul(and(shr(32, a), 0xffffff), even)
                first := add(first, shl(byte(27, p), and(m, 0xffffffffffff)))
                second := add(second, shl(byte(27, q), and(shr(128, m), 0xffffffffffff)))
                m := mul(and(a, 0xffffff), odd)
                first := add(first, shl(byte(31, p), and(m, 0xffffffffffff)))
                second := add(second, shl(byte(31, q), and(shr(128, m), 0xffffffffffff)))
            }
            // Masks lie where reading is cheap: the optimizer would compute each of them anew wherever it is used.
            mstore(0, 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff)
            mstore(0x20, 0x0000008000000080000000800000008000000080000000800000008000000080)
            for {} lt(mload(cursor), mload(add(cursor, 0x60))) {} {
                let a := calldataload(mload(cursor))
                let x := calldataload(mload(add(cursor, 0x20)))
                let y := calldataload(mload(add(cursor, 0x40)))
                {
                    let step := mload(add(cursor, 0x80))
                    mstore(cursor, add(mload(cursor), step))
                    if eq(step, 16) { a := widen(a) }
                    step := mload(add(cursor, 0xa0))
                    mstore(add(cursor, 0x20), add(mload(add(cursor, 0x20)), step))
                    mstore(add(cursor, 0x40), add(mload(add(cursor, 0x40)), step))
                    if eq(step, 16) {
                        x := widen(x)
                        y := widen(y)
                    }
                }
                let p := and(xor(a, x), mload(0x20))
                let q := and(xor(a, y), mload(0x20))
                {
                    let e, eb, ec
                    e, a := decode(a)
                    eb, x := decode(x)
                    ec, y := decode(y)
                    // Three flags to a lane, in bits 8, 17 and 24 to 26.
                    let flags := or(
                        add(e, 0x0000005900000059000000590000005900000059000000590000005900000059),
                        shl(
                            9,
                            or(
                                add(eb, 0x0000007200000072000000720000007200000072000000720000007200000072),
                                add(ec, 0x0000007200000072000000720000007200000072000000720000007200000072)
                            )
                        )
                    )
                    if mload(add(cursor, 0xc0)) {
                        eb, x := round(eb, x)
                        ec, y := round(ec, y)
                    }
                    e := add(e, mload(add(cursor, 0x100)))
                    eb := shifts(add(eb, e))
                    ec := shifts(add(ec, e))
                    mstore(add(cursor, 0xe0), or(or(mload(add(cursor, 0xe0)), flags), shl(18, or(eb, ec))))
                    p := or(p, eb)
                    q := or(q, ec)
                }
                // Columns 0, 2, 4, 6 and 1, 3, 5, 7 in words of their own, 64 bits each.
                let evens := 0x0000000000ffffff0000000000ffffff0000000000ffffff0000000000ffffff
                let odds := and(x, evens)
                x := and(shr(32, x), evens)
                let others_ := and(y, evens)
                y := and(shr(32, y), evens)
                let first, second := terms(
                    a, or(shr(128, shl(128, x)), shl(128, y)), or(shr(128, shl(128, odds)), shl(128, others_)), p, q
                )
                own := add(own, first)
                others := add(others, second)
                first, second := terms(
                    shr(128, a),
                    or(shr(128, x), shl(128, shr(128, y))),
                    or(shr(128, odds), shl(128, shr(128, others_))),
                    shr(128, p),
                    shr(128, q)
                )
                own := add(own, first)
                others := add(others, second)
            }
        }
    }

    /// @notice How far a machine's own difference of the two may be from the exact one, whatever order and fused steps its sums
    ///         take: with n terms and u = 2^-24, each rounding of float32 loses a share of at most u, and n u / (1 - n u) of
    ///         the sizes is not exceeded (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). In bfloat16
    ///         each logit is rounded once more, by at most 2^-8. Where s is negative, a term is wrong by less than 2^48.
    function slack(Logits memory found, uint256 columns, bool rounded) internal pure returns (uint256 units) {
        units = ((found.size >> 24) + 1) * (columns + 2 + columns / 128) + (columns << 49);
        if (rounded) units += (_size(found.own) + _size(found.others) + units >> 8) + 1;
    }

    /// @dev What is positive, less the sizes of what is negative.
    function _signed(uint256 sum) private pure returns (int256) {
        return int256(sum & type(uint128).max) - int256(sum >> 128);
    }

    function _size(int256 value) private pure returns (uint256) {
        return value < 0 ? uint256(-value) : uint256(value);
    }
}
