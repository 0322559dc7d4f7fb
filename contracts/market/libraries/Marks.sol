// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title What parties did by their own calls in one round of a case, in one word
/// @notice Reviewer i posted: bit i; reviewer i showed its part: bit REVEALS + i; the node did: NODE.
library Marks {
    uint256 internal constant REVEALS = 128;
    uint256 internal constant NODE = 1 << 255;
    /// @notice Never stored; handed on with the marks: the leaf has fallen already.
    uint256 internal constant VOIDED = 1 << 127;
}
