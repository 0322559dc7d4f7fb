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
}
