// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Openings of neighbouring leaves of a binary tree whose leaves are words
/// @notice A node is keccak256(0x01 ‖ left ‖ right). Whoever opens knows the tree's depth, so that no node passes for a leaf.
/// @dev The same rules are `troth.protocol.disputes.tree`.
library TraceTree {
    /// @notice No whole words, leaves beyond the tree, or another number of siblings than they need.
    error NoSuchRange(uint256 first, uint256 bytesGiven, uint256 depth, uint256 siblings);

    /// @notice The root over leaves that stand side by side.
    /// @param leaves one word each, at least one
    /// @param first place of the first of them
    /// @param depth levels of the tree above its leaves
    /// @param siblings what stands beside the range: from the bottom, on each level the left one before the right one
    function rangeRoot(bytes calldata leaves, uint256 first, uint256 depth, bytes32[] calldata siblings)
        internal
        pure
        returns (bytes32 root)
    {
        uint256 count = leaves.length >> 5;
        bool fits = leaves.length != 0 && leaves.length & 31 == 0 && depth < 128 && first < 1 << depth
            && count <= (1 << depth) - first;
        uint256 used;
        if (fits) (root, used) = _climb(leaves, first, depth, siblings);
        if (!fits || used != siblings.length) revert NoSuchRange(first, leaves.length, depth, siblings.length);
    }

    /// @dev The leaves lie behind a free word, into which a left sibling goes. A sibling that is not there reads as what lies
    ///      behind in the calldata; the caller compares how many were used.
    function _climb(bytes calldata leaves, uint256 first, uint256 depth, bytes32[] calldata siblings)
        private
        pure
        returns (bytes32 root, uint256 used)
    {
        assembly ("memory-safe") {
            let base := mload(0x40)
            let words := add(base, 0x20)
            calldatacopy(words, leaves.offset, leaves.length)
            // Behind them a word for a right sibling, then what is hashed.
            let pair := add(add(words, leaves.length), 0x20)
            mstore8(pair, 1)
            let count := shr(5, leaves.length)
            for { } depth { depth := sub(depth, 1) } {
                let from := words
                if and(first, 1) {
                    mstore(base, calldataload(add(siblings.offset, shl(5, used))))
                    used := add(used, 1)
                    count := add(count, 1)
                    from := base
                }
                if and(count, 1) {
                    mstore(add(from, shl(5, count)), calldataload(add(siblings.offset, shl(5, used))))
                    used := add(used, 1)
                    count := add(count, 1)
                }
                let into := words
                for { let end := add(from, shl(5, count)) } lt(from, end) { from := add(from, 0x40) } {
                    mcopy(add(pair, 1), from, 0x40)
                    mstore(into, keccak256(pair, 65))
                    into := add(into, 0x20)
                }
                count := shr(1, count)
                first := shr(1, first)
            }
            root := mload(words)
        }
    }

    /// @notice The root over words that fill a tree; there are 2^depth of them.
    function wholeRoot(bytes32[] calldata words, uint256 depth) internal pure returns (bytes32 root) {
        bytes calldata leaves;
        assembly ("memory-safe") {
            leaves.offset := words.offset
            leaves.length := shl(5, words.length)
        }
        if (words.length != 1 << depth) revert NoSuchRange(0, leaves.length, depth, 0);
        root = rangeRoot(leaves, 0, depth, _none());
    }

    /// @notice The root over one word.
    function pathRoot(bytes32 word, uint256 place, bytes32[] calldata siblings) internal pure returns (bytes32 root) {
        if (siblings.length > 127 || place >= 1 << siblings.length) {
            revert NoSuchRange(place, 32, siblings.length, siblings.length);
        }
        root = word;
        assembly ("memory-safe") {
            let pair := mload(0x40)
            mstore8(pair, 1)
            let next := siblings.offset
            for { let end := add(next, shl(5, siblings.length)) } lt(next, end) { next := add(next, 0x20) } {
                let side := shl(5, and(place, 1))
                mstore(add(add(pair, 1), side), root)
                mstore(add(add(pair, 1), xor(side, 0x20)), calldataload(next))
                root := keccak256(pair, 65)
                place := shr(1, place)
            }
        }
    }

    function _none() private pure returns (bytes32[] calldata siblings) {
        assembly ("memory-safe") {
            siblings.offset := 0
            siblings.length := 0
        }
    }
}
