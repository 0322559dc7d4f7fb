// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Calls that go on to another contract as they came
/// @notice The other function takes the same arguments, so that nothing is encoded again and both decode the same
///         bytes by the same rules. Behind them follow two words: who called first, and one that the caller adds.
library HandedOn {
    /// @notice Hands the call on to the function `selector` of `target`, which only reads; what it says, or its error.
    function handOn(address target, bytes4 selector, uint256 added) internal view returns (bytes memory answer) {
        assembly ("memory-safe") {
            let call_ := mload(0x40)
            let size := calldatasize()
            calldatacopy(call_, 0, size)
            mstore(call_, or(shl(224, shr(224, selector)), and(mload(call_), shr(32, not(0)))))
            mstore(add(call_, size), caller())
            mstore(add(add(call_, size), 0x20), added)
            let success := staticcall(gas(), target, call_, add(size, 0x40), 0, 0)
            answer := call_
            let data := add(answer, 0x20)
            mstore(answer, returndatasize())
            returndatacopy(data, 0, returndatasize())
            if iszero(success) { revert(data, returndatasize()) }
            mstore(0x40, and(add(add(data, returndatasize()), 0x1f), not(0x1f)))
        }
    }

    /// @notice Who called first.
    function caller() internal pure returns (address account) {
        assembly ("memory-safe") {
            account := shr(96, shl(96, calldataload(sub(calldatasize(), 0x40))))
        }
    }

    /// @notice The word that was added.
    function word() internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := calldataload(sub(calldatasize(), 0x20))
        }
    }
}
