// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice One storage word of money: balance 96 bits, a second sum 96, a block 40, a flag.
/// @param word from the lowest bit: balance; second (Stake: what is locked of an operator; Tab: what was redeemed,
///        ever); due (Tab: `closesAt`; Bond of an objection: until when it is answered); known (Tab: open or closing;
///        Credit: was used, so that the word never returns to zero and the next payment is cheap; what is burnt: always)
struct Purse {
    uint256 word;
}

/// @title Reading and changing purses with one load and one store
/// @dev Arithmetic on the word: who adds to or takes from a field checks first that the field holds it.
library Purses {
    uint256 private constant SECOND_SHIFT = 96;
    uint256 private constant DUE_SHIFT = 192;
    uint256 private constant DUE_MASK = uint256(type(uint40).max) << DUE_SHIFT;
    uint256 internal constant KNOWN = 1 << 232;

    function balance(uint256 word) internal pure returns (uint256) {
        return word & type(uint96).max;
    }

    function second(uint256 word) internal pure returns (uint256) {
        return word >> SECOND_SHIFT & type(uint96).max;
    }

    function due(uint256 word) internal pure returns (uint256) {
        return word >> DUE_SHIFT & type(uint40).max;
    }

    function known(uint256 word) internal pure returns (bool) {
        return word & KNOWN != 0;
    }

    /// @notice An amount in the place of the second sum.
    function asSecond(uint256 amount) internal pure returns (uint256) {
        return amount << SECOND_SHIFT;
    }

    function withDue(uint256 word, uint256 blockNumber) internal pure returns (uint256) {
        return word & ~DUE_MASK | blockNumber << DUE_SHIFT;
    }
}
