// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../market/interfaces/IClasses.sol";
import {ExecutionClass, ModelDescriptor, Rules} from "../../market/interfaces/MarketTypes.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {Economy} from "../../market/libraries/Economy.sol";
import {PlainText} from "../../market/libraries/PlainText.sol";
import {MarketStage} from "./support/MarketStage.sol";

/// @title Models and classes: what is registered, and what is refused
contract ClassesTest is MarketStage {
    function addParties() internal override {}

    function refused(ExecutionClass memory class, bytes memory failure) private {
        vm.expectRevert(failure);
        classes.registerClass(class);
    }

    function fresh(bool isExact) private view returns (ExecutionClass memory class) {
        class = executionClass(isExact);
        class.name = "fresh";
    }

    function test_RegistersAClassUnderItsHash() public {
        ExecutionClass memory class = fresh(false);
        bytes32 id = keccak256(abi.encode(class));
        vm.expectEmit(address(classes));
        emit IClasses.ClassRegistered(id, model, class);
        assertEq(classes.registerClass(class), id);
        Rules memory rules = registry.rulesOf(id);
        assertEq(rules.penalty, PENALTY);
        assertEq(rules.seat, SEAT);
        assertEq(rules.hiddenSize, 32);
        assertEq(rules.layers, LAYERS);
        assertEq(rules.reviewers, 15);
        assertEq(rules.secondCut, 2_000_000);
        refused(class, abi.encodeWithSelector(IRegistry.ClassKnown.selector, id));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownClass.selector, bytes32("none")));
        registry.rulesOf("none");
    }

    function test_OnlyClassesAdmitsClasses() public {
        Rules memory rules = registry.rulesOf(exact);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, address(this)));
        registry.admitClass("mine", rules);
    }

    function test_RefusesModelsThatAreNone() public {
        vm.expectRevert(abi.encodeWithSelector(IClasses.AlreadyRegistered.selector, model));
        classes.registerModel(descriptor());
        for (uint256 i = 0; i < 6; ++i) {
            ModelDescriptor memory wrong = descriptor();
            if (i == 0) wrong.layers = 0;
            if (i == 1) wrong.layers = 256;
            if (i == 2) wrong.hiddenSize = 0;
            if (i == 3) wrong.vocabulary = 0;
            if (i == 4) wrong.dtype = 2;
            if (i == 5) wrong.weightsRoot = 0;
            vm.expectPartialRevert(IClasses.InvalidModel.selector);
            classes.registerModel(wrong);
        }
        ModelDescriptor memory odd = descriptor();
        odd.architecture = unicode"é";
        vm.expectRevert(abi.encodeWithSelector(PlainText.TextNotPlain.selector, 2));
        classes.registerModel(odd);
        ExecutionClass memory class = fresh(true);
        class.model = "unknown";
        refused(class, abi.encodeWithSelector(IClasses.UnknownModel.selector, bytes32("unknown")));
    }

    function test_RefusesComparisonsThatAreNone() public {
        ExecutionClass memory class = fresh(false);
        class.tiles = 0;
        refused(class, abi.encodeWithSelector(IClasses.InvalidTiles.selector, 0, 2));
        class.tiles = 3;
        refused(class, abi.encodeWithSelector(IClasses.InvalidTiles.selector, 3, 2));
        class = fresh(true);
        class.tiles = 1;
        refused(class, abi.encodeWithSelector(IClasses.InvalidTiles.selector, 1, 0));
        class = fresh(true);
        class.mantissaBits = 24;
        refused(class, abi.encodeWithSelector(IClasses.InvalidMantissaBits.selector, 24, 23));
        (class.dtype, class.mantissaBits) = (1, 8);
        refused(class, abi.encodeWithSelector(IClasses.InvalidMantissaBits.selector, 8, 7));
        (class.dtype, class.mantissaBits) = (2, 7);
        refused(class, abi.encodeWithSelector(IClasses.InvalidMantissaBits.selector, 7, 7));
        class = fresh(true);
        class.theta = 10_001;
        refused(class, abi.encodeWithSelector(IClasses.InvalidTheta.selector, 10_001));
        class.theta = 0;
        refused(class, abi.encodeWithSelector(IClasses.InvalidTheta.selector, 0));
        class = fresh(false);
        class.secondCut = 1_000_000;
        refused(class, abi.encodeWithSelector(IClasses.InvalidCuts.selector, 1_000_000, 3, 5000));
        class = fresh(true);
        class.poolLimit = 0;
        refused(class, abi.encodeWithSelector(IClasses.InvalidCuts.selector, 2_000_000, 0, 5000));
        class = fresh(true);
        class.poolWindow = 0;
        refused(class, abi.encodeWithSelector(IClasses.InvalidCuts.selector, 2_000_000, 3, 0));
    }

    function test_RefusesCommitteesThatAreNone() public {
        uint8[3][8] memory wrong =
            [[0, 3, 15], [9, 3, 15], [2, 2, 15], [2, 9, 15], [2, 3, 14], [2, 3, 3], [2, 5, 3], [2, 3, 33]];
        for (uint256 i = 0; i < 8; ++i) {
            ExecutionClass memory class = fresh(true);
            (class.candidates, class.verifiers, class.reviewers) = (wrong[i][0], wrong[i][1], wrong[i][2]);
            refused(
                class,
                abi.encodeWithSelector(IClasses.InvalidCommittee.selector, wrong[i][0], wrong[i][1], wrong[i][2])
            );
        }
    }

    /// @dev A case of 15 reviewers and the node with six tiles each takes 125,392 bytes, with five 105,936.
    function test_RefusesClassesWhoseCallsDoNotFit() public {
        ModelDescriptor memory wide = descriptor();
        wide.hiddenSize = 4096;
        ExecutionClass memory class = fresh(false);
        class.model = classes.registerModel(wide);
        class.tiles = 6;
        refused(class, abi.encodeWithSelector(IClasses.CallTooLarge.selector, 2000 + 16 * (416 + 6 * 1216), 120_000));
        class.tiles = 255;
        refused(class, abi.encodeWithSelector(IClasses.CallTooLarge.selector, 2000 + 16 * (416 + 255 * 1216), 120_000));
        class.tiles = 5;
        classes.registerClass(class);
    }

    function test_RefusesAbsurdMoney() public {
        ExecutionClass memory class = fresh(true);
        class.checkPrice = 0;
        refused(class, abi.encodeWithSelector(IClasses.InvalidPrices.selector, 0, FEE_CAP));
        class = fresh(true);
        class.feeCap = 0;
        refused(class, abi.encodeWithSelector(IClasses.InvalidPrices.selector, CHECK_PRICE, 0));
        uint32[4] memory rates = [uint32(0), 1_000_001, 50_000, 50_000];
        uint16[4] memory shares = [8000, 8000, 5000, 10_001];
        for (uint256 i = 0; i < 4; ++i) {
            class = fresh(true);
            (class.leastCheckRate, class.honestShare) = (rates[i], shares[i]);
            refused(class, abi.encodeWithSelector(IClasses.InvalidShares.selector, rates[i], shares[i]));
        }
        uint16[3] memory caps = [0, 33, type(uint16).max];
        for (uint256 i = 0; i < 3; ++i) {
            class = fresh(true);
            class.seatCap = caps[i];
            refused(class, abi.encodeWithSelector(IClasses.InvalidSeatCap.selector, caps[i], 32));
        }
    }

    /// @dev Certain detection asks for no penalty at all, but a case has to have something to take.
    function test_RefusesNoPenalty() public {
        ExecutionClass memory class = fresh(true);
        (class.leastCheckRate, class.honestShare, class.penalty) = (1_000_000, 10_000, 0);
        refused(class, abi.encodeWithSelector(IClasses.PenaltyTooLow.selector, 0, FEE_CAP, 1e18));
        class.penalty = 2 * FEE_CAP;
        classes.registerClass(class);
    }

    /// @dev At q = 5 %, k = 3, m' = 15 and r = 80 % docs/reference/protocol.md says p = 0.042 and L = 34 g.
    function test_ThePenaltyOutweighsWhatACheatGains() public {
        uint256 p = Economy.detection(50_000, 8000, 3, 15);
        assertApproxEqAbs(p, 0.042e18, 0.001e18);
        ExecutionClass memory class = fresh(true);
        uint256 least = (3 * uint256(FEE_CAP) * (1e18 - p) + 2 * p - 1) / (2 * p);
        assertApproxEqRel(least, 34 * uint256(FEE_CAP), 0.02e18);
        class.penalty = uint96(least - 1);
        refused(class, abi.encodeWithSelector(IClasses.PenaltyTooLow.selector, least - 1, FEE_CAP, p));
        class.penalty = uint96(least);
        classes.registerClass(class);
    }

    function test_ASeatCoversTwoPenaltiesACaseAndTheReward() public {
        ExecutionClass memory class = fresh(true);
        uint256 spent = Economy.caseGas(class.reviewers, 0);
        uint256 least = 2 * uint256(PENALTY) + spent * 1e9 + PENALTY / 10;
        class.seat = uint96(least - 1);
        refused(class, abi.encodeWithSelector(IClasses.SeatTooLow.selector, least - 1, least));
        class.seat = uint96(least);
        classes.registerClass(class);
    }

    /// @dev Whoever samples more tiles makes its court dearer, and its seats with it.
    function test_ASeatCoversTheTilesOfItsClass() public {
        ExecutionClass memory class = fresh(false);
        class.seat = uint96(2 * uint256(PENALTY) + Economy.caseGas(class.reviewers, class.tiles) * 1e9 + PENALTY / 10);
        classes.registerClass(class);
        uint256 before = class.seat;
        class.tiles += 1;
        uint256 least = before + (uint256(class.reviewers) + 1) * (18_000 + 22 * 700) * 1e9;
        refused(class, abi.encodeWithSelector(IClasses.SeatTooLow.selector, before, least));
        class.seat = uint96(least);
        classes.registerClass(class);
    }

    /// @dev What was measured (docs/reference/benchmarks/gas.md), step by step, and with a suspension.
    function test_ACaseCostsLessThanASeatReserves() public pure {
        assertGt(Economy.caseGas(5, 0), 901_000);
        assertGt(Economy.caseGas(5, 6), 1_639_000);
        assertGt(Economy.caseGas(15, 0), 1_129_000);
        assertGt(Economy.caseGas(15, 1), 1_535_000);
        assertGt(Economy.caseGas(15, 5), 2_727_000);
        assertGt(Economy.caseGas(13, 6), 2_788_000);
    }

    // ---- the library

    /// @dev Figures of docs/reference/protocol.md, sections 1 and 11.
    function test_ChancesAreThoseOfTheMarket() public pure {
        // 5 err in 5.8 % of cases at 80 % honest seats.
        assertApproxEqAbs(1e18 - Economy.atLeast(5, 3, 8000), 0.058e18, 0.0005e18);
        assertApproxEqAbs(Economy.detection(50_000, 6000, 3, 15), 0.013e18, 0.0005e18);
        assertEq(Economy.atLeast(3, 2, 8000), 0.896e18);
        assertEq(Economy.atLeast(1, 1, 6000), 0.6e18);
        assertEq(Economy.atLeast(31, 0, 10_000), 1e18);
        assertEq(Economy.atLeast(31, 31, 10_000), 1e18);
        assertEq(Economy.supermajority(15), 10);
        assertEq(Economy.supermajority(5), 4);
        assertEq(Economy.supermajority(31), 21);
    }

    /// @dev All outcomes together are certain, up to what was rounded down; and more seats of honest parties help.
    function testFuzz_ChancesAreChances(uint8 trials, uint8 least, uint16 share) public pure {
        trials = uint8(bound(trials, 1, 31));
        least = uint8(bound(least, 0, trials));
        share = uint16(bound(share, 1, 9999));
        uint256 chance = Economy.atLeast(trials, least, share);
        assertLe(chance, 1e18);
        assertApproxEqAbs(Economy.atLeast(trials, 0, share), 1e18, 1);
        if (least == 0) return;
        uint256 others = Economy.atLeast(trials, trials - least + 1, 10_000 - share);
        assertApproxEqAbs(chance + others, 1e18, 2);
        assertGe(chance + 2, Economy.atLeast(trials, least, share - 1));
    }
}
