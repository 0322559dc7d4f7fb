// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ReputationRules, Standing} from "./IReputation.sol";

/// @title A node's score after an epoch, in fixed point
/// @notice PlanetServe section 3.4: R = α R + β C, and where more than γ of the last W credits were abnormal the smaller
///         (W + 1) / (W + c / γ + 2) in place of β. The paper's coefficient exceeds β where c / γ is small, which would
///         reward abnormal credits: the smaller of both counts. `troth.protocol.reputation.rated` is the same in Python.
library Scores {
    /// @dev The one of credits, scores and weights.
    uint256 internal constant ONE = 1e9;

    /// @notice How a node stands after a credit; each division rounds down.
    /// @param credit 0 to `ONE`
    function rated(Standing memory before, uint256 credit, uint64 epoch, ReputationRules memory rules)
        internal
        pure
        returns (Standing memory)
    {
        // None of this can overflow: scores, credits and weights are at most ONE, counts at most 8.
        unchecked {
            uint256 bits = uint256(before.abnormal) << 1 | (credit < rules.abnormal ? 1 : 0);
            bits &= (1 << rules.window) - 1;
            uint256 weighted = uint256(rules.take) * credit / ONE;
            uint256 penalty = _count(bits) * rules.sensitivity;
            if (penalty > rules.window) {
                uint256 punished = (uint256(rules.window) + 1) * credit / (rules.window + penalty + 2);
                if (punished < weighted) weighted = punished;
            }
            uint256 score = uint256(rules.keep) * before.score / ONE + weighted;
            uint24 times = before.rated == type(uint24).max ? before.rated : before.rated + 1;
            return Standing(uint32(score), uint8(bits), times, uint32(epoch), before.owner);
        }
    }

    function _count(uint256 bits) private pure returns (uint256 count) {
        for (; bits != 0; bits &= bits - 1) {
            ++count;
        }
    }
}
