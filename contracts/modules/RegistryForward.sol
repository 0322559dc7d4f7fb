// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEquivocation} from "../interfaces/ITrothEquivocation.sol";
import {ITrothModels} from "../interfaces/ITrothModels.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {
    ExecutionClass,
    ModelDescriptor,
    NodeRegistration,
    Parameters,
    Row,
    SchedulerRegistration
} from "../interfaces/TrothTypes.sol";
import {RegistryCode} from "../RegistryCode.sol";

/// @title The functions whose code did not fit
/// @dev Each hands its call over, as it came, to code that is deployed along with this contract and never changes.
abstract contract RegistryForward is ITrothModels, ITrothRegistry, ITrothEquivocation {
    address internal immutable REGISTRY_CODE;

    constructor(Parameters memory parameters) {
        REGISTRY_CODE = address(new RegistryCode(parameters));
    }

    /// @inheritdoc ITrothModels
    function registerModel(ModelDescriptor calldata) external returns (bytes32) {
        _forward();
    }

    /// @inheritdoc ITrothModels
    function registerClass(ExecutionClass calldata) external returns (bytes32) {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function registerNode(NodeRegistration calldata, bytes calldata) external payable {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function registerScheduler(SchedulerRegistration calldata, bytes calldata) external payable {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function enroll(address, uint8, uint8) external {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function setEndpoint(address, string calldata, bytes32) external {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function setPayout(address, address) external {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function topUp(address) external payable {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function deregister(address) external {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function withdraw(address) external {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function claim(address) external {
        _forward();
    }

    /// @inheritdoc ITrothRegistry
    function evict(address) external {
        _forward();
    }

    /// @inheritdoc ITrothEquivocation
    function proveEquivocation(Row calldata, bytes calldata, Row calldata, bytes calldata) external {
        _forward();
    }

    /// @dev Runs the same call on the registry's code, and ends it with its result.
    function _forward() private {
        address code = REGISTRY_CODE;
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, 0, calldatasize())
            let success := delegatecall(gas(), code, free, calldatasize(), 0, 0)
            returndatacopy(free, 0, returndatasize())
            if iszero(success) { revert(free, returndatasize()) }
            return(free, returndatasize())
        }
    }
}
