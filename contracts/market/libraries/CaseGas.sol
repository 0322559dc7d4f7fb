// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Rules} from "../interfaces/MarketTypes.sol";

/// @title What the steps of a case cost, as far as it is paid back: a little less than measured, so that nobody earns by it
library CaseGas {
    uint256 private constant PER = 1e9;
    uint256 private constant OPEN = 200_000;
    uint256 private constant DRAW = 60_000;
    uint256 private constant DRAW_SEAT = 4_000;
    uint256 private constant COMMIT = 50_000;
    uint256 private constant COMMIT_SEAT = 5_000;
    uint256 private constant SEED = 60_000;
    uint256 private constant DECIDE = 60_000;
    uint256 private constant DECIDE_SEAT = 14_000;
    uint256 private constant DECIDE_TILE = 10_000;

    function opening() internal pure returns (uint256) {
        return OPEN;
    }

    function drawing(Rules memory rules) internal pure returns (uint256) {
        return DRAW + DRAW_SEAT * rules.reviewers;
    }

    function committing(Rules memory rules) internal pure returns (uint256) {
        return COMMIT + COMMIT_SEAT * rules.reviewers;
    }

    function seeding() internal pure returns (uint256) {
        return SEED;
    }

    function deciding(Rules memory rules) internal pure returns (uint256) {
        return DECIDE + (DECIDE_SEAT + DECIDE_TILE * rules.tiles) * rules.reviewers;
    }

    /// @notice Of an opening and two rounds.
    function whole(Rules memory rules) internal pure returns (uint256) {
        uint256 round = drawing(rules) + committing(rules) + deciding(rules) + (rules.exact ? 0 : SEED);
        return OPEN + 2 * round;
    }

    /// @notice What an amount of gas is worth at `price` asset units per 10^9 gas.
    function worth(uint256 amount, uint256 price) internal pure returns (uint256) {
        return amount * price / PER;
    }
}
