// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IDocket} from "../../market/interfaces/IDocket.sol";
import {Result} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {BrokenKey} from "./support/BankMocks.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title A case is opened over an order, results and a draw as they were signed, and over no others
contract CourtSignedTest is CourtTest {
    // ---- order, results, draw

    function test_theTabIsThatOfItsParties() public {
        Play memory play = newPlay(exact, FALSE);
        play.order.client = stranger;
        uint96 bond = court.bondFor(exact, 99);
        vm.prank(stranger);
        vm.expectPartialRevert(IDocket.WrongTab.selector);
        sendOpen(play, bond);
    }

    function test_theKeySignsTheOrder() public {
        Play memory play = newPlay(exact, FALSE);
        play.order.signature = signed(CLIENT_KEY, Messages.hash(play.order.order));
        expectOpen(play, client, abi.encodeWithSelector(IDocket.WrongSignature.selector, vm.addr(TAB_KEY)));
    }

    /// @dev An account that takes on code (EIP-7702) keeps nobody from the court.
    function test_anAccountWithCodeHasSignedItsOrders() public {
        Play memory play = newPlay(exact, FALSE);
        vm.etch(vm.addr(TAB_KEY), address(new BrokenKey(0)).code);
        open(play, client);
        assertEq(play.state.opener, client);
    }

    function test_theSchedulerSignsTheDraw() public {
        Play memory play = newPlay(exact, FALSE);
        play.drawSignature = signed(CLIENT_KEY, Messages.hash(play.draw));
        expectOpen(play, client, abi.encodeWithSelector(IDocket.WrongSignature.selector, scheduler));
    }

    function test_theDrawNamesAllResults() public {
        Play memory play = newPlay(exact, FALSE);
        bytes32 expected = play.draw.results;
        play.draw.results = keccak256("others");
        play.drawSignature = signed(SCHEDULER_KEY, Messages.hash(play.draw));
        expectOpen(
            play,
            client,
            abi.encodeWithSelector(IDocket.ForeignDraw.selector, play.digest, play.draw.results, expected)
        );
    }

    function test_aMalleatedSignatureIsRefused() public {
        Play memory play = newPlay(exact, FALSE);
        bytes memory signature = play.resultSignatures[0];
        bytes32 s;
        assembly ("memory-safe") {
            s := mload(add(signature, 0x40))
            s := sub(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141, s)
            mstore(add(signature, 0x40), s)
        }
        signature[64] = signature[64] == bytes1(uint8(27)) ? bytes1(uint8(28)) : bytes1(uint8(27));
        expectOpen(play, client, abi.encodeWithSelector(IDocket.WrongSignature.selector, address(0)));
    }

    function test_onlyANodeOfTheClassIsJudged() public {
        Play memory play = newPlay(exact, FALSE);
        play.resultSignatures[0] = signed(NODE_KEY + 100, Messages.hash(play.results[0]));
        expectOpen(play, client, abi.encodeWithSelector(IDocket.WrongClass.selector, node(100), exact));
    }

    function test_endsRiseToTheLastLayerAndStop() public {
        bytes32[5] memory ends = [
            bytes32(0),
            bytes32(bytes1(uint8(3))),
            bytes32(bytes2(hex"0404")),
            bytes32(bytes3(hex"040002")),
            bytes32(bytes2(hex"0402"))
        ];
        for (uint256 i = 0; i < ends.length; ++i) {
            Play memory play = newPlay(exact, FALSE);
            play.order.order.ends = ends[i];
            setOrder(play, play.order.order);
            play.results[0].order = play.digest;
            signResults(play);
            signDraw(play, uint64(vm.getBlockNumber()));
            expectOpen(play, client, abi.encodeWithSelector(IDocket.WrongSegments.selector, ends[i], 1));
        }
    }

    function test_theSegmentIsThere() public {
        Play memory play = newPlay(exact, FALSE);
        play.segment = 1;
        expectOpen(play, client, abi.encodeWithSelector(IDocket.WrongSegments.selector, play.order.order.ends, 1));
        play.segment = 128;
        expectOpen(play, client, abi.encodeWithSelector(IDocket.WrongSegments.selector, play.order.order.ends, 128));
    }

    function test_eachResultIsOfItsPlace() public {
        Play memory play = newPlay(exact, FALSE);
        play.results[0].segment = 1;
        signResults(play);
        expectOpen(play, client, abi.encodeWithSelector(IDocket.ForeignResult.selector, 0, play.digest, uint8(1)));
    }

    function test_theDrawIsOfItsTime() public {
        Play memory play = newPlay(exact, FALSE);
        uint64 tooOld = play.order.order.referenceBlock - 1;
        signDraw(play, tooOld);
        expectOpen(play, client, outOfTime(play));
        signDraw(play, uint64(vm.getBlockNumber() + 1));
        expectOpen(play, client, outOfTime(play));
        vm.roll(play.order.order.referenceBlock + REFERENCE_AGE + LAG + 15 * SUMMONS_WINDOW + 1);
        signDraw(play, uint64(vm.getBlockNumber()));
        expectOpen(play, client, outOfTime(play));
        vm.roll(vm.getBlockNumber() - 1);
        signDraw(play, uint64(vm.getBlockNumber()));
        open(play, client);
    }

    function outOfTime(Play memory play) private view returns (bytes memory) {
        return abi.encodeWithSelector(
            IDocket.DrawOutOfTime.selector,
            play.draw.blockNumber,
            play.order.order.referenceBlock,
            vm.getBlockNumber()
        );
    }

    // ---- lengths that no honest node signs

    function test_positionsBeyondAllMeasureAreJudgedAsTheLongest() public {
        Play memory play = newPlay(tolerant, FALSE);
        (play.results[0].prompt, play.results[0].cached) = (type(uint32).max, type(uint32).max);
        signResults(play);
        signDraw(play, uint64(vm.getBlockNumber()));
        uint32 most = 8 * (1 << 22) / 2;
        uint96 bond = court.bondFor(tolerant, most);
        vm.deal(client, bond);
        vm.prank(client);
        sendOpen(play, bond);
    }

    function test_nothingWrittenIsOneRow() public {
        Play memory play = newPlay(exact, FALSE);
        (play.results[0].prompt, play.results[0].written) = (0, 0);
        signResults(play);
        signDraw(play, uint64(vm.getBlockNumber()));
        uint96 bond = court.bondFor(exact, 1);
        vm.prank(client);
        sendOpen(play, bond);
    }

    /// @dev Any bytes changed anywhere, and nothing is opened by somebody else's name.
    function testFuzz_anyOtherResultIsRefused(uint256 field, uint256 value) public {
        Play memory play = newPlay(exact, FALSE);
        Result memory result = play.results[0];
        field = field % 9;
        bytes memory encoded = abi.encode(result);
        value = field == 1 ? uint8(value) : field >= 4 && field <= 6 ? uint32(value) : value;
        uint256 old;
        assembly ("memory-safe") {
            let place := add(encoded, mul(add(field, 1), 0x20))
            old := mload(place)
            mstore(place, value)
        }
        vm.assume(old != value);
        play.results[0] = abi.decode(encoded, (Result));
        uint96 bond = court.bondFor(exact, 99);
        bool success;
        try this.openAs(play, client, bond) {
            success = true;
        } catch {}
        assertFalse(success);
    }

    /// @dev A call that may fail.
    function openAs(Play memory play, address opener, uint256 value) external {
        vm.prank(opener);
        sendOpen(play, value);
    }
}
