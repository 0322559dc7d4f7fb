// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ask, Entry} from "../interfaces/MarketTypes.sol";

/// @title Words of entries and asks, and how seats season
/// @dev The block from which a word is in force is in its lowest 32 bits, as library History wants it.
library Entries {
    /// @dev No class has more seats a node than fit eight bits (Classes); the eight above them are the owner's tag.
    function pack(Entry memory entry) internal pure returns (uint256) {
        return uint256(uint160(entry.operator)) << 96 | uint256(uint8(entry.seats)) << 80
            | uint256(entry.settled) << 64 | uint256(entry.since) << 32 | entry.fromBlock;
    }

    function unpack(uint256 word) internal pure returns (Entry memory) {
        return Entry({
            operator: operatorIn(word),
            fromBlock: uint32(word),
            since: uint32(word >> 32),
            seats: uint8(word >> 80),
            settled: uint16(word >> 64)
        });
    }

    /// @notice A word with the tag of the entry's owner.
    function tagged(uint256 word, uint256 tag) internal pure returns (uint256) {
        return word | tag << 88;
    }

    /// @notice Eight bits of an owner's address: who has another tag is somebody else, and its owner need not be looked up.
    function tagOf(address owner) internal pure returns (uint256) {
        return uint8(uint160(owner));
    }

    function tagIn(uint256 word) internal pure returns (uint256) {
        return uint8(word >> 88);
    }

    function operatorIn(uint256 word) internal pure returns (address) {
        return address(uint160(word >> 96));
    }

    /// @notice All seats of an entry, or those that had seasoned at a block.
    function seatsIn(uint256 word, bool seasoned, uint256 blockNumber, uint256 seasoning)
        internal
        pure
        returns (uint256 seats)
    {
        seats = uint8(word >> 80);
        if (seasoned && blockNumber < uint256(uint32(word >> 32)) + seasoning) {
            uint256 settled = uint16(word >> 64);
            if (settled < seats) seats = settled;
        }
    }

    /// @notice Changes an entry's seats: what is added begins to season now, what is taken is the newest.
    function setSeats(Entry memory entry, uint256 seats, uint256 blockNumber, uint256 seasoning) internal pure {
        if (seats > entry.seats) {
            entry.settled = uint16(seatsIn(pack(entry), true, blockNumber, seasoning));
            entry.since = uint32(blockNumber);
        }
        entry.seats = uint16(seats);
    }

    function packAsk(Ask memory ask, uint256 blockNumber) internal pure returns (uint256) {
        return uint256(ask.prompt) << 160 | uint256(ask.cached) << 96 | uint256(ask.written) << 32 | blockNumber;
    }

    function unpackAsk(uint256 word) internal pure returns (Ask memory) {
        return Ask({prompt: uint64(word >> 160), cached: uint64(word >> 96), written: uint64(word >> 32)});
    }

    /// @notice Whether the ask in a word is at most a bound, in each of its prices.
    function isWithin(uint256 word, Ask calldata bound) internal pure returns (bool) {
        return uint64(word >> 160) <= bound.prompt && uint64(word >> 96) <= bound.cached
            && uint64(word >> 32) <= bound.written;
    }
}
