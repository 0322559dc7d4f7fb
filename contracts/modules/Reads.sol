// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ITrothReads} from "../interfaces/ITrothReads.sol";
import {Account, Parameters, Rules} from "../interfaces/TrothTypes.sol";
import {Groups} from "./Groups.sol";
import {Money} from "./Money.sol";

/// @title The contract's getters
abstract contract Reads is ITrothReads, Groups, Money {
    /// @inheritdoc ITrothReads
    function parametersOf() external view returns (Parameters memory) {
        return Parameters({
            commitWindow: uint32(COMMIT_WINDOW),
            sampleWindow: uint32(SAMPLE_WINDOW),
            revealWindow: uint32(REVEAL_WINDOW),
            disputeWindow: uint32(DISPUTE_WINDOW),
            unbondingPeriod: uint32(UNBONDING_PERIOD),
            minimumSchedulerStake: MINIMUM_SCHEDULER_STAKE,
            reserve: RESERVE
        });
    }

    /// @inheritdoc ITrothReads
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    /// @inheritdoc ITrothReads
    function layersOf(bytes32 model) external view returns (uint16) {
        return _models[model].layers;
    }

    /// @inheritdoc ITrothReads
    function rulesOf(bytes32 executionClass) external view returns (Rules memory) {
        return _rulesOf(executionClass);
    }

    /// @inheritdoc ITrothReads
    function minimumStakeOf(bytes32 executionClass) external view returns (uint96) {
        return _minimumStakes[executionClass];
    }

    /// @inheritdoc ITrothReads
    function feeOf(bytes32 executionClass, uint256 segments) external view returns (uint96) {
        return SafeCast.toUint96(_fee(_rulesOf(executionClass), segments));
    }

    /// @inheritdoc ITrothReads
    function accountOf(address operator) external view returns (Account memory) {
        return _accounts[operator];
    }

    /// @inheritdoc ITrothReads
    function ownerOf(address operator) external view returns (address) {
        return _owners[operator];
    }

    /// @inheritdoc ITrothReads
    function payoutOf(address operator) external view returns (address) {
        return _payouts[operator];
    }

    /// @inheritdoc ITrothReads
    function sliceOf(address operator)
        external
        view
        returns (bytes32 executionClass, uint8 first, uint8 end, uint40 keptUntil)
    {
        Slice storage slice = _slices[operator];
        return (slice.executionClass, slice.first, slice.end, slice.keptUntil);
    }

    /// @inheritdoc ITrothReads
    function vrfKeyOf(address scheduler) external view returns (uint256 x, uint256 y) {
        VrfKey memory key = _vrfKeys[scheduler];
        return (key.x, key.y);
    }

    /// @inheritdoc ITrothReads
    function groupId(bytes32 executionClass, uint8 first, uint8 end) external pure returns (bytes32) {
        return _groupId(executionClass, first, end);
    }

    /// @inheritdoc ITrothReads
    function memberAt(bytes32 group, uint256 slot, uint256 blockNumber) external view returns (address) {
        return _memberAt(group, slot, blockNumber);
    }

    /// @inheritdoc ITrothReads
    function groupSizeAt(bytes32 group, uint256 blockNumber) external view returns (uint256) {
        return _groupSizeAt(group, blockNumber);
    }

    /// @inheritdoc ITrothReads
    function escrowOf(address client) external view returns (uint96) {
        return _escrows[client];
    }
}
