// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {ITrothEndings} from "../interfaces/ITrothEndings.sol";
import {ITrothEquivocation} from "../interfaces/ITrothEquivocation.sol";
import {ITrothEscrow} from "../interfaces/ITrothEscrow.sol";
import {ITrothModels} from "../interfaces/ITrothModels.sol";
import {ITrothOwnPosts} from "../interfaces/ITrothOwnPosts.sol";
import {ITrothReads} from "../interfaces/ITrothReads.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {ITrothReveals} from "../interfaces/ITrothReveals.sol";
import {
    ExecutionClass,
    ModelDescriptor,
    NodeRegistration,
    Opening,
    Parameters,
    Progress,
    Row,
    SchedulerRegistration,
    Settled,
    Task,
    VrfProof
} from "../interfaces/TrothTypes.sol";
import {ColdPath} from "../ColdPath.sol";
import {ReviewPath} from "../ReviewPath.sol";

/// @title The rarer calls, whose code is kept apart
/// @dev Each hands its call over, as it came, to code that is deployed along with this contract and never changes.
abstract contract ColdForward is
    ITrothModels,
    ITrothRegistry,
    ITrothEscrow,
    ITrothOwnPosts,
    ITrothEndings,
    ITrothReveals,
    ITrothEquivocation,
    ITrothDisputes
{
    address internal immutable COLD_PATH;
    address internal immutable REVIEW_PATH;

    /// @param disputes code that cannot be deployed here too, since EIP-3860 limits what one creation carries
    constructor(Parameters memory parameters, address disputes) {
        COLD_PATH = address(new ColdPath(parameters));
        bool deployed = disputes.code.length != 0;
        if (!deployed || ReviewPath(disputes).parametersHash() != keccak256(abi.encode(parameters))) {
            revert ITrothReads.WrongReviewPath(disputes);
        }
        REVIEW_PATH = disputes;
    }

    /// @inheritdoc ITrothModels
    function registerModel(ModelDescriptor calldata) external returns (bytes32) {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothModels
    function registerClass(ExecutionClass calldata) external returns (bytes32) {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function registerNode(NodeRegistration calldata, bytes calldata) external payable {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function registerScheduler(SchedulerRegistration calldata, bytes calldata) external payable {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function enroll(address, uint8, uint8) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function setEndpoint(address, string calldata, bytes32) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function setPayout(address, address) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function topUp(address) external payable {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function deregister(address) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function withdraw(address) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function claim(address) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothRegistry
    function evict(address) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothEscrow
    function deposit(address) external payable {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothEscrow
    function withdrawEscrow(uint96) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothOwnPosts
    function commitInference(bytes32, bytes32, Progress calldata, uint8, uint8, uint32, bytes32, bytes32) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothOwnPosts
    function commitVerification(bytes32, bytes32, Progress calldata, uint8, bytes32) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothEndings
    function seal(bytes32, Task calldata) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothEndings
    function abort(bytes32, Task calldata) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothEndings
    function close(bytes32, Task calldata) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothReveals
    function reveal(bytes32, Task calldata, uint8, uint8, Opening calldata) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothEquivocation
    function proveEquivocation(Row calldata, bytes calldata, Row calldata, bytes calldata) external {
        _forward(COLD_PATH);
    }

    /// @inheritdoc ITrothDisputes
    function dispute(bytes32, Task calldata, Settled calldata, uint8) external returns (bytes32) {
        _forward(REVIEW_PATH);
    }

    /// @inheritdoc ITrothDisputes
    function assignReview(bytes32, Task calldata, VrfProof calldata) external {
        _forward(REVIEW_PATH);
    }

    /// @inheritdoc ITrothDisputes
    function commitReview(bytes32, Task calldata, VrfProof[] calldata, bytes32[] calldata, bytes calldata) external {
        _forward(REVIEW_PATH);
    }

    /// @inheritdoc ITrothDisputes
    function settleReview(
        bytes32,
        Task calldata,
        Settled calldata,
        uint8,
        Task calldata,
        VrfProof calldata,
        Opening[] calldata
    ) external {
        _forward(REVIEW_PATH);
    }

    /// @inheritdoc ITrothDisputes
    function closeReview(bytes32, Task calldata) external {
        _forward(REVIEW_PATH);
    }

    /// @dev Runs the same call on the code of another part, and ends it with its result.
    function _forward(address code) private {
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
