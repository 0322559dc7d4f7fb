// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title The keccak tree over a trace's 512-byte tiles
/// @notice A leaf binds its index, leaves, nodes and the trace root carry different tags, and the trace root binds the
/// matrix' shape. Leaves are padded with zero words up to a power of two.
/// @dev The same rule is `troth.protocol.trace`. All offsets are in bytes.
library TileTree {
    /// @notice Bytes of a tile: 8 rows of 16 float32 or of 32 bfloat16 columns.
    uint256 internal constant TILE_BYTES = 512;
    /// @notice Rows of a tile.
    uint256 internal constant TILE_ROWS = 8;

    /// @notice The opened bytes are not `tiles` whole tiles.
    error WrongTileBytes(uint256 length, uint256 expected);
    /// @notice The number of siblings does not match the tree's depth.
    error WrongSiblings(uint256 length, uint256 expected);
    /// @notice The opened tiles do not belong to one tree.
    error TilesDisagreeOnRoot(bytes32 first, bytes32 other);
    /// @notice The execution class names a number format that no rule covers.
    error UnknownDtype(uint8 dtype);
    /// @notice A trace with fewer tiles than the class samples.
    error TooFewTiles(uint256 available, uint256 sampled);

    /// @notice Number of tiles of a trace of `rows` positions and `columns` dimensions.
    function tileCount(uint256 rows, uint256 columns, uint8 dtype) internal pure returns (uint256) {
        uint256 width = tileColumns(dtype);
        return ((rows + TILE_ROWS - 1) / TILE_ROWS) * ((columns + width - 1) / width);
    }

    /// @notice Columns of a tile: 16 in float32 (0), 32 in bfloat16 (1).
    function tileColumns(uint8 dtype) internal pure returns (uint256) {
        if (dtype > 1) revert UnknownDtype(dtype);
        return dtype == 0 ? 16 : 32;
    }

    /// @notice Depth of the tree over `count` leaves: ceil(log2(count)), 0 for one leaf.
    function depthOf(uint256 count) internal pure returns (uint256 depth) {
        if (count > 1) depth = Math.log2(count - 1) + 1;
    }

    /// @notice Index of the j-th sampled tile of a segment: one per stratum [j·count/tiles, (j+1)·count/tiles).
    function tileIndex(bytes32 seed, uint256 segment, uint256 j, uint256 tiles, uint256 count)
        internal
        pure
        returns (uint256)
    {
        if (count < tiles) revert TooFewTiles(count, tiles);
        uint256 begin = (j * count) / tiles;
        uint256 width = ((j + 1) * count) / tiles - begin;
        return begin + uint256(keccak256(abi.encode(seed, segment, j))) % width;
    }

    /// @notice Hash of the tile that starts `offset` bytes into `data`, as leaf number `index`.
    function leaf(uint256 index, bytes memory data, uint256 offset) internal pure returns (bytes32 hash) {
        if (offset + TILE_BYTES > data.length) revert WrongTileBytes(data.length, offset + TILE_BYTES);
        assembly ("memory-safe") {
            // 0x00 ‖ uint32be(index) ‖ tile, built behind the free memory pointer, which need not move.
            let free := mload(0x40)
            mstore(free, shl(216, and(index, 0xffffffff)))
            mcopy(add(free, 5), add(add(data, 0x20), offset), TILE_BYTES)
            hash := keccak256(free, 517)
        }
    }

    /// @notice Tree root that a leaf and its siblings (from the bottom) lead to.
    /// @param siblings all siblings of an opening, `depth` per tile
    /// @param from where this leaf's siblings begin in `siblings`
    function root(bytes32 leafHash, uint256 index, bytes32[] memory siblings, uint256 from, uint256 depth)
        internal
        pure
        returns (bytes32 hash)
    {
        if (from + depth > siblings.length) revert WrongSiblings(siblings.length, from + depth);
        assembly ("memory-safe") {
            // The same as `node` on each level, with the tag written once.
            let left := add(mload(0x40), 1)
            mstore8(sub(left, 1), 1)
            hash := leafHash
            let sibling := add(add(siblings, 0x20), shl(5, from))
            for { let end := add(sibling, shl(5, depth)) } lt(sibling, end) { sibling := add(sibling, 0x20) } {
                let side := shl(5, and(index, 1))
                mstore(add(left, side), hash)
                mstore(add(left, xor(side, 0x20)), mload(sibling))
                hash := keccak256(sub(left, 1), 65)
                index := shr(1, index)
            }
        }
    }

    /// @notice Hash of an inner node: keccak256(0x01 ‖ left ‖ right).
    function node(bytes32 left, bytes32 right) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 1)
            mstore(add(free, 1), left)
            mstore(add(free, 33), right)
            hash := keccak256(free, 65)
        }
    }

    /// @notice Root of a trace: keccak256(0x02 ‖ uint32be(rows) ‖ uint32be(columns) ‖ dtype ‖ tree root).
    function traceRoot(uint256 rows, uint256 columns, uint8 dtype, bytes32 treeRoot) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x02), uint32(rows), uint32(columns), dtype, treeRoot));
    }

    /// @notice Trace root that an opening of the sampled tiles proves; the caller compares it with the committed one.
    /// @param seed the task's sampling seed
    /// @param segment index of the segment
    /// @param rows positions of the trace
    /// @param columns hidden size of the model
    /// @param dtype 0 float32, 1 bfloat16
    /// @param tiles number of sampled tiles, at least 1
    /// @param opened the tiles' bytes, in the order of their strata (not masked)
    /// @param siblings `depth` siblings per tile, from the bottom, in the same order
    function openingRoot(
        bytes32 seed,
        uint256 segment,
        uint256 rows,
        uint256 columns,
        uint8 dtype,
        uint256 tiles,
        bytes memory opened,
        bytes32[] memory siblings
    ) internal pure returns (bytes32) {
        uint256 count = tileCount(rows, columns, dtype);
        uint256 depth = depthOf(count);
        if (tiles == 0 || opened.length != tiles * TILE_BYTES) revert WrongTileBytes(opened.length, tiles * TILE_BYTES);
        if (siblings.length != tiles * depth) revert WrongSiblings(siblings.length, tiles * depth);
        bytes32 first;
        for (uint256 j = 0; j < tiles; ++j) {
            uint256 index = tileIndex(seed, segment, j, tiles, count);
            bytes32 hash = root(leaf(index, opened, j * TILE_BYTES), index, siblings, j * depth, depth);
            if (j == 0) first = hash;
            else if (hash != first) revert TilesDisagreeOnRoot(first, hash);
        }
        return traceRoot(rows, columns, dtype, first);
    }
}
