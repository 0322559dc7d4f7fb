// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {Account, Rules, SlashReason} from "../interfaces/TrothTypes.sol";
import {State} from "./State.sol";

/// @title How credit grows, stake shrinks and wei leaves
/// @dev All sums fit 96 bits because they are parts of the contract's balance.
abstract contract Money is ITrothMoney, State, ReentrancyGuardTransient {
    /// @dev Units paid to an inferencer, to a verifier of the proper cluster and to the scheduler (VeriLLM, App. E).
    uint256 internal constant REWARD = 6;
    /// @dev Units taken from who was wrong or silent (VeriLLM, Appendix E).
    uint256 internal constant PENALTY = 2;
    /// @dev Units that a disputer puts up, and the most that it is fined (VeriLLM, Appendix E).
    uint256 internal constant BOND = 8;
    /// @dev Tiles that all parties of a task open together: so many bytes that a transaction still carries them.
    uint256 internal constant MAXIMUM_TILES = 192;
    uint256 private constant MAXIMUM_TEXT = 255;

    function _credit(bytes32 taskId, address to, uint256 amount) internal {
        if (amount == 0) return;
        uint96 credit = uint96(_accounts[to].credit + amount);
        _accounts[to].credit = credit;
        emit Credited(taskId, to, uint96(amount), credit);
    }

    /// @dev Takes what is there, up to the amount; nothing once the exit block has passed.
    /// @return taken wei that the caller must now credit to others
    function _slash(bytes32 taskId, address operator, uint256 amount, SlashReason reason, bytes32 evidence)
        internal
        returns (uint256 taken)
    {
        Account storage account = _accounts[operator];
        uint96 stake = account.stake;
        uint40 exitBlock = account.exitBlock;
        if (exitBlock == 0 || block.number <= exitBlock) taken = Math.min(amount, stake);
        stake -= uint96(taken);
        account.stake = stake;
        emit Slashed(taskId, operator, uint96(taken), stake, reason, evidence);
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

    function _rulesOf(bytes32 executionClass) internal view returns (Rules memory rules) {
        rules = _rules[executionClass];
        if (rules.unit == 0) revert UnknownClass(executionClass);
    }

    /// @dev A reward for each inferencer and verifier, and one for the scheduler.
    function _fee(Rules memory rules, uint256 segments) internal pure returns (uint256) {
        return rules.unit * REWARD * ((1 + uint256(rules.verifiers)) * segments + 1);
    }

    function _pay(address to, uint256 amount) internal {
        (bool success,) = to.call{value: amount}("");
        if (!success) revert TransferFailed(to, amount);
    }

    /// @dev Text is announced in events, which everybody decodes: a byte that is no character would stop all of them.
    function _requirePlain(string calldata text) internal pure {
        bytes calldata characters = bytes(text);
        bool plain = characters.length <= MAXIMUM_TEXT;
        for (uint256 i = 0; plain && i < characters.length; ++i) {
            plain = characters[i] >= 0x20 && characters[i] < 0x7f;
        }
        if (!plain) revert TextNotPlain(characters.length);
    }

    /// @dev The value of a call as 96 bits. Only the cold path takes any; called itself it would keep it for ever.
    function _value() internal view returns (uint96) {
        if (address(this) == CODE) revert NotDelegated();
        if (msg.value > type(uint96).max) revert AmountTooLarge(msg.value);
        return uint96(msg.value);
    }
}
