// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title A Merkle tree whose nodes bind the sums below them: what a claim of many leaves adds up to
/// @notice Leaf i is sequence number first + i, so that a number has one place. A place without a leaf has hash 0 and
///         sum 0; the tree is as deep as its last number needs, so that a path has one length.
/// @dev The same rules are `troth.protocol.market.sumtree`; a differential test holds the two together.
library SumTree {
    uint8 private constant LEAF = 0;
    uint8 private constant NODE = 1;
    uint8 private constant CLAIM = 2;
    uint256 internal constant MAXIMUM_DEPTH = 32;

    error WrongDepth(uint256 siblings, uint256 sums, uint256 depth);
    error SumTooLarge(uint256 level, uint256 sum);

    /// @notice What stands at a place; nothing (amount 0) is hash 0.
    function leafHash(uint64 sequence, uint96 amount) internal pure returns (bytes32) {
        return amount == 0 ? bytes32(0) : keccak256(abi.encodePacked(LEAF, sequence, amount));
    }

    function nodeHash(bytes32 left, uint96 leftSum, bytes32 right, uint96 rightSum) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(NODE, left, leftSum, right, rightSum));
    }

    /// @notice What a claim names: the tree, its sum and its numbers.
    function claimRoot(bytes32 treeRoot, uint96 total, uint64 first, uint64 last) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(CLAIM, treeRoot, total, first, last));
    }

    /// @notice Levels above the leaves of the numbers first..last: the least d with 2^d > last - first.
    function depthOf(uint64 first, uint64 last) internal pure returns (uint256 depth) {
        uint256 span = last - first;
        while (span >> depth != 0) ++depth;
    }

    /// @notice The tree's root and sum that follow from one leaf and the siblings above it, from the bottom.
    function climb(
        bytes32 leaf,
        uint96 amount,
        uint256 index,
        uint256 depth,
        bytes32[] calldata siblings,
        uint96[] calldata sums
    ) internal pure returns (bytes32 root, uint96 sum) {
        if (siblings.length != depth || sums.length != depth) revert WrongDepth(siblings.length, sums.length, depth);
        root = leaf;
        sum = amount;
        for (uint256 level = 0; level < depth; ++level) {
            (bytes32 other, uint96 otherSum) = (siblings[level], sums[level]);
            root = index >> level & 1 == 0
                ? nodeHash(root, sum, other, otherSum)
                : nodeHash(other, otherSum, root, sum);
            uint256 both = uint256(sum) + otherSum;
            if (both > type(uint96).max) revert SumTooLarge(level, both);
            sum = uint96(both);
        }
    }
}
