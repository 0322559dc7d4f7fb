// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticRounding} from "../libraries/ArithmeticRounding.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ShownRow} from "../market/interfaces/IProofs.sol";
import {Messages} from "../market/libraries/Messages.sol";
import {Orders} from "../market/libraries/Orders.sol";
import {INumbers} from "./INumbers.sol";
import {Matter} from "./ISteps.sol";
import {Operands} from "./Operands.sol";
import {TraceLayout} from "./TraceLayout.sol";

/// @title The rows that nodes signed, and how far one is from the trace's last
library SignedRows {
    error WrongRow(uint256 given, uint256 expected);

    bytes32 private constant HEAD_TAG = keccak256("troth/market/head/1");
    /// @dev 10^-4: by so much of a row's root mean square each of its numbers may differ from the trace's.
    uint256 private constant TOLERANCE = 0x38d1b717;
    /// @dev 4: by so many times what a nudge moves it a row may differ.
    uint256 private constant ROOM = 0x40800000;

    /// @notice Reverts unless the row is at this position of the chain under a signed head.
    function requireRow(
        Matter calldata matter,
        ShownRow calldata shown,
        uint256 segment,
        uint256 position,
        bytes32 head
    ) internal pure {
        if (shown.later.length != matter.rows - 1 - position) {
            revert WrongRow(shown.later.length, matter.rows - 1 - position);
        }
        if (shown.row.length != 4 * uint256(matter.hidden)) revert WrongRow(shown.row.length, 4 * uint256(matter.hidden));
        bytes32 link = keccak256(
            abi.encode(Messages.ROW_TYPE, matter.order, segment, position, _rowHash(segment, shown), shown.previous)
        );
        for (uint256 i = 0; i < shown.later.length; ++i) {
            link = keccak256(
                abi.encode(Messages.ROW_TYPE, matter.order, segment, position + 1 + i, shown.later[i], link)
            );
        }
        Orders.requireEqual(keccak256(abi.encodePacked(HEAD_TAG, matter.order, shown.headSalt, link)), head);
    }

    /// @dev The first segment's rows bind the tokens that they were computed from.
    function _rowHash(uint256 segment, ShownRow calldata shown) private pure returns (bytes32) {
        return segment == 0 ? keccak256(abi.encodePacked(shown.read, shown.row)) : keccak256(shown.row);
    }

    /// @notice Whether |a - b| / rms(b) is above the tolerance, each step rounded to float32. A trace without numbers says nothing
    ///      of rows.
    function differs(INumbers numbers, bytes calldata signed, bytes calldata last, uint256 element)
        internal
        view
        returns (bool)
    {
        if (signed.length != last.length) revert WrongRow(signed.length, last.length);
        if (4 * element >= last.length) revert TraceLayout.WrongElement(element);
        ArithmeticSums.Operand[] memory whole = new ArithmeticSums.Operand[](1);
        whole[0] = Operands.float32(last);
        uint256 factor = numbers.evaluate(Arithmetic.Kind.Factor, whole, new uint256[](1));
        if (!ArithmeticRounding.isFinite(factor)) return false;
        ArithmeticSums.Operand[] memory pair = new ArithmeticSums.Operand[](2);
        (pair[0], pair[1]) = (Operands.constantOf(distanceOf(numbers, signed, element, last, element)), Operands.constantOf(factor));
        return numbers.evaluate(Arithmetic.Kind.Product, pair, new uint256[](0)) & 0x7fffffff > TOLERANCE;
    }

    /// @notice Whether a distance is above so many times what the nudge moves. Where that is no number, nothing can be said.
    function isBeyond(INumbers numbers, uint256 distance, uint256 moved) internal view returns (bool) {
        ArithmeticSums.Operand[] memory pair = new ArithmeticSums.Operand[](2);
        (pair[0], pair[1]) = (Operands.constantOf(moved), Operands.constantOf(ROOM));
        uint256 allowed = numbers.evaluate(Arithmetic.Kind.Product, pair, new uint256[](0));
        return ArithmeticRounding.isFinite(allowed) && distance > allowed;
    }

    /// @notice |a - b| for one number of each.
    function distanceOf(
        INumbers numbers,
        bytes calldata one,
        uint256 element,
        bytes calldata other,
        uint256 place
    ) internal view returns (uint256) {
        ArithmeticSums.Operand[] memory pair = new ArithmeticSums.Operand[](2);
        pair[0] = Operands.float32(one[4 * element:4 * element + 4]);
        uint256 number = uint32(bytes4(other[4 * place:4 * place + 4]));
        pair[1] = Operands.float32(abi.encodePacked(uint32(number ^ 0x80)));
        return numbers.evaluate(Arithmetic.Kind.Addition, pair, new uint256[](0)) & 0x7fffffff;
    }
}
