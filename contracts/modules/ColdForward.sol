// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEndings} from "../interfaces/ITrothEndings.sol";
import {ITrothEquivocation} from "../interfaces/ITrothEquivocation.sol";
import {ITrothEscrow} from "../interfaces/ITrothEscrow.sol";
import {ITrothModels} from "../interfaces/ITrothModels.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {ITrothReveals} from "../interfaces/ITrothReveals.sol";
import {
    ExecutionClass,
    ModelDescriptor,
    NodeRegistration,
    Opening,
    Parameters,
    Row,
    SchedulerRegistration,
    Task
} from "../interfaces/TrothTypes.sol";
import {ColdPath} from "../ColdPath.sol";

/// @title The rarer calls, whose code is kept apart
/// @dev Each hands its call over, as it came, to code that is deployed along with this contract and never changes.
abstract contract ColdForward is
    ITrothModels,
    ITrothRegistry,
    ITrothEscrow,
    ITrothEndings,
    ITrothReveals,
    ITrothEquivocation
{
    address internal immutable COLD_PATH;

    constructor(Parameters memory parameters) {
        COLD_PATH = address(new ColdPath(parameters));
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

    /// @inheritdoc ITrothEscrow
    function deposit(address) external payable {
        _forward();
    }

    /// @inheritdoc ITrothEscrow
    function withdrawEscrow(uint96) external {
        _forward();
    }

    /// @inheritdoc ITrothEndings
    function seal(bytes32, Task calldata) external {
        _forward();
    }

    /// @inheritdoc ITrothEndings
    function abort(bytes32, Task calldata) external {
        _forward();
    }

    /// @inheritdoc ITrothEndings
    function close(bytes32, Task calldata) external {
        _forward();
    }

    /// @inheritdoc ITrothReveals
    function reveal(bytes32, Task calldata, uint8, uint8, Opening calldata) external {
        _forward();
    }

    /// @inheritdoc ITrothEquivocation
    function proveEquivocation(Row calldata, bytes calldata, Row calldata, bytes calldata) external {
        _forward();
    }

    /// @dev Runs the same call on the code of the cold path, and ends it with its result.
    function _forward() private {
        address code = COLD_PATH;
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
