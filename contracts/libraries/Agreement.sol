// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Agreement of two openings, element by element
library Agreement {
    /// @notice The openings differ in length or are not whole 32-byte words.
    error WrongLengths(uint256 first, uint256 second);
    /// @notice The execution class names a number format that no rule covers, or more bits than its mantissa has.
    error UnknownFormat(uint8 dtype, uint8 bits);

    /// @notice Number of agreeing elements, and of all elements.
    function agreeing(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps)
        internal
        pure
        returns (uint256 agreed, uint256 total)
    {
        revert UnknownFormat(dtype, bits);
    }

    /// @notice Whether the share of agreeing elements is at least `theta` basis points.
    function agrees(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps, uint16 theta)
        internal
        pure
        returns (bool)
    {
        (uint256 agreed, uint256 total) = agreeing(first, second, dtype, bits, steps);
        return agreed * 10_000 >= theta * total;
    }
}
