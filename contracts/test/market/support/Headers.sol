// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Block headers as Ethereum has them since Prague, in RLP
library Headers {
    /// @notice A header of a block with this RANDAO.
    function build(uint256 number, bytes32 randao) internal pure returns (bytes memory) {
        return list(bytes.concat(upToNonce(hex"80", number, randao), later()));
    }

    /// @notice Fields 0 to 14.
    function upToNonce(bytes memory difficulty, uint256 number, bytes32 randao) internal pure returns (bytes memory) {
        return bytes.concat(
            abi.encodePacked(
                word("parent"), word("ommers"), hex"94", bytes20(keccak256("beneficiary")), word("state"), word("body")
            ),
            abi.encodePacked(word("receipts"), hex"b90100", new bytes(256), difficulty, integer(number)),
            abi.encodePacked(integer(60_000_000), integer(29_123_456), integer(1_760_000_000), hex"857468657265"),
            abi.encodePacked(hex"a0", randao, hex"88", bytes8(0))
        );
    }

    /// @notice Base fee, withdrawals, two blob fields, parent beacon block, requests.
    function later() internal pure returns (bytes memory) {
        return abi.encodePacked(integer(7), word("withdrawals"), hex"8080", word("beacon"), word("requests"));
    }

    function word(string memory name) internal pure returns (bytes memory) {
        return abi.encodePacked(hex"a0", keccak256(bytes(name)));
    }

    /// @notice Big-endian without leading zeros.
    function integer(uint256 value) internal pure returns (bytes memory encoded) {
        if (value != 0 && value < 0x80) return abi.encodePacked(uint8(value));
        for (; value != 0; value >>= 8) {
            encoded = abi.encodePacked(uint8(value), encoded);
        }
        return abi.encodePacked(uint8(0x80 + encoded.length), encoded);
    }

    function list(bytes memory fields) internal pure returns (bytes memory) {
        return abi.encodePacked(hex"f9", uint16(fields.length), fields);
    }
}
