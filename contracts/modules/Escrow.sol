// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEscrow} from "../interfaces/ITrothEscrow.sol";
import {Money} from "./Money.sol";

/// @title Clients' balances
abstract contract Escrow is ITrothEscrow, Money {
    /// @inheritdoc ITrothEscrow
    function deposit(address client) external payable {
        if (client == address(0)) revert ZeroAddress();
        uint96 amount = _value();
        if (amount == 0) revert ZeroAmount();
        uint96 balance = _escrows[client] + amount;
        _escrows[client] = balance;
        emit EscrowDeposited(client, amount, balance);
    }

    /// @inheritdoc ITrothEscrow
    function withdrawEscrow(uint96 amount) external nonReentrant {
        if (amount == 0) revert ZeroAmount();
        uint96 balance = _lock(msg.sender, amount);
        emit EscrowWithdrawn(msg.sender, amount, balance);
        _pay(msg.sender, amount);
    }

    /// @inheritdoc ITrothEscrow
    function escrowOf(address client) external view returns (uint96) {
        return _escrows[client];
    }

    /// @dev Takes an amount out of a client's free balance.
    function _lock(address client, uint96 amount) internal returns (uint96 balance) {
        balance = _escrows[client];
        if (balance < amount) revert InsufficientEscrow(client, balance, amount);
        balance -= amount;
        _escrows[client] = balance;
    }

    /// @dev Gives (part of) a fee back.
    function _release(bytes32 taskId, address client, uint256 amount) internal {
        if (amount == 0) return;
        uint96 balance = uint96(_escrows[client] + amount);
        _escrows[client] = balance;
        emit EscrowReleased(taskId, client, uint96(amount), balance);
    }
}
