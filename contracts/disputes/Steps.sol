// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Strings} from "@openzeppelin/contracts/utils/Strings.sol";
import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticOperations} from "../libraries/ArithmeticOperations.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ShownRow} from "../market/interfaces/IProofs.sol";
import {INumbers} from "./INumbers.sol";
import {Claim, ISteps, Matter, Part, Word} from "./ISteps.sol";
import {Operands} from "./Operands.sol";
import {SignedRows} from "./SignedRows.sol";
import {TraceLayout} from "./TraceLayout.sol";

/// @title The arithmetic of decoder layers, number by number
/// @dev TraceLayout says where a number is, Operands opens what it follows from, and Numbers computes.
contract Steps is ISteps {
    /// @notice What one number follows from.
    /// @param element which number of its word
    /// @param entered for the segment's own input: the row that it read, or of the first segment the one that it gave, which
    ///        binds the token
    struct StepProof {
        uint8 element;
        Operands.Opening[] rows;
        Operands.WeightOpening[] weights;
        ShownRow[] entered;
    }

    /// @notice A signed row beside the trace's last.
    /// @param element where they differ by too much
    /// @param nudged the word of the nudged trace's last row that the accused named; empty where it named no nudge
    struct RowProof {
        uint32 element;
        Operands.Opening last;
        ShownRow signed;
        Operands.Opening nudged;
    }

    error WrongOpenings(uint256 rows, uint256 weights);
    /// @notice A sum of so many terms is computed in parts, or is not.
    error WrongLength(uint256 terms, uint256 most);

    /// @dev Terms of the longest sum that is computed at once, of a part of a longer one, and bytes of a part.
    uint256 private constant AT_ONCE = 1024;
    uint256 private constant PART_TERMS = 128;
    uint256 private constant PART_BYTES = 96;
    uint256 private constant ONE = 0x3f800000;
    /// @dev 1 + 2^-20 and 1 - 2^-20.
    uint256 private constant MORE = 0x3f800008;
    uint256 private constant LESS = 0x3f7ffff0;

    INumbers private immutable NUMBERS;

    constructor(INumbers numbers) {
        NUMBERS = numbers;
    }

    /// @inheritdoc ISteps
    function depth(Matter calldata matter, bytes calldata shape) external pure returns (uint8) {
        return TraceLayout.depth(matter, shape);
    }

    /// @inheritdoc ISteps
    function depthOf(Matter calldata matter, bytes calldata shape, bool nudged, uint32 tensor)
        external
        pure
        returns (uint8)
    {
        TraceLayout.Where memory place = TraceLayout.whereOf(TraceLayout.modelOf(matter, shape), matter, nudged, tensor);
        return uint8(TraceLayout.depthOf(place, matter));
    }

    // ---------------------------------------------------------------------------------------------------- one number

    /// @inheritdoc ISteps
    function isWrong(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        bytes calldata step
    ) external view returns (bool) {
        StepProof calldata proof;
        assembly ("memory-safe") {
            proof := add(step.offset, calldataload(step.offset))
        }
        TraceLayout.ModelShape calldata model = TraceLayout.modelOf(matter, shape);
        TraceLayout.Where memory place = TraceLayout.whereOf(model, matter, claim.nudge != 0, word.tensor);
        (bool exists, uint256 position, uint256 element) = TraceLayout.placeOf(place, matter, word, proof.element);
        uint256 claimed = _numberAt(word.value, proof.element);
        // What pads is zero: else the first difference could be one by which nobody is convicted.
        if (!exists) return claimed != 0;
        if (place.operation != ArithmeticOperations.Operation.Input) {
            return claimed != _computed(model, place, matter, claim, position, element, proof);
        }
        return claimed != _entered(model, place, matter, claim, position, element, proof);
    }

    /// @inheritdoc ISteps
    function concludes(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        uint8 number,
        bytes calldata parts
    ) external view returns (bool) {
        TraceLayout.ModelShape calldata model = TraceLayout.modelOf(matter, shape);
        (, ArithmeticOperations.Step memory step) = _stepOf(model, matter, claim, word, number);
        if (parts.length != PART_BYTES * _parts(step)) return false;
        // Whoever is asked for the parts of what has none gives none.
        if (parts.length == 0) return true;
        return NUMBERS.conclude(step.kind, parts, _terms(step), step.constants) == _numberAt(word.value, number);
    }

    /// @inheritdoc ISteps
    function isWrongPart(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        Part calldata part,
        bytes calldata step
    ) external view returns (bool) {
        StepProof calldata proof;
        assembly ("memory-safe") {
            proof := add(step.offset, calldataload(step.offset))
        }
        TraceLayout.ModelShape calldata model = TraceLayout.modelOf(matter, shape);
        (TraceLayout.Where memory place, ArithmeticOperations.Step memory made) =
            _stepOf(model, matter, claim, word, part.number);
        if (part.index >= _parts(made)) revert TraceLayout.WrongElement(part.index);
        Arithmetic.Kind kind = _narrow(made, part.index);
        bytes memory found = NUMBERS.partOf(kind, _operands(model, place, matter, claim, made, proof));
        return keccak256(found) != keccak256(part.value);
    }

    /// @dev How a number of a word is computed; nothing where there is no such number, or it is an input.
    function _stepOf(
        TraceLayout.ModelShape calldata model,
        Matter calldata matter,
        Claim calldata claim,
        Word calldata word,
        uint256 number
    ) private view returns (TraceLayout.Where memory place, ArithmeticOperations.Step memory step) {
        place = TraceLayout.whereOf(model, matter, claim.nudge != 0, word.tensor);
        (bool exists, uint256 position, uint256 element) = TraceLayout.placeOf(place, matter, word, number);
        if (exists && place.operation != ArithmeticOperations.Operation.Input) {
            step = NUMBERS.stepOf(place.shape, place.operation, position, element);
        }
    }

    /// @dev 0 where the number is no sum, or a short one.
    function _parts(ArithmeticOperations.Step memory step) private pure returns (uint256) {
        uint256 terms = step.rows.length == 0 || !Arithmetic.isSum(step.kind) ? 0 : _terms(step);
        if (terms <= AT_ONCE) return 0;
        bool biased = step.kind == Arithmetic.Kind.Product && step.weights.length == 2;
        return (terms + PART_TERMS - 1) / PART_TERMS + (biased ? 1 : 0);
    }

    function _terms(ArithmeticOperations.Step memory step) private pure returns (uint256) {
        return step.rows[0].stop - step.rows[0].start;
    }

    /// @dev Leaves of a step what one part reads.
    function _narrow(ArithmeticOperations.Step memory step, uint256 index)
        private
        pure
        returns (Arithmetic.Kind)
    {
        uint256 terms = _terms(step);
        uint256 from = index * PART_TERMS;
        if (from >= terms) {
            // The bias alone.
            step.rows = new ArithmeticOperations.RowSlice[](0);
            ArithmeticOperations.WeightSlice memory bias = step.weights[1];
            step.weights = new ArithmeticOperations.WeightSlice[](1);
            step.weights[0] = bias;
            return Arithmetic.Kind.Sum;
        }
        uint256 to = from + PART_TERMS < terms ? from + PART_TERMS : terms;
        for (uint256 i = 0; i < step.rows.length; ++i) {
            ArithmeticOperations.RowSlice memory slice = step.rows[i];
            if (TraceLayout.isTurned(slice.operation)) {
                (slice.first, slice.last) = (slice.first + from, slice.first + to);
            } else {
                (slice.start, slice.stop) = (slice.start + from, slice.start + to);
            }
        }
        if (step.weights.length != 0) {
            ArithmeticOperations.WeightSlice memory weights = step.weights[0];
            (weights.start, weights.stop) = (weights.start + from, weights.start + to);
            step.weights = new ArithmeticOperations.WeightSlice[](1);
            step.weights[0] = weights;
        }
        return step.kind;
    }

    /// @dev Numbers are little-endian, as in rows.
    function _numberAt(bytes32 word, uint256 number) private pure returns (uint256 bits) {
        uint256 stored = uint256(word) >> 32 * (TraceLayout.WORD_NUMBERS - 1 - number) & 0xffffffff;
        bits = stored >> 24 | (stored >> 8 & 0xff00) | (stored << 8 & 0xff0000) | (stored & 0xff) << 24;
    }

    function _computed(
        TraceLayout.ModelShape calldata model,
        TraceLayout.Where memory place,
        Matter calldata matter,
        Claim calldata claim,
        uint256 position,
        uint256 element,
        StepProof calldata proof
    ) private view returns (uint256) {
        ArithmeticOperations.Step memory step = NUMBERS.stepOf(place.shape, place.operation, position, element);
        if (_parts(step) != 0) revert WrongLength(_terms(step), AT_ONCE);
        return NUMBERS.evaluate(step.kind, _operands(model, place, matter, claim, step, proof), step.constants);
    }

    /// @dev What a step reads, opened.
    function _operands(
        TraceLayout.ModelShape calldata model,
        TraceLayout.Where memory place,
        Matter calldata matter,
        Claim calldata claim,
        ArithmeticOperations.Step memory step,
        StepProof calldata proof
    ) private pure returns (ArithmeticSums.Operand[] memory operands) {
        (uint256 rows, uint256 weights) = (step.rows.length, step.weights.length);
        if (proof.rows.length != rows || proof.weights.length != weights) {
            revert WrongOpenings(proof.rows.length, proof.weights.length);
        }
        operands = new ArithmeticSums.Operand[](rows + weights);
        for (uint256 i = 0; i < rows; ++i) {
            operands[i] = Operands.float32(Operands.numbersOf(place, matter, claim, step.rows[i], proof.rows[i]));
        }
        for (uint256 i = 0; i < weights; ++i) {
            string memory name = _nameOf(model, place, matter, step.weights[i].suffix);
            operands[rows + i] = Operands.weightsOf(matter, name, step.weights[i], proof.weights[i]);
        }
    }

    function _nameOf(
        TraceLayout.ModelShape calldata model,
        TraceLayout.Where memory place,
        Matter calldata matter,
        string memory suffix
    ) private pure returns (string memory) {
        if (place.layer == matter.layers) return model.norm;
        return string.concat(model.layers, Strings.toString(place.layer), ".", suffix);
    }

    /// @dev A layer's input is what the layer before gave; the segment's own is what it read. A nudged trace begins with the
    ///      input of the plain one.
    function _entered(
        TraceLayout.ModelShape calldata model,
        TraceLayout.Where memory place,
        Matter calldata matter,
        Claim calldata claim,
        uint256 position,
        uint256 element,
        StepProof calldata proof
    ) private view returns (uint256) {
        ArithmeticSums.Operand[] memory factors = new ArithmeticSums.Operand[](2);
        factors[1] = Operands.constantOf(place.nudged ? _nudge(claim, place.layer, position, element) : ONE);
        if (place.nudged || place.layer != matter.first) {
            if (place.layer == matter.first) {
                place.nudged = false;
            } else {
                place.layer -= 1;
                place.operation = ArithmeticOperations.Operation.Output;
            }
            ArithmeticOperations.RowSlice memory slice =
                ArithmeticOperations.RowSlice(place.operation, position, position + 1, element, element + 1);
            factors[0] = Operands.float32(Operands.numbersOf(place, matter, claim, slice, proof.rows[0]));
        } else if (matter.segment != 0) {
            ShownRow calldata given = proof.entered[0];
            SignedRows.requireRow(matter, given, matter.segment - 1, position, matter.inputHead);
            factors[0] = Operands.float32(given.row[4 * element:4 * element + 4]);
        } else {
            ShownRow calldata given = proof.entered[0];
            SignedRows.requireRow(matter, given, 0, position, matter.outputHead);
            ArithmeticOperations.WeightSlice memory slice =
                ArithmeticOperations.WeightSlice("", given.read, element, element + 1);
            factors[0] = Operands.weightsOf(matter, model.embedding, slice, proof.weights[0]);
            factors[1] = Operands.constantOf(model.embeddingScale);
        }
        return NUMBERS.evaluate(Arithmetic.Kind.Product, factors, new uint256[](0));
    }

    /// @dev By what a number of a nudged trace's state is multiplied: nobody chooses it, since the result was signed before.
    function _nudge(Claim calldata claim, uint256 layer, uint256 position, uint256 element)
        private
        pure
        returns (uint256)
    {
        bytes32 signs = keccak256(abi.encode(claim.seed, claim.nudge, layer, position, element >> 8));
        return uint256(signs) >> (element & 0xff) & 1 == 1 ? MORE : LESS;
    }

    // ----------------------------------------------------------------------------------------------------- signed rows

    /// @inheritdoc ISteps
    function isFar(Matter calldata matter, bytes calldata shape, Claim calldata claim, bytes calldata opening)
        external
        view
        returns (bool)
    {
        RowProof calldata proof;
        assembly ("memory-safe") {
            proof := add(opening.offset, calldataload(opening.offset))
        }
        bytes calldata row = proof.signed.row;
        requireSigned(matter, matter.position, proof.signed);
        uint256 tensor = TraceLayout.countOf(matter) - 1;
        TraceLayout.Where memory place = TraceLayout.whereOf(TraceLayout.modelOf(matter, shape), matter, false, tensor);
        ArithmeticOperations.RowSlice memory slice = ArithmeticOperations.RowSlice(
            place.operation, matter.position, uint256(matter.position) + 1, 0, matter.hidden
        );
        bytes calldata last = Operands.numbersOf(place, matter, claim, slice, proof.last);
        if (!SignedRows.differs(NUMBERS, row, last, proof.element)) return false;
        if (claim.nudge == 0 || claim.moved >= matter.hidden) return true;
        (slice.start, slice.stop, place.nudged) = (claim.moved, uint256(claim.moved) + 1, true);
        bytes calldata nudged = Operands.numbersOf(place, matter, claim, slice, proof.nudged);
        uint256 moved = SignedRows.distanceOf(NUMBERS, nudged, 0, last, claim.moved);
        uint256 distance = SignedRows.distanceOf(NUMBERS, row, proof.element, last, proof.element);
        return SignedRows.isBeyond(NUMBERS, distance, moved);
    }

    /// @inheritdoc ISteps
    function requireSigned(Matter calldata matter, uint256 position, ShownRow calldata row) public pure {
        SignedRows.requireRow(matter, row, matter.segment, position, matter.outputHead);
    }
}
