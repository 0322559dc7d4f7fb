// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";

import {Clusters} from "../libraries/Clusters.sol";

contract ClustersTest is Test {
    /// @notice Reachability by transitive closure, which shares nothing with the library's search.
    function testEqualsTheTransitiveClosure(uint256 edges, uint8 verifiers, uint16 valid) public pure {
        verifiers = uint8(bound(verifiers, 1, 15));
        uint256 members = uint256(valid) & ((1 << verifiers) - 1);
        uint256[] memory adjacency = new uint256[](verifiers);
        bool[15][15] memory reaches;
        for (uint256 i = 0; i < verifiers; ++i) {
            reaches[i][i] = true;
            for (uint256 j = 0; j < i; ++j) {
                bool both = (members >> i) & (members >> j) & 1 == 1;
                if (!both || (edges >> (i * 15 + j)) & 1 == 0) continue;
                Clusters.connect(adjacency, i, j);
                reaches[i][j] = reaches[j][i] = true;
            }
        }
        for (uint256 via = 0; via < verifiers; ++via) {
            for (uint256 i = 0; i < verifiers; ++i) {
                for (uint256 j = 0; j < verifiers; ++j) {
                    if (reaches[i][via] && reaches[via][j]) reaches[i][j] = true;
                }
            }
        }
        uint256 quorum = uint256(verifiers) / 2 + 1;
        uint256 expected = 0;
        for (uint256 i = 0; i < verifiers; ++i) {
            uint256 cluster = 0;
            for (uint256 j = 0; j < verifiers; ++j) if (reaches[i][j]) cluster |= 1 << j;
            if (Clusters.count(cluster) >= quorum && (members >> i) & 1 == 1) expected = cluster;
        }
        assertEq(Clusters.properCluster(adjacency, members, quorum), expected);
    }

    function testAChainIsOneCluster() public pure {
        uint256[] memory adjacency = new uint256[](5);
        Clusters.connect(adjacency, 0, 4);
        Clusters.connect(adjacency, 4, 2);
        assertEq(Clusters.properCluster(adjacency, 31, 3), 21);
        assertEq(Clusters.properCluster(adjacency, 31, 4), 0);
    }

    function testLeavesOutWhoIsNotValid() public pure {
        uint256[] memory adjacency = new uint256[](3);
        Clusters.connect(adjacency, 0, 1);
        assertEq(Clusters.properCluster(adjacency, 1, 2), 0);
        assertEq(Clusters.properCluster(adjacency, 0, 1), 0);
    }

    function testCountsMembers() public pure {
        assertEq(Clusters.count(0), 0);
        assertEq(Clusters.count(21), 3);
    }
}
