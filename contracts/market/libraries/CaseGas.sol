// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Rules} from "../interfaces/MarketTypes.sol";

/// @title What the steps of a case cost, as far as it is paid back
/// @notice Below what each costs at least (own posts instead of signatures, one reviewer with many seats, nobody to
///         pay), so that nobody earns by carrying cases on.
library CaseGas {
    uint256 private constant PER = 1e9;
    uint256 private constant DOUBT = 120_000;
    uint256 private constant OPEN = 250_000;
    uint256 private constant DRAW = 90_000;
    uint256 private constant DRAW_REVIEWER = 3_000;
    uint256 private constant COMMIT = 50_000;
    uint256 private constant COMMIT_REVIEWER = 2_500;
    uint256 private constant SEED = 80_000;
    uint256 private constant DECIDE = 120_000;
    uint256 private constant DECIDE_REVIEWER = 6_000;
    uint256 private constant DECIDE_TILE = 8_000;

    function opening(bool isDoubt) internal pure returns (uint256) {
        return isDoubt ? DOUBT : OPEN;
    }

    function drawing(uint256 reviewers) internal pure returns (uint256) {
        return DRAW + DRAW_REVIEWER * reviewers;
    }

    function committing(uint256 reviewers) internal pure returns (uint256) {
        return COMMIT + COMMIT_REVIEWER * reviewers;
    }

    function seeding() internal pure returns (uint256) {
        return SEED;
    }

    function deciding(uint256 reviewers, uint256 tiles) internal pure returns (uint256) {
        return DECIDE + (DECIDE_REVIEWER + DECIDE_TILE * tiles) * reviewers;
    }

    /// @notice Most that an opening and two rounds are paid back.
    function whole(Rules memory rules) internal pure returns (uint256) {
        uint256 reviewers = rules.reviewers;
        uint256 round = drawing(reviewers) + committing(reviewers) + SEED + deciding(reviewers, rules.tiles);
        return OPEN + 2 * round;
    }

    /// @notice What an amount of gas is worth at `price` asset units per 10^9 gas.
    function worth(uint256 amount, uint256 price) internal pure returns (uint256) {
        return amount * price / PER;
    }
}
