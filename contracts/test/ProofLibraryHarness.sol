// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExactNumbers} from "../libraries/ExactNumbers.sol";
import {PublicNoise} from "../libraries/PublicNoise.sol";

/// @notice Makes the arithmetic of proofs callable, for the tests that compare it with the Python rules.
contract ProofLibraryHarness {
    /// @notice Two logits of a state with what machines may differ by, and the gas it took.
    function logits(
        bytes calldata state,
        uint8 stateFormat,
        bytes calldata claimed,
        bytes calldata better,
        uint8 weightFormat,
        bool rounded,
        uint256 unitBits
    ) external view returns (ExactNumbers.Logits memory found, uint256 slack, uint256 spent) {
        spent = gasleft();
        uint256 columns = state.length / ExactNumbers.width(ExactNumbers.Format(stateFormat));
        found = ExactNumbers.logits(
            state,
            ExactNumbers.Format(stateFormat),
            claimed,
            better,
            ExactNumbers.Format(weightFormat),
            columns,
            rounded,
            unitBits
        );
        slack = ExactNumbers.slack(found, columns, rounded);
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
