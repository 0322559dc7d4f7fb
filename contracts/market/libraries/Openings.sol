// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {TileTree} from "../../libraries/TileTree.sol";
import {Rules} from "../interfaces/MarketTypes.sol";

/// @title Openings of the same tiles of many traces
/// @notice What all of them have in common is found once (TileTree.openingRoot says the same of one opening).
library Openings {
    /// @param shape what a trace root binds beside the tree: 0x02 ‖ rows ‖ columns ‖ dtype
    /// @param depth siblings of a tile
    /// @param places the sampled tiles; empty in an exact class
    struct Sample {
        uint256 shape;
        uint256 depth;
        uint256[] places;
    }

    /// @notice What is opened of traces of so many rows, into an empty sample. A short one has fewer tiles than the class
    ///         samples: then all of them are.
    function pick(Sample memory sample, bytes32 seed, uint256 segment, uint256 rows, Rules memory rules) internal pure {
        if (rules.exact) return;
        uint256 count = TileTree.tileCount(rows, rules.hiddenSize, rules.dtype);
        uint256 tiles = count < rules.tiles ? count : rules.tiles;
        sample.shape = 2 << 72 | rows << 40 | uint256(rules.hiddenSize) << 8 | rules.dtype;
        sample.depth = TileTree.depthOf(count);
        sample.places = new uint256[](tiles);
        for (uint256 j = 0; j < tiles; ++j) {
            sample.places[j] = TileTree.tileIndex(seed, segment, j, tiles, count);
        }
    }

    /// @notice Bytes of the tiles of an opening.
    function tileBytes(Sample memory sample) internal pure returns (uint256) {
        unchecked {
            return sample.places.length * TileTree.TILE_BYTES;
        }
    }

    /// @notice Bytes of the siblings of an opening.
    function siblingBytes(Sample memory sample) internal pure returns (uint256) {
        unchecked {
            return sample.places.length * sample.depth * 32;
        }
    }

    /// @notice The trace root that an opening proves; zero if its tiles belong to different trees.
    /// @param tiles as many bytes as `tileBytes`
    /// @param siblings where in the calldata as many bytes as `siblingBytes` begin
    function rootOf(Sample memory sample, bytes memory tiles, uint256 siblings) internal pure returns (bytes32 root) {
        uint256[] memory places = sample.places;
        uint256 depth = sample.depth;
        unchecked {
            // No class samples more tiles than eight bits count, and no tree is deeper than 32.
            for (uint256 j = 0; j < places.length; ++j) {
                uint256 place = places[j];
                bytes32 hash = TileTree.leaf(place, tiles, j * TileTree.TILE_BYTES);
                hash = _climb(hash, place, siblings, depth);
                if (j == 0) root = hash;
                else if (hash != root) return 0;
                siblings += depth * 32;
            }
        }
        uint256 shape = sample.shape;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, shl(176, shape))
            mstore(add(free, 10), root)
            root := keccak256(free, 42)
        }
    }

    /// @dev As TileTree.root, with siblings in the calldata.
    function _climb(bytes32 hash, uint256 index, uint256 sibling, uint256 depth) private pure returns (bytes32 root) {
        assembly ("memory-safe") {
            // At a multiple of 64, so that a side of the pair is a bit of its place; the tag stands before it.
            let pair := and(add(mload(0x40), 0x7f), not(0x3f))
            let tagged := sub(pair, 1)
            mstore8(tagged, 1)
            root := hash
            for { let end := add(sibling, shl(5, depth)) } lt(sibling, end) { sibling := add(sibling, 0x20) } {
                let place := or(pair, shl(5, and(index, 1)))
                mstore(place, root)
                mstore(xor(place, 0x20), calldataload(sibling))
                root := keccak256(tagged, 65)
                index := shr(1, index)
            }
        }
    }

    /// @notice Tiles of the calldata, XORed with `mask`, of the same length; in the clear if it is empty.
    function unmasked(uint256 position, uint256 length, bytes memory mask) internal pure returns (bytes memory tiles) {
        assembly ("memory-safe") {
            tiles := mload(0x40)
            let to := add(tiles, 0x20)
            mstore(tiles, length)
            mstore(0x40, add(to, length))
            calldatacopy(to, position, length)
            if mload(mask) {
                let apart := sub(mask, tiles)
                // A tile is a multiple of four words.
                for { let end := add(to, length) } lt(to, end) { to := add(to, 0x80) } {
                    mstore(to, xor(mload(to), mload(add(to, apart))))
                    let next := add(to, 0x20)
                    mstore(next, xor(mload(next), mload(add(next, apart))))
                    next := add(to, 0x40)
                    mstore(next, xor(mload(next), mload(add(next, apart))))
                    next := add(to, 0x60)
                    mstore(next, xor(mload(next), mload(add(next, apart))))
                }
            }
        }
    }
}
