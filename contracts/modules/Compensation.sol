// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Progress} from "../interfaces/TrothTypes.sol";
import {Posts} from "./Posts.sol";

/// @title Who gets what a late scheduler is slashed
abstract contract Compensation is Posts {
    /// @dev Units per segment that a scheduler loses when it leaves a task unfinished.
    uint256 internal constant SCHEDULER_PENALTY = PENALTY * 4;

    /// @dev Shares a late scheduler's slash among those whose work it wasted.
    /// @return paid never more than `taken`; what does not divide stays with the caller
    function _compensate(bytes32 taskId, Progress memory progress, uint256 taken) internal returns (uint256 paid) {
        uint256 workers = 0;
        for (uint256 i = 0; i < progress.posts.length; ++i) {
            if (progress.posts[i] != 0) ++workers;
        }
        uint256 share = taken / workers;
        uint256 width = progress.posts.length / progress.segments;
        for (uint256 i = 0; i < progress.posts.length; ++i) {
            if (progress.posts[i] == 0) continue;
            _credit(taskId, _partyOf(progress, i / width, i % width), share);
            paid += share;
        }
    }
}
