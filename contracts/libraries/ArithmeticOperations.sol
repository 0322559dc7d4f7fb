// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Arithmetic} from "./Arithmetic.sol";

/// @title The operations of a decoder layer: which rows it has, how wide they are, and what each number is computed from
/// @notice Float32 throughout. An operation gives a row at each position; each number of it is one step (library Arithmetic)
///         over named slices of earlier rows and of the weights.
/// @dev The same operations, widths and reads are `troth.protocol.arithmetic.operations`.
library ArithmeticOperations {
    /// @notice The rows of a layer, in the order in which they are computed.
    enum Operation {
        Input,
        InputFactor,
        InputNorm,
        Query,
        Key,
        Value,
        QueryFactors,
        QueryNorm,
        KeyFactors,
        KeyNorm,
        Cosines,
        Sines,
        RotatedQuery,
        RotatedKey,
        Scores,
        CappedScores,
        Maxima,
        Exponentials,
        Sums,
        Probabilities,
        Attended,
        AttentionOutput,
        AttentionFactor,
        AttentionNorm,
        Middle,
        FeedFactor,
        FeedNorm,
        Gate,
        Up,
        Gated,
        Down,
        DownFactor,
        DownNorm,
        Output
    }

    /// @notice How a layer computes. Real numbers are float32 bits.
    /// @param window positions that a position looks back at, itself included; 0: all
    /// @param cap soft cap of scores; 0: none
    /// @param frequencies of the rotary embedding, half a head's width of them, big-endian
    /// @param activation 0 SiLU, 1 GELU by tanh
    /// @param shifted norms multiply by 1 + weight
    /// @param framed attention and feed-forward part have a norm behind them as well
    struct Shape {
        uint32 hidden;
        uint32 heads;
        uint32 keyHeads;
        uint32 headWidth;
        uint32 intermediate;
        uint32 window;
        uint32 epsilon;
        uint32 scale;
        uint32 cap;
        bytes frequencies;
        uint8 activation;
        bool biased;
        bool outputBiased;
        bool headNorms;
        bool shifted;
        bool framed;
    }

    /// @notice Numbers `start` to `stop` (without) of the rows of an operation at positions `first` to `last` (without).
    struct RowSlice {
        Operation operation;
        uint256 first;
        uint256 last;
        uint256 start;
        uint256 stop;
    }

    /// @notice Numbers `start` to `stop` (without) of a row of a tensor of the layer, which is named by what follows the
    ///         layer's prefix.
    struct WeightSlice {
        string suffix;
        uint256 row;
        uint256 start;
        uint256 stop;
    }

    /// @notice How one number is computed.
    /// @dev Operands are the rows, then the weights.
    struct Step {
        Arithmetic.Kind kind;
        RowSlice[] rows;
        WeightSlice[] weights;
        uint256[] constants;
    }

    /// @dev The place of a number.
    struct Place {
        Shape shape;
        Operation operation;
        uint256 position;
        uint256 element;
        uint256 first;
        uint256 span;
    }

    /// @notice The layer has no such row, or the row no such number; nothing computes a layer's input.
    error NoSuchNumber(Operation operation, uint256 position, uint256 element);

    /// @notice Whether a layer of this shape has an operation.
    function has(Shape memory shape, Operation operation) internal pure returns (bool) {
        if (operation >= Operation.QueryFactors && operation <= Operation.KeyNorm) return shape.headNorms;
        if (operation == Operation.AttentionFactor || operation == Operation.AttentionNorm) return shape.framed;
        if (operation == Operation.DownFactor || operation == Operation.DownNorm) return shape.framed;
        return operation != Operation.CappedScores || shape.cap != 0;
    }

    /// @notice The first position that a position looks back place.
    function firstPosition(Shape memory shape, uint256 position) internal pure returns (uint256) {
        return shape.window != 0 && position >= shape.window ? position - shape.window + 1 : 0;
    }

    /// @notice How many numbers the row at a position has; 0 where there is none.
    function width(Shape memory shape, Operation operation, uint256 position) internal pure returns (uint256) {
        if (!has(shape, operation)) return 0;
        if (
            operation == Operation.Query || operation == Operation.QueryNorm || operation == Operation.RotatedQuery
                || operation == Operation.Attended
        ) return uint256(shape.heads) * shape.headWidth;
        if (
            operation == Operation.Key || operation == Operation.Value || operation == Operation.KeyNorm
                || operation == Operation.RotatedKey
        ) return uint256(shape.keyHeads) * shape.headWidth;
        if (operation == Operation.QueryFactors || operation == Operation.Maxima || operation == Operation.Sums) {
            return shape.heads;
        }
        if (operation == Operation.KeyFactors) return shape.keyHeads;
        if (operation == Operation.Cosines || operation == Operation.Sines) return shape.headWidth / 2;
        if (_isSpan(operation)) return uint256(shape.heads) * (position + 1 - firstPosition(shape, position));
        if (_isFactor(operation)) return 1;
        if (operation == Operation.Gate || operation == Operation.Up || operation == Operation.Gated) {
            return shape.intermediate;
        }
        return shape.hidden;
    }

    /// @notice How one number is computed.
    function step(Shape memory shape, Operation operation, uint256 position, uint256 element)
        internal
        pure
        returns (Step memory made)
    {
        if (operation == Operation.Input || element >= width(shape, operation, position)) {
            revert NoSuchNumber(operation, position, element);
        }
        uint256 first = firstPosition(shape, position);
        Place memory place = Place(shape, operation, position, element, first, position + 1 - first);
        if (_isFactor(operation)) return _factor(place);
        if (operation >= Operation.Cosines && operation <= Operation.RotatedKey) return _turned(place);
        if (operation >= Operation.Scores && operation <= Operation.Attended) return _attention(place);
        if (operation == Operation.Middle || operation == Operation.Output) return _residual(place);
        if (operation == Operation.Gated) {
            made = _made(Arithmetic.Kind.Gating, 2, 0, 1);
            made.rows[0] = _one(place, Operation.Gate, element);
            made.rows[1] = _one(place, Operation.Up, element);
            made.constants[0] = shape.activation;
            return made;
        }
        if (_normed(operation) != Operation.Input || operation == Operation.InputNorm) return _norm(place);
        return _product(place);
    }

    // ------------------------------------------------------------------------------------------------------ the rules

    function _factor(Place memory place) private pure returns (Step memory made) {
        made = _made(Arithmetic.Kind.Factor, 1, 0, 1);
        made.constants[0] = place.shape.epsilon;
        Operation read = Operation.Input;
        if (place.operation == Operation.AttentionFactor) read = Operation.AttentionOutput;
        else if (place.operation == Operation.FeedFactor) read = Operation.Middle;
        else if (place.operation == Operation.DownFactor) read = Operation.Down;
        else if (place.operation == Operation.QueryFactors) read = Operation.Query;
        else if (place.operation == Operation.KeyFactors) read = Operation.Key;
        if (place.operation != Operation.QueryFactors && place.operation != Operation.KeyFactors) {
            made.rows[0] = _row(place, read, 0, place.shape.hidden);
        } else {
            made.rows[0] = _row(place, read, place.element * place.shape.headWidth, (place.element + 1) * place.shape.headWidth);
        }
    }

    /// @dev What a norm reads; Input for what is none, and for the input's own.
    function _normed(Operation operation) private pure returns (Operation) {
        if (operation == Operation.QueryNorm) return Operation.Query;
        if (operation == Operation.KeyNorm) return Operation.Key;
        if (operation == Operation.AttentionNorm) return Operation.AttentionOutput;
        if (operation == Operation.FeedNorm) return Operation.Middle;
        return operation == Operation.DownNorm ? Operation.Down : Operation.Input;
    }

    function _norm(Place memory place) private pure returns (Step memory made) {
        made = _made(Arithmetic.Kind.Norm, 2, 1, 1);
        made.constants[0] = place.shape.shifted ? 1 : 0;
        made.rows[0] = _one(place, _normed(place.operation), place.element);
        // The factor stands before its norm.
        Operation factor = Operation(uint8(place.operation) - 1);
        uint256 column = place.element;
        uint256 head = 0;
        if (place.operation == Operation.QueryNorm || place.operation == Operation.KeyNorm) {
            (head, column) = (place.element / place.shape.headWidth, place.element % place.shape.headWidth);
        }
        made.rows[1] = _one(place, factor, head);
        made.weights[0] = WeightSlice(_normName(place), 0, column, column + 1);
    }

    function _normName(Place memory place) private pure returns (string memory) {
        if (place.operation == Operation.InputNorm) return "input_layernorm.weight";
        if (place.operation == Operation.QueryNorm) return "self_attn.q_norm.weight";
        if (place.operation == Operation.KeyNorm) return "self_attn.k_norm.weight";
        if (place.operation == Operation.AttentionNorm) return "post_attention_layernorm.weight";
        if (place.operation == Operation.DownNorm) return "post_feedforward_layernorm.weight";
        return place.shape.framed ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
    }

    function _product(Place memory place) private pure returns (Step memory made) {
        (Operation read, string memory name, bool biased) = _factors(place);
        made = _made(Arithmetic.Kind.Product, 1, biased ? 2 : 1, 0);
        uint256 terms = width(place.shape, read, place.position);
        made.rows[0] = _row(place, read, 0, terms);
        made.weights[0] = WeightSlice(string.concat(name, ".weight"), place.element, 0, terms);
        if (biased) made.weights[1] = WeightSlice(string.concat(name, ".bias"), 0, place.element, place.element + 1);
    }

    function _factors(Place memory place) private pure returns (Operation read, string memory name, bool biased) {
        if (place.operation == Operation.Query) return (Operation.InputNorm, "self_attn.q_proj", place.shape.biased);
        if (place.operation == Operation.Key) return (Operation.InputNorm, "self_attn.k_proj", place.shape.biased);
        if (place.operation == Operation.Value) return (Operation.InputNorm, "self_attn.v_proj", place.shape.biased);
        if (place.operation == Operation.AttentionOutput) {
            return (Operation.Attended, "self_attn.o_proj", place.shape.outputBiased);
        }
        if (place.operation == Operation.Gate) return (Operation.FeedNorm, "mlp.gate_proj", false);
        if (place.operation == Operation.Up) return (Operation.FeedNorm, "mlp.up_proj", false);
        return (Operation.Gated, "mlp.down_proj", false);
    }

    function _turned(Place memory place) private pure returns (Step memory made) {
        if (place.operation == Operation.Cosines || place.operation == Operation.Sines) {
            bool cosine = place.operation == Operation.Cosines;
            made = _made(cosine ? Arithmetic.Kind.Cosine : Arithmetic.Kind.Sine, 0, 0, 2);
            (made.constants[0], made.constants[1]) = (place.position, _frequency(place.shape, place.element));
            return made;
        }
        Operation read = place.operation == Operation.RotatedQuery ? Operation.Query : Operation.Key;
        // The norm of queries and of keys stands two behind them, each.
        if (place.shape.headNorms) read = read == Operation.Query ? Operation.QueryNorm : Operation.KeyNorm;
        uint256 half = place.shape.headWidth / 2;
        uint256 column = place.element % place.shape.headWidth;
        bool second = column >= half;
        made = _made(Arithmetic.Kind.Rotation, 4, 0, 1);
        made.rows[0] = _one(place, read, place.element);
        made.rows[1] = _one(place, Operation.Cosines, column % half);
        made.rows[2] = _one(place, read, second ? place.element - half : place.element + half);
        made.rows[3] = _one(place, Operation.Sines, column % half);
        made.constants[0] = second ? 1 : 0;
    }

    function _attention(Place memory place) private pure returns (Step memory made) {
        (Operation operation, uint256 element, uint256 span) = (place.operation, place.element, place.span);
        Operation scores = place.shape.cap == 0 ? Operation.Scores : Operation.CappedScores;
        if (operation == Operation.Scores) return _score(place);
        if (operation == Operation.CappedScores) {
            made = _made(Arithmetic.Kind.Cap, 1, 0, 1);
            made.rows[0] = _one(place, Operation.Scores, element);
            made.constants[0] = place.shape.cap;
        } else if (operation == Operation.Maxima) {
            made = _made(Arithmetic.Kind.Maximum, 1, 0, 0);
            made.rows[0] = _row(place, scores, element * span, (element + 1) * span);
        } else if (operation == Operation.Exponentials) {
            made = _made(Arithmetic.Kind.Exponential, 2, 0, 0);
            made.rows[0] = _one(place, scores, element);
            made.rows[1] = _one(place, Operation.Maxima, element / span);
        } else if (operation == Operation.Sums) {
            made = _made(Arithmetic.Kind.Sum, 1, 0, 0);
            made.rows[0] = _row(place, Operation.Exponentials, element * span, (element + 1) * span);
        } else if (operation == Operation.Probabilities) {
            made = _made(Arithmetic.Kind.Quotient, 2, 0, 0);
            made.rows[0] = _one(place, Operation.Exponentials, element);
            made.rows[1] = _one(place, Operation.Sums, element / span);
        } else {
            made = _made(Arithmetic.Kind.Product, 2, 0, 0);
            (uint256 head, uint256 column) = (element / place.shape.headWidth, element % place.shape.headWidth);
            uint256 value = _keyHead(place.shape, head) * place.shape.headWidth + column;
            made.rows[0] = _row(place, Operation.Probabilities, head * span, (head + 1) * span);
            made.rows[1] = RowSlice(Operation.Value, place.first, place.position + 1, value, value + 1);
        }
    }

    function _score(Place memory place) private pure returns (Step memory made) {
        made = _made(Arithmetic.Kind.Score, 2, 0, 1);
        (uint256 head, uint256 read) = (place.element / place.span, place.first + place.element % place.span);
        uint256 size = place.shape.headWidth;
        uint256 start = _keyHead(place.shape, head) * size;
        made.rows[0] = _row(place, Operation.RotatedQuery, head * size, (head + 1) * size);
        made.rows[1] = RowSlice(Operation.RotatedKey, read, read + 1, start, start + size);
        made.constants[0] = place.shape.scale;
    }

    function _residual(Place memory place) private pure returns (Step memory made) {
        made = _made(Arithmetic.Kind.Addition, 2, 0, 0);
        bool middle = place.operation == Operation.Middle;
        Operation part = middle
            ? (place.shape.framed ? Operation.AttentionNorm : Operation.AttentionOutput)
            : (place.shape.framed ? Operation.DownNorm : Operation.Down);
        made.rows[0] = _one(place, middle ? Operation.Input : Operation.Middle, place.element);
        made.rows[1] = _one(place, part, place.element);
    }

    // -------------------------------------------------------------------------------------------------------- helpers

    function _isFactor(Operation operation) private pure returns (bool) {
        return operation == Operation.InputFactor || operation == Operation.QueryFactors
            || operation == Operation.KeyFactors || operation == Operation.AttentionFactor
            || operation == Operation.FeedFactor || operation == Operation.DownFactor;
    }

    /// @dev Rows with a number for each head and each position that is looked back place.
    function _isSpan(Operation operation) private pure returns (bool) {
        return operation == Operation.Scores || operation == Operation.CappedScores
            || operation == Operation.Exponentials || operation == Operation.Probabilities;
    }

    function _keyHead(Shape memory shape, uint256 head) private pure returns (uint256) {
        return head / (shape.heads / shape.keyHeads);
    }

    function _frequency(Shape memory shape, uint256 place) private pure returns (uint256 bits) {
        bytes memory frequencies = shape.frequencies;
        for (uint256 i = 4 * place; i < 4 * place + 4; ++i) bits = bits << 8 | uint8(frequencies[i]);
    }

    function _made(Arithmetic.Kind kind, uint256 rows, uint256 weights, uint256 constants)
        private
        pure
        returns (Step memory)
    {
        return Step(kind, new RowSlice[](rows), new WeightSlice[](weights), new uint256[](constants));
    }

    function _row(Place memory place, Operation operation, uint256 start, uint256 stop)
        private
        pure
        returns (RowSlice memory)
    {
        return RowSlice(operation, place.position, place.position + 1, start, stop);
    }

    function _one(Place memory place, Operation operation, uint256 element) private pure returns (RowSlice memory) {
        return _row(place, operation, element, element + 1);
    }
}
