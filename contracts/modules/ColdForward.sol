// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {ITrothReads} from "../interfaces/ITrothReads.sol";
import {
    NodeRegistration,
    Opening,
    Parameters,
    SchedulerRegistration,
    Settled,
    Task,
    VrfProof
} from "../interfaces/TrothTypes.sol";
import {ColdPath} from "../ColdPath.sol";
import {ReviewPath} from "../ReviewPath.sol";

/// @title The rarer calls, whose code is kept apart
/// @dev Each is handed over, as it came, to code that is deployed along with this contract and never changes: those of
///      ITrothDisputes to the review path; those of ITrothModels, ITrothRegistry, ITrothEscrow, ITrothOwnPosts,
///      ITrothEndings, ITrothReveals and ITrothEquivocation to the cold path.
abstract contract ColdForward is ITrothDisputes {
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

    /// @dev Whatever no function of this contract answers, unless it brings money. The cold path refuses what it does not
    ///      know itself.
    fallback() external {
        _forward(COLD_PATH);
    }

    /// @dev See ITrothRegistry. This and the next three are all that may bring money.
    function registerNode(NodeRegistration calldata, bytes calldata) external payable {
        _forward(COLD_PATH);
    }

    /// @dev See ITrothRegistry.
    function registerScheduler(SchedulerRegistration calldata, bytes calldata) external payable {
        _forward(COLD_PATH);
    }

    /// @dev See ITrothRegistry.
    function topUp(address) external payable {
        _forward(COLD_PATH);
    }

    /// @dev See ITrothEscrow.
    function deposit(address) external payable {
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
