// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title A short list of distinct owners who may not be drawn
library Owners {
    /// @notice An empty list with room for so many.
    function start(uint256 room) internal pure returns (address[] memory owners) {
        owners = new address[](room);
        assembly ("memory-safe") {
            mstore(owners, 0)
        }
    }

    /// @notice Adds one, unless it is zero or there already; the list must have room.
    function add(address[] memory owners, address owner) internal pure {
        if (owner == address(0)) return;
        uint256 count = owners.length;
        for (uint256 i = 0; i < count; ++i) {
            if (owners[i] == owner) return;
        }
        assembly ("memory-safe") {
            mstore(owners, add(count, 1))
            mstore(add(owners, shl(5, add(count, 1))), owner)
        }
    }

    /// @notice The same list, with room for `room` more.
    function extend(address[] memory owners, uint256 room) internal pure returns (address[] memory extended) {
        extended = start(owners.length + room);
        for (uint256 i = 0; i < owners.length; ++i) {
            add(extended, owners[i]);
        }
    }
}
