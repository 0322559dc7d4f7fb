// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Who signed a digest, read from the calldata
/// @dev As OpenZeppelin's ECDSA, without its copies: the other s of a signature is refused.
library Signatures {
    uint256 internal constant BYTES = 65;

    /// @notice The signer of a digest by the 65 bytes r ‖ s ‖ v at a position of the calldata; zero if it is nobody's.
    function signerAt(bytes32 digest, uint256 position) internal view returns (address signer) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            let s := calldataload(add(position, 0x20))
            mstore(free, digest)
            mstore(add(free, 0x20), byte(0, calldataload(add(position, 0x40))))
            mstore(add(free, 0x40), calldataload(position))
            mstore(add(free, 0x60), s)
            mstore(0, 0)
            if lt(s, 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a1) {
                // Of an invalid signature the precompile says nothing, and the zero stays.
                pop(staticcall(gas(), 1, free, 0x80, 0, 0x20))
            }
            signer := mload(0)
        }
    }

    /// @notice The same for a signature that came by itself; zero if it has another length.
    function signerOf(bytes32 digest, bytes calldata signature) internal view returns (address) {
        if (signature.length != BYTES) return address(0);
        uint256 position;
        assembly ("memory-safe") {
            position := signature.offset
        }
        return signerAt(digest, position);
    }
}
