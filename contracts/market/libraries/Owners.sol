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
        assembly ("memory-safe") {
            owner := shr(96, shl(96, owner))
            let place := add(owners, 0x20)
            let end := add(place, shl(5, mload(owners)))
            for { } lt(place, end) { place := add(place, 0x20) } {
                if eq(mload(place), owner) { break }
            }
            if eq(place, end) {
                mstore(owners, add(mload(owners), 1))
                mstore(place, owner)
            }
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
