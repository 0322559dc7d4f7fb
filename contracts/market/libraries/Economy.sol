// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title What makes cheating lose: p, and the penalty that a class needs
/// @notice p = q · P[most of k drawn seats are honest] · P[two thirds of m' are honest]; a class needs
///         L ≥ 1.5 g (1 - p) / p, so that a cheat that takes the whole fee g until it is found loses half as much
///         again.
/// @dev The same integers are in `troth.protocol.market.economy`; all quotients are rounded down, so that p is never
///      too high.
library Economy {
    /// @notice One, in fixed point.
    uint256 internal constant ONE = 1e18;

    /// @dev Gas of a whole case that suspends the node, every step in a transaction of its own: what is measured for 5 to 15
    ///      reviewers and up to six tiles (docs/reference/benchmarks/gas.md), a quarter more, and tiles of the deepest tree
    ///      in the clear.
    uint256 private constant CASE = 900_000;
    uint256 private constant CASE_REVIEWER = 30_000;
    uint256 private constant CASE_TILE = 18_000;
    uint256 private constant CASE_LEVEL = 700;
    /// @dev No trace that is judged has a deeper tree (Docket).
    uint256 private constant MOST_LEVELS = 22;
    /// @dev Powers are taken with more digits than the result has.
    uint256 private constant FINE = 1e36;
    uint256 private constant BASIS_POINTS = 10_000;
    uint256 private constant MILLION = 1e6;
    uint256 private constant GIGA = 1e9;

    /// @notice The chance that a cheat is found and convicted.
    /// @param rate q, millionths
    /// @param share r, honest seats in basis points
    function detection(uint256 rate, uint256 share, uint256 verifiers, uint256 reviewers)
        internal
        pure
        returns (uint256 p)
    {
        uint256 found = atLeast(verifiers, verifiers / 2 + 1, share);
        return rate * found * conviction(share, reviewers) / (MILLION * ONE);
    }

    /// @notice The chance that two thirds of a committee are honest.
    function conviction(uint256 share, uint256 reviewers) internal pure returns (uint256) {
        return atLeast(reviewers, supermajority(reviewers), share);
    }

    /// @notice Whether a penalty L outweighs what can be gained with fees of at most g: 2 L p ≥ 3 g (1 - p).
    function deters(uint256 penalty, uint256 feeCap, uint256 p) internal pure returns (bool) {
        return 2 * penalty * p >= 3 * feeCap * (ONE - p);
    }

    /// @notice Gas of a whole case, which a seat reserves: each reviewer, and the node, open so many tiles.
    /// @param tiles of the class; none in an exact one
    function caseGas(uint256 reviewers, uint256 tiles) internal pure returns (uint256) {
        return CASE + CASE_REVIEWER * reviewers + (reviewers + 1) * tiles * (CASE_TILE + CASE_LEVEL * MOST_LEVELS);
    }

    /// @notice Whether bringing a rejection pays: the reward, a tenth of L, where it convicts, against the gas of a case, at the
    ///         ceiling, where it does not. Without this a rational holder of the evidence would let a rejection lie.
    /// @param spent caseGas of the class
    function rewards(uint256 penalty, uint256 convicting, uint256 spent, uint256 gasPrice)
        internal
        pure
        returns (bool)
    {
        return penalty * convicting * GIGA >= 10 * spent * gasPrice * (ONE - convicting);
    }

    /// @notice The least stake of a seat: two penalties, a case's gas at the ceiling price, and the reward.
    /// @param spent caseGas of the class
    function leastSeat(uint256 penalty, uint256 spent, uint256 gasPrice) internal pure returns (uint256) {
        return 2 * penalty + Math.ceilDiv(spent * gasPrice, GIGA) + Math.ceilDiv(penalty, 10);
    }

    /// @notice Two thirds of a committee, rounded up: what takes stake.
    function supermajority(uint256 seats) internal pure returns (uint256) {
        return Math.ceilDiv(2 * seats, 3);
    }

    /// @notice P[Bin(trials, share) ≥ least] in fixed point, rounded down.
    function atLeast(uint256 trials, uint256 least, uint256 share) internal pure returns (uint256) {
        uint256[] memory honest = _powers(share, trials);
        uint256[] memory others = _powers(BASIS_POINTS - share, trials);
        uint256 ways = 1; // trials over successes
        uint256 sum;
        for (uint256 successes = trials + 1; successes > least;) {
            --successes;
            sum += honest[successes] * others[trials - successes] / FINE * ways;
            ways = ways * successes / (trials - successes + 1);
        }
        return sum / (FINE / ONE);
    }

    function _powers(uint256 share, uint256 highest) private pure returns (uint256[] memory powers) {
        powers = new uint256[](highest + 1);
        powers[0] = FINE;
        for (uint256 i = 0; i < highest; ++i) {
            powers[i + 1] = powers[i] * share / BASIS_POINTS;
        }
    }
}
