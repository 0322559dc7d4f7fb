// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {ITrothReads} from "../interfaces/ITrothReads.sol";
import {Parameters} from "../interfaces/TrothTypes.sol";

/// @title What is fixed when the contract is deployed
abstract contract Deployment is EIP712 {
    /// @dev Blocks that an order's reference may lie back. Together with the sample window it bounds how long block
    ///      hashes and memberships must stay known.
    uint256 internal constant REFERENCE_AGE = 200;
    /// @dev The EVM knows 256 block hashes; the margin leaves time for the transaction.
    uint256 private constant MAXIMUM_SAMPLE_WINDOW = 200;

    uint256 internal immutable COMMIT_WINDOW;
    uint256 internal immutable SAMPLE_WINDOW;
    uint256 internal immutable REVEAL_WINDOW;
    uint256 internal immutable DISPUTE_WINDOW;
    uint256 internal immutable UNBONDING_PERIOD;
    uint96 internal immutable MINIMUM_SCHEDULER_STAKE;
    address internal immutable RESERVE;
    /// @dev Where this code was deployed, which is not where it runs if it is the cold path.
    address internal immutable CODE = address(this);

    constructor(Parameters memory parameters) EIP712("Troth", "1") {
        uint256 windows = uint256(parameters.commitWindow) + parameters.sampleWindow + parameters.revealWindow;
        bool windowsOpen = parameters.commitWindow > 0 && parameters.sampleWindow > 0 && parameters.revealWindow > 0
            && parameters.disputeWindow > 0;
        // A review begins with an assignment, for which it has a commit window of its own.
        uint256 longest = 2 * windows + parameters.commitWindow + parameters.disputeWindow + REFERENCE_AGE;
        if (
            !windowsOpen || parameters.sampleWindow > MAXIMUM_SAMPLE_WINDOW || parameters.reserve == address(0)
                || parameters.unbondingPeriod <= longest
        ) revert ITrothReads.InvalidParameters(parameters);
        COMMIT_WINDOW = parameters.commitWindow;
        SAMPLE_WINDOW = parameters.sampleWindow;
        REVEAL_WINDOW = parameters.revealWindow;
        DISPUTE_WINDOW = parameters.disputeWindow;
        UNBONDING_PERIOD = parameters.unbondingPeriod;
        MINIMUM_SCHEDULER_STAKE = parameters.minimumSchedulerStake;
        RESERVE = parameters.reserve;
    }
}
