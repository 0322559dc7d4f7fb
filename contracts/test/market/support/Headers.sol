// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Block headers with a RANDAO of the test's choice, in RLP
library Headers {
    /// @notice A header of Ethereum's present form (21 fields) with this number and mixHash.
    function encode(uint256 number, bytes32 mixHash) internal pure returns (bytes memory) {
        bytes memory front = bytes.concat(
            word(keccak256(abi.encode("parent", number))),
            word(keccak256("no ommers")),
            hex"94",
            bytes20(keccak256("beneficiary")),
            word(keccak256("state")),
            word(keccak256("transactions")),
            word(keccak256("receipts")),
            hex"b90100",
            new bytes(256)
        );
        bytes memory middle = bytes.concat(
            integer(0), integer(number), integer(60_000_000), integer(21_000), integer(1_700_000_000 + 12 * number)
        );
        bytes memory back = bytes.concat(
            hex"80", // no extra data
            word(mixHash),
            hex"880000000000000000", // nonce
            integer(1e9), // base fee
            word(keccak256("withdrawals")),
            integer(0),
            integer(0),
            word(keccak256("beacon root")),
            word(keccak256("requests"))
        );
        bytes memory fields = bytes.concat(front, middle, back);
        return bytes.concat(hex"f9", bytes2(uint16(fields.length)), fields);
    }

    function word(bytes32 value) internal pure returns (bytes memory) {
        return bytes.concat(hex"a0", value);
    }

    /// @notice An integer without leading zeros; zero is the empty string.
    function integer(uint256 value) internal pure returns (bytes memory encoded) {
        if (value == 0) return hex"80";
        if (value < 0x80) return abi.encodePacked(uint8(value));
        for (; value > 0; value >>= 8) {
            encoded = bytes.concat(bytes1(uint8(value)), encoded);
        }
        return bytes.concat(bytes1(uint8(0x80 + encoded.length)), encoded);
    }
}
