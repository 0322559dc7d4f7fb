// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title EIP-2935 for tests: the hashes that a test stored under a block's number, else the machine's own
contract HistoryMock {
    uint256 private constant SERVED = 8191;

    fallback(bytes calldata input) external returns (bytes memory) {
        uint256 asked = abi.decode(input, (uint256));
        require(input.length == 32 && asked < block.number && asked + SERVED >= block.number, "not in the history");
        bytes32 stored;
        assembly ("memory-safe") {
            stored := sload(asked)
        }
        return abi.encode(stored == 0 ? blockhash(asked) : stored);
    }
}
