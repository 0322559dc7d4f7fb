// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Parameters} from "../interfaces/MarketTypes.sol";

/// @title Which parameters hold together
/// @notice Windows are in blocks. A party must still be bonded, and a tab still open, when the slowest honest way ends.
library Windows {
    /// @dev EIP-2935 knows so many block hashes.
    uint256 private constant HISTORY = 8191;
    /// @dev Blocks that a transaction may wait until it is included.
    uint256 private constant INCLUSION = 4;
    /// @dev Commitments that are incomplete must wait for three quarters of their window, which has to have quarters.
    uint256 private constant LEAST_PHASE = 4;
    /// @dev Years, on any chain: sums with a block number stay far below 32 bits.
    uint256 private constant LONGEST = 1 << 30;
    /// @dev A case has a second round where the first had no cluster; each waits for two beacons at most.
    uint256 private constant ROUNDS = 2;

    /// @dev Windows of a summons that is passed on as often as it can be (Summons), and two for who opens a case then.
    uint256 private constant SUMMONS_WINDOWS = 15;

    /// @notice Blocks in which a case over an answer can be opened: a summons that was passed on again and again ends
    ///         before.
    function opening(Parameters memory chosen) internal pure returns (uint256) {
        return uint256(chosen.lag) + SUMMONS_WINDOWS * uint256(chosen.summonsWindow);
    }

    /// @notice Blocks from an order's reference block to the last draw over its results that the court hears: also that
    ///         of a leaf which is shown for the first time at the end of a claim that waited for another claim on its tab
    ///         to end; but no later than stake is there.
    function answerAge(Parameters memory chosen) internal pure returns (uint256) {
        uint256 latest =
            uint256(chosen.referenceAge) + opening(chosen) + 2 * uint256(chosen.claimDelay) + chosen.answerWindow;
        uint256 bonded = uint256(chosen.unbonding) - INCLUSION - 1;
        return latest < bonded ? latest : bonded;
    }

    /// @notice Blocks from an answer to the end of the longest case over it.
    function longestCase(Parameters memory chosen) internal pure returns (uint256) {
        uint256 beacon = uint256(chosen.lookahead) + chosen.drawWindow;
        return opening(chosen) + ROUNDS * (2 * beacon + chosen.commitWindow + chosen.revealWindow + INCLUSION);
    }

    /// @notice The number of the first rule that parameters break; 0 if they hold.
    function brokenRule(Parameters memory chosen) internal view returns (uint256) {
        // (1) Nothing that is waited for is instant, and nothing lasts for ever.
        if (!_areOpen(chosen)) return 1;
        // (2) An answer is acknowledged after a summons over its check, passed on once, is over and included.
        if (chosen.lag <= 2 * uint256(chosen.summonsWindow) + INCLUSION) return 2;
        // (3) The block whose RANDAO draws is still known at the end of its window.
        if (uint256(chosen.lookahead) + chosen.drawWindow > HISTORY) return 3;
        // (4) Commitments and reveals leave time for everybody's own post.
        if (chosen.commitWindow < LEAST_PHASE || chosen.revealWindow < LEAST_PHASE) return 4;
        // (5) A claim is settled after every case over its leaves has ended.
        if (chosen.claimDelay <= longestCase(chosen)) return 5;
        // (6) There is more time to object to a claim than to answer.
        if (chosen.claimDelay <= 2 * uint256(chosen.answerWindow)) return 6;
        // (7) A tab outlasts a claim that was made when its closing began, and its last objection.
        if (chosen.closeDelay <= uint256(chosen.claimDelay) + chosen.answerWindow) return 7;
        // (8) Stake outlasts the oldest order, the time to answer it, and the claim (longer than any case) for whose
        //     shortfall it stands.
        uint256 answered = uint256(chosen.referenceAge) + opening(chosen);
        if (chosen.unbonding <= answered + chosen.claimDelay + chosen.answerWindow + INCLUSION) return 8;
        // (9) Stake and gas are worth something.
        if (chosen.schedulerStake == 0 || chosen.gasPrice == 0) return 9;
        // (10) Who is asked for money, weights or proofs is there.
        if (!_isAbsentOrCode(chosen.asset)) return 10;
        if (!_isAbsentOrCode(chosen.weights)) return 10;
        if (!_isAbsentOrCode(chosen.prover)) return 10;
        return 0;
    }

    function _areOpen(Parameters memory chosen) private pure returns (bool) {
        uint32[11] memory windows = [
            chosen.lag,
            chosen.summonsWindow,
            chosen.lookahead,
            chosen.drawWindow,
            chosen.commitWindow,
            chosen.revealWindow,
            chosen.claimDelay,
            chosen.answerWindow,
            chosen.closeDelay,
            chosen.unbonding,
            chosen.referenceAge
        ];
        for (uint256 i = 0; i < windows.length; ++i) {
            if (windows[i] == 0 || windows[i] > LONGEST) return false;
        }
        // Small networks do without these two.
        return chosen.seasoning <= LONGEST && chosen.suspensionPause <= LONGEST;
    }

    function _isAbsentOrCode(address account) private view returns (bool) {
        return account == address(0) || account.code.length != 0;
    }
}
