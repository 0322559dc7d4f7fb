// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {TileTree} from "../../libraries/TileTree.sol";
import {Rules} from "../interfaces/MarketTypes.sol";
import {Result} from "../interfaces/Signed.sol";
import {Prices} from "./Prices.sol";

/// @title How long the trace of a result is
/// @dev The same rule is `troth.protocol.market.checks.rows_of`.
library Traces {
    /// @dev Tiles of the largest trace: no opening is deeper, and every allowed class' largest call fits a transaction.
    uint256 internal constant MOST_TILES = 1 << 22;

    /// @notice Rows: one per position but none for the last token, at least one. Whatever the node signed can be
    ///         judged: a length beyond what the class can open counts as the longest.
    function rowsOf(Result memory result, Rules memory rules) internal pure returns (uint256 rows) {
        rows = Prices.positions(result.prompt, result.cached, result.written);
        rows = rows < 2 ? 1 : rows - 1;
        uint256 most = type(uint32).max;
        if (!rules.exact) {
            uint256 across = TileTree.tileCount(1, rules.hiddenSize, rules.dtype);
            most = across > MOST_TILES ? TileTree.TILE_ROWS : TileTree.TILE_ROWS * (MOST_TILES / across);
        }
        if (rows > most) rows = most;
    }
}
