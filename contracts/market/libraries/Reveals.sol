// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice What a reviewer shows, before it is packed. Absent: opinion None.
/// @param score of the node, millionths of the class's first cut
/// @param spread the reviewers' own noise on this prompt, in the same unit
/// @param mask whose tiles these are XORed with: a reviewer's that stands before, the node's, or nobody's
/// @param tiles sampled tiles; empty in an exact class
struct Reveal {
    bytes32 root;
    uint8 opinion;
    uint32 score;
    uint32 spread;
    bytes16 salt;
    uint8 mask;
    bytes tiles;
    bytes32[] siblings;
}

/// @notice What a reviewer shows, as it is read: where in memory eight words begin: the seven that its
///         commitment is the hash of, and its tiles.
/// @dev A struct would be made empty wherever a function gives it back, and looked up behind a bound.
type Head is uint256;

using Reveals for Head global;

/// @title What reviewers show, packed one behind the other
/// @notice A reveal is its opinion (1 byte; behind 0, nothing shown, nothing follows), score (4), spread (4), salt (16) and root
///         (32; left out where REPEATED is set in the opinion's byte: it is that of the last one before it that has a root). In
///         a tolerant class, where the opinion is Accept or Reject, follow the mask (1), the sampled tiles (512 each),
///         XORed with those that the mask names, and their siblings (32 each, from the bottom, tile by tile).
/// @dev The same rule is `troth.protocol.market.reveals`.
library Reveals {
    /// @notice Added to the opinion: the root is the last one before it.
    uint256 internal constant REPEATED = 0x80;
    /// @notice A mask below these: the reviewer at this place, who must stand before.
    uint256 internal constant NODE = 254;
    uint256 internal constant CLEAR = 255;

    uint256 private constant FIXED = 9;

    /// @dev Bytes of a head: hearing, reviewer, root, opinion, score, spread, salt, tiles.
    uint256 private constant SIZE = 0x100;

    /// @notice Empty heads, one behind the other.
    /// @return first the first of them
    function many(uint256 count) internal pure returns (Head first) {
        assembly ("memory-safe") {
            first := mload(0x40)
            let size := mul(count, SIZE)
            // Behind the calldata there is nothing but zeros.
            calldatacopy(first, calldatasize(), size)
            mstore(0x40, add(first, size))
        }
    }

    /// @notice The head at a place behind the first; there must be so many.
    function at(Head first, uint256 place) internal pure returns (Head head) {
        assembly ("memory-safe") {
            head := add(first, mul(place, SIZE))
        }
    }

    /// @notice Reads a reviewer's reveal, which begins at a position of the calldata, into an empty head. What is read beyond
    ///         the reveals is for the caller to refuse, by where the last one ends.
    /// @param last root of the last one that has one
    /// @return opinion 0: nothing is shown
    /// @return end where in the calldata it ends, or its mask is
    /// @return commitment keccak256(abi.encode(hearing, reviewer, root, opinion, score, spread, salt))
    function read(Head head, uint256 position, bytes32 last, bytes32 hearing, address reviewer)
        internal
        pure
        returns (uint256 opinion, uint256 end, bytes32 commitment)
    {
        assembly ("memory-safe") {
            let word := calldataload(position)
            opinion := and(byte(0, word), 0x7f)
            end := add(position, 1)
            if opinion {
                mstore(head, hearing)
                mstore(add(head, 0x20), shr(96, shl(96, reviewer)))
                mstore(add(head, 0x60), opinion)
                mstore(add(head, 0x80), and(shr(216, word), 0xffffffff))
                mstore(add(head, 0xa0), and(shr(184, word), 0xffffffff))
                mstore(add(head, 0xc0), shl(128, shr(128, calldataload(add(position, FIXED)))))
                end := add(position, 25)
                if iszero(shr(255, word)) {
                    last := calldataload(end)
                    end := add(end, 0x20)
                }
                mstore(add(head, 0x40), last)
                // No tiles: Solidity's own empty bytes.
                mstore(add(head, 0xe0), 0x60)
                commitment := keccak256(head, 0xe0)
            }
        }
    }

    function opinionOf(Head head) internal pure returns (uint256 opinion) {
        assembly ("memory-safe") {
            opinion := mload(add(head, 0x60))
        }
    }

    function scoreOf(Head head) internal pure returns (uint256 score) {
        assembly ("memory-safe") {
            score := mload(add(head, 0x80))
        }
    }

    function spreadOf(Head head) internal pure returns (uint256 spread) {
        assembly ("memory-safe") {
            spread := mload(add(head, 0xa0))
        }
    }

    function rootOf(Head head) internal pure returns (bytes32 root) {
        assembly ("memory-safe") {
            root := mload(add(head, 0x40))
        }
    }

    /// @notice Tiles in the clear, once they were put there.
    function tilesOf(Head head) internal pure returns (bytes memory tiles) {
        assembly ("memory-safe") {
            tiles := mload(add(head, 0xe0))
        }
    }

    function putTiles(Head head, bytes memory tiles) internal pure {
        assembly ("memory-safe") {
            mstore(add(head, 0xe0), tiles)
        }
    }

    /// @notice One reveal as it is read; its tiles are XORed already.
    /// @param hasTiles in a tolerant class, where the opinion is Accept or Reject
    function pack(Reveal memory shown, bool hasTiles) internal pure returns (bytes memory packed) {
        if (shown.opinion == 0) return hex"00";
        packed = abi.encodePacked(shown.opinion, shown.score, shown.spread, shown.salt, shown.root);
        if (hasTiles) packed = abi.encodePacked(packed, shown.mask, shown.tiles, shown.siblings);
    }
}
