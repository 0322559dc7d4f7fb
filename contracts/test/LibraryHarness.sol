// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Agreement} from "../libraries/Agreement.sol";
import {Clusters} from "../libraries/Clusters.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {TileTree} from "../libraries/TileTree.sol";

/// @notice Makes the internal libraries callable, for the tests that compare them with the Python rules.
contract LibraryHarness {
    /// @dev Order of P-256.
    uint256 private constant N = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551;

    function vrf(uint256 x, uint256 y, bytes32 alpha, bytes calldata proof, uint256[] calldata hints)
        external
        view
        returns (bytes32)
    {
        return EcVrf.verify(x, y, alpha, proof, hints);
    }

    function vrfOverBytes(uint256 x, uint256 y, bytes memory alpha, bytes calldata proof, uint256[] calldata hints)
        external
        view
        returns (bytes32)
    {
        return EcVrf.verify(x, y, alpha, proof, hints);
    }

    /// @notice How many changed proofs still verify, or fail otherwise than with InvalidProof: change i flips bit i of
    /// proof ‖ hints.
    function vrfSurvivors(
        uint256 x,
        uint256 y,
        bytes32 alpha,
        bytes calldata proof,
        uint256[] calldata hints,
        uint256 from,
        uint256 to
    ) external view returns (uint256 survivors) {
        for (uint256 bit = from; bit < to; ++bit) {
            bytes memory changed = proof;
            uint256[] memory changedHints = hints;
            if (bit < 8 * proof.length) changed[bit / 8] = bytes1(uint8(changed[bit / 8]) ^ uint8(1 << (bit % 8)));
            else changedHints[(bit - 8 * proof.length) / 256] ^= 1 << ((bit - 8 * proof.length) % 256);
            try this.vrf(x, y, alpha, changed, changedHints) returns (bytes32) {
                ++survivors;
            } catch (bytes memory reason) {
                if (bytes4(reason) != EcVrf.InvalidProof.selector) ++survivors;
            }
        }
    }

    /// @notice Gas that one verification burns, and the output.
    function vrfGas(uint256 x, uint256 y, bytes32 alpha, bytes calldata proof, uint256[] calldata hints)
        external
        view
        returns (uint256 used, bytes32 beta)
    {
        used = gasleft();
        beta = EcVrf.verify(x, y, alpha, proof, hints);
        used -= gasleft();
    }

    function checkAbscissa(uint256 abscissa, uint256 factor, uint256 inverse, uint256 x, uint256 y) external view {
        EcVrf.checkAbscissa(abscissa, factor, inverse, x, y, N, 0);
    }

    function isOnCurve(uint256 x, uint256 y) external pure returns (bool) {
        return EcVrf.isOnCurve(x, y);
    }

    function openingRoot(
        bytes32 seed,
        uint256 segment,
        uint256 rows,
        uint256 columns,
        uint8 dtype,
        uint256 tiles,
        bytes memory opened,
        bytes32[] memory siblings
    ) external view returns (bytes32 root, uint256 used) {
        used = gasleft();
        root = TileTree.openingRoot(seed, segment, rows, columns, dtype, tiles, opened, siblings);
        used -= gasleft();
    }

    function tileIndex(bytes32 seed, uint256 segment, uint256 j, uint256 tiles, uint256 count)
        external
        pure
        returns (uint256)
    {
        return TileTree.tileIndex(seed, segment, j, tiles, count);
    }

    function agreeing(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps)
        external
        view
        returns (uint256 agreed, uint256 total, uint256 used)
    {
        used = gasleft();
        (agreed, total) = Agreement.agreeing(Agreement.ruleOf(dtype, bits, steps), first, second);
        used -= gasleft();
    }

    function agrees(bytes memory first, bytes memory second, uint8 dtype, uint8 bits, uint16 steps, uint16 theta)
        external
        pure
        returns (bool)
    {
        return Agreement.agrees(Agreement.ruleOf(dtype, bits, steps), first, second, theta);
    }

    function properCluster(uint256 verifiers, uint8[2][] calldata edges, uint256 valid, uint256 quorum)
        external
        view
        returns (uint256 cluster, uint256 used)
    {
        uint256[] memory adjacency = new uint256[](verifiers);
        for (uint256 i = 0; i < edges.length; ++i) Clusters.connect(adjacency, edges[i][0], edges[i][1]);
        used = gasleft();
        cluster = Clusters.properCluster(adjacency, valid, quorum);
        used -= gasleft();
    }
}
