// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Opening, Task} from "./TrothTypes.sol";

/// @title A party shows its trace itself, should nobody settle
interface ITrothReveals {
    /// @param tiles the sampled tiles, none in an exact class. A settlement cannot do without them, whatever contract the
    ///        call came through and whether or not the party answers anybody
    event TraceRevealed(
        bytes32 indexed taskId, address indexed party, uint8 segment, bytes32 root, bool verdict, bytes tiles
    );

    error PartyOutOfRange(uint256 segment, uint256 party, uint256 parties);
    error AlreadyRevealed(uint256 segment, uint256 party);

    /// @notice Anyone who holds a party's opening reveals it (only its maker can have given it away).
    /// @param party 0 for the inferencer, 1.. for the verifiers
    /// @param opening with plain tiles (not XORed)
    function reveal(bytes32 taskId, Task calldata task, uint8 segment, uint8 party, Opening calldata opening) external;
}
