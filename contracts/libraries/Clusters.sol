// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Clusters of verifiers that agree with each other
/// @notice Connected components of the agreement graph, which is what Kruskal's algorithm leaves when it stops at a
/// distance (VeriLLM, Appendix E). A verifier is a bit; sets are masks. Up to 255 verifiers.
/// @dev The same rule is `troth.protocol.clusters`.
library Clusters {
    /// @notice Records that verifiers `first` and `second` agree.
    function connect(uint256[] memory adjacency, uint256 first, uint256 second) internal pure {
        adjacency[first] |= 1 << second;
        adjacency[second] |= 1 << first;
    }

    /// @notice The cluster that holds verifier `start`.
    /// @param adjacency per verifier, the mask of those it agrees with (symmetric)
    function componentOf(uint256[] memory adjacency, uint256 start) internal pure returns (uint256 members) {
        members = 1 << start;
        uint256 fresh = members;
        while (fresh != 0) {
            uint256 reached = 0;
            for (uint256 i = 0; i < adjacency.length; ++i) {
                if ((fresh >> i) & 1 == 1) reached |= adjacency[i];
            }
            fresh = reached & ~members;
            members |= fresh;
        }
    }

    /// @notice The cluster with at least `quorum` members, or 0 if there is none.
    /// @param adjacency per verifier, the mask of those it agrees with (symmetric, only among `valid`)
    /// @param valid the verifiers that may belong to a cluster
    /// @param quorum members needed, more than half of all verifiers, so that at most one cluster has them
    function properCluster(uint256[] memory adjacency, uint256 valid, uint256 quorum)
        internal
        pure
        returns (uint256)
    {
        uint256 unseen = valid;
        for (uint256 i = 0; unseen != 0; ++i) {
            if ((unseen >> i) & 1 == 0) continue;
            uint256 members = componentOf(adjacency, i) & valid;
            if (count(members) >= quorum) return members;
            unseen &= ~members;
        }
        return 0;
    }

    /// @notice Number of verifiers in a set.
    function count(uint256 members) internal pure returns (uint256 total) {
        // Bits are added in pairs, pairs in fours, fours in bytes, whose sum stands in the highest of a product.
        unchecked {
            members -= members >> 1 & ~uint256(0) / 3;
            members = (members & ~uint256(0) / 5) + (members >> 2 & ~uint256(0) / 5);
            members = members + (members >> 4) & ~uint256(0) / 17;
            total = members * (~uint256(0) / 255) >> 248;
        }
    }
}
