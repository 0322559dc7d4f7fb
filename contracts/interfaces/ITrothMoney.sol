// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SlashReason} from "./TrothTypes.sol";

/// @title Movements of stake and credit
interface ITrothMoney {
    event Credited(bytes32 indexed taskId, address indexed account, uint96 amount, uint96 credit);
    event EscrowReleased(bytes32 indexed taskId, address indexed client, uint96 amount, uint96 balance);
    event Slashed(
        bytes32 indexed taskId,
        address indexed operator,
        uint96 amount,
        uint96 stake,
        SlashReason reason,
        bytes32 evidence
    );

    /// @notice An address that must not be zero is.
    error ZeroAddress();
    error ZeroAmount();
    /// @notice More wei than an account can hold.
    error AmountTooLarge(uint256 amount);
    /// @notice The code of the rarer calls works on the main contract's storage only.
    error NotDelegated();
    /// @notice Names, architectures and endpoints are printable ASCII, up to 255 characters.
    error TextNotPlain(uint256 length);
    error TransferFailed(address to, uint256 amount);
    error InsufficientEscrow(address client, uint96 balance, uint256 needed);
    error UnknownClass(bytes32 executionClass);
}
