// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {TileTree} from "../../libraries/TileTree.sol";

/// @title Traces for tests: tiles of pseudo-random elements with noise in their lowest bits
library Traces {
    /// @param rows positions
    /// @param columns hidden size
    /// @param dtype 0 float32, 1 bfloat16
    struct Shape {
        uint32 rows;
        uint32 columns;
        uint8 dtype;
    }

    /// @param data traces of equal data agree, others do not
    /// @param noise changes the lowest four bits of the elements
    struct Trace {
        bytes32 data;
        bytes32 noise;
    }

    /// @notice The 512 bytes of one tile.
    function tile(Trace memory trace, uint256 index) internal pure returns (bytes memory bytes_) {
        bytes_ = new bytes(512);
        for (uint256 word = 0; word < 16; ++word) {
            uint256 elements = uint256(keccak256(abi.encode(trace.data, index, word)));
            uint256 noise = uint256(keccak256(abi.encode(trace.noise, index, word)));
            noise &= 0x0000000f0000000f0000000f0000000f0000000f0000000f0000000f0000000f;
            assembly ("memory-safe") {
                mstore(add(add(bytes_, 0x20), mul(word, 0x20)), xor(elements, noise))
            }
        }
    }

    /// @notice The root of a trace.
    function root(Trace memory trace, Shape memory shape) internal pure returns (bytes32) {
        bytes32[] memory nodes = _leaves(trace, shape);
        for (uint256 size = nodes.length; size > 1; size /= 2) {
            for (uint256 i = 0; i < size; i += 2) {
                nodes[i / 2] = TileTree.node(nodes[i], nodes[i + 1]);
            }
        }
        return TileTree.traceRoot(shape.rows, shape.columns, shape.dtype, nodes[0]);
    }

    /// @notice The siblings of one tile, bottom up.
    function path(Trace memory trace, Shape memory shape, uint256 index) internal pure returns (bytes32[] memory proof) {
        bytes32[] memory nodes = _leaves(trace, shape);
        proof = new bytes32[](TileTree.depthOf(TileTree.tileCount(shape.rows, shape.columns, shape.dtype)));
        uint256 level = 0;
        for (uint256 size = nodes.length; size > 1; size /= 2) {
            proof[level++] = nodes[index ^ 1];
            index /= 2;
            for (uint256 i = 0; i < size; i += 2) {
                nodes[i / 2] = TileTree.node(nodes[i], nodes[i + 1]);
            }
        }
    }

    /// @notice The sampled tiles of a segment with their siblings.
    function open(Trace memory trace, Shape memory shape, bytes32 seed, uint256 segment, uint256 tiles)
        internal
        pure
        returns (bytes memory opened, bytes32[] memory siblings)
    {
        uint256 count = TileTree.tileCount(shape.rows, shape.columns, shape.dtype);
        uint256 depth = TileTree.depthOf(count);
        siblings = new bytes32[](tiles * depth);
        for (uint256 j = 0; j < tiles; ++j) {
            uint256 index = TileTree.tileIndex(seed, segment, j, tiles, count);
            opened = bytes.concat(opened, tile(trace, index));
            bytes32[] memory proof = path(trace, shape, index);
            for (uint256 level = 0; level < depth; ++level) {
                siblings[j * depth + level] = proof[level];
            }
        }
    }

    function _leaves(Trace memory trace, Shape memory shape) private pure returns (bytes32[] memory nodes) {
        uint256 count = TileTree.tileCount(shape.rows, shape.columns, shape.dtype);
        nodes = new bytes32[](1 << TileTree.depthOf(count));
        uint256 free;
        assembly ("memory-safe") {
            free := mload(0x40)
        }
        for (uint256 i = 0; i < count; ++i) {
            nodes[i] = TileTree.leaf(i, tile(trace, i), 0);
            // A tile is not needed any more once it is hashed; memory stays small in large traces.
            assembly ("memory-safe") {
                mstore(0x40, free)
            }
        }
    }
}
