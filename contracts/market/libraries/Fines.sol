// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../interfaces/IBank.sol";
import {Movement, PotKind} from "../interfaces/MarketTypes.sol";

/// @title What a convicted party pays, to whom, in order; what is left is burnt
/// @notice Rewards are a share of what was really taken, never of what should have been: who convicts itself with a
///         stake that no longer covers the penalty gets a tenth of it, and not all.
library Fines {
    /// @notice The reporter's share is one in this many.
    uint256 internal constant REWARD_SHARE = 10;

    /// @notice Who is paid from a stake, in this order.
    struct Payee {
        address account;
        uint256 amount;
    }

    /// @notice What can be taken of a stake, what is locked for cases included: locks keep stake from leaving, and a
    ///         convict's friends must not save it by sham cases.
    /// @return free what is not locked
    function available(IBank bank, address operator, uint256 penalty)
        internal
        view
        returns (uint256 free, uint256 taken)
    {
        (uint96 stake, uint96 locked) = bank.stakeOf(operator);
        free = stake;
        taken = free + locked;
        if (taken > penalty) taken = penalty;
    }

    /// @notice Takes `taken` from a stake: to the payees in order, as far as it reaches, and the rest is burnt. What is
    ///         locked is taken last.
    /// @param free what is not locked, as `available` said
    function take(
        IBank bank,
        bytes32 subject,
        address operator,
        uint256 free,
        uint256 taken,
        Payee[] memory payees
    ) internal {
        if (taken == 0) return;
        uint256 unlocked = taken > free ? 1 : 0;
        Movement[] memory movements = new Movement[](payees.length + 1 + unlocked);
        if (unlocked != 0) {
            bytes32 id = toId(operator);
            movements[0] = Movement(PotKind.Locked, id, PotKind.Stake, id, uint96(taken - free));
        }
        uint256 rest = taken;
        for (uint256 i = 0; i < payees.length; ++i) {
            uint256 amount = payees[i].amount < rest ? payees[i].amount : rest;
            movements[i + unlocked] = _movement(operator, PotKind.Credit, toId(payees[i].account), amount);
            rest -= amount;
        }
        movements[payees.length + unlocked] = _movement(operator, PotKind.Burnt, 0, rest);
        bank.move(subject, movements);
    }

    /// @notice What so much gas is paid back with: the ceiling for a token, at most the base fee for the coin.
    /// @param ceiling asset units per 10^9 gas
    function gasCost(uint256 spent, bool coin, uint256 ceiling, uint256 baseFee) internal pure returns (uint256) {
        // Compared without a product, which a caller's number could overflow.
        uint256 price = coin && baseFee < ceiling / 1e9 ? baseFee * 1e9 : ceiling;
        return spent * price / 1e9;
    }

    /// @notice An account's pot id.
    function toId(address account) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    function _movement(address operator, PotKind kind, bytes32 id, uint256 amount)
        private
        pure
        returns (Movement memory)
    {
        // At most what the stake held, which has 96 bits.
        return Movement({
            fromKind: PotKind.Stake,
            fromId: toId(operator),
            toKind: kind,
            toId: id,
            amount: uint96(amount)
        });
    }
}
