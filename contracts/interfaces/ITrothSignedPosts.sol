// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title What is wrong with posts that are handed in for their makers
interface ITrothSignedPosts {
    error WrongPostCount(uint256 given, uint256 expected);
    error WrongSignatureCount(uint256 givenBytes, uint256 expectedBytes);
    /// @notice A post was signed by somebody else than the party in question.
    error WrongSigner(uint256 segment, address expected, address recovered);
}
