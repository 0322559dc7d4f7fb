// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title A storage word as it was at the end of any past block
/// @notice A word carries in its lowest 32 bits the block from which it is in force. A word that is replaced in block
///         n is kept under the key n, which is the block that its successor begins with: one slot a change, no length,
///         and a word proves by itself that it was in force at b: it begins at or before b, and its key lies behind b.
///         So a look-up with the key as a hint costs two reads whatever the history, and walking back needs no list.
library History {
    struct Word {
        uint256 latest;
        mapping(uint256 until => uint256) earlier;
    }

    /// @notice Hints for look-ups, consumed in order; or, in a search, the hints that were needed.
    /// @param bytesUsed of `hints`
    /// @param searching walk back where the latest word is too new, and write the hint down
    struct Hints {
        bytes hints;
        uint256 bytesUsed;
        bool searching;
    }

    /// @notice A hint is no key of a word that was in force at that block, or there are too few; `bytesUsed` with it.
    error WrongHint(uint256 bytesUsed, uint256 hint, uint256 blockNumber);

    uint256 private constant HINT_BYTES = 4;
    uint256 private constant LANE_BITS = 64;
    uint256 private constant WORD_BITS = 256;

    /// @notice Hints as they were given.
    function given(bytes memory hints) internal pure returns (Hints memory) {
        return Hints({hints: hints, bytesUsed: 0, searching: false});
    }

    /// @notice A search that may need up to `lookUps` hints.
    function search(uint256 lookUps) internal pure returns (Hints memory) {
        return Hints({hints: new bytes((lookUps + 8) * HINT_BYTES), bytesUsed: 0, searching: true});
    }

    /// @notice The hints that a search found.
    function found(Hints memory hints) internal pure returns (bytes memory trimmed) {
        trimmed = hints.hints;
        uint256 used = hints.bytesUsed;
        assembly ("memory-safe") {
            mstore(trimmed, used)
        }
    }

    /// @notice Puts a word that begins in this block; a word of the same block is overwritten, an older one kept.
    function put(Word storage record, uint256 word) internal {
        uint256 old = record.latest;
        if (old != 0 && uint32(old) != block.number) record.earlier[block.number] = old;
        record.latest = word;
    }

    /// @notice The word in force at a past block, by the latest, a hint or a search; zero only in a search.
    function valueAt(Word storage record, uint256 blockNumber, Hints memory hints)
        internal
        view
        returns (uint256 word)
    {
        word = record.latest;
        if (uint32(word) <= blockNumber) return word;
        if (hints.searching) {
            uint256 until;
            (word, until) = walk(record, blockNumber);
            _note(hints, until);
        } else {
            uint256 hint = _next(hints, blockNumber);
            word = record.earlier[hint];
            if (word == 0 || uint32(word) > blockNumber || hint <= blockNumber) {
                revert WrongHint(hints.bytesUsed, hint, blockNumber);
            }
        }
    }

    /// @notice The same without hints, at a cost that grows with the changes since: for reads only.
    /// @return word zero if there was none yet
    /// @return until its key; zero for the latest
    function walk(Word storage record, uint256 blockNumber) internal view returns (uint256 word, uint256 until) {
        word = record.latest;
        while (uint32(word) > blockNumber) {
            until = uint32(word);
            word = record.earlier[until];
        }
    }

    // ---- sizes: a word holds up to four (size, block), the oldest lowest, so that every fourth change costs a new
    // slot

    /// @notice Sets a size from this block on.
    function putSize(Word storage record, uint256 size) internal {
        unchecked {
            uint256 word = record.latest;
            uint256 lane = size << 32 | block.number;
            uint256 shift; // of the lane behind the newest
            while (shift < WORD_BITS && uint32(word >> shift) != 0) shift += LANE_BITS;
            if (shift > 0 && uint32(word >> shift - LANE_BITS) == block.number) {
                shift -= LANE_BITS;
                word &= (1 << shift) - 1;
            }
            if (shift == WORD_BITS) put(record, lane);
            else record.latest = word | lane << shift;
        }
    }

    /// @notice The newest size.
    function latestSize(Word storage record) internal view returns (uint256) {
        return sizeIn(record.latest, type(uint32).max);
    }

    /// @notice The size at a block, of the word that was in force then.
    function sizeIn(uint256 word, uint256 blockNumber) internal pure returns (uint256 size) {
        unchecked {
            for (; uint32(word) != 0 && uint32(word) <= blockNumber; word >>= LANE_BITS) {
                size = uint32(word >> 32);
            }
        }
    }

    function _next(Hints memory hints, uint256 blockNumber) private pure returns (uint256 hint) {
        unchecked {
            uint256 offset = hints.bytesUsed;
            bytes memory all = hints.hints;
            if (offset + HINT_BYTES > all.length) revert WrongHint(offset, 0, blockNumber);
            assembly ("memory-safe") {
                hint := shr(224, mload(add(add(all, 32), offset)))
            }
            hints.bytesUsed = offset + HINT_BYTES;
        }
    }

    function _note(Hints memory hints, uint256 until) private pure {
        unchecked {
            bytes memory all = hints.hints;
            uint256 offset = hints.bytesUsed;
            // A search reserves a word more than its hints, since this writes a whole one.
            assembly ("memory-safe") {
                mstore(add(add(all, 32), offset), shl(224, until))
            }
            hints.bytesUsed = offset + HINT_BYTES;
        }
    }
}
