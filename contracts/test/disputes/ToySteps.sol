// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim, ISteps, Matter, Part, Word} from "../../disputes/ISteps.sol";
import {TraceTree} from "../../disputes/TraceTree.sol";
import {ShownRow} from "../../market/interfaces/IProofs.sol";

/// @title Arithmetic that a test can follow: a number is three times the one before it, plus the number of its tensor
/// @notice Tensor 0 has 1000 p + c in row p, column c; rows are signed as their hash. Those in column 5 are sums of two parts: three
///         times the one before, and the rest. The last tensor of a nudged trace
///         has as much more as the nudge's number.
contract ToySteps is ISteps {
    struct Shape {
        uint32 tensors;
        uint32 columns;
    }

    /// @dev Which number of the word, and the word before it.
    struct Step {
        uint8 element;
        bytes words;
        bytes32[] siblings;
    }

    struct Opening {
        bytes words;
        bytes32[] siblings;
    }

    uint256 private constant LIMIT = 10;
    uint256 private constant ROOM = 4;

    function depth(Matter calldata, bytes calldata shape) external pure returns (uint8) {
        return _levels(abi.decode(shape, (Shape)).tensors);
    }

    function depthOf(Matter calldata matter, bytes calldata shape, bool nudged, uint32 tensor)
        external
        pure
        returns (uint8)
    {
        Shape memory given = abi.decode(shape, (Shape));
        uint256 count = nudged ? 2 * given.tensors : given.tensors;
        if (tensor >= count) revert NoSuchTensor(tensor, count);
        return _depthOf(matter, given);
    }

    function isWrong(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        bytes calldata step
    ) external view returns (bool) {
        Shape memory given = abi.decode(shape, (Shape));
        Step memory shown = abi.decode(step, (Step));
        uint256 across = _levels((given.columns + 7) / 8);
        (uint256 row, uint256 column) = (word.place >> across, word.place % (1 << across) * 8 + shown.element);
        require(shown.element < 8, "no such number");
        if (row > matter.position || column >= given.columns) return _numberAt(word.value, shown.element) != 0;
        uint256 number = word.tensor % given.tensors;
        uint256 expected = 1000 * row + column;
        if (number != 0) {
            uint256 levels = _depthOf(matter, given) + _top(given, claim);
            uint256 first = uint256(word.tensor - 1) << _depthOf(matter, given) | word.place;
            bytes32 opened = this.rootOf(shown.words, first, levels, shown.siblings);
            require(opened == claim.root && shown.words.length == 32, "another trace");
            expected = 3 * _numberAt(bytes32(shown.words), shown.element) + number;
            if (word.tensor == 2 * given.tensors - 1) expected += claim.nudge;
        }
        return _numberAt(word.value, shown.element) != expected % (1 << 32);
    }

    function isFar(Matter calldata matter, bytes calldata shape, Claim calldata claim, bytes calldata opening)
        external
        view
        returns (bool)
    {
        Shape memory given = abi.decode(shape, (Shape));
        (bytes memory row, Opening memory plain, Opening memory nudged) = abi.decode(opening, (bytes, Opening, Opening));
        require(keccak256(row) == matter.outputHead, "another row");
        uint256 last = _lastOf(matter, given, claim, plain, given.tensors - 1);
        uint256 one = _numberAt(bytes32(row), 0);
        uint256 allowed = LIMIT;
        if (claim.nudge != 0) {
            uint256 other = _lastOf(matter, given, claim, nudged, 2 * given.tensors - 1);
            allowed += ROOM * (other > last ? other - last : last - other);
        }
        return (one > last ? one - last : last - one) > allowed;
    }

    /// @dev The first number of a last row.
    function _lastOf(
        Matter calldata matter,
        Shape memory given,
        Claim calldata claim,
        Opening memory opening,
        uint256 tensor
    ) private view returns (uint256) {
        uint256 levels = _depthOf(matter, given) + _top(given, claim);
        uint256 first = tensor << _depthOf(matter, given)
            | uint256(matter.position) << _levels((given.columns + 7) / 8);
        bytes32 root = this.rootOf(opening.words, first, levels, opening.siblings);
        require(root == claim.root && opening.words.length == 32, "another trace");
        return _numberAt(bytes32(opening.words), 0);
    }

    function _top(Shape memory given, Claim calldata claim) private pure returns (uint8) {
        return _levels(claim.nudge == 0 ? given.tensors : 2 * given.tensors);
    }

    function concludes(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata,
        Word calldata word,
        uint8 number,
        bytes calldata parts
    ) external pure returns (bool) {
        Shape memory given = abi.decode(shape, (Shape));
        if (!_isSum(matter, given, word, number)) return parts.length == 0;
        if (parts.length != 192) return false;
        uint256 total = uint256(bytes32(parts[64:96])) + uint256(bytes32(parts[160:192]));
        return total % (1 << 32) == _numberAt(word.value, number);
    }

    function isWrongPart(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        Part calldata part,
        bytes calldata step
    ) external view returns (bool) {
        Shape memory given = abi.decode(shape, (Shape));
        uint256 value = uint256(bytes32(part.value[64:96]));
        if (part.index == 1) {
            uint256 rest = word.tensor % given.tensors;
            return value != (word.tensor == 2 * given.tensors - 1 ? rest + claim.nudge : rest);
        }
        Step memory shown = abi.decode(step, (Step));
        uint256 levels = _depthOf(matter, given) + _top(given, claim);
        uint256 first = uint256(word.tensor - 1) << _depthOf(matter, given) | word.place;
        bytes32 opened = this.rootOf(shown.words, first, levels, shown.siblings);
        require(opened == claim.root && shown.words.length == 32, "another trace");
        return value != 3 * _numberAt(bytes32(shown.words), part.number);
    }

    function _isSum(Matter calldata matter, Shape memory given, Word calldata word, uint256 number)
        private
        pure
        returns (bool)
    {
        uint256 across = _levels((given.columns + 7) / 8);
        uint256 column = word.place % (1 << across) * 8 + number;
        return word.tensor % given.tensors != 0 && column == 5 && word.place >> across <= matter.position;
    }

    function requireSigned(Matter calldata matter, uint256, ShownRow calldata row) external pure {
        require(keccak256(row.row) == matter.outputHead, "another row");
    }

    function rootOf(bytes calldata words, uint256 first, uint256 levels, bytes32[] calldata siblings)
        external
        pure
        returns (bytes32)
    {
        return TraceTree.rangeRoot(words, first, levels, siblings);
    }

    function _numberAt(bytes32 word, uint256 element) private pure returns (uint256) {
        return uint32(uint256(word) >> (7 - element) * 32);
    }

    function _depthOf(Matter calldata matter, Shape memory given) private pure returns (uint8) {
        return _levels(uint256(matter.position) + 1) + _levels((given.columns + 7) / 8);
    }

    function _levels(uint256 count) private pure returns (uint8 levels) {
        while (1 << levels < count) ++levels;
    }
}
