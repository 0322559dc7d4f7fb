// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Proofs of Groth (2016) over the curve alt_bn128, by the precompiles of EIP-196 and EIP-197
/// @notice e(A, B) = e(alpha, beta) e(sum of inputs, gamma) e(C, delta). Whoever has a proof can make other ones of the same
///         statement from it: what must not be used twice needs a name of its own.
library Groth16 {
    /// @notice Of the curve: what inputs are below.
    uint256 internal constant ORDER = 0x30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001;
    /// @dev Of the field in which points lie.
    uint256 private constant PRIME = 0x30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47;
    uint256 internal constant INPUTS = 4;
    /// @dev alpha (2 words), beta, gamma and delta (4 each, imaginary parts first), and a point for 1 and for each input.
    uint256 internal constant KEY_WORDS = 14 + 2 * (INPUTS + 1);

    /// @notice An input that is no element of the field: it would be another name of a smaller one.
    error InputTooLarge(uint256 index, uint256 value);

    /// @notice Whether a proof holds for these inputs under this key. Points outside of the curve make none that does.
    /// @param key KEY_WORDS words
    /// @param proof A (2 words), B (4, imaginary parts first), C (2)
    function holds(bytes memory key, uint256[8] calldata proof, uint256[INPUTS] memory inputs)
        internal
        view
        returns (bool valid)
    {
        for (uint256 i = 0; i < INPUTS; ++i) {
            if (inputs[i] >= ORDER) revert InputTooLarge(i, inputs[i]);
        }
        if (proof[1] >= PRIME) return false;
        assembly ("memory-safe") {
            let words := add(key, 0x20)
            // Twelve pairs of words, the scratch of sums behind them.
            let free := mload(0x40)
            let sum := add(free, 0x300)
            let points := add(words, 0x1c0)
            mcopy(sum, points, 0x40)
            valid := 1
            for { let i := 0 } lt(i, 4) { i := add(i, 1) } {
                mcopy(add(sum, 0x40), add(points, mul(add(i, 1), 0x40)), 0x40)
                mstore(add(sum, 0x80), mload(add(inputs, shl(5, i))))
                valid := and(valid, staticcall(gas(), 7, add(sum, 0x40), 0x60, add(sum, 0x40), 0x40))
                valid := and(valid, staticcall(gas(), 6, sum, 0x80, sum, 0x40))
            }
            // -A, B
            mstore(free, calldataload(proof))
            mstore(add(free, 0x20), mod(sub(PRIME, calldataload(add(proof, 0x20))), PRIME))
            calldatacopy(add(free, 0x40), add(proof, 0x40), 0x80)
            // alpha, beta
            mcopy(add(free, 0xc0), words, 0xc0)
            // sum, gamma
            mcopy(add(free, 0x180), sum, 0x40)
            mcopy(add(free, 0x1c0), add(words, 0xc0), 0x80)
            // C, delta
            calldatacopy(add(free, 0x240), add(proof, 0xc0), 0x40)
            mcopy(add(free, 0x280), add(words, 0x140), 0x80)
            valid := and(valid, staticcall(gas(), 8, free, 0x300, free, 0x20))
            valid := and(valid, eq(mload(free), 1))
        }
    }
}
