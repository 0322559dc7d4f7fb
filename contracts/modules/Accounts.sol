// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {Account, Role, SlashReason} from "../interfaces/TrothTypes.sol";
import {Deployment} from "./Deployment.sol";

/// @title Stake and credit, and the only places where they change
/// @dev All sums fit 96 bits because they are parts of the contract's balance.
abstract contract Accounts is Deployment, ReentrancyGuardTransient {
    mapping(address operator => Account) internal _accounts;
    mapping(address operator => address) internal _owners;
    mapping(address operator => address) internal _payouts;

    /// @inheritdoc ITrothRegistry
    function accountOf(address operator) external view returns (Account memory) {
        return _accounts[operator];
    }

    /// @inheritdoc ITrothRegistry
    function ownerOf(address operator) external view returns (address) {
        return _owners[operator];
    }

    /// @inheritdoc ITrothRegistry
    function payoutOf(address operator) external view returns (address) {
        return _payouts[operator];
    }

    /// @inheritdoc ITrothRegistry
    function claim(address account) external nonReentrant {
        uint96 amount = _accounts[account].credit;
        if (amount == 0) revert NothingToClaim(account);
        _accounts[account].credit = 0;
        address payout = _payouts[account];
        if (payout == address(0)) payout = account;
        emit Claimed(account, payout, amount);
        _pay(payout, amount);
    }

    /// @inheritdoc ITrothRegistry
    function withdraw(address operator) external nonReentrant {
        Account memory account = _accounts[operator];
        if (account.role == Role.None) revert UnknownOperator(operator);
        if (account.exitBlock == 0) revert NotExiting(operator);
        if (block.number <= account.exitBlock) revert StillUnbonding(account.exitBlock, block.number);
        delete _accounts[operator];
        address payout = _payouts[operator];
        emit Withdrawn(operator, payout, account.stake, account.credit);
        _pay(payout, uint256(account.stake) + account.credit);
    }

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

    function _pay(address to, uint256 amount) internal {
        (bool success,) = to.call{value: amount}("");
        if (!success) revert TransferFailed(to, amount);
    }

    /// @dev The value of a call as 96 bits.
    function _value() internal view returns (uint96) {
        if (msg.value > type(uint96).max) revert AmountTooLarge(msg.value);
        return uint96(msg.value);
    }
}
