// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Rules} from "../interfaces/MarketTypes.sol";

/// @title What the steps of a case cost, as far as it is paid back
/// @notice Below what each costs at least (one verifier that says nothing, own posts instead of signatures, one reviewer with
///         many seats, tiles that are masked to nothing), so that nobody earns by carrying cases on; `scripts/bench gas`
///         has what they cost.
library CaseGas {
    uint256 private constant PER = 1e9;
    uint256 private constant DOUBT = 185_000;
    uint256 private constant OPEN = 270_000;
    uint256 private constant DRAW = 72_000;
    uint256 private constant DRAW_REVIEWER = 5_000;
    uint256 private constant COMMIT = 44_000;
    uint256 private constant COMMIT_REVIEWER = 3_200;
    uint256 private constant SEED = 58_000;
    uint256 private constant SEED_REVIEWER = 2_200;
    uint256 private constant DECIDE = 105_000;
    uint256 private constant DECIDE_SHOWN = 3_500;
    uint256 private constant DECIDE_PAID = 5_000;
    uint256 private constant DECIDE_CONVICT = 20_000;
    uint256 private constant TILE = 4_000;
    uint256 private constant TILE_LEVEL = 650;

    function opening(bool isDoubt) internal pure returns (uint256) {
        return isDoubt ? DOUBT : OPEN;
    }

    function drawing(uint256 reviewers) internal pure returns (uint256) {
        return DRAW + DRAW_REVIEWER * reviewers;
    }

    function committing(uint256 reviewers) internal pure returns (uint256) {
        return COMMIT + COMMIT_REVIEWER * reviewers;
    }

    function seeding(uint256 reviewers) internal pure returns (uint256) {
        return SEED + SEED_REVIEWER * reviewers;
    }

    /// @param shown reviewers who show anything
    /// @param paid those who are paid for it
    /// @param tiles all that reviewers show
    /// @param depth of the tree that each is proven by
    function deciding(uint256 shown, uint256 paid, bool convicts, uint256 tiles, uint256 depth)
        internal
        pure
        returns (uint256)
    {
        return DECIDE + DECIDE_SHOWN * shown + DECIDE_PAID * paid + (convicts ? DECIDE_CONVICT : 0)
            + (TILE + TILE_LEVEL * depth) * tiles;
    }

    /// @notice Most that an opening and two rounds are paid back.
    /// @param depth of the tree that a tile is proven by
    function whole(Rules memory rules, uint256 depth) internal pure returns (uint256) {
        uint256 reviewers = rules.reviewers;
        uint256 round = drawing(reviewers) + committing(reviewers) + seeding(reviewers)
            + deciding(reviewers, reviewers, true, reviewers * rules.tiles, depth);
        return OPEN + 2 * round;
    }

    /// @notice What an amount of gas is worth at `price` asset units per 10^9 gas.
    function worth(uint256 amount, uint256 price) internal pure returns (uint256) {
        return amount * price / PER;
    }
}
