// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {Strings} from "@openzeppelin/contracts/utils/Strings.sol";
import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticOperations} from "../libraries/ArithmeticOperations.sol";
import {ArithmeticRounding} from "../libraries/ArithmeticRounding.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ExactNumbers} from "../libraries/ExactNumbers.sol";
import {WeightsTree} from "../libraries/WeightsTree.sol";
import {ShownRow} from "../market/interfaces/IProofs.sol";
import {Messages} from "../market/libraries/Messages.sol";
import {Orders} from "../market/libraries/Orders.sol";
import {INumbers} from "./INumbers.sol";
import {Claim, ISteps, Matter, Part, Word} from "./ISteps.sol";
import {TraceTree} from "./TraceTree.sol";

/// @title The arithmetic of decoder layers, number by number
/// @notice The trace of a segment has for each layer the tensors of its operations, in their order, and behind the model's last
///         layer three more: its state again, the factor of the last norm, and the norm. A row of a tensor is that of a
///         position; the values alone stand with a row for each number, and a column for each position, since they are
///         read so. A nudged trace has the same tensors again; what its first layer reads is the plain trace's input, nudged.
contract Steps is ISteps {
    using ArithmeticOperations for ArithmeticOperations.Shape;

    /// @notice How a model computes, beside its weights.
    /// @param kinds of its layers
    /// @param pattern a byte for each layer: its kind
    /// @param layers what the names of layers' tensors begin with, before the layer's number
    /// @param embedding name of the tensor whose rows are the tokens' first states
    /// @param embeddingScale by which they are multiplied, float32 bits
    /// @param norm name of the last norm's weights
    struct ModelShape {
        ArithmeticOperations.Shape[] kinds;
        bytes pattern;
        string layers;
        string embedding;
        uint32 embeddingScale;
        string norm;
    }

    /// @notice Words of a tensor that stand side by side, up to the trace's root.
    struct Opening {
        bytes words;
        bytes32[] siblings;
    }

    /// @notice A leaf of a tensor of the weights, up to the weights root.
    /// @param rows and columns of the tensor; 0 rows: it is a vector
    /// @param leaves into how many the tensor is cut
    /// @param quantisation, tensors, place, siblings as in WeightsTree.Matrix
    struct WeightOpening {
        string dtype;
        uint32 rows;
        uint32 columns;
        uint32 leaves;
        bytes32 quantisation;
        uint32 tensors;
        uint32 place;
        bytes32[] siblings;
        bytes leaf;
        bytes32[] leafSiblings;
    }

    /// @notice What one number follows from.
    /// @param element which number of its word
    /// @param entered for the segment's own input: the row that it read, or of the first segment the one that it gave, which
    ///        binds the token
    struct StepProof {
        uint8 element;
        Opening[] rows;
        WeightOpening[] weights;
        ShownRow[] entered;
    }

    /// @notice A signed row beside the trace's last.
    /// @param element where they differ by too much
    /// @param nudged the word of the nudged trace's last row that the accused named; empty where it named no nudge
    struct RowProof {
        uint32 element;
        Opening last;
        ShownRow signed;
        Opening nudged;
    }

    /// @dev Where a tensor is.
    struct Where {
        ArithmeticOperations.Shape shape;
        uint256 layer;
        ArithmeticOperations.Operation operation;
        bool nudged;
    }

    /// @notice A model that one transaction could not check: a sum too long, or a shape that does not hold together.
    error NotCheckable(uint256 kind, uint256 number);
    error WrongElement(uint256 element);
    error WrongOpenings(uint256 rows, uint256 weights);
    /// @notice A sum of so many terms is computed in parts, or is not.
    error WrongLength(uint256 terms, uint256 most);
    /// @notice The opening does not lead to the trace that the accused committed to.
    error AnotherTrace(bytes32 root, bytes32 expected);
    /// @notice Weights in other numbers than float32 and bfloat16 are not read.
    error UnknownNumbers(string dtype);
    error WrongRow(uint256 given, uint256 expected);

    bytes32 private constant HEAD_TAG = keccak256("troth/market/head/1");
    uint256 private constant OPERATIONS = 34;
    /// @dev Behind the last layer: its state, the factor and the norm.
    uint256 private constant LAST = 3;
    uint256 private constant WORD_NUMBERS = 8;
    /// @dev The longest sum, and the most positions: what one transaction may take.
    uint256 private constant MOST_TERMS = 8192;
    uint256 private constant MOST_WIDTH = 1 << 16;
    /// @dev Terms of the longest sum that is computed at once, of a part of a longer one, and bytes of a part.
    uint256 private constant AT_ONCE = 1024;
    uint256 private constant PART_TERMS = 128;
    uint256 private constant PART_BYTES = 96;
    uint256 private constant ONE = 0x3f800000;
    /// @dev 10^-4: by so much of a row's root mean square each of its numbers may differ from the trace's.
    uint256 private constant TOLERANCE = 0x38d1b717;
    /// @dev 4: by so many times what a nudge moves it a row may differ.
    uint256 private constant ROOM = 0x40800000;
    /// @dev 1 + 2^-20 and 1 - 2^-20.
    uint256 private constant MORE = 0x3f800008;
    uint256 private constant LESS = 0x3f7ffff0;

    INumbers private immutable NUMBERS;

    constructor(INumbers numbers) {
        NUMBERS = numbers;
    }

    // -------------------------------------------------------------------------------------------------------- layout

    /// @inheritdoc ISteps
    function depth(Matter calldata matter, bytes calldata shape) external pure returns (uint8) {
        _modelOf(matter, shape);
        // Decoded whole, once: so nothing that the shape points to is outside of it, and the turns read it where it lies.
        ModelShape memory model = abi.decode(shape, (ModelShape));
        if (model.pattern.length != matter.layers || matter.end > matter.layers || matter.first >= matter.end) {
            revert NotCheckable(0, model.pattern.length);
        }
        for (uint256 i = 0; i < model.kinds.length; ++i) _requireCheckable(model.kinds[i], matter, i);
        for (uint256 i = 0; i < model.pattern.length; ++i) {
            if (uint8(model.pattern[i]) >= model.kinds.length) revert NotCheckable(uint8(model.pattern[i]), i);
        }
        return uint8(_levels(_count(matter)));
    }

    function _requireCheckable(ArithmeticOperations.Shape memory kind, Matter calldata matter, uint256 number) private pure {
        uint256 queries = uint256(kind.heads) * kind.headWidth;
        bool holds = kind.hidden == matter.hidden && kind.hidden != 0 && kind.hidden <= MOST_TERMS
            && kind.keyHeads != 0 && kind.heads >= kind.keyHeads && kind.heads % kind.keyHeads == 0
            && kind.headWidth != 0 && kind.headWidth % 2 == 0 && kind.frequencies.length == 2 * kind.headWidth
            && queries <= MOST_TERMS && kind.intermediate != 0 && kind.intermediate <= MOST_TERMS
            && matter.position < MOST_TERMS
            && uint256(kind.heads) * (uint256(matter.position) + 1) <= MOST_WIDTH && kind.activation <= 1;
        if (!holds) revert NotCheckable(number, kind.hidden);
    }

    /// @inheritdoc ISteps
    function depthOf(Matter calldata matter, bytes calldata shape, bool nudged, uint32 tensor)
        external
        pure
        returns (uint8)
    {
        Where memory place = _where(_modelOf(matter, shape), matter, nudged, tensor);
        return uint8(_depthOf(place, matter));
    }

    function _modelOf(Matter calldata matter, bytes calldata shape) private pure returns (ModelShape calldata model) {
        bytes32 hash = keccak256(shape);
        if (hash != matter.shape) revert WrongShape(hash, matter.shape);
        assembly ("memory-safe") {
            model := add(shape.offset, calldataload(shape.offset))
        }
    }

    function _count(Matter calldata matter) private pure returns (uint256) {
        uint256 count = OPERATIONS * (uint256(matter.end) - matter.first);
        return matter.end == matter.layers ? count + LAST : count;
    }

    /// @dev Of one trace, or of two.
    function _whole(Matter calldata matter, bool nudged) private pure returns (uint256) {
        return nudged ? 2 * _count(matter) : _count(matter);
    }

    function _where(ModelShape calldata model, Matter calldata matter, bool nudged, uint256 tensor)
        private
        pure
        returns (Where memory place)
    {
        uint256 count = _count(matter);
        if (tensor >= _whole(matter, nudged)) revert NoSuchTensor(tensor, _whole(matter, nudged));
        place.nudged = tensor >= count;
        if (place.nudged) tensor -= count;
        place.layer = matter.first + tensor / OPERATIONS;
        place.operation = ArithmeticOperations.Operation(tensor % OPERATIONS);
        // The last norm is one of the last layer's kind.
        uint256 known = place.layer == matter.layers ? place.layer - 1 : place.layer;
        place.shape = model.kinds[uint8(model.pattern[known])];
    }

    function _isTurned(ArithmeticOperations.Operation operation) private pure returns (bool) {
        return operation == ArithmeticOperations.Operation.Value;
    }

    /// @dev Levels over a row's words.
    function _across(Where memory place, Matter calldata matter) private pure returns (uint256) {
        uint256 columns = _isTurned(place.operation)
            ? uint256(matter.position) + 1
            : place.shape.width(place.operation, matter.position);
        return _levels((columns + WORD_NUMBERS - 1) / WORD_NUMBERS);
    }

    function _depthOf(Where memory place, Matter calldata matter) private pure returns (uint256) {
        uint256 rows = _isTurned(place.operation)
            ? place.shape.width(place.operation, matter.position)
            : uint256(matter.position) + 1;
        return _levels(rows) + _across(place, matter);
    }

    /// @dev 0 for one, and for none: a tensor that the layer does not have is one word, of which nothing can be wrong.
    function _levels(uint256 count) private pure returns (uint256) {
        return count < 2 ? 0 : Math.log2(count - 1) + 1;
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
        ModelShape calldata model = _modelOf(matter, shape);
        Where memory place = _where(model, matter, claim.nudge != 0, word.tensor);
        (bool exists, uint256 position, uint256 element) = _placeOf(place, matter, word, proof.element);
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
        (, ArithmeticOperations.Step memory step,) = _stepOf(_modelOf(matter, shape), matter, claim, word, number);
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
        ModelShape calldata model = _modelOf(matter, shape);
        (Where memory place, ArithmeticOperations.Step memory made,) = _stepOf(model, matter, claim, word, part.number);
        if (part.index >= _parts(made)) revert WrongElement(part.index);
        Arithmetic.Kind kind = _narrow(made, part.index);
        bytes memory found = NUMBERS.partOf(kind, _operands(model, place, matter, claim, made, proof));
        return keccak256(found) != keccak256(part.value);
    }

    /// @dev How a number of a word is computed; nothing where there is no such number, or it is an input.
    function _stepOf(
        ModelShape calldata model,
        Matter calldata matter,
        Claim calldata claim,
        Word calldata word,
        uint256 number
    ) private view returns (Where memory place, ArithmeticOperations.Step memory step, uint256 element) {
        place = _where(model, matter, claim.nudge != 0, word.tensor);
        bool exists;
        uint256 position;
        (exists, position, element) = _placeOf(place, matter, word, number);
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
            if (_isTurned(slice.operation)) (slice.first, slice.last) = (slice.first + from, slice.first + to);
            else (slice.start, slice.stop) = (slice.start + from, slice.start + to);
        }
        if (step.weights.length != 0) {
            ArithmeticOperations.WeightSlice memory weights = step.weights[0];
            (weights.start, weights.stop) = (weights.start + from, weights.start + to);
            step.weights = new ArithmeticOperations.WeightSlice[](1);
            step.weights[0] = weights;
        }
        return step.kind;
    }

    /// @dev Whether there is such a number, its position and its place in the row.
    function _placeOf(Where memory place, Matter calldata matter, Word calldata word, uint256 number)
        private
        pure
        returns (bool exists, uint256 position, uint256 element)
    {
        if (number >= WORD_NUMBERS) revert WrongElement(number);
        uint256 across = _across(place, matter);
        position = word.place >> across;
        element = (word.place & (1 << across) - 1) * WORD_NUMBERS + number;
        if (_isTurned(place.operation)) (position, element) = (element, position);
        exists = position <= matter.position && element < place.shape.width(place.operation, position);
    }

    /// @dev Numbers are little-endian, as in rows.
    function _numberAt(bytes32 word, uint256 number) private pure returns (uint256 bits) {
        uint256 stored = uint256(word) >> 32 * (WORD_NUMBERS - 1 - number) & 0xffffffff;
        bits = stored >> 24 | (stored >> 8 & 0xff00) | (stored << 8 & 0xff0000) | (stored & 0xff) << 24;
    }

    function _computed(
        ModelShape calldata model,
        Where memory place,
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
        ModelShape calldata model,
        Where memory place,
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
            operands[i] = _float32(_opened(place, matter, claim, step.rows[i], proof.rows[i]));
        }
        for (uint256 i = 0; i < weights; ++i) {
            string memory name = _nameOf(model, place, matter, step.weights[i].suffix);
            operands[rows + i] = _weights(matter, name, step.weights[i], proof.weights[i]);
        }
    }

    function _nameOf(ModelShape calldata model, Where memory place, Matter calldata matter, string memory suffix)
        private
        pure
        returns (string memory)
    {
        if (place.layer == matter.layers) return model.norm;
        return string.concat(model.layers, Strings.toString(place.layer), ".", suffix);
    }

    /// @dev A layer's input is what the layer before gave; the segment's own is what it read. A nudged trace begins with the
    ///      input of the plain one.
    function _entered(
        ModelShape calldata model,
        Where memory place,
        Matter calldata matter,
        Claim calldata claim,
        uint256 position,
        uint256 element,
        StepProof calldata proof
    ) private view returns (uint256) {
        ArithmeticSums.Operand[] memory factors = new ArithmeticSums.Operand[](2);
        factors[1] = _constant(place.nudged ? _nudge(claim, place.layer, position, element) : ONE);
        if (place.nudged || place.layer != matter.first) {
            if (place.layer == matter.first) {
                place.nudged = false;
            } else {
                place.layer -= 1;
                place.operation = ArithmeticOperations.Operation.Output;
            }
            ArithmeticOperations.RowSlice memory slice =
                ArithmeticOperations.RowSlice(place.operation, position, position + 1, element, element + 1);
            factors[0] = _float32(_opened(place, matter, claim, slice, proof.rows[0]));
        } else if (matter.segment != 0) {
            ShownRow calldata given = proof.entered[0];
            _requireRow(matter, given, matter.segment - 1, position, matter.inputHead, _rowHash(matter.segment - 1, given));
            factors[0] = _float32(given.row[4 * element:4 * element + 4]);
        } else {
            ShownRow calldata given = proof.entered[0];
            _requireRow(matter, given, 0, position, matter.outputHead, _rowHash(0, given));
            ArithmeticOperations.WeightSlice memory slice =
                ArithmeticOperations.WeightSlice("", given.read, element, element + 1);
            factors[0] = _weights(matter, model.embedding, slice, proof.weights[0]);
            factors[1] = _constant(model.embeddingScale);
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

    function _float32(bytes memory numbers) private pure returns (ArithmeticSums.Operand memory) {
        return ArithmeticSums.Operand(ExactNumbers.Format.Float32, false, numbers);
    }

    function _constant(uint256 bits) private pure returns (ArithmeticSums.Operand memory) {
        return _float32(
            abi.encodePacked(uint8(bits), uint8(bits >> 8), uint8(bits >> 16), uint8(bits >> 24))
        );
    }

    // ------------------------------------------------------------------------------------------------------ openings

    /// @dev Numbers of one row of a tensor of this layer.
    function _opened(
        Where memory place,
        Matter calldata matter,
        Claim calldata claim,
        ArithmeticOperations.RowSlice memory slice,
        Opening calldata opening
    ) private pure returns (bytes calldata) {
        Where memory read = Where(place.shape, place.layer, slice.operation, place.nudged);
        (uint256 row, uint256 start, uint256 stop) = _isTurned(slice.operation)
            ? (slice.start, slice.first, slice.last)
            : (slice.first, slice.start, slice.stop);
        uint256 levels = _depthOf(read, matter);
        uint256 tensor = OPERATIONS * (place.layer - matter.first) + uint8(slice.operation);
        if (place.nudged) tensor += _count(matter);
        uint256 begin = start / WORD_NUMBERS;
        uint256 first = tensor << levels | row << _across(read, matter) | begin;
        levels += _levels(_whole(matter, claim.nudge != 0));
        bytes32 found = TraceTree.rangeRoot(opening.words, first, levels, opening.siblings);
        if (found != claim.root) revert AnotherTrace(found, claim.root);
        if (opening.words.length != 32 * ((stop + WORD_NUMBERS - 1) / WORD_NUMBERS - begin)) {
            revert AnotherTrace(found, bytes32(opening.words.length));
        }
        return opening.words[4 * (start % WORD_NUMBERS):4 * (stop - begin * WORD_NUMBERS)];
    }

    /// @dev Numbers of one row of a tensor of the weights, which lie in one of its leaves.
    function _weights(
        Matter calldata matter,
        string memory name,
        ArithmeticOperations.WeightSlice memory slice,
        WeightOpening calldata opening
    ) private pure returns (ArithmeticSums.Operand memory) {
        ExactNumbers.Format format = _formatOf(opening.dtype);
        uint256 size = ExactNumbers.width(format);
        uint256 rows = opening.rows == 0 ? 1 : opening.rows;
        if (slice.row >= rows || slice.stop > opening.columns) revert WrongElement(slice.stop);
        uint256 length = rows * opening.columns * size / opening.leaves;
        uint256 start = (slice.row * opening.columns + slice.start) * size;
        uint256 leaf = start / length;
        if (opening.leaf.length != length || start % length + (slice.stop - slice.start) * size > length) {
            revert WrongElement(opening.leaf.length);
        }
        Orders.requireEqual(_weightsRoot(keccak256(bytes(name)), leaf, opening), matter.weightsRoot);
        uint256 from = start - leaf * length;
        return ArithmeticSums.Operand(format, false, opening.leaf[from:from + (slice.stop - slice.start) * size]);
    }

    /// @dev As WeightsTree for a matrix; of a vector the only dimension counts.
    function _weightsRoot(bytes32 name, uint256 leaf, WeightOpening calldata opening) private pure returns (bytes32) {
        bytes32 first = keccak256(abi.encodePacked(WeightsTree.ROW_TAG, name, uint32(leaf), opening.leaf));
        bytes32 tree = WeightsTree.treeRoot(first, leaf, opening.leaves, opening.leafSiblings);
        bytes memory dimensions = opening.rows == 0
            ? abi.encodePacked(uint32(1), uint64(opening.columns))
            : abi.encodePacked(uint32(2), uint64(opening.rows), uint64(opening.columns));
        bytes32 tensor = keccak256(
            abi.encodePacked(
                WeightsTree.TENSOR_TAG, name, keccak256(bytes(opening.dtype)), dimensions, opening.leaves, tree
            )
        );
        bytes32 whole = WeightsTree.treeRoot(tensor, opening.place, opening.tensors, opening.siblings);
        return keccak256(abi.encodePacked(WeightsTree.WEIGHTS_TAG, opening.quantisation, opening.tensors, whole));
    }

    function _formatOf(string calldata dtype) private pure returns (ExactNumbers.Format) {
        bytes32 named = keccak256(bytes(dtype));
        if (named == keccak256("F32")) return ExactNumbers.Format.Float32;
        if (named == keccak256("BF16")) return ExactNumbers.Format.BFloat16;
        revert UnknownNumbers(dtype);
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
        uint256 tensor = _count(matter) - 1;
        Where memory place = _where(_modelOf(matter, shape), matter, false, tensor);
        ArithmeticOperations.RowSlice memory slice = ArithmeticOperations.RowSlice(
            place.operation, matter.position, uint256(matter.position) + 1, 0, matter.hidden
        );
        bytes calldata last = _opened(place, matter, claim, slice, proof.last);
        if (!_differs(row, last, proof.element)) return false;
        if (claim.nudge == 0 || claim.moved >= matter.hidden) return true;
        (slice.start, slice.stop, place.nudged) = (claim.moved, uint256(claim.moved) + 1, true);
        uint256 moved = _distance(_opened(place, matter, claim, slice, proof.nudged), 0, last, claim.moved);
        return _isBeyond(_distance(row, proof.element, last, proof.element), moved);
    }

    /// @dev Whether a distance is above so many times what the nudge moves. Where that is no number, nothing can be said.
    function _isBeyond(uint256 distance, uint256 moved) private view returns (bool) {
        ArithmeticSums.Operand[] memory pair = new ArithmeticSums.Operand[](2);
        (pair[0], pair[1]) = (_constant(moved), _constant(ROOM));
        uint256 allowed = NUMBERS.evaluate(Arithmetic.Kind.Product, pair, new uint256[](0));
        return ArithmeticRounding.isFinite(allowed) && distance > allowed;
    }

    /// @dev |a - b| for one number of each.
    function _distance(bytes calldata one, uint256 element, bytes calldata other, uint256 place)
        private
        view
        returns (uint256)
    {
        ArithmeticSums.Operand[] memory pair = new ArithmeticSums.Operand[](2);
        pair[0] = _float32(one[4 * element:4 * element + 4]);
        uint256 number = uint32(bytes4(other[4 * place:4 * place + 4]));
        pair[1] = _float32(abi.encodePacked(uint32(number ^ 0x80)));
        return NUMBERS.evaluate(Arithmetic.Kind.Addition, pair, new uint256[](0)) & 0x7fffffff;
    }

    /// @inheritdoc ISteps
    function requireSigned(Matter calldata matter, uint256 position, ShownRow calldata row) public pure {
        _requireRow(matter, row, matter.segment, position, matter.outputHead, _rowHash(matter.segment, row));
    }

    /// @dev Whether |a - b| / rms(b) is above the tolerance, each step rounded to float32. A trace without numbers says nothing
    ///      of rows.
    function _differs(bytes calldata signed, bytes calldata last, uint256 element) private view returns (bool) {
        if (signed.length != last.length) revert WrongRow(signed.length, last.length);
        if (4 * element >= last.length) revert WrongElement(element);
        ArithmeticSums.Operand[] memory whole = new ArithmeticSums.Operand[](1);
        whole[0] = _float32(last);
        uint256 factor = NUMBERS.evaluate(Arithmetic.Kind.Factor, whole, new uint256[](1));
        if (!ArithmeticRounding.isFinite(factor)) return false;
        ArithmeticSums.Operand[] memory pair = new ArithmeticSums.Operand[](2);
        (pair[0], pair[1]) = (_constant(_distance(signed, element, last, element)), _constant(factor));
        return NUMBERS.evaluate(Arithmetic.Kind.Product, pair, new uint256[](0)) & 0x7fffffff > TOLERANCE;
    }

    /// @dev The first segment's rows bind the tokens that they were computed from.
    function _rowHash(uint256 segment, ShownRow calldata shown) private pure returns (bytes32) {
        return segment == 0 ? keccak256(abi.encodePacked(shown.read, shown.row)) : keccak256(shown.row);
    }

    /// @dev The row is at this position of the chain under a signed head.
    function _requireRow(
        Matter calldata matter,
        ShownRow calldata shown,
        uint256 segment,
        uint256 position,
        bytes32 head,
        bytes32 rowHash
    ) private pure {
        if (shown.later.length != matter.rows - 1 - position) {
            revert WrongRow(shown.later.length, matter.rows - 1 - position);
        }
        if (shown.row.length != 4 * uint256(matter.hidden)) revert WrongRow(shown.row.length, 4 * uint256(matter.hidden));
        bytes32 link = keccak256(
            abi.encode(Messages.ROW_TYPE, matter.order, segment, position, rowHash, shown.previous)
        );
        for (uint256 i = 0; i < shown.later.length; ++i) {
            link = keccak256(
                abi.encode(Messages.ROW_TYPE, matter.order, segment, position + 1 + i, shown.later[i], link)
            );
        }
        Orders.requireEqual(keccak256(abi.encodePacked(HEAD_TAG, matter.order, shown.headSalt, link)), head);
    }
}
