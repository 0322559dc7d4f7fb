// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {ITrothModels} from "../interfaces/ITrothModels.sol";
import {ExecutionClass, ModelDescriptor, Rules} from "../interfaces/TrothTypes.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {Money} from "./Money.sol";

/// @title Models and execution classes under the hash of their content
abstract contract Models is ITrothModels, Money {
    uint256 private constant BASIS_POINTS = 10_000;
    uint256 private constant MAXIMUM_CANDIDATES = 8;
    /// @dev Pairwise comparison grows with the square, and a settlement must fit into a block for any class.
    uint256 private constant MAXIMUM_VERIFIERS = 7;
    /// @dev The same for a re-verification, whose committee is larger.
    uint256 private constant MAXIMUM_REVIEWERS = 31;
    /// @dev Rejections that a stake covers, besides one lost dispute.
    uint256 private constant REJECTIONS_COVERED = 2;

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
        _requirePlain(descriptor.architecture);
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
        _requirePlain(class.name);
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
            verifiers: class.verifiers,
            reviewers: class.reviewers
        });
        emit ClassRegistered(executionClass, class.model, class);
    }

    function _checkComparison(ExecutionClass calldata class, uint256 hiddenSize) private pure {
        if (class.dtype > 1) revert UnknownDtype(class.dtype);
        uint8 mantissa = class.dtype == 0 ? 23 : 7;
        if (class.mantissaBits == 0 || class.mantissaBits > mantissa) {
            revert InvalidMantissaBits(class.mantissaBits, mantissa);
        }
        if (class.theta == 0 || class.theta > BASIS_POINTS) revert InvalidTheta(class.theta);
        uint256 maximum = class.exact ? 0 : TileTree.tileCount(1, hiddenSize, class.dtype);
        maximum = Math.min(maximum, MAXIMUM_TILES / (1 + Math.max(class.verifiers, class.reviewers)));
        if (class.tiles > maximum || (class.tiles == 0) != class.exact) revert InvalidTiles(class.tiles, maximum);
    }

    function _checkEconomy(ExecutionClass calldata class) private view {
        if (
            class.candidates == 0 || class.candidates > MAXIMUM_CANDIDATES || class.verifiers % 2 == 0
                || class.verifiers > MAXIMUM_VERIFIERS || class.reviewers % 2 == 0
                || class.reviewers <= class.verifiers || class.reviewers > MAXIMUM_REVIEWERS
                || class.reviewers >= REVEAL_WINDOW
        ) revert InvalidCommittee(class.candidates, class.verifiers, class.reviewers);
        if (class.unit == 0) revert ZeroUnit();
        uint256 units = (PENALTY + REWARD * class.verifiers) * REJECTIONS_COVERED + BOND + REWARD * class.reviewers;
        uint256 required = class.unit * units;
        if (class.minimumStake < required) revert MinimumStakeTooLow(class.minimumStake, required);
    }
}
