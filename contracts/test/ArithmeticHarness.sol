// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticRounding} from "../libraries/ArithmeticRounding.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ExactNumbers} from "../libraries/ExactNumbers.sol";

/// @notice Makes canonical arithmetic callable, for the tests that compare it with the Python rules.
contract ArithmeticHarness {
    /// @notice One step.
    struct Step {
        Arithmetic.Kind kind;
        ArithmeticSums.Operand[] operands;
        uint256[] constants;
        ExactNumbers.Format format;
    }

    /// @notice The elements of several steps.
    function evaluate(Step[] calldata steps) external pure returns (uint256[] memory elements) {
        elements = new uint256[](steps.length);
        for (uint256 i = 0; i < steps.length; ++i) {
            elements[i] = Arithmetic.evaluate(steps[i].kind, steps[i].operands, steps[i].constants, steps[i].format);
        }
    }

    /// @notice Whether a claim holds, as a transaction whose gas can be read.
    function check(Step calldata step, uint256 claimed) external pure returns (bool) {
        return Arithmetic.check(step.kind, step.operands, step.constants, step.format, claimed);
    }

    /// @notice The sum so far and more terms.
    function add(Arithmetic.Kind kind, uint256[3] calldata soFar, ArithmeticSums.Operand[] calldata operands)
        external
        pure
        returns (uint256[3] memory)
    {
        ArithmeticRounding.Wide memory sum =
            Arithmetic.add(kind, ArithmeticRounding.Wide(soFar[0], soFar[1], soFar[2]), operands);
        return [sum.high, sum.middle, sum.low];
    }
}
