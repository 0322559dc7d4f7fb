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

    /// @dev Where the next eight numbers of the state and of the claimed row are, and how far behind it the rival's.
    /// @param special bits: the state is bfloat16, weights are, they are rounded
    /// @param base of s in each lane, with bit 9 set
    struct Cursor {
        uint256 state;
        uint256 weights;
        uint256 rival;
        uint256 end;
        uint256 flags;
        uint256 special;
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
    uint256 private constant PACKED_STATE = 1;
    uint256 private constant PACKED_WEIGHTS = 2;
    uint256 private constant ROUNDED = 4;
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
        assembly ("memory-safe") {
            mstore(cursor, state.offset)
            mstore(add(cursor, 0x20), claimed.offset)
            mstore(add(cursor, 0x40), sub(better.offset, claimed.offset))
            mstore(add(cursor, 0x60), add(state.offset, state.length))
        }
        if (stateFormat == Format.BFloat16) cursor.special |= PACKED_STATE;
        if (weightFormat == Format.BFloat16) cursor.special |= PACKED_WEIGHTS;
        else if (rounded) cursor.special |= ROUNDED;
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

    /// @dev Both sums of terms. Three rules keep the compiler from computing things again and again, and a change that breaks
    ///      one of them costs a third more: few names live at once, sums lie in memory, and `leave` keeps the function whole.
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
            // The lower two bytes of each lane, turned around.
            function turn(lanes) -> turned {
                turned := or(
                    and(shr(8, lanes), 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff),
                    and(shl(8, lanes), 0x0000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff00)
                )
            }
            // To bfloat16, to nearest, ties to even: the two bytes that stay are a number of 16 bits, and no lane carries.
            function round(lanes) -> rounded {
                let lower := turn(shr(16, lanes))
                rounded := turn(lanes)
                let odd := and(rounded, 0x0000000100000001000000010000000100000001000000010000000100000001)
                lower := add(add(lower, odd), 0x00007fff00007fff00007fff00007fff00007fff00007fff00007fff00007fff)
                let up := and(shr(16, lower), 0x0000000100000001000000010000000100000001000000010000000100000001)
                rounded := turn(add(rounded, up))
            }
            // The stored exponent of each lane.
            function exponents(lanes) -> found {
                found := or(
                    and(shl(1, lanes), 0x000000fe000000fe000000fe000000fe000000fe000000fe000000fe000000fe),
                    and(shr(15, lanes), 0x0000000100000001000000010000000100000001000000010000000100000001)
                )
            }
            // s in each lane, and zero where it is negative: sums of two exponents carry into bit 9 where it is not.
            function shifts(sums) -> found {
                let carried := and(shr(9, sums), 0x0000000100000001000000010000000100000001000000010000000100000001)
                found := and(sums, mul(carried, 0x1ff))
            }
            // Flags of weights that are too large.
            function heavy(e, f) -> found {
                found := shl(
                    9,
                    or(
                        add(e, 0x0000007200000072000000720000007200000072000000720000007200000072),
                        add(f, 0x0000007200000072000000720000007200000072000000720000007200000072)
                    )
                )
            }
            function walk(at) {
                mstore(0, 0)
                mstore(0x20, 0)
                let h := mload(at)
                let w := mload(add(at, 0x20))
                for {} 1 {} {
                    if eq(h, mload(add(at, 0x60))) { leave }
                    let a := calldataload(h)
                    let x := calldataload(w)
                    let y := calldataload(add(w, mload(add(at, 0x40))))
                    h := add(h, 32)
                    w := add(w, 32)
                    if mload(add(at, 0xa0)) {
                        let special := mload(add(at, 0xa0))
                        if and(special, 1) {
                            a := widen(a)
                            h := sub(h, 16)
                        }
                        if and(special, 2) {
                            x := widen(x)
                            y := widen(y)
                            w := sub(w, 16)
                        }
                        if and(special, 4) {
                            // Weights are looked at before they are rounded.
                            mstore(add(at, 0x80), or(mload(add(at, 0x80)), heavy(exponents(x), exponents(y))))
                            x := round(x)
                            y := round(y)
                        }
                    }
                    // Biased exponents of the state, s of both terms, each with the sign of its term in bit 7.
                    let e := or(
                        and(shl(1, a), 0x000000fe000000fe000000fe000000fe000000fe000000fe000000fe000000fe),
                        and(shr(15, a), 0x0000000100000001000000010000000100000001000000010000000100000001)
                    )
                    let unusual := and(
                        add(e, 0x0000005900000059000000590000005900000059000000590000005900000059),
                        0x0000010000000100000001000000010000000100000001000000010000000100
                    )
                    e := add(e, mload(add(at, 0xc0)))
                    let p := add(
                        e,
                        or(
                            and(shl(1, x), 0x000000fe000000fe000000fe000000fe000000fe000000fe000000fe000000fe),
                            and(shr(15, x), 0x0000000100000001000000010000000100000001000000010000000100000001)
                        )
                    )
                    let q := add(
                        e,
                        or(
                            and(shl(1, y), 0x000000fe000000fe000000fe000000fe000000fe000000fe000000fe000000fe),
                            and(shr(15, y), 0x0000000100000001000000010000000100000001000000010000000100000001)
                        )
                    )
                    unusual := or(
                        or(unusual, and(or(p, q), 0x000001c0000001c0000001c0000001c0000001c0000001c0000001c0000001c0)),
                        and(or(x, y), 0x0000004000000040000000400000004000000040000000400000004000000040)
                    )
                    p := or(p, and(xor(a, x), 0x0000008000000080000000800000008000000080000000800000008000000080))
                    q := or(q, and(xor(a, y), 0x0000008000000080000000800000008000000080000000800000008000000080))
                    // A state of 2^40, a weight of 2, an s that is negative or 64: a closer look at these eight.
                    if unusual {
                        e := exponents(a)
                        unusual := and(
                            add(e, 0x0000005900000059000000590000005900000059000000590000005900000059),
                            0x0000010000000100000001000000010000000100000001000000010000000100
                        )
                        e := add(e, mload(add(at, 0xc0)))
                        p := exponents(x)
                        q := exponents(y)
                        if lt(mload(add(at, 0xa0)), 4) { unusual := or(unusual, heavy(p, q)) }
                        p := shifts(add(p, e))
                        q := shifts(add(q, e))
                        mstore(add(at, 0x80), or(mload(add(at, 0x80)), or(unusual, shl(18, or(p, q)))))
                        p := or(p, and(xor(a, x), 0x0000008000000080000000800000008000000080000000800000008000000080))
                        q := or(q, and(xor(a, y), 0x0000008000000080000000800000008000000080000000800000008000000080))
                    }
                    // Mantissas, with bit 23 set: two of their three bytes change places. What is above them is left out
                    // where one is taken. Four columns of both rows are one word, so that one product is both terms.
                    e := shr(8, a)
                    a := or(xor(e, mul(and(xor(e, shr(16, e)), 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff), 0x10001)), 0x0080000000800000008000000080000000800000008000000080000000800000)
                    e := shr(8, or(and(y, 0xffffffffffffffffffffffffffffffff00000000000000000000000000000000), shr(128, x)))
                    y := shr(8, or(shl(128, y), and(x, 0xffffffffffffffffffffffffffffffff)))
                    x := or(xor(e, mul(and(xor(e, shr(16, e)), 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff), 0x10001)), 0x0080000000800000008000000080000000800000008000000080000000800000)
                    y := or(xor(y, mul(and(xor(y, shr(16, y)), 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff), 0x10001)), 0x0080000000800000008000000080000000800000008000000080000000800000)
                    {
                        let m := mul(and(shr(224, a), 0xffffff), and(shr(96, x), 0xffffff00000000000000000000000000ffffff))
                        let n := mul(and(shr(192, a), 0xffffff), and(shr(64, x), 0xffffff00000000000000000000000000ffffff))
                        let sum := add(shl(byte(3, p), and(m, 0xffffffffffffffffffffffffffffffff)), shl(byte(7, p), and(n, 0xffffffffffffffffffffffffffffffff)))
                        mstore(0, add(mload(0), sum))
                        sum := add(shl(byte(3, q), shr(128, m)), shl(byte(7, q), shr(128, n)))
                        mstore(0x20, add(mload(0x20), sum))
                    }
                    {
                        let m := mul(and(shr(160, a), 0xffffff), and(shr(32, x), 0xffffff00000000000000000000000000ffffff))
                        let n := mul(and(shr(128, a), 0xffffff), and(x, 0xffffff00000000000000000000000000ffffff))
                        let sum := add(shl(byte(11, p), and(m, 0xffffffffffffffffffffffffffffffff)), shl(byte(15, p), and(n, 0xffffffffffffffffffffffffffffffff)))
                        mstore(0, add(mload(0), sum))
                        sum := add(shl(byte(11, q), shr(128, m)), shl(byte(15, q), shr(128, n)))
                        mstore(0x20, add(mload(0x20), sum))
                    }
                    {
                        let m := mul(and(shr(96, a), 0xffffff), and(shr(96, y), 0xffffff00000000000000000000000000ffffff))
                        let n := mul(and(shr(64, a), 0xffffff), and(shr(64, y), 0xffffff00000000000000000000000000ffffff))
                        let sum := add(shl(byte(19, p), and(m, 0xffffffffffffffffffffffffffffffff)), shl(byte(23, p), and(n, 0xffffffffffffffffffffffffffffffff)))
                        mstore(0, add(mload(0), sum))
                        sum := add(shl(byte(19, q), shr(128, m)), shl(byte(23, q), shr(128, n)))
                        mstore(0x20, add(mload(0x20), sum))
                    }
                    {
                        let m := mul(and(shr(32, a), 0xffffff), and(shr(32, y), 0xffffff00000000000000000000000000ffffff))
                        let n := mul(and(a, 0xffffff), and(y, 0xffffff00000000000000000000000000ffffff))
                        let sum := add(shl(byte(27, p), and(m, 0xffffffffffffffffffffffffffffffff)), shl(byte(31, p), and(n, 0xffffffffffffffffffffffffffffffff)))
                        mstore(0, add(mload(0), sum))
                        sum := add(shl(byte(27, q), shr(128, m)), shl(byte(31, q), shr(128, n)))
                        mstore(0x20, add(mload(0x20), sum))
                    }
                }
            }
            walk(cursor)
            own := mload(0)
            others := mload(0x20)
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
