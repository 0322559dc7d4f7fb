// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title A lazy Fisher–Yates shuffle of the slots 0..size-1
/// @notice The order is fixed by `beta` alone: step i swaps item i with item
/// i + keccak256(abi.encode(beta, i)) mod (size - i). Only as many steps are taken as the caller asks for, and memory
/// is four bytes per slot, so a large group with many vacant slots stays affordable.
/// @dev The same rule is `troth.protocol.permutation`.
library Permutation {
    /// @notice Every slot has been drawn already.
    /// @param size number of slots of the shuffle
    error PermutationExhausted(uint256 size);
    /// @notice The shuffle holds slots in 32 bits.
    /// @param size number of slots that was asked for
    error PermutationTooLarge(uint256 size);

    /// @notice A shuffle in progress.
    /// @param beta seed, the VRF output
    /// @param size number of slots
    /// @param step number of slots drawn so far
    /// @param displaced per slot, what a swap put there, plus one (zero: still itself); four bytes each
    struct Walk {
        bytes32 beta;
        uint256 size;
        uint256 step;
        bytes displaced;
    }

    /// @notice Starts a shuffle of `size` slots.
    function start(bytes32 beta, uint256 size) internal pure returns (Walk memory walk) {
        if (size >= type(uint32).max) revert PermutationTooLarge(size);
        walk = Walk({beta: beta, size: size, step: 0, displaced: new bytes(4 * size)});
    }

    /// @notice Whether a slot is left to draw.
    function hasNext(Walk memory walk) internal pure returns (bool) {
        return walk.step < walk.size;
    }

    /// @notice Draws the next slot.
    function next(Walk memory walk) internal pure returns (uint256 slot) {
        uint256 step = walk.step;
        uint256 size = walk.size;
        if (step >= size) revert PermutationExhausted(size);
        uint256 other = step + uint256(keccak256(abi.encode(walk.beta, step))) % (size - step);
        slot = _read(walk.displaced, other);
        _write(walk.displaced, other, _read(walk.displaced, step));
        walk.step = step + 1;
    }

    /// @dev Item at `index`. Reads the word that ends with the entry; it may begin inside the length word, never
    /// before.
    function _read(bytes memory displaced, uint256 index) private pure returns (uint256 item) {
        assembly ("memory-safe") {
            item := and(mload(add(displaced, add(4, mul(4, index)))), 0xffffffff)
            item := add(sub(item, iszero(iszero(item))), mul(iszero(item), index))
        }
    }

    /// @dev Sets the item at `index`, leaving the 28 bytes before it as they are.
    function _write(bytes memory displaced, uint256 index, uint256 item) private pure {
        assembly ("memory-safe") {
            let place := add(displaced, add(4, mul(4, index)))
            mstore(place, or(and(mload(place), not(0xffffffff)), add(item, 1)))
        }
    }
}
