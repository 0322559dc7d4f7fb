// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title The public noise of a token in fixed point: -ln(-ln u), u from Philox 4x64 (Salmon et al. 2011)
/// @notice In units of 2^-120, wrong by less than 2^-60. The same integers are `troth.protocol.public_noise`; the float64
///         noise that nodes choose by is within 2^-40 of it.
library PublicNoise {
    uint256 private constant ONE = 1 << 120;
    /// @dev ln 2 and the square root of 2, in units of 2^-120.
    uint256 private constant LN_2 = 921350637599661305226344307672478455;
    uint256 private constant ROOT_2 = 1879812259125035246445576347481445757;
    uint256 private constant LAST_TERM = 47;
    uint256 private constant WORD = type(uint64).max;

    /// @notice The noise of one token at one position of a seed.
    function gumbel(bytes32 seed, uint256 position, uint256 token) internal pure returns (int256) {
        uint256 odd = draw(seed, position, token) >> 12 << 1 | 1;
        // -ln u for u = odd / 2^53, and then its logarithm.
        int256 inner = int256(53 * LN_2) - ln(odd);
        return int256(120 * LN_2) - ln(uint256(inner));
    }

    /// @notice ln of an integer from 1 to 2^200, in units of 2^-120.
    function ln(uint256 number) internal pure returns (int256) {
        uint256 power = Math.log2(number);
        uint256 x = power > 120 ? number >> power - 120 : number << 120 - power;
        if (x > ROOT_2) {
            x >>= 1;
            ++power;
        }
        // ln x = 2 artanh z; z is at most 0.172.
        uint256 z = ((x < ONE ? ONE - x : x - ONE) << 120) / (x + ONE);
        uint256 square = z * z >> 120;
        uint256 term = z;
        uint256 sum = z;
        unchecked {
            for (uint256 i = 3; i <= LAST_TERM; i += 2) {
                term = term * square >> 120;
                sum += term / i;
            }
        }
        int256 twice = int256(2 * sum);
        return int256(power * LN_2) + (x < ONE ? -twice : twice);
    }

    /// @notice The raw 64 bits: word token mod 4 of counter (token / 4 + 1, position, s2, s3) under the key (s0, s1), where s
    ///         are the seed's words, little-endian.
    function draw(bytes32 seed, uint256 position, uint256 token) internal pure returns (uint256) {
        uint256 c0 = token / 4 + 1;
        uint256 c1 = position;
        uint256 c2 = _word(seed, 2);
        uint256 c3 = _word(seed, 3);
        uint256 k0 = _word(seed, 0);
        uint256 k1 = _word(seed, 1);
        unchecked {
            for (uint256 round = 0; round < 10; ++round) {
                uint256 first = c0 * 0xD2E7470EE14C6C93;
                uint256 second = c2 * 0xCA5A826395121157;
                (c0, c1, c2, c3) =
                    (second >> 64 ^ c1 ^ k0, second & WORD, first >> 64 ^ c3 ^ k1, first & WORD);
                k0 = k0 + 0x9E3779B97F4A7C15 & WORD;
                k1 = k1 + 0xBB67AE8584CAA73B & WORD;
            }
        }
        uint256 place = token & 3;
        return place < 2 ? (place == 0 ? c0 : c1) : (place == 2 ? c2 : c3);
    }

    /// @dev Eight bytes of the seed, little-endian.
    function _word(bytes32 seed, uint256 place) private pure returns (uint256 word) {
        uint256 raw = uint256(seed) >> 192 - 64 * place & WORD;
        for (uint256 i = 0; i < 8; ++i) word |= (raw >> 8 * i & 0xff) << 56 - 8 * i;
    }
}
