// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Orders} from "../market/libraries/Orders.sol";
import {Accusation, IDisputes} from "./IDisputes.sol";
import {Matter} from "./ISteps.sol";

/// @title What an accusation is about, once all that it shows fits together
library Accusations {
    bytes private constant LAYERS_MARK = "/layers:0x";
    bytes private constant HEAD_MARK = "/head:";
    uint256 private constant HASH_DIGITS = 64;
    uint256 private constant ONES = 0x0101010101010101010101010101010101010101010101010101010101010101;

    /// @notice What is disputed: the order names the class, the class the model and its layers' shape, and the node signed for a
    ///         segment of the order.
    /// @param domain of the deployment's messages
    function matterOf(Accusation calldata accusation, bytes32 domain) internal pure returns (Matter memory matter) {
        bytes32 class = accusation.order.order.executionClass;
        Orders.requireEqual(keccak256(abi.encode(accusation.executionClass)), class);
        Orders.requireEqual(keccak256(abi.encode(accusation.model)), accusation.executionClass.model);
        if (accusation.executionClass.dtype != 0) revert IDisputes.NotFloat32(accusation.executionClass.dtype);
        matter.order = Orders.digestAt(domain, accusation.order);
        matter.segment = accusation.result.segment;
        Orders.requirePlace(accusation.result.order, matter.segment, matter.order, matter.segment);
        (matter.first, matter.end) = Orders.layersOf(accusation.order.order.ends, matter.segment);
        (matter.inputHead, matter.outputHead) = (accusation.result.inputHead, accusation.result.outputHead);
        matter.weightsRoot = accusation.model.weightsRoot;
        (matter.layers, matter.hidden) = (accusation.model.layers, accusation.model.hiddenSize);
        matter.shape = keccak256(accusation.shape);
        _requireNamed(accusation.executionClass.name, matter.shape, accusation.mark);
        matter.rows = _rowsOf(accusation);
        matter.position = accusation.position;
        if (matter.position >= matter.rows) revert IDisputes.NoSuchRow(matter.position, matter.rows);
    }

    /// @dev One row for each position but the last token's, and one at least.
    function _rowsOf(Accusation calldata accusation) private pure returns (uint32) {
        uint256 positions = uint256(accusation.result.prompt) + accusation.result.cached + accusation.result.written;
        if (positions > type(uint32).max) revert IDisputes.NoSuchRow(accusation.position, positions);
        return uint32(positions < 2 ? 1 : positions - 1);
    }

    /// @dev "/layers:0x" and the shape's hash, before the name's end or its head.
    function _requireNamed(string calldata name, bytes32 shape, uint256 mark) private pure {
        bytes calldata whole = bytes(name);
        uint256 digits = mark + LAYERS_MARK.length;
        uint256 end = digits + HASH_DIGITS;
        bool named = end <= whole.length && keccak256(whole[mark:digits]) == keccak256(LAYERS_MARK)
            && uint256(bytes32(whole[digits:])) == _digits(uint256(shape) >> 128)
            && uint256(bytes32(whole[digits + 32:])) == _digits(uint256(shape) & type(uint128).max);
        if (named && end != whole.length) {
            uint256 behind = end + HEAD_MARK.length;
            named = behind <= whole.length && keccak256(whole[end:behind]) == keccak256(HEAD_MARK);
        }
        if (!named) revert IDisputes.ShapeNotNamed(name, shape, mark);
    }

    /// @dev Sixteen bytes as 32 digits in lower case: half a byte goes into a byte of its own, and 0x30 or 0x57 is added.
    function _digits(uint256 half) private pure returns (uint256 text) {
        unchecked {
            text = (half | half << 64) & 0x0000000000000000ffffffffffffffff0000000000000000ffffffffffffffff;
            text = (text | text << 32) & 0x00000000ffffffff00000000ffffffff00000000ffffffff00000000ffffffff;
            text = (text | text << 16) & 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff;
            text = (text | text << 8) & 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff;
            text = (text | text << 4) & 0x0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f;
            uint256 letters = (text + 0x0606060606060606060606060606060606060606060606060606060606060606 >> 4) & ONES;
            text += 0x30 * ONES + 0x27 * letters;
        }
    }
}
