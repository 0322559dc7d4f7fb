// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ITrothModels} from "../interfaces/ITrothModels.sol";
import {ExecutionClass, ModelDescriptor, Rules} from "../interfaces/TrothTypes.sol";
import {TileTree} from "../libraries/TileTree.sol";

/// @title Models and execution classes under the hash of their content
abstract contract Models is ITrothModels {
    /// @dev Units paid to an inferencer, to a verifier of the proper cluster and to the scheduler (VeriLLM, App. E).
    uint256 internal constant REWARD = 6;
    /// @dev Units taken from who was wrong or silent (VeriLLM, Appendix E).
    uint256 internal constant PENALTY = 2;

    uint256 private constant BASIS_POINTS = 10_000;
    uint256 private constant MAXIMUM_CANDIDATES = 8;
    /// @dev Pairwise comparison grows with the square, and a settlement must fit into a block for any class.
    uint256 private constant MAXIMUM_VERIFIERS = 7;
    /// @dev Rejections that a stake covers.
    uint256 private constant REJECTIONS_COVERED = 2;

    mapping(bytes32 model => ModelShape) private _models;
    mapping(bytes32 executionClass => Rules) private _rules;
    mapping(bytes32 executionClass => uint96) private _minimumStakes;

    struct ModelShape {
        uint16 layers;
        uint32 hiddenSize;
    }

    /// @inheritdoc ITrothModels
    function registerModel(ModelDescriptor calldata descriptor) external returns (bytes32 model) {
        model = keccak256(abi.encode(descriptor));
        if (_models[model].layers != 0) revert AlreadyRegistered(model);
        if (
            descriptor.layers == 0 || descriptor.layers > type(uint8).max || descriptor.hiddenSize == 0
                || descriptor.vocabulary == 0 || descriptor.dtype > 1 || descriptor.weightsRoot == 0
        ) {
            revert InvalidModel(
                descriptor.layers,
                descriptor.hiddenSize,
                descriptor.vocabulary,
                descriptor.dtype,
                descriptor.weightsRoot
            );
        }
        _models[model] = ModelShape({layers: descriptor.layers, hiddenSize: descriptor.hiddenSize});
        emit ModelRegistered(model, descriptor);
    }

    /// @inheritdoc ITrothModels
    function registerClass(ExecutionClass calldata class) external returns (bytes32 executionClass) {
        executionClass = keccak256(abi.encode(class));
        if (_rules[executionClass].unit != 0) revert AlreadyRegistered(executionClass);
        ModelShape memory shape = _models[class.model];
        if (shape.layers == 0) revert UnknownModel(class.model);
        _checkComparison(class, shape.hiddenSize);
        _checkEconomy(class);
        _minimumStakes[executionClass] = class.minimumStake;
        _rules[executionClass] = Rules({
            unit: class.unit,
            hiddenSize: shape.hiddenSize,
            layers: shape.layers,
            dtype: class.dtype,
            exact: class.exact,
            mantissaBits: class.mantissaBits,
            steps: class.steps,
            theta: class.theta,
            tiles: class.tiles,
            candidates: class.candidates,
            verifiers: class.verifiers
        });
        emit ClassRegistered(executionClass, class.model, class);
    }

    /// @inheritdoc ITrothModels
    function layersOf(bytes32 model) external view returns (uint16) {
        return _models[model].layers;
    }

    /// @inheritdoc ITrothModels
    function rulesOf(bytes32 executionClass) external view returns (Rules memory) {
        return _rulesOf(executionClass);
    }

    /// @inheritdoc ITrothModels
    function minimumStakeOf(bytes32 executionClass) public view returns (uint96) {
        return _minimumStakes[executionClass];
    }

    /// @inheritdoc ITrothModels
    function feeOf(bytes32 executionClass, uint256 segments) external view returns (uint96) {
        return SafeCast.toUint96(_fee(_rulesOf(executionClass), segments));
    }

    function _rulesOf(bytes32 executionClass) internal view returns (Rules memory rules) {
        rules = _rules[executionClass];
        if (rules.unit == 0) revert UnknownClass(executionClass);
    }

    /// @dev A reward for each inferencer and verifier, and one for the scheduler.
    function _fee(Rules memory rules, uint256 segments) internal pure returns (uint256) {
        return rules.unit * REWARD * ((1 + uint256(rules.verifiers)) * segments + 1);
    }

    function _checkComparison(ExecutionClass calldata class, uint256 hiddenSize) private pure {
        if (class.dtype > 1) revert UnknownDtype(class.dtype);
        uint8 mantissa = class.dtype == 0 ? 23 : 7;
        if (class.mantissaBits == 0 || class.mantissaBits > mantissa) {
            revert InvalidMantissaBits(class.mantissaBits, mantissa);
        }
        if (class.theta == 0 || class.theta > BASIS_POINTS) revert InvalidTheta(class.theta);
        uint256 maximum = class.exact ? 0 : TileTree.tileCount(1, hiddenSize, class.dtype);
        if (class.tiles > maximum || (class.tiles == 0) != class.exact) revert InvalidTiles(class.tiles, maximum);
    }

    function _checkEconomy(ExecutionClass calldata class) private pure {
        if (
            class.candidates == 0 || class.candidates > MAXIMUM_CANDIDATES || class.verifiers % 2 == 0
                || class.verifiers > MAXIMUM_VERIFIERS
        ) revert InvalidCommittee(class.candidates, class.verifiers);
        if (class.unit == 0) revert ZeroUnit();
        uint256 required = class.unit * (PENALTY + REWARD * class.verifiers) * REJECTIONS_COVERED;
        if (class.minimumStake < required) revert MinimumStakeTooLow(class.minimumStake, required);
    }
}
