// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IRegistry} from "../interfaces/IRegistry.sol";

/// @title Asks the Registry for seasoned seats of a group, and whose a node is
/// @notice Written and read as it lies in memory: the Registry is one of our own.
library Seats {
    /// @dev Offset of the excluded in a DrawRequest, and bytes of the call before it: selector, offset.
    uint256 private constant FIXED = 0x1a0;
    uint256 private constant HEAD = 0x24;

    /// @notice The first fields of a DrawRequest; the seats are seasoned, not distinct, at the class's price.
    struct Wanted {
        bytes32 executionClass;
        uint256 first;
        uint256 end;
        uint256 blockNumber;
        bytes32 seed;
        uint256 count;
    }

    /// @notice Registry.draw; its error if it has one.
    function draw(Wanted memory wanted, IRegistry registry, address[] memory excluded, bytes calldata hints)
        internal
        view
        returns (address[] memory drawn)
    {
        bytes4 selector = IRegistry.draw.selector;
        assembly ("memory-safe") {
            let call_ := mload(0x40)
            mstore(call_, selector)
            mstore(add(call_, 4), 0x20)
            let request := add(call_, HEAD)
            mcopy(request, wanted, 0xc0)
            mstore(add(request, 0xc0), 1)
            mstore(add(request, 0xe0), 0)
            mstore(add(request, 0x100), FIXED)
            calldatacopy(add(request, 0x120), calldatasize(), 0x60)
            let size := shl(5, add(mload(excluded), 1))
            mcopy(add(request, FIXED), excluded, size)
            size := add(FIXED, size)
            mstore(add(request, 0x180), size)
            mstore(add(request, size), hints.length)
            calldatacopy(add(add(request, size), 0x20), hints.offset, hints.length)
            size := add(add(HEAD, size), add(0x20, and(add(hints.length, 0x1f), not(0x1f))))
            let success := staticcall(gas(), registry, call_, size, 0, 0)
            returndatacopy(call_, 0, returndatasize())
            if iszero(success) { revert(call_, returndatasize()) }
            mstore(0x40, add(call_, returndatasize()))
            drawn := add(call_, 0x20)
        }
    }

    /// @notice Registry.ownerOf.
    function ownerOf(IRegistry registry, address operator) internal view returns (address owner) {
        bytes4 selector = IRegistry.ownerOf.selector;
        assembly ("memory-safe") {
            mstore(0, selector)
            mstore(4, operator)
            if iszero(staticcall(gas(), registry, 0, 0x24, 0, 0x20)) { revert(0, 0) }
            owner := mload(0)
        }
    }

    /// @notice Addresses of a state that the Court has compared with its hash.
    function copyOf(address[] calldata accounts) internal pure returns (address[] memory copied) {
        assembly ("memory-safe") {
            copied := mload(0x40)
            let size := shl(5, accounts.length)
            mstore(copied, accounts.length)
            calldatacopy(add(copied, 0x20), accounts.offset, size)
            mstore(0x40, add(add(copied, 0x20), size))
        }
    }
}
