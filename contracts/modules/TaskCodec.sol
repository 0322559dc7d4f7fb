// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Progress, Settled, Terms} from "../interfaces/TrothTypes.sol";

/// @title A task between calldata, memory and its hash
/// @notice Says the same as abi.decode and abi.encode, at a tenth of their gas. What `read` returns is unchecked; its
///         hash has to be compared with the stored one before anything in it is used. The stored hash is over clean
///         values only, so that values with dirty bits never pass.
library TaskCodec {
    /// @notice An array that no task has, or an offset outside of the calldata.
    error MalformedTask();

    /// @dev Words of Terms, all of them values.
    uint256 private constant TERMS_BYTES = 0xc0;
    /// @dev Progress begins with eight values; three arrays follow.
    uint256 private constant VALUE_BYTES = 0x100;
    uint256 private constant HEAD_BYTES = 0x160;
    /// @dev Far more than 32 segments of 16 parties.
    uint256 private constant MAXIMUM_LENGTH = 0xffff;

    /// @notice Copies the terms to memory.
    function read(Terms calldata given) internal pure returns (Terms memory terms) {
        assembly ("memory-safe") {
            terms := mload(0x40)
            calldatacopy(terms, given, TERMS_BYTES)
            mstore(0x40, add(terms, TERMS_BYTES))
        }
    }

    /// @notice Copies the progress to memory.
    function read(Progress calldata given) internal pure returns (Progress memory progress) {
        bool malformed;
        assembly ("memory-safe") {
            progress := mload(0x40)
            calldatacopy(progress, given, HEAD_BYTES)
            let free := add(progress, HEAD_BYTES)
            for { let field := add(progress, VALUE_BYTES) } lt(field, add(progress, HEAD_BYTES)) {
                field := add(field, 0x20)
            } {
                let offset := mload(field)
                let array := add(given, offset)
                let length := calldataload(array)
                malformed := or(malformed, or(gt(offset, calldatasize()), gt(length, MAXIMUM_LENGTH)))
                if malformed { break }
                let size := add(0x20, shl(5, length))
                calldatacopy(free, array, size)
                mstore(field, free)
                free := add(free, size)
            }
            mstore(0x40, free)
        }
        if (malformed) revert MalformedTask();
    }

    /// @notice keccak256(abi.encode(terms)).
    function hash(Terms memory terms) internal pure returns (bytes32 termsHash) {
        assembly ("memory-safe") {
            termsHash := keccak256(terms, TERMS_BYTES)
        }
    }

    /// @notice keccak256(abi.encode(termsHash, progress)), its last two bytes cleared: they tell how a task ended.
    function hash(bytes32 termsHash, Progress memory progress) internal pure returns (bytes32 state) {
        assembly ("memory-safe") {
            let encoded := mload(0x40)
            mstore(encoded, termsHash)
            mstore(add(encoded, 0x20), 0x40)
            let head := add(encoded, 0x40)
            mcopy(head, progress, VALUE_BYTES)
            let tail := HEAD_BYTES
            for { let field := VALUE_BYTES } lt(field, HEAD_BYTES) { field := add(field, 0x20) } {
                let array := mload(add(progress, field))
                let size := add(0x20, shl(5, mload(array)))
                mstore(add(head, field), tail)
                mcopy(add(head, tail), array, size)
                tail := add(tail, size)
            }
            state := and(keccak256(encoded, add(0x40, tail)), not(0xffff))
        }
    }

    /// @notice What the slot of a settled task holds, but for its last two bytes.
    function hash(bytes32 state, Settled memory settled) internal pure returns (bytes32) {
        return keccak256(abi.encode(state, keccak256(abi.encode(settled)))) & ~bytes32(uint256(0xffff));
    }
}
