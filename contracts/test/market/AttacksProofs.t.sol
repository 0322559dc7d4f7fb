// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IProver} from "../../market/interfaces/IProver.sol";
import {Parameters, PotKind} from "../../market/interfaces/MarketTypes.sol";
import {TokenMarketTest} from "./TokenMarket.t.sol";

/// @dev Proves whatever it is told, and takes so much gas for it: as a proof over a model that nobody has.
contract DearProver is IProver {
    function proven(bytes calldata evidence) external view returns (address party, uint64 offenceBlock, bytes32 subject) {
        uint256 spent;
        (party, offenceBlock, subject, spent) = abi.decode(evidence, (address, uint64, bytes32, uint256));
        for (uint256 left = gasleft(); left - gasleft() < spent;) {}
    }
}

/// @title A convict's own proofs, in a deployment whose gas is paid in a token
contract AttacksProofsTest is TokenMarketTest {
    address private prover;

    function parameters() internal view override returns (Parameters memory chosen) {
        chosen = super.parameters();
        chosen.prover = prover;
        // A penalty is worth eight million gas, so that a class of this economy is admitted.
        chosen.gasPrice = PENALTY / 8 * 1e3;
    }

    function setUp() public override {
        prover = address(new DearProver());
        super.setUp();
    }

    /// @dev Nobody knows here what gas costs: where it is cheap, a cheat would take its stake out by proofs of its own.
    function test_AConvictsOwnDearProofTakesBackNoMoreThanHalfOfItsPenalty() public {
        address convict = exactNode(0);
        uint256 burnt = bank.balanceOf(PotKind.Burnt, 0);
        vm.prank(convict);
        evidence.convictByProof(abi.encode(convict, uint64(1), keccak256("mine"), 9_000_000));
        assertEq(stakeOf(convict), NODE_STAKE - PENALTY);
        assertEq(creditOf(convict), PENALTY / 2 + PENALTY / 10);
        assertEq(bank.balanceOf(PotKind.Burnt, 0) - burnt, PENALTY - creditOf(convict));
    }

    /// @dev What an honest proof costs is paid as before.
    function test_AProofThatCostsLessIsPaidItsGas() public {
        address convict = exactNode(0);
        vm.prank(stranger);
        evidence.convictByProof(abi.encode(convict, uint64(1), keccak256("theirs"), 1_000_000));
        uint256 gas_ = (creditOf(stranger) - PENALTY / 10) / (parameters().gasPrice / 1e9);
        assertGe(gas_, 1_000_000);
        assertLt(gas_, 1_200_000);
    }
}
