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
    bytes32 salt;
    uint8 mask;
    bytes tiles;
    bytes32[] siblings;
}

/// @title What reviewers show, packed one behind the other
/// @notice A reveal is its opinion (1 byte; behind 0, nothing shown, nothing follows), score (4), spread (4), salt (32) and root
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

    uint256 private constant HEAD = 9;

    /// @param numbers score << 32 | spread
    /// @param end where in the calldata it ends, or its mask is
    /// @param tiles in the clear, once they are read
    struct Head {
        uint256 opinion;
        uint256 numbers;
        bytes32 salt;
        bytes32 root;
        uint256 end;
        bytes tiles;
    }

    /// @notice Reads the reveal that begins at a position of the calldata into an empty head. What is read beyond the
    ///         reveals is for the caller to refuse, by where the last one ends.
    /// @dev A function that returned the struct would make an empty one first, each time.
    /// @param last root of the last one that has one
    function read(Head memory head, uint256 position, bytes32 last) internal pure {
        uint256 word;
        bytes32 salt;
        assembly ("memory-safe") {
            word := calldataload(position)
            salt := calldataload(add(position, HEAD))
        }
        unchecked {
            uint256 first = word >> 248;
            head.opinion = first & ~REPEATED;
            if (head.opinion == 0) {
                head.end = position + 1;
                return;
            }
            head.numbers = uint64(word >> 184);
            head.salt = salt;
            position += HEAD + 32;
            if (first & REPEATED != 0) {
                head.root = last;
            } else {
                assembly ("memory-safe") {
                    salt := calldataload(position)
                }
                head.root = salt;
                position += 32;
            }
            head.end = position;
        }
    }

    /// @notice keccak256(abi.encode(hearing, reviewer, root, opinion, score, spread, salt)).
    function commitment(Head memory head, bytes32 hearing, address reviewer) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let encoded := mload(0x40)
            let numbers := mload(add(head, 0x20))
            mstore(encoded, hearing)
            mstore(add(encoded, 0x20), reviewer)
            mstore(add(encoded, 0x40), mload(add(head, 0x60)))
            mstore(add(encoded, 0x60), mload(head))
            mstore(add(encoded, 0x80), shr(32, numbers))
            mstore(add(encoded, 0xa0), and(numbers, 0xffffffff))
            mstore(add(encoded, 0xc0), mload(add(head, 0x40)))
            hash := keccak256(encoded, 0xe0)
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
