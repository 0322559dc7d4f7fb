// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";

import {TileTree} from "../libraries/TileTree.sol";

contract TileTreeTest is Test {
    uint256 private constant ROWS = 20;
    uint256 private constant COLUMNS = 33;
    uint256 private constant COUNT = 9; // 3 row blocks of 3 column blocks in float32
    uint256 private constant DEPTH = 4;

    function openingRoot(bytes32 seed, uint256 tiles, bytes memory opened, bytes32[] memory siblings)
        external
        pure
        returns (bytes32)
    {
        return TileTree.openingRoot(seed, 1, ROWS, COLUMNS, 0, tiles, opened, siblings);
    }

    function tileIndex(uint256 j, uint256 tiles, uint256 count) external pure returns (uint256) {
        return TileTree.tileIndex(bytes32(0), 0, j, tiles, count);
    }

    function tile(uint256 index) private pure returns (bytes memory bytes_) {
        bytes_ = new bytes(512);
        for (uint256 i = 0; i < 512; ++i) bytes_[i] = bytes1(uint8(uint256(keccak256(abi.encode(index, i)))));
    }

    /// @dev All levels of the tree, by the words of the rule: level 0 has 16 leaves, 9 of them tiles.
    function tree() private pure returns (bytes32[16][5] memory levels) {
        for (uint256 i = 0; i < COUNT; ++i) {
            levels[0][i] = keccak256(abi.encodePacked(bytes1(0x00), uint32(i), tile(i)));
        }
        for (uint256 level = 1; level <= DEPTH; ++level) {
            for (uint256 i = 0; i < 16 >> level; ++i) {
                levels[level][i] =
                    keccak256(abi.encodePacked(bytes1(0x01), levels[level - 1][2 * i], levels[level - 1][2 * i + 1]));
            }
        }
    }

    function opening(bytes32 seed, uint256 tiles)
        private
        pure
        returns (bytes32 root, bytes memory opened, bytes32[] memory siblings)
    {
        bytes32[16][5] memory levels = tree();
        root = keccak256(abi.encodePacked(bytes1(0x02), uint32(ROWS), uint32(COLUMNS), uint8(0), levels[DEPTH][0]));
        siblings = new bytes32[](tiles * DEPTH);
        for (uint256 j = 0; j < tiles; ++j) {
            uint256 index = TileTree.tileIndex(seed, 1, j, tiles, COUNT);
            opened = abi.encodePacked(opened, tile(index));
            for (uint256 level = 0; level < DEPTH; ++level) {
                siblings[j * DEPTH + level] = levels[level][(index >> level) ^ 1];
            }
        }
    }

    function testOpeningsLeadToTheRoot(bytes32 seed, uint8 tiles) public view {
        tiles = uint8(bound(tiles, 1, 3));
        (bytes32 root, bytes memory opened, bytes32[] memory siblings) = opening(seed, tiles);
        assertEq(this.openingRoot(seed, tiles, opened, siblings), root);
    }

    function testAChangedByteLeadsElsewhere(bytes32 seed, uint16 place, uint8 sibling) public view {
        (bytes32 root, bytes memory opened, bytes32[] memory siblings) = opening(seed, 1);
        opened[place % 512] ^= 0x01;
        assertNotEq(this.openingRoot(seed, 1, opened, siblings), root);
        opened[place % 512] ^= 0x01;
        siblings[sibling % DEPTH] ^= bytes32(uint256(1));
        assertNotEq(this.openingRoot(seed, 1, opened, siblings), root);
    }

    function testTilesOfDifferentTreesAreRefused(bytes32 seed) public {
        (, bytes memory opened, bytes32[] memory siblings) = opening(seed, 2);
        opened[600] ^= 0x01;
        vm.expectPartialRevert(TileTree.TilesDisagreeOnRoot.selector);
        this.openingRoot(seed, 2, opened, siblings);
    }

    function testRefusesWrongLengths() public {
        vm.expectRevert(abi.encodeWithSelector(TileTree.WrongTileBytes.selector, 512, 1024));
        this.openingRoot(0, 2, new bytes(512), new bytes32[](8));
        vm.expectRevert(abi.encodeWithSelector(TileTree.WrongSiblings.selector, 3, 4));
        this.openingRoot(0, 1, new bytes(512), new bytes32[](3));
        vm.expectRevert(abi.encodeWithSelector(TileTree.WrongTileBytes.selector, 0, 0));
        this.openingRoot(0, 0, "", new bytes32[](0));
        vm.expectRevert(abi.encodeWithSelector(TileTree.TooFewTiles.selector, 2, 3));
        this.tileIndex(0, 3, 2);
    }

    function testEachStratumIsSampledWithin(uint256 seed, uint16 count, uint8 tiles) public pure {
        uint256 sampled = bound(tiles, 1, 16);
        uint256 available = bound(count, sampled, 5000);
        for (uint256 j = 0; j < sampled; ++j) {
            uint256 index = TileTree.tileIndex(bytes32(seed), 0, j, sampled, available);
            assertGe(index, j * available / sampled);
            assertLt(index, (j + 1) * available / sampled);
        }
    }

    function testCountsTilesAndLevels() public pure {
        assertEq(TileTree.tileCount(1, 1, 0), 1);
        assertEq(TileTree.tileCount(9, 576, 0), 72);
        assertEq(TileTree.tileCount(8, 576, 1), 18);
        assertEq(TileTree.depthOf(1), 0);
        assertEq(TileTree.depthOf(2), 1);
        assertEq(TileTree.depthOf(9), 4);
    }
}
