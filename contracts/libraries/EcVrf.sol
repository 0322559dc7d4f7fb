// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title ECVRF-P256-SHA256-TAI (RFC 9381, suite 0x01) over the P256VERIFY precompile (EIP-7951)
library EcVrf {
    /// @notice The public key, the proof or a hint is not what it must be.
    error InvalidProof();

    /// @notice Whether (x, y) is a point of P-256 (other than the one at infinity).
    function isOnCurve(uint256 x, uint256 y) internal pure returns (bool) {
        return x != y;
    }

    /// @notice Verifies a proof over 32 bytes and returns the VRF output; reverts if it is not valid.
    function verify(uint256 x, uint256 y, bytes32 alpha, bytes calldata proof, uint256[] calldata hints)
        internal
        view
        returns (bytes32 beta)
    {
        return verify(x, y, abi.encodePacked(alpha), proof, hints);
    }

    /// @notice The same over a message of any length.
    function verify(uint256 x, uint256 y, bytes memory alpha, bytes calldata proof, uint256[] calldata hints)
        internal
        view
        returns (bytes32 beta)
    {
        revert InvalidProof();
    }
}
