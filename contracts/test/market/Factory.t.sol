// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Contracts, IDeployment} from "../../market/interfaces/IDeployment.sol";
import {Parameters} from "../../market/interfaces/MarketTypes.sol";
import {BlockHeader} from "../../market/libraries/BlockHeader.sol";
import {MarketStage} from "./support/MarketStage.sol";

/// @title The factory: who deploys what, where, and on which chains
contract FactoryTest is MarketStage {
    uint256 private constant TRANSACTION_CAP = 16_777_216;
    address private constant P256VERIFY = address(0x100);

    function addParties() internal override {}

    /// @dev Parameters of a deployment that does not stand yet.
    function fresh() private view returns (Parameters memory chosen) {
        chosen = parameters();
        ++chosen.schedulerStake;
    }

    // ---- where and what

    function test_AddressesCanBeRecomputed() public view {
        Contracts memory parts = factory.addressesOf(parameters());
        address[12] memory addresses = abi.decode(abi.encode(parts), (address[12]));
        bytes32 salt = keccak256(abi.encode(parameters()));
        for (uint256 i = 0; i < PARTS; ++i) {
            bytes32 codeHash = keccak256(partCode(i));
            assertEq(factory.codeHashOf(i), codeHash);
            bytes32 expected = keccak256(abi.encodePacked(hex"ff", address(factory), salt, codeHash));
            assertEq(addresses[i], address(uint160(uint256(expected))));
            assertGt(addresses[i].code.length, 0);
        }
        assertEq(abi.encode(lens.parameters()), abi.encode(parameters()));
        assertEq(abi.encode(lens.contracts()), abi.encode(parts));
        (bool begun, uint256 made) = factory.progressOf(parameters());
        assertTrue(begun);
        assertEq(made, (1 << PARTS) - 1);
    }

    function test_SizesAndGasStayInTheirBounds() public {
        Parameters memory chosen = fresh();
        begin(chosen);
        for (uint256 i = 0; i < PARTS; ++i) {
            bytes memory code = partCode(i);
            assertLe(code.length, 40_000);
            bytes memory data = abi.encodeCall(factory.create, (chosen, i, code));
            uint256 start = gasleft();
            (bool success, bytes memory made) = address(factory).call(data);
            uint256 gas = start - gasleft() + 21_000;
            assertTrue(success);
            assertLe(abi.decode(made, (address)).code.length, 20_000);
            uint256 floor = 21_000;
            for (uint256 j = 0; j < data.length; ++j) {
                gas += data[j] == 0 ? 4 : 16;
                floor += data[j] == 0 ? 10 : 40;
            }
            assertLe(gas > floor ? gas : floor, TRANSACTION_CAP);
        }
    }

    /// @dev Other parameters, other addresses; and what is signed for one deployment is nothing in another.
    function test_DeploymentsStandBesideEachOther() public {
        Contracts memory second = deploy(fresh());
        assertTrue(second.bank != address(bank));
        assertTrue(IBank(second.bank).domainSeparator() != bank.domainSeparator());
    }

    function test_AnybodyContinuesInAnyOrder() public {
        Parameters memory chosen = fresh();
        begin(chosen);
        for (uint256 i = PARTS; i > 1; --i) {
            vm.prank(vm.addr(i));
            factory.create(chosen, i - 1, partCode(i - 1));
        }
        vm.expectEmit(address(factory));
        emit IDeployment.Deployed(keccak256(abi.encode(chosen)), factory.addressesOf(chosen), chosen);
        factory.create(chosen, 0, partCode(0));
    }

    // ---- what is refused

    function test_RefusesAFalsePart() public {
        Parameters memory chosen = fresh();
        begin(chosen);
        for (uint256 i = 0; i < PARTS; ++i) {
            bytes memory code = partCode((i + 1) % PARTS);
            vm.expectRevert(
                abi.encodeWithSelector(IDeployment.WrongCode.selector, i, keccak256(code), keccak256(partCode(i)))
            );
            factory.create(chosen, i, code);
            code = bytes.concat(partCode(i), hex"00");
            vm.expectRevert(
                abi.encodeWithSelector(IDeployment.WrongCode.selector, i, keccak256(code), keccak256(partCode(i)))
            );
            factory.create(chosen, i, code);
        }
    }

    function test_RefusesAPartTwice() public {
        bytes32 deployment = keccak256(abi.encode(parameters()));
        bytes memory code = partCode(1);
        vm.expectRevert(
            abi.encodeWithSelector(IDeployment.AlreadyCreated.selector, deployment, 1, address(registry))
        );
        factory.create(parameters(), 1, code);
        bytes memory header = setHeader(last(), "randao");
        vm.expectRevert(abi.encodeWithSelector(IDeployment.AlreadyBegun.selector, deployment));
        factory.begin(parameters(), header, header);
    }

    function test_RefusesPartsOfNothing() public {
        Parameters memory chosen = fresh();
        bytes memory code = partCode(0);
        vm.expectRevert(
            abi.encodeWithSelector(IDeployment.NotBegun.selector, keccak256(abi.encode(chosen)))
        );
        factory.create(chosen, 0, code);
        vm.expectRevert(abi.encodeWithSelector(IDeployment.UnknownPart.selector, PARTS, PARTS));
        factory.create(chosen, PARTS, code);
        vm.expectRevert(abi.encodeWithSelector(IDeployment.UnknownPart.selector, PARTS, PARTS));
        factory.codeHashOf(PARTS);
        bytes memory creation = bytes.concat(
            vm.getCode("contracts/market/Deployment.sol:Deployment"), abi.encode(new bytes32[](PARTS - 1))
        );
        vm.expectRevert(abi.encodeWithSelector(IDeployment.WrongPartCount.selector, PARTS - 1, PARTS));
        this.createAny(creation);
    }

    function createAny(bytes memory creation) external returns (address made) {
        assembly ("memory-safe") {
            made := create(0, add(creation, 32), mload(creation))
            if iszero(made) {
                returndatacopy(0, 0, returndatasize())
                revert(0, returndatasize())
            }
        }
    }

    /// @dev A false part that reads the wiring when nothing is created learns nothing.
    function test_NothingIsUnderWayBetweenParts() public {
        vm.expectRevert(IDeployment.NothingUnderWay.selector);
        factory.parameters();
        vm.expectRevert(IDeployment.NothingUnderWay.selector);
        factory.contracts();
    }

    // ---- parameters

    function test_RefusesParametersThatBreakARule() public {
        for (uint256 i = 0; i < 11; ++i) {
            breaks(1, i, 0);
            breaks(1, i, (1 << 30) + 1);
        }
        breaks(1, 11, (1 << 30) + 1);
        breaks(1, 12, (1 << 30) + 1);
        breaks(2, 0, 24);
        breaks(3, 3, 8191 - 8 + 1);
        breaks(4, 4, 3);
        breaks(4, 5, 3);
        // 50 + 15 * 10 + 2 * (2 * (8 + 200) + 20 + 20 + 4) = 1120
        breaks(5, 6, 1120);
        breaks(6, 7, 650);
        breaks(7, 8, 1350);
        breaks(8, 9, 30 + 50 + 15 * 10 + 1300 + 50 + 4);
        Parameters memory chosen = fresh();
        chosen.schedulerStake = 0;
        refused(9, chosen);
        chosen = fresh();
        chosen.gasPrice = 0;
        refused(9, chosen);
        for (uint256 i = 0; i < 3; ++i) {
            chosen = fresh();
            if (i == 0) chosen.asset = stranger;
            if (i == 1) chosen.weights = stranger;
            if (i == 2) chosen.prover = stranger;
            refused(10, chosen);
        }
    }

    function test_TakesTheLeastThatHolds() public {
        Parameters memory chosen = fresh();
        chosen.claimDelay = 1121;
        chosen.closeDelay = 1172;
        chosen.unbonding = 30 + 50 + 15 * 10 + 1121 + 50 + 5;
        (chosen.seasoning, chosen.suspensionPause) = (0, 0);
        begin(chosen);
    }

    /// @dev Window number `place` (in the order of the library) of good parameters becomes `value`.
    function breaks(uint256 rule, uint256 place, uint256 value) private {
        Parameters memory chosen = fresh();
        uint256[13] memory fields = [uint256(1), 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 11, 13];
        uint256 field = fields[place];
        assembly ("memory-safe") {
            mstore(add(chosen, mul(32, field)), value)
        }
        refused(rule, chosen);
    }

    function refused(uint256 rule, Parameters memory chosen) private {
        bytes memory one = setHeader(last(), "one");
        bytes memory other = setHeader(last() - 1, "other");
        vm.expectRevert(abi.encodeWithSelector(IDeployment.InvalidParameters.selector, rule, chosen));
        factory.begin(chosen, one, other);
    }

    // ---- chains

    function test_RefusesAConstantBeacon() public {
        bytes memory one = setHeader(last(), "same");
        bytes memory other = setHeader(last() - 1, "same");
        vm.expectRevert(abi.encodeWithSelector(IDeployment.ConstantBeacon.selector, last(), last() - 1));
        factory.begin(fresh(), one, other);
        vm.expectRevert(abi.encodeWithSelector(IDeployment.ConstantBeacon.selector, last(), last()));
        factory.begin(fresh(), one, one);
    }

    function test_RefusesHeadersOfNoBlock() public {
        bytes memory one = setHeader(last(), "one");
        bytes memory old = setHeader(last() - 300, "other");
        vm.expectRevert(
            abi.encodeWithSelector(
                IDeployment.UnknownHeader.selector, last() - 300, keccak256(old), bytes32(0)
            )
        );
        factory.begin(fresh(), one, old);
        bytes memory false_ = setHeader(last() - 1, "false");
        setHeader(last() - 1, "true");
        vm.expectPartialRevert(IDeployment.UnknownHeader.selector);
        factory.begin(fresh(), one, false_);
        vm.expectPartialRevert(BlockHeader.InvalidHeader.selector);
        factory.begin(fresh(), one, hex"c0");
    }

    /// @dev Nobody there, and one that says no.
    function test_RefusesAChainWithoutP256() public {
        vm.mockCall(P256VERIFY, "", "");
        expectMissing(P256VERIFY);
        vm.mockCall(P256VERIFY, "", abi.encode(0));
        expectMissing(P256VERIFY);
    }

    function test_RefusesAChainWithoutBlockHashes() public {
        vm.etch(HISTORY, "");
        expectMissing(HISTORY);
        vm.etch(HISTORY, hex"60205ff3");
        expectMissing(HISTORY);
    }

    function expectMissing(address what) private {
        bytes memory one = setHeader(last(), "one");
        bytes memory other = setHeader(last() - 1, "other");
        vm.expectRevert(abi.encodeWithSelector(IDeployment.PrecompileMissing.selector, what));
        factory.begin(fresh(), one, other);
    }
}
