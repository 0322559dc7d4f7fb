// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothReveals} from "../interfaces/ITrothReveals.sol";
import {Opening, Progress, Task} from "../interfaces/TrothTypes.sol";
import {Openings} from "./Openings.sol";

/// @title A party's own reveal
abstract contract Reveals is ITrothReveals, Openings {
    /// @inheritdoc ITrothReveals
    function reveal(bytes32 taskId, Task calldata task, uint8 segment, uint8 party, Opening calldata opening)
        external
    {
        Case memory opened = _load(taskId, task);
        Progress memory progress = opened.progress;
        _requireRevealing(opened);
        _requireNotAfter(progress.phaseBlock + REVEAL_WINDOW);
        uint256 width = progress.posts.length / progress.segments;
        if (segment >= progress.segments) revert SegmentOutOfRange(segment, progress.segments);
        if (party >= width) revert PartyOutOfRange(segment, party, width);
        uint256 place = segment * width + party;
        if (progress.revealed.length == 0) progress.revealed = new bytes32[](progress.posts.length);
        if (progress.revealed[place] != 0) revert AlreadyRevealed(segment, party);
        bytes memory tiles = opening.tiles;
        _requireCommitted(opened, segment, party, opening);
        _requireTiles(opened, segment, party, opening, tiles);
        progress.revealed[place] = _revealHash(opening, keccak256(tiles));
        address revealer = _partyOf(progress, segment, party);
        emit TraceRevealed(taskId, revealer, segment, opening.root, opening.verdict, tiles);
        _store(taskId, opened.termsHash, progress);
    }
}
