// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IDocket} from "../interfaces/IDocket.sol";

/// @title RANDAO of a past block, read from its header
/// @notice A header is an RLP list of strings: 0 parent, 1 ommers, 2 beneficiary, 3 state, 4 transactions, 5
///         receipts, 6 bloom, 7 difficulty (zero since the merge), 8 number, 9 to 11 gas and time, 12 extra data, 13
///         mixHash (the RANDAO), 14 nonce. Forks add fields behind these; they are walked over, not read. Encodings
///         that are not canonical are refused.
library BlockHeader {
    /// @notice These bytes are no header: `offset` is where the field `field` does not fit (255: the list itself).
    error InvalidHeader(uint256 field, uint256 offset);

    /// @dev EIP-2935: the hashes of the last 8,191 blocks.
    address private constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    uint256 private constant BLOCKHASH_REACH = 256;
    uint256 private constant LIST = 255;
    uint256 private constant DIFFICULTY = 7;
    uint256 private constant NUMBER = 8;
    uint256 private constant MIX_HASH = 13;
    uint256 private constant NONCE = 14;
    uint256 private constant WORD = 32;
    /// @dev Of the list's prefix and the fields before the difficulty: five hashes, an address, a bloom.
    uint256 private constant FIXED_BYTES = 3 + 5 * 33 + 21 + 259;

    /// @notice Number, RANDAO and hash of a header. Whether a block of this hash exists is for the caller to compare.
    function parse(bytes calldata header) internal pure returns (uint256 number, bytes32 randao, bytes32 hash) {
        unchecked {
            // The bloom alone has 256 bytes, and nobody's header has 64 kB: the length takes two bytes.
            if (header.length < 3 || header[0] != 0xf9) revert InvalidHeader(LIST, 0);
            if (uint16(bytes2(header[1:3])) != header.length - 3) revert InvalidHeader(LIST, 1);
            uint256 offset = 3;
            uint256 field = 0;
            for (; offset < header.length; ++field) {
                (uint256 begin, uint256 length) = _string(header, offset, field);
                if (field == DIFFICULTY && length != 0) revert InvalidHeader(field, offset);
                if (field == NUMBER) number = _integer(header, begin, length);
                if (field == MIX_HASH) {
                    if (length != WORD) revert InvalidHeader(field, offset);
                    randao = bytes32(header[begin:begin + WORD]);
                }
                offset = begin + length;
            }
            if (field <= NONCE) revert InvalidHeader(field, offset);
            hash = keccak256(header);
        }
    }

    /// @notice RANDAO of a header whose hash is known to be a block's: it is right, so that its fields need only be passed over.
    function randaoOf(bytes calldata header) internal pure returns (bytes32 randao) {
        unchecked {
            uint256 offset = FIXED_BYTES;
            if (header.length <= offset || header[offset] != 0x80) revert InvalidHeader(DIFFICULTY, offset);
            for (uint256 field = DIFFICULTY; field < MIX_HASH && offset < header.length; ++field) {
                uint256 prefix;
                assembly ("memory-safe") {
                    prefix := byte(0, calldataload(add(header.offset, offset)))
                }
                if (prefix > 0xb7) revert InvalidHeader(field, offset);
                offset += prefix < 0x80 ? 1 : prefix - 0x7f;
            }
            bool fits = offset + WORD < header.length && header[offset] == 0xa0;
            if (!fits) revert InvalidHeader(MIX_HASH, offset);
            assembly ("memory-safe") {
                randao := calldataload(add(add(header.offset, offset), 1))
            }
        }
    }

    /// @notice RANDAO of block `due`, proven by its header.
    function randaoAt(uint256 due, bytes calldata header) internal view returns (bytes32) {
        bytes32 knownHash = known(due);
        bytes32 hash = keccak256(header);
        if (hash == knownHash) return randaoOf(header);
        (uint256 number,,) = parse(header);
        revert IDocket.WrongHeader(due, number, hash, knownHash);
    }

    /// @notice Hash of a past block: of the last 256 from the machine, of the last 8,191 from EIP-2935; zero beyond.
    /// @dev OpenZeppelin's Blockhash would take what a failed call says for a hash.
    function known(uint256 blockNumber) internal view returns (bytes32 hash) {
        if (blockNumber >= block.number) return 0;
        if (block.number - blockNumber <= BLOCKHASH_REACH) return blockhash(blockNumber);
        (bool success, bytes memory answer) = HISTORY.staticcall(abi.encode(blockNumber));
        if (success && answer.length == 32) hash = bytes32(answer);
    }

    /// @dev Where the string at `offset` begins and how long it is.
    function _string(bytes calldata header, uint256 offset, uint256 field)
        private
        pure
        returns (uint256 begin, uint256 length)
    {
        unchecked {
            uint256 prefix = uint8(header[offset]);
            if (prefix < 0x80) return (offset, 1);
            if (prefix > 0xb9) revert InvalidHeader(field, offset);
            begin = offset + 1;
            if (prefix <= 0xb7) {
                length = prefix - 0x80;
                if (begin + length > header.length) revert InvalidHeader(field, offset);
                // A single byte below 0x80 stands for itself.
                if (length == 1 && uint8(header[begin]) < 0x80) revert InvalidHeader(field, offset);
                return (begin, length);
            }
            uint256 width = prefix - 0xb7;
            if (begin + width > header.length) revert InvalidHeader(field, offset);
            length = width == 1 ? uint8(header[begin]) : uint16(bytes2(header[begin:begin + 2]));
            if (length < (width == 1 ? 56 : 256)) revert InvalidHeader(field, offset);
            begin += width;
            if (begin + length > header.length) revert InvalidHeader(field, offset);
        }
    }

    /// @dev At most eight bytes, big-endian, without leading zeros.
    function _integer(bytes calldata header, uint256 begin, uint256 length) private pure returns (uint256 value) {
        unchecked {
            if (length > 8 || (length != 0 && header[begin] == 0)) revert InvalidHeader(NUMBER, begin);
            for (uint256 i = 0; i < length; ++i) {
                value = value << 8 | uint8(header[begin + i]);
            }
        }
    }
}
