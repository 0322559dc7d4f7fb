// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {TileTree} from "../libraries/TileTree.sol";
import {IClasses} from "./interfaces/IClasses.sol";
import {IDeployment} from "./interfaces/IDeployment.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {ExecutionClass, ModelDescriptor, Parameters, Rules} from "./interfaces/MarketTypes.sol";
import {Economy} from "./libraries/Economy.sol";
import {PlainText} from "./libraries/PlainText.sol";

/// @title Models and execution classes: what is sound to run, compare, price and judge by
/// @dev It keeps the shapes of models; the rules of a class go to the Registry, where everybody reads them.
contract Classes is IClasses {
    struct ModelShape {
        uint16 layers;
        uint32 hiddenSize;
    }

    uint256 private constant BASIS_POINTS = 10_000;
    uint256 private constant MILLION = 1e6;
    uint256 private constant MAXIMUM_CANDIDATES = 8;
    /// @dev Pairwise comparison grows with the square, and a decision must fit into a block for any class.
    uint256 private constant MAXIMUM_VERIFIERS = 7;
    uint256 private constant MAXIMUM_REVIEWERS = 31;
    /// @dev Nodes relay calls up to 128 kB. A case's state takes some bytes, a party 416 in it and in what it shows, and
    ///      for each tile its bytes and 22 siblings.
    uint256 private constant MAXIMUM_CALL = 120_000;
    uint256 private constant CASE_BYTES = 2_000;
    uint256 private constant PARTY_BYTES = 416;
    uint256 private constant TILE_CALL_BYTES = 512 + 32 * 22;
    /// @dev A try of a draw is accepted with one over the cap where everybody has one seat: with this cap the tries
    ///      that a draw has (Registry) suffice for any group, so that nobody stops a court by joining with many small
    ///      nodes.
    uint256 private constant MAXIMUM_SEAT_CAP = 32;

    /// @dev Fees of the cap that a penalty is at least worth.
    uint256 private constant COVERED_FEES = 2;

    IRegistry private immutable REGISTRY;
    uint256 private immutable GAS_PRICE;
    uint256 private immutable SCHEDULER_STAKE;

    mapping(bytes32 model => ModelShape) private _models;

    constructor() {
        REGISTRY = IRegistry(IDeployment(msg.sender).contracts().registry);
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        GAS_PRICE = parameters.gasPrice;
        SCHEDULER_STAKE = parameters.schedulerStake;
    }

    /// @inheritdoc IClasses
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
        PlainText.requirePlain(descriptor.architecture);
        _models[model] = ModelShape({layers: descriptor.layers, hiddenSize: descriptor.hiddenSize});
        emit ModelRegistered(model, descriptor);
    }

    /// @inheritdoc IClasses
    function registerClass(ExecutionClass calldata class) external returns (bytes32 executionClass) {
        executionClass = keccak256(abi.encode(class));
        ModelShape memory shape = _models[class.model];
        if (shape.layers == 0) revert UnknownModel(class.model);
        PlainText.requirePlain(class.name);
        _checkComparison(class, shape.hiddenSize);
        _checkCommittees(class);
        _checkMoney(class);
        REGISTRY.admitClass(executionClass, _rulesFrom(class, shape));
        emit ClassRegistered(executionClass, class.model, class);
    }

    function _rulesFrom(ExecutionClass calldata class, ModelShape memory shape) private pure returns (Rules memory) {
        return Rules({
            penalty: class.penalty,
            seat: class.seat,
            seatCap: class.seatCap,
            dtype: class.dtype,
            exact: class.exact,
            mantissaBits: class.mantissaBits,
            tiles: class.tiles,
            verifiers: class.verifiers,
            reviewers: class.reviewers,
            checkPrice: class.checkPrice,
            feeCap: class.feeCap,
            leastCheckRate: class.leastCheckRate,
            theta: class.theta,
            steps: class.steps,
            secondCut: class.secondCut,
            poolLimit: class.poolLimit,
            poolWindow: class.poolWindow,
            hiddenSize: shape.hiddenSize,
            layers: shape.layers,
            candidates: class.candidates
        });
    }

    function _checkComparison(ExecutionClass calldata class, uint256 hiddenSize) private pure {
        // Tiles are one per stratum, so that a trace of one row must have as many.
        uint256 maximum = class.exact ? 0 : TileTree.tileCount(1, hiddenSize, class.dtype);
        if (class.tiles > maximum || (class.tiles == 0) != class.exact) revert InvalidTiles(class.tiles, maximum);
        uint8 mantissa = class.dtype == 0 ? 23 : 7;
        if (class.dtype > 1 || class.mantissaBits == 0 || class.mantissaBits > mantissa) {
            revert InvalidMantissaBits(class.mantissaBits, mantissa);
        }
        if (class.theta == 0 || class.theta > BASIS_POINTS) revert InvalidTheta(class.theta);
        if ((!class.exact && class.secondCut <= MILLION) || class.poolLimit == 0 || class.poolWindow == 0) {
            revert InvalidCuts(class.secondCut, class.poolLimit, class.poolWindow);
        }
    }

    function _checkCommittees(ExecutionClass calldata class) private pure {
        if (
            class.candidates == 0 || class.candidates > MAXIMUM_CANDIDATES || class.verifiers % 2 == 0
                || class.verifiers > MAXIMUM_VERIFIERS || class.reviewers % 2 == 0
                || class.reviewers <= class.verifiers || class.reviewers > MAXIMUM_REVIEWERS
        ) revert InvalidCommittee(class.candidates, class.verifiers, class.reviewers);
        uint256 parties = uint256(class.reviewers) + 1;
        uint256 length = CASE_BYTES + parties * (PARTY_BYTES + class.tiles * TILE_CALL_BYTES);
        if (length > MAXIMUM_CALL) revert CallTooLarge(length, MAXIMUM_CALL);
        if (class.seatCap == 0 || class.seatCap > MAXIMUM_SEAT_CAP) {
            revert InvalidSeatCap(class.seatCap, MAXIMUM_SEAT_CAP);
        }
    }

    function _checkMoney(ExecutionClass calldata class) private view {
        if (class.checkPrice == 0 || class.feeCap == 0) revert InvalidPrices(class.checkPrice, class.feeCap);
        if (
            class.leastCheckRate == 0 || class.leastCheckRate > MILLION || class.honestShare <= BASIS_POINTS / 2
                || class.honestShare > BASIS_POINTS
        ) revert InvalidShares(class.leastCheckRate, class.honestShare);
        uint256 p = Economy.detection(class.leastCheckRate, class.honestShare, class.verifiers, class.reviewers);
        // At q = 1 and r = 1 any penalty deters; none at all would leave nothing to lock.
        if (class.penalty == 0 || !Economy.deters(class.penalty, class.feeCap, p)) {
            revert PenaltyTooLow(class.penalty, class.feeCap, p);
        }
        // A conviction covers the client's refund, and a scheduler's stake covers a conviction.
        uint256 covering = COVERED_FEES * uint256(class.feeCap);
        if (class.penalty < covering || class.penalty > SCHEDULER_STAKE) {
            revert PenaltyOutOfRange(class.penalty, covering, SCHEDULER_STAKE);
        }
        uint256 convicting = Economy.conviction(class.honestShare, class.reviewers);
        uint256 spent = Economy.caseGas(class.reviewers, class.tiles);
        if (!Economy.rewards(class.penalty, convicting, spent, GAS_PRICE)) {
            revert RewardTooLow(class.penalty, convicting, GAS_PRICE);
        }
        uint256 least = Economy.leastSeat(class.penalty, spent, GAS_PRICE);
        if (class.seat < least) revert SeatTooLow(class.seat, least);
    }
}
