// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title What clients have paid in and not yet spent
interface ITrothEscrow {
    event EscrowDeposited(address indexed client, uint96 amount, uint96 balance);
    event EscrowWithdrawn(address indexed client, uint96 amount, uint96 balance);

    /// @notice Pays the value into a client's balance.
    function deposit(address client) external payable;

    /// @notice Pays part of the caller's free balance out to it.
    function withdrawEscrow(uint96 amount) external;
}
