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

    /// @notice What the bytes of a string or of `bytes` take where they are encoded, without their length.
    function padded(uint256 length) internal pure returns (uint256) {
        return length + 31 & ~uint256(31);
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
