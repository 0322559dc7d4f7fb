// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothModels} from "../interfaces/ITrothModels.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ExecutionClass, ModelDescriptor, Rules} from "../interfaces/TrothTypes.sol";
import {TrothTest} from "./support/TrothTest.sol";

contract ModelsTest is TrothTest {
    function test_IdsAreHashesOfTheContent() public view {
        assertEq(model, keccak256(abi.encode(descriptor())));
        assertEq(tolerant, keccak256(abi.encode(executionClass(false))));
    }

    function test_KeepsRules() public view {
        Rules memory rules = troth.rulesOf(tolerant);
        ExecutionClass memory class = executionClass(false);
        assertEq(rules.unit, class.unit);
        assertEq(rules.hiddenSize, descriptor().hiddenSize);
        assertEq(rules.layers, descriptor().layers);
        assertEq(rules.dtype, class.dtype);
        assertEq(rules.exact, class.exact);
        assertEq(rules.mantissaBits, class.mantissaBits);
        assertEq(rules.steps, class.steps);
        assertEq(rules.theta, class.theta);
        assertEq(rules.tiles, class.tiles);
        assertEq(rules.candidates, class.candidates);
        assertEq(rules.verifiers, class.verifiers);
        assertEq(rules.reviewers, class.reviewers);
        assertEq(troth.minimumStakeOf(tolerant), class.minimumStake);
        assertEq(troth.layersOf(model), descriptor().layers);
    }

    function test_Announces() public {
        ModelDescriptor memory other = descriptor();
        other.layers = 9;
        bytes32 id = keccak256(abi.encode(other));
        vm.expectEmit(address(troth));
        emit ITrothModels.ModelRegistered(id, other);
        assertEq(troth.registerModel(other), id);
        ExecutionClass memory class = executionClass(false);
        class.model = id;
        vm.expectEmit(address(troth));
        emit ITrothModels.ClassRegistered(keccak256(abi.encode(class)), id, class);
        troth.registerClass(class);
    }

    function test_FeeCountsEveryWorkerAndTheScheduler() public view {
        assertEq(troth.feeOf(tolerant, 1), UNIT * 6 * 5);
        assertEq(troth.feeOf(tolerant, 2), UNIT * 6 * 9);
    }

    function test_RefusesWhatIsRegistered() public {
        vm.expectRevert(abi.encodeWithSelector(ITrothModels.AlreadyRegistered.selector, model));
        troth.registerModel(descriptor());
        vm.expectRevert(abi.encodeWithSelector(ITrothModels.AlreadyRegistered.selector, tolerant));
        troth.registerClass(executionClass(false));
    }

    function test_RefusesImpossibleModels() public {
        ModelDescriptor memory wrong = descriptor();
        wrong.layers = 0;
        refused(wrong);
        wrong.layers = 256;
        refused(wrong);
        wrong = descriptor();
        wrong.hiddenSize = 0;
        refused(wrong);
        wrong = descriptor();
        wrong.vocabulary = 0;
        refused(wrong);
        wrong = descriptor();
        wrong.dtype = 2;
        refused(wrong);
        wrong = descriptor();
        wrong.weightsRoot = 0;
        refused(wrong);
    }

    function test_RefusesAClassOfNoModel() public {
        ExecutionClass memory wrong = executionClass(false);
        wrong.model = keccak256("nothing");
        refused(wrong, abi.encodeWithSelector(ITrothModels.UnknownModel.selector, wrong.model));
        vm.expectRevert(abi.encodeWithSelector(ITrothMoney.UnknownClass.selector, bytes32("x")));
        troth.rulesOf(bytes32("x"));
        vm.expectRevert(abi.encodeWithSelector(ITrothMoney.UnknownClass.selector, bytes32("x")));
        troth.feeOf(bytes32("x"), 1);
    }

    function test_RefusesUnknownDtype() public {
        ExecutionClass memory wrong = executionClass(false);
        wrong.dtype = 2;
        refused(wrong, abi.encodeWithSelector(ITrothModels.UnknownDtype.selector, 2));
    }

    function test_RefusesMantissaBitsThatTheDtypeHasNot() public {
        ExecutionClass memory wrong = executionClass(false);
        wrong.mantissaBits = 24;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidMantissaBits.selector, 24, 23));
        wrong.mantissaBits = 0;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidMantissaBits.selector, 0, 23));
        wrong.dtype = 1;
        wrong.mantissaBits = 8;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidMantissaBits.selector, 8, 7));
    }

    function test_RefusesTheta() public {
        ExecutionClass memory wrong = executionClass(false);
        wrong.theta = 0;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidTheta.selector, 0));
        wrong.theta = 10_001;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidTheta.selector, 10_001));
    }

    /// @dev A trace of one row has two tiles of 16 columns for 32 dimensions.
    function test_RefusesMoreTilesThanTheShortestTraceHas() public {
        ExecutionClass memory wrong = executionClass(false);
        wrong.tiles = 3;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidTiles.selector, 3, 2));
        wrong.tiles = 0;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidTiles.selector, 0, 2));
        wrong = executionClass(true);
        wrong.tiles = 1;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidTiles.selector, 1, 0));
    }

    /// @dev Eight parties may open 192 tiles together, so that a settlement fits into a transaction.
    function test_RefusesMoreTilesThanATransactionCarries() public {
        ModelDescriptor memory wide = descriptor();
        wide.hiddenSize = 4096;
        ExecutionClass memory wrong = executionClass(false);
        wrong.model = troth.registerModel(wide);
        wrong.verifiers = 5;
        wrong.reviewers = 7;
        wrong.tiles = 25;
        refused(wrong, abi.encodeWithSelector(ITrothModels.InvalidTiles.selector, 25, 24));
        wrong.tiles = 24;
        troth.registerClass(wrong);
    }

    /// @dev Everybody decodes every event; a byte that is no character would stop them all.
    function test_RefusesTextThatIsNotPlain() public {
        bytes[4] memory texts = [bytes(hex"ff"), "tab\tulator", hex"7f", new bytes(256)];
        for (uint256 i = 0; i < 256; ++i) {
            texts[3][i] = "a";
        }
        for (uint256 i = 0; i < texts.length; ++i) {
            bytes memory error_ = abi.encodeWithSelector(ITrothMoney.TextNotPlain.selector, texts[i].length);
            ModelDescriptor memory model_ = descriptor();
            model_.architecture = string(texts[i]);
            vm.expectRevert(error_);
            troth.registerModel(model_);
            ExecutionClass memory wrong = executionClass(false);
            wrong.name = string(texts[i]);
            refused(wrong, error_);
        }
    }

    function test_RefusesCommittees() public {
        ExecutionClass memory wrong = executionClass(false);
        uint8[8] memory candidates = [0, 9, 1, 1, 1, 1, 1, 1];
        uint8[8] memory verifiers = [3, 3, 2, 9, 3, 3, 3, 5];
        uint8[8] memory reviewers = [5, 5, 5, 11, 3, 6, 11, 0];
        for (uint256 i = 0; i < candidates.length; ++i) {
            wrong.candidates = candidates[i];
            wrong.verifiers = verifiers[i];
            wrong.reviewers = reviewers[i];
            refused(
                wrong,
                abi.encodeWithSelector(
                    ITrothModels.InvalidCommittee.selector, candidates[i], verifiers[i], reviewers[i]
                )
            );
        }
    }

    function test_RefusesNoUnit() public {
        ExecutionClass memory wrong = executionClass(false);
        wrong.unit = 0;
        refused(wrong, abi.encodeWithSelector(ITrothModels.ZeroUnit.selector));
    }

    /// @dev Two rejections by three verifiers, a bond and five reviewers: 2 (2 + 6 * 3) + 8 + 6 * 5.
    function test_RefusesAStakeThatTwoRejectionsAndADisputeExceed() public {
        ExecutionClass memory wrong = executionClass(false);
        wrong.minimumStake = UNIT * 78 - 1;
        refused(wrong, abi.encodeWithSelector(ITrothModels.MinimumStakeTooLow.selector, wrong.minimumStake, UNIT * 78));
        wrong.minimumStake = UNIT * 78;
        troth.registerClass(wrong);
    }

    /// @dev The stake rule keeps every bond and every price in 96 bits, however large the unit.
    function testFuzz_ARegisteredUnitsBondFits(uint96 unit, uint8 verifiers, uint8 reviewers) public {
        ExecutionClass memory class = executionClass(true);
        class.unit = uint96(bound(unit, 1, type(uint96).max));
        class.verifiers = uint8(bound(verifiers, 0, 2)) * 2 + 1;
        class.reviewers = uint8(bound(reviewers, class.verifiers / 2 + 1, 4)) * 2 + 1;
        class.minimumStake = type(uint96).max;
        uint256 bond = uint256(class.unit) * (8 + 6 * uint256(class.reviewers));
        uint256 stake = bond + 2 * uint256(class.unit) * (2 + 6 * uint256(class.verifiers));
        if (stake > type(uint96).max) {
            refused(
                class, abi.encodeWithSelector(ITrothModels.MinimumStakeTooLow.selector, type(uint96).max, stake)
            );
        } else {
            troth.registerClass(class);
            assertLe(bond, type(uint96).max);
        }
    }

    function refused(ModelDescriptor memory wrong) private {
        vm.expectRevert(
            abi.encodeWithSelector(
                ITrothModels.InvalidModel.selector,
                wrong.layers,
                wrong.hiddenSize,
                wrong.vocabulary,
                wrong.dtype,
                wrong.weightsRoot
            )
        );
        troth.registerModel(wrong);
    }

    function refused(ExecutionClass memory wrong, bytes memory error_) private {
        vm.expectRevert(error_);
        troth.registerClass(wrong);
    }
}
