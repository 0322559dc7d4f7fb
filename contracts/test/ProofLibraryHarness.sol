// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactNumbers} from "../libraries/ExactNumbers.sol";
import {PublicNoise} from "../libraries/PublicNoise.sol";

/// @notice Makes the arithmetic of proofs callable, for the tests that compare it with the Python rules.
contract ProofLibraryHarness {
    function read(bytes calldata data, uint8 format, bool rounded)
        external
        pure
        returns (uint256[] memory words, bool finite)
    {
        ExactNumbers.Numbers memory numbers = ExactNumbers.read(data, ExactNumbers.Format(format), rounded);
        return (numbers.words, numbers.finite);
    }

    /// @notice Sum, size and slack of the product of a state and a row of weights, and the gas it took.
    function multiply(bytes calldata state, bytes calldata weights, uint8 stateFormat, uint8 format, bool rounded)
        external
        view
        returns (int256 sum, uint256 size, uint256 slack, uint256 spent)
    {
        spent = gasleft();
        uint256[] memory left = ExactNumbers.read(state, ExactNumbers.Format(stateFormat), false).words;
        uint256[] memory right = ExactNumbers.read(weights, ExactNumbers.Format(format), rounded).words;
        ExactNumbers.Product memory product = ExactNumbers.multiply(left, right);
        slack = ExactNumbers.slack(product, left.length, rounded);
        (sum, size) = (product.sum, product.size);
        spent -= gasleft();
    }

    function ln(uint256 number) external pure returns (int256) {
        return PublicNoise.ln(number);
    }

    function gumbel(bytes32 seed, uint256 position, uint256 token) external pure returns (int256) {
        return PublicNoise.gumbel(seed, position, token);
    }

    function draw(bytes32 seed, uint256 position, uint256 token) external pure returns (uint256) {
        return PublicNoise.draw(seed, position, token);
    }
}
