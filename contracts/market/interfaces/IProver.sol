// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Convicts by proof, against any majority: a seam for fraud proofs and for pooled evidence
interface IProver {
    /// @notice The evidence is longer than its proof: Evidence pays for each byte, and bytes that nobody needs cost a
    ///         contract that makes them up next to nothing.
    error SurplusEvidence(uint256 length, uint256 needed);

    /// @notice Checks a proof, or reverts. May keep state (a dispute of several rounds ends with this call).
    /// @param evidence whatever the prover takes
    /// @return party who is convicted
    /// @return offenceBlock reference block of the order in which it cheated
    /// @return subject what is proven, once: the struct hash of the convicting signature
    function proven(bytes calldata evidence)
        external
        returns (address party, uint64 offenceBlock, bytes32 subject);
}
