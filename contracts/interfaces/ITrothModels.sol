// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExecutionClass, ModelDescriptor} from "./TrothTypes.sol";

/// @title Content-addressed models and execution classes; anyone may register one, nobody can change it
interface ITrothModels {
    event ModelRegistered(bytes32 indexed model, ModelDescriptor descriptor);
    event ClassRegistered(bytes32 indexed executionClass, bytes32 indexed model, ExecutionClass class);

    /// @notice The model or class with this id is registered.
    error AlreadyRegistered(bytes32 id);
    error UnknownModel(bytes32 model);
    /// @notice A descriptor needs 1 to 255 layers, a hidden size, a vocabulary, a known dtype and a weights root.
    error InvalidModel(uint16 layers, uint32 hiddenSize, uint32 vocabulary, uint8 dtype, bytes32 weightsRoot);
    error UnknownDtype(uint8 dtype);
    /// @notice Mantissa bits must be between 1 and those of the dtype.
    error InvalidMantissaBits(uint8 mantissaBits, uint8 maximum);
    /// @notice The share must be between 1 and 10,000 basis points.
    error InvalidTheta(uint16 theta);
    /// @notice A tolerant class opens at least one tile and no more than a trace of one row has, or than fill
    ///         a settlement with those of all its parties; an exact one opens none.
    error InvalidTiles(uint8 tiles, uint256 maximum);
    /// @notice A class has 1 to 8 candidates, an odd number of verifiers, 1 to 7, and a larger odd number of reviewers, up
    ///         to 31 and fewer than the reveal window has blocks.
    error InvalidCommittee(uint8 candidates, uint8 verifiers, uint8 reviewers);
    error ZeroUnit();
    /// @notice The stake must cover two rejections and a lost dispute:
    ///         unit * (2 * (2 + 6 * verifiers) + 8 + 6 * reviewers).
    error MinimumStakeTooLow(uint96 minimumStake, uint256 required);

    /// @notice Registers a model under the hash of its descriptor.
    /// @return model keccak256(abi.encode(descriptor))
    function registerModel(ModelDescriptor calldata descriptor) external returns (bytes32 model);

    /// @notice Registers an execution class of a registered model under its hash.
    /// @return executionClass keccak256(abi.encode(class))
    function registerClass(ExecutionClass calldata class) external returns (bytes32 executionClass);
}
