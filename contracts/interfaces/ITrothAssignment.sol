// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Who was drawn, and why nobody could be
interface ITrothAssignment {
    event TaskAssigned(bytes32 indexed taskId, address[] parties, bytes32[] betas, bytes[] proofs);

    error WrongProofCount(uint256 given, uint256 expected);
    error GroupTooSmall(bytes32 group, uint256 members, uint256 needed);
}
