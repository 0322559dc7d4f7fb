// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice One call that a payer makes.
struct PayerCall {
    address target;
    uint96 value;
    bytes data;
}

/// @title An account that one tab key commands: the payer of a tab that tickets filled
/// @notice What a tab gives back, and what a court awards its payer, comes here, apart from everybody else's money.
///         The tab key has it closed and withdrawn, and buys new, smaller tickets with it: change. It needs no coins of
///         its own, whose origin would show: whoever carries a command is paid the fee that it names.
interface ITicketPayer {
    event Commanded(uint64 indexed nonce, address carrier, uint96 fee, uint256 calls);

    error NotTickets(address caller);
    error NotTabKey(address signer, address tabKey);
    error CommandTooLate(uint64 lastBlock, uint256 blockNumber);

    /// @notice Tickets: opens the tab with this payee, or adds to it.
    function fill(address payee, uint96 amount, bytes calldata consent) external;

    /// @notice Anyone: makes the calls that the tab key signed, then pays the caller the fee. All of it or nothing.
    ///         Signed: `PayerCommand(bytes32 calls,uint96 fee,uint64 nonce,uint64 lastBlock)`, where `calls` is
    ///         keccak256 of their ABI encoding.
    function command(PayerCall[] calldata calls, uint96 fee, uint64 lastBlock, bytes calldata signature) external;

    /// @notice What the next command is signed over.
    function nonce() external view returns (uint64);

    function tabKey() external view returns (address);
}
