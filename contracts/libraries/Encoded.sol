// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExecutionClass, ModelDescriptor} from "../market/interfaces/MarketTypes.sol";

/// @title What abi.encode makes of values that lie in the calldata: hashes of classes and models, and lengths
/// @notice Words are taken as they are. Any other form than abi.encode's has another hash, which nobody registered.
library Encoded {
    /// @dev Words of an encoded class and an encoded model before their one string, with its length.
    uint256 private constant CLASS_WORDS = 24;
    uint256 private constant MODEL_WORDS = 6;

    /// @notice What an order names as its class.
    function hashOf(ExecutionClass calldata class) internal pure returns (bytes32) {
        uint256 position;
        assembly ("memory-safe") {
            position := class
        }
        return _hash(position, CLASS_WORDS, bytes(class.name).length);
    }

    /// @notice What a class names as its model.
    function hashOf(ModelDescriptor calldata model) internal pure returns (bytes32) {
        uint256 position;
        assembly ("memory-safe") {
            position := model
        }
        return _hash(position, MODEL_WORDS, bytes(model.architecture).length);
    }

    /// @notice Where a part of a tuple lies whose offset stands in one of the tuple's words.
    /// @dev Nobody looks here whether it lies within the calldata: the compiler does, where the part itself is read.
    function partOf(uint256 tuple, uint256 word) internal pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := add(tuple, and(calldataload(add(tuple, shl(5, word))), 0xffffffff))
        }
    }

    /// @notice How many elements such a part says that it has, up to 2^32.
    function lengthOf(uint256 tuple, uint256 word) internal pure returns (uint256 length) {
        uint256 position = partOf(tuple, word);
        assembly ("memory-safe") {
            length := and(calldataload(position), 0xffffffff)
        }
    }

    /// @notice What the bytes of a string or of `bytes` take where they are encoded, without their length.
    /// @param length below 2^32
    function padded(uint256 length) internal pure returns (uint256) {
        unchecked {
            return length + 31 & ~uint256(31);
        }
    }

    /// @dev Of a struct with one string, which lies behind its words.
    function _hash(uint256 position, uint256 words, uint256 length) private pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            let size := shl(5, add(add(words, 1), shr(5, add(length, 31))))
            mstore(free, 0x20)
            calldatacopy(add(free, 0x20), position, size)
            hash := keccak256(free, add(size, 0x20))
        }
    }
}
