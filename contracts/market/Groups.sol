// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {Parties} from "./Parties.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {Ask, DrawRequest, Entry, Segment} from "./interfaces/MarketTypes.sol";
import {Entries} from "./libraries/Entries.sol";
import {History} from "./libraries/History.sol";

/// @title The seats of a segment of layers, and draws over them
/// @dev A group is a compact array of entries, each place of it with its history; who leaves is replaced by the last.
abstract contract Groups is Parties {
    using History for History.Word;

    /// @dev What all tries of a draw have in common.
    /// @param next number of the next try; at `end` there are no more
    /// @param scale what the lower half of a chance is taken by
    /// @param seasoning blocks, or none
    /// @param tags bit t: an excluded owner has the tag t
    /// @param plain neither weights nor asks count
    struct Tries {
        uint256 next;
        bytes32 seed;
        uint256 end;
        uint256 size;
        uint256 blockNumber;
        uint256 scale;
        uint256 seasoning;
        uint256 tags;
        bool plain;
    }

    /// @dev A try is accepted with the stake's share of honest seats over the cap at least, and no cap is above 32
    ///      (Classes): so many tries suffice for any group.
    uint256 private constant FIRST_TRIES = 256;
    uint256 private constant TRIES_PER_SEAT = 128;

    // ---- draws

    /// @inheritdoc IRegistry
    function draw(DrawRequest calldata request) external view returns (address[] memory drawn) {
        drawn = _draw(request, History.given(request.hints));
        // abi.encode(drawn), with its offset where nothing is needed any more.
        assembly ("memory-safe") {
            let start := sub(drawn, 0x20)
            mstore(start, 0x20)
            return(start, shl(5, add(mload(drawn), 2)))
        }
    }

    /// @inheritdoc IRegistry
    function search(DrawRequest calldata request) external view returns (address[] memory drawn, bytes memory hints) {
        History.Hints memory found = History.search(1 + 2 * _tries(request.count));
        drawn = _draw(request, found);
        hints = History.found(found);
    }

    function _draw(DrawRequest calldata request, History.Hints memory hints)
        private
        view
        returns (address[] memory drawn)
    {
        uint256 blockNumber = request.blockNumber;
        if (blockNumber >= block.number) revert BlockNotPast(blockNumber, block.number);
        uint256 scale = uint16(_wordOf(request.executionClass) >> CAP_SHIFT) * BASIS_POINTS;
        bytes32 group = groupId(request.executionClass, request.first, request.end);
        uint256 size = History.sizeIn(_sizes[group].valueAt(blockNumber, hints), blockNumber);
        if (size == 0) revert GroupEmpty(group, blockNumber);
        uint256 count = request.count;
        drawn = new address[](count);
        Tries memory tries;
        (tries.seed, tries.end) = (request.seed, _tries(count));
        (tries.size, tries.blockNumber, tries.scale) = (size, blockNumber, scale);
        tries.seasoning = request.seasoned ? SEASONING : 0;
        tries.tags = _tagsOf(request.excluded);
        tries.plain = !request.distinct && address(WEIGHTS) == address(0);
        mapping(uint256 place => History.Word) storage entries = _entries[group];
        for (uint256 found = 0;;) {
            bool unusual;
            (found, unusual) = _rush(tries, entries, drawn, found);
            if (found == count) break;
            if (!unusual) revert DrawExhausted(group, found, count);
            uint256 h = _chance(request.seed, tries.next - 1);
            uint256 word = entries[(h >> 128) % size].valueAt(blockNumber, hints);
            uint256 seats = Entries.seatsIn(word, request.seasoned, blockNumber, SEASONING);
            if (seats == 0) continue;
            address operator = Entries.operatorIn(word);
            unchecked {
                // Sixteen bits by fourteen.
                if (uint128(h) % scale >= seats * _weight(operator, blockNumber)) continue;
            }
            if (tries.tags >> Entries.tagIn(word) & 1 != 0 && _isExcluded(operator, request.excluded)) continue;
            if (request.distinct) {
                if (_isAmong(operator, drawn, found)) continue;
                uint256 ask = _asks[group][operator].valueAt(blockNumber, hints);
                if (!Entries.isWithin(ask, request.bound)) continue;
            }
            assembly ("memory-safe") {
                // Below `count`, for which there is room.
                found := add(found, 1)
                mstore(add(drawn, shl(5, found)), operator)
            }
        }
    }

    /// @dev Tries one after the other, as far as nothing needs a closer look: whether an owner is excluded whose tag is,
    ///      an entry that is newer than the block, weights, asks. Which try that is, the caller does again as a whole.
    /// @param found seats so far; there is room for all
    /// @return found with those that were added
    /// @return unusual whether the last try needs a closer look; else all are found or no try is left
    function _rush(
        Tries memory tries,
        mapping(uint256 place => History.Word) storage entries,
        address[] memory drawn,
        uint256 found
    ) private view returns (uint256, bool unusual) {
        assembly ("memory-safe") {
            let i := mload(tries)
            // keccak256(abi.encode(seed, i)), and behind it the slot of a place.
            let words := mload(0x40)
            mstore(words, mload(add(tries, 0x20)))
            mstore(add(words, 0x60), entries.slot)
            let blockNumber := mload(add(tries, 0x80))
            let to := add(drawn, shl(5, add(found, 1)))
            for { let end := add(drawn, shl(5, add(mload(drawn), 1))) } lt(to, end) { } {
                if eq(i, mload(add(tries, 0x40))) { break }
                mstore(add(words, 0x20), i)
                i := add(i, 1)
                let h := keccak256(words, 0x40)
                mstore(add(words, 0x40), mod(shr(128, h), mload(add(tries, 0x60))))
                let word := sload(keccak256(add(words, 0x40), 0x40))
                unusual := or(iszero(mload(add(tries, 0x100))), gt(and(word, 0xffffffff), blockNumber))
                if unusual { break }
                let seats := and(shr(80, word), 0xff)
                if gt(add(and(shr(32, word), 0xffffffff), mload(add(tries, 0xc0))), blockNumber) {
                    let settled := and(shr(64, word), 0xffff)
                    if lt(settled, seats) { seats := settled }
                }
                h := mod(and(h, 0xffffffffffffffffffffffffffffffff), mload(add(tries, 0xa0)))
                if iszero(lt(h, mul(seats, BASIS_POINTS))) { continue }
                unusual := and(shr(and(shr(88, word), 0xff), mload(add(tries, 0xe0))), 1)
                if unusual { break }
                mstore(to, shr(96, word))
                to := add(to, 0x20)
            }
            mstore(tries, i)
            found := sub(shr(5, sub(to, drawn)), 1)
        }
        return (found, unusual);
    }

    /// @dev keccak256(abi.encode(seed, i)).
    function _chance(bytes32 seed, uint256 i) private pure returns (uint256 h) {
        assembly ("memory-safe") {
            mstore(0, seed)
            mstore(0x20, i)
            h := keccak256(0, 0x40)
        }
    }

    /// @dev Bit t: one of these owners has the tag t.
    function _tagsOf(address[] calldata owners) private pure returns (uint256 tags) {
        assembly ("memory-safe") {
            let at := owners.offset
            for { let end := add(at, shl(5, owners.length)) } lt(at, end) { at := add(at, 0x20) } {
                tags := or(tags, shl(and(calldataload(at), 0xff), 1))
            }
        }
    }

    function _tries(uint256 count) private pure returns (uint256) {
        return FIRST_TRIES + TRIES_PER_SEAT * count;
    }

    function _weight(address operator, uint256 blockNumber) private view returns (uint256) {
        if (address(WEIGHTS) == address(0)) return BASIS_POINTS;
        return Math.min(BASIS_POINTS, WEIGHTS.weightAt(operator, blockNumber));
    }

    function _isAmong(address operator, address[] memory drawn, uint256 count) private pure returns (bool found) {
        assembly ("memory-safe") {
            for { } count { count := sub(count, 1) } {
                found := or(found, eq(mload(add(drawn, shl(5, count))), operator))
            }
        }
    }

    function _isExcluded(address operator, address[] calldata excluded) private view returns (bool found) {
        address owner = _parties[operator].owner;
        assembly ("memory-safe") {
            let at := excluded.offset
            for { let end := add(at, shl(5, excluded.length)) } lt(at, end) { at := add(at, 0x20) } {
                found := or(found, eq(calldataload(at), owner))
            }
        }
    }

    // ---- groups

    function _setSlice(address operator, uint8 first, uint8 end) internal {
        Party storage party = _parties[operator];
        (party.first, party.end) = (first, end);
    }

    function _requireSlice(uint256 word, uint8 first, uint8 end) internal pure {
        uint8 layers = uint8(word >> LAYERS_SHIFT);
        if (first >= end || end > layers) revert InvalidSlice(first, end, layers);
    }

    /// @dev Puts a node into the groups of one or two segments, unless it is there, and sets its asks.
    function _host(
        address operator,
        bytes32 class,
        Standing memory standing,
        uint48[2] memory kept,
        Segment[] calldata segments,
        Ask[] calldata asks,
        uint256 seats
    ) internal {
        uint256 count = segments.length;
        if (count == 0 || count > 2 || count != asks.length) revert InvalidSegmentCount(count, asks.length);
        if (count == 2 && segments[0].first == segments[1].first && segments[0].end == segments[1].end) {
            revert SegmentTwice(segments[0].first, segments[0].end);
        }
        if (standing.suspended) seats = 0;
        uint48[2] memory places;
        for (uint256 i = 0; i < count; ++i) {
            places[i] = _enter(operator, class, kept, segments[i], seats);
            _ask(operator, class, places[i], asks[i]);
        }
        (standing.one, standing.two) = (places[0], places[1]);
    }

    function _enter(
        address operator,
        bytes32 class,
        uint48[2] memory kept,
        Segment calldata segment,
        uint256 seats
    ) private returns (uint48 membership) {
        (uint8 first, uint8 end) = (segment.first, segment.end);
        Party storage party = _parties[operator];
        if (first >= end || first < party.first || end > party.end) {
            revert SegmentOutsideSlice(first, end, party.first, party.end);
        }
        membership = _find(kept, first, end);
        if (membership == 0) {
            uint256 place = _join(groupId(class, first, end), operator, seats);
            membership = uint48(uint256(first) << 40 | uint256(end) << 32 | place);
        }
    }

    function _ask(address operator, bytes32 class, uint48 membership, Ask calldata ask) internal {
        (bytes32 group,) = _locate(class, membership);
        _asks[group][operator].put(Entries.packAsk(ask, block.number));
        emit AskChanged(operator, uint8(membership >> 40), uint8(membership >> 32), ask);
    }

    function _join(bytes32 group, address operator, uint256 seats) private returns (uint256 place) {
        History.Word storage sizes = _sizes[group];
        place = sizes.latestSize();
        sizes.putSize(place + 1);
        Entry memory entry =
            Entry({operator: operator, fromBlock: 0, since: uint32(block.number), seats: uint16(seats), settled: 0});
        _put(group, place, entry, Entries.tagOf(_parties[operator].owner), place + 1);
    }

    /// @dev Swap and pop: the last takes the place. What stands beyond the end stays, for the blocks before.
    function _leave(address operator, bytes32 class, uint48 membership) private {
        (bytes32 group, uint256 place) = _locate(class, membership);
        History.Word storage sizes = _sizes[group];
        uint256 last;
        unchecked {
            // It is there itself.
            last = sizes.latestSize() - 1;
        }
        sizes.putSize(last);
        if (place == last) {
            Entry memory nobody;
            return _announce(group, place, nobody, last);
        }
        uint256 word = _entries[group][last].latest;
        Entry memory moved = Entries.unpack(word);
        assert(moved.operator != operator);
        // It lies at `place` from now on, as the membership says of who leaves.
        Standing storage standing = _standings[moved.operator];
        if (standing.one >> 32 == membership >> 32) standing.one = membership;
        else standing.two = membership;
        _put(group, place, moved, Entries.tagIn(word), last);
    }

    function _announce(bytes32 group, uint256 place, Entry memory entry, uint256 size) private {
        emit EntryChanged(group, uint32(place), entry, uint32(size));
    }

    function _leaveAll(address operator, bytes32 class, Standing memory standing) internal {
        if (standing.one != 0) _leave(operator, class, standing.one);
        if (standing.two != 0) _leave(operator, class, standing.two);
        (standing.one, standing.two) = (0, 0);
    }

    function _reseatOrEvict(address operator, bytes32 class, Standing memory standing, uint256 covered) internal {
        if (covered != 0) return _reseat(class, standing, covered);
        emit Evicted(operator);
        _leaveAll(operator, class, standing);
    }

    /// @dev Leaves the groups of no segment among `segments`; a node stays where it is in the others, so that its
    ///      seats there do not season again.
    function _leaveOthers(address operator, bytes32 class, Standing memory standing, Segment[] calldata segments)
        internal
        returns (uint48[2] memory kept)
    {
        kept = _memberships(standing);
        for (uint256 i = 0; i < 2; ++i) {
            uint48 membership = kept[i];
            if (membership == 0) continue;
            bool stays = false;
            for (uint256 j = 0; j < segments.length; ++j) {
                uint256 segment = uint256(segments[j].first) << 8 | segments[j].end;
                if (membership >> 32 == segment) stays = true;
            }
            if (stays) continue;
            _leave(operator, class, membership);
            kept[i] = 0;
        }
        (standing.one, standing.two) = (kept[0], kept[1]);
    }

    /// @dev Takes away what the stake no longer covers.
    /// @return changed whether there was anything to take
    function _shrink(address operator, Standing memory standing) internal returns (bool changed) {
        if (standing.one | standing.two == 0) return false;
        (bytes32 class, uint256 covered) = _coveredOf(operator, standing);
        uint256 seats = standing.suspended ? standing.seatsBefore : _currentSeats(standing);
        if (covered != 0 && covered >= seats) return false;
        _reseatOrEvict(operator, class, standing, covered);
        if (standing.suspended) standing.seatsBefore = uint16(covered);
        return true;
    }

    /// @dev The same seats in each group of a node; none while it is suspended. After a suspension (`seatsBefore`
    ///      stands, and `suspended` does not) first the seats of before as they had seasoned; what is above begins to
    ///      season.
    function _reseat(bytes32 class, Standing memory standing, uint256 seats) internal {
        if (standing.suspended) seats = 0;
        uint256 before = standing.suspended ? 0 : standing.seatsBefore;
        _reseatIn(class, standing.one, seats, before);
        _reseatIn(class, standing.two, seats, before);
    }

    function _reseatIn(bytes32 class, uint48 membership, uint256 seats, uint256 before) private {
        if (membership == 0) return;
        (bytes32 group, uint256 place) = _locate(class, membership);
        uint256 word = _entries[group][place].latest;
        Entry memory entry = Entries.unpack(word);
        if (before != 0) entry.seats = uint16(Math.min(before, seats));
        else if (entry.seats == seats) return;
        Entries.setSeats(entry, seats, block.number, SEASONING);
        _put(group, place, entry, Entries.tagIn(word), _sizes[group].latestSize());
    }

    function _locate(bytes32 class, uint48 membership) private pure returns (bytes32 group, uint256 place) {
        group = groupId(class, uint8(membership >> 40), uint8(membership >> 32));
        place = uint32(membership);
    }

    /// @param tag of the entry's owner
    function _put(bytes32 group, uint256 place, Entry memory entry, uint256 tag, uint256 size) private {
        entry.fromBlock = uint32(block.number);
        _entries[group][place].put(Entries.tagged(Entries.pack(entry), tag));
        _announce(group, place, entry, size);
    }

    function _memberships(Standing memory standing) internal pure returns (uint48[2] memory) {
        return [standing.one, standing.two];
    }

    function _find(uint48[2] memory memberships, uint8 first, uint8 end) internal pure returns (uint48) {
        uint256 segment = uint256(first) << 8 | end;
        if (memberships[0] >> 32 == segment) return memberships[0];
        return memberships[1] >> 32 == segment ? memberships[1] : 0;
    }

    function _currentSeats(Standing memory standing) internal view returns (uint256) {
        uint48 membership = standing.one != 0 ? standing.one : standing.two;
        if (membership == 0) return 0;
        (bytes32 group, uint256 place) = _locate(_classes[standing.class], membership);
        return Entries.seatsIn(_entries[group][place].latest, false, 0, 0);
    }
}
