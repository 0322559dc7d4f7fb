// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Rules} from "../interfaces/MarketTypes.sol";

/// @title What the steps of a case cost, as far as it is paid back
/// @notice Below what each costs at least (one verifier that says nothing, own posts instead of signatures, one reviewer with
///         many seats, tiles that are masked to nothing), so that nobody earns by carrying cases on; `scripts/bench gas`
///         has what they cost.
library CaseGas {
    uint256 private constant PER = 1e9;
    uint256 private constant DOUBT = 168_000;
    uint256 private constant OPEN = 250_000;
    uint256 private constant SUSPEND = 60_000;
    uint256 private constant DRAW = 70_000;
    uint256 private constant DRAW_REVIEWER = 3_000;
    uint256 private constant COMMIT = 44_000;
    uint256 private constant COMMIT_REVIEWER = 800;
    uint256 private constant COMMIT_POSTED = 2_100;
    uint256 private constant COMMIT_SIGNED = 5_000;
    uint256 private constant CONVENE = 78_000;
    uint256 private constant CONVENE_REVIEWER = 8_000;
    uint256 private constant SEED = 66_000;
    uint256 private constant SEED_REVIEWER = 1_000;
    uint256 private constant DECIDE = 105_000;
    uint256 private constant DECIDE_SHOWN = 1_700;
    uint256 private constant DECIDE_PAID = 5_500;
    uint256 private constant DECIDE_CONVICT = 20_000;
    uint256 private constant DECIDE_EVICT = 40_000;
    uint256 private constant DECIDE_RESTORE = 20_000;
    uint256 private constant DECIDE_PROVE = 10_000;
    uint256 private constant TILE = 3_000;
    uint256 private constant TILE_LEVEL = 600;

    /// @notice What a decision is paid back by.
    /// @param shown reviewers who show anything
    /// @param paid those who are paid for it
    /// @param tiles all that are shown, the node's with them
    /// @param depth of the tree that each is proven by
    /// @param convicts whether somebody is convicted, and whether that takes its last seat
    /// @param restores whether the case had suspended the node
    /// @param proves whether the same call draws the tiles
    struct Decision {
        uint256 shown;
        uint256 paid;
        uint256 tiles;
        uint256 depth;
        bool convicts;
        bool evicts;
        bool restores;
        bool proves;
    }

    // Counts of at most sixteen bits by constants below 2^20: no sum comes near to 64 bits.

    function opening(bool isDoubt, bool suspends) internal pure returns (uint256) {
        unchecked {
            return (isDoubt ? DOUBT : OPEN) + (suspends ? SUSPEND : 0);
        }
    }

    function drawing(uint256 reviewers) internal pure returns (uint256) {
        unchecked {
            return DRAW + DRAW_REVIEWER * reviewers;
        }
    }

    /// @notice What others committed by their own calls is dear to them, and cheap here: who sends signatures is paid for
    ///         those, and nobody for what is not there.
    function committing(uint256 reviewers, uint256 posted, uint256 signed_) internal pure returns (uint256) {
        unchecked {
            return COMMIT + COMMIT_REVIEWER * reviewers + COMMIT_POSTED * posted + COMMIT_SIGNED * signed_;
        }
    }

    /// @notice Drawing and committing in one call.
    function convening(uint256 reviewers) internal pure returns (uint256) {
        unchecked {
            return CONVENE + CONVENE_REVIEWER * reviewers;
        }
    }

    function seeding(uint256 reviewers) internal pure returns (uint256) {
        unchecked {
            return SEED + SEED_REVIEWER * reviewers;
        }
    }

    function deciding(Decision memory done) internal pure returns (uint256 amount) {
        unchecked {
            amount = DECIDE + DECIDE_SHOWN * done.shown + DECIDE_PAID * done.paid
                + (TILE + TILE_LEVEL * done.depth) * done.tiles;
            if (done.convicts) amount += DECIDE_CONVICT;
            if (done.evicts) amount += DECIDE_EVICT;
            if (done.restores) amount += DECIDE_RESTORE;
            if (done.proves) amount += DECIDE_PROVE;
        }
    }

    /// @notice Most that an opening and two rounds are paid back.
    /// @param depth of the tree that a tile is proven by
    function whole(Rules memory rules, uint256 depth) internal pure returns (uint256) {
        unchecked {
            uint256 reviewers = rules.reviewers;
            uint256 tiles = (reviewers + 1) * rules.tiles;
            uint256 most = DECIDE + (DECIDE_SHOWN + DECIDE_PAID) * reviewers + (TILE + TILE_LEVEL * depth) * tiles;
            uint256 round = drawing(reviewers) + committing(reviewers, 0, reviewers) + seeding(reviewers) + most;
            return OPEN + SUSPEND + 2 * round + DECIDE_CONVICT + DECIDE_EVICT + DECIDE_RESTORE;
        }
    }

    /// @notice What an amount of gas is worth at `price` asset units per 10^9 gas.
    function worth(uint256 amount, uint256 price) internal pure returns (uint256) {
        return amount * price / PER;
    }
}
