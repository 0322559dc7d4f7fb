// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Contracts, IDeployment} from "../../market/interfaces/IDeployment.sol";
import {ILog, LogCounts} from "../../market/interfaces/ILog.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {
    Ask,
    DrawRequest,
    ExecutionClass,
    NodeRegistration,
    Parameters,
    PotKind,
    Rules,
    SchedulerRegistration,
    Segment
} from "../../market/interfaces/MarketTypes.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {Member} from "../../market/interfaces/ILens.sol";
import {AttackStage} from "./support/AttackStage.sol";

/// @dev Says that it is the factory of a true deployment.
contract FalseFactory {
    Parameters private _chosen;
    Contracts private _parts;

    constructor(Parameters memory chosen, Contracts memory parts) {
        (_chosen, _parts) = (chosen, parts);
    }

    function parameters() external view returns (Parameters memory) {
        return _chosen;
    }

    function contracts() external view returns (Contracts memory) {
        return _parts;
    }

    function create(bytes memory creation) external returns (address part) {
        assembly ("memory-safe") {
            part := create2(0, add(creation, 0x20), mload(creation), 0)
        }
    }
}

/// @title Attempts on registrations, seats, draws, classes, the log and the factory
contract AttacksPartiesTest is AttackStage {
    uint256 private constant NEW_KEY = 0xa77ac4;

    function memberOf(address operator) private view returns (Member memory found) {
        (, Member[] memory page) = lens.members(exact, 0, LAYERS, last(), 0, 100);
        for (uint256 i = 0; i < page.length; ++i) {
            if (page[i].entry.operator == operator) return page[i];
        }
    }

    function request(bytes32 seed, uint16 count) private view returns (DrawRequest memory made) {
        (made.executionClass, made.end, made.blockNumber) = (exact, LAYERS, last());
        (made.seed, made.count) = (seed, count);
    }

    // ---- registrations

    /// @dev A front-runner registers somebody else's operator with the consent that it saw.
    function test_AConsentServesItsOwnerAlone() public {
        address operator = vm.addr(NEW_KEY);
        NodeRegistration memory registration = nodeRegistration(operator, exact, false, NODE_STAKE);
        bytes memory consent = consentOf(NEW_KEY, client);
        vm.expectPartialRevert(IRegistry.InvalidConsent.selector);
        vm.prank(stranger);
        registry.registerNode{value: NODE_STAKE}(registration, consent);
        vm.prank(client);
        registry.registerNode{value: NODE_STAKE}(registration, consent);
        assertEq(registry.ownerOf(operator), client);
        // Nor is the same consent good for a scheduler of the same operator afterwards.
        SchedulerRegistration memory other = schedulerRegistration(operator, 9);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.OperatorKnown.selector, operator));
        vm.prank(client);
        registry.registerScheduler{value: SCHEDULER_STAKE}(other, consent);
    }

    /// @dev Seats beyond the cap, or a sum that overflows sixteen bits of seats.
    function test_MoreStakeThanTheCapIsNoMoreSeats() public {
        address operator = vm.addr(NEW_KEY);
        uint96 huge = uint96(SEAT) * 65_537;
        registerNode(NEW_KEY, vm.addr(ownerKey(NEW_KEY)), nodeRegistration(operator, exact, false, huge));
        pass(1);
        assertEq(memberOf(operator).entry.seats, SEAT_CAP);
    }

    /// @dev Each added seat begins anew; none is seasoned before its time, however often stake is added.
    function test_ManySmallTopUpsSeasonNothingEarlier() public {
        address operator = vm.addr(NEW_KEY);
        registerNode(NEW_KEY, vm.addr(ownerKey(NEW_KEY)), nodeRegistration(operator, exact, false, SEAT));
        vm.deal(operator, 10 ether);
        for (uint256 i = 0; i < 3; ++i) {
            pass(parameters().seasoning / 2);
            vm.prank(operator);
            registry.topUp{value: SEAT}(operator, SEAT);
        }
        pass(1);
        // 151 blocks after the first seat, 101 after the second, 51 after the third: none had seasoned when more came.
        assertEq(memberOf(operator).entry.seats, SEAT_CAP);
        assertEq(memberOf(operator).seasoned, 0);
        pass(parameters().seasoning);
        assertEq(memberOf(operator).seasoned, SEAT_CAP);
    }

    /// @dev A gift of a seat makes nobody's seats young, and a gift to nobody is refused.
    function test_GiftsHarmNobody() public {
        uint16 before = memberOf(exactNode(0)).seasoned;
        vm.startPrank(stranger);
        registry.topUp{value: 1}(exactNode(0), 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownOperator.selector, stranger));
        registry.topUp{value: 1}(stranger, 1);
        vm.stopPrank();
        pass(1);
        assertEq(memberOf(exactNode(0)).seasoned, before);
        vm.prank(exactNode(0));
        registry.deregister(exactNode(0));
        vm.expectPartialRevert(IRegistry.AlreadyExiting.selector);
        vm.prank(stranger);
        registry.topUp{value: 1 ether}(exactNode(0), 1 ether);
        assertEq(stakeOf(exactNode(0)), NODE_STAKE + 1);
    }

    function test_StrangersEvictAndMoveNobody() public {
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NothingToEvict.selector, exactNode(0)));
        registry.evict(exactNode(0));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotOwnerOrOperator.selector, exactNode(0), stranger));
        registry.deregister(exactNode(0));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotOwner.selector, exactNode(0), stranger));
        registry.setPayout(exactNode(0), stranger);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotExiting.selector, exactNode(0)));
        registry.withdrawStake(exactNode(0));
        // Money is out of reach at its own contract, too.
        vm.expectRevert(abi.encodeWithSelector(IBank.NotAuthorised.selector, stranger));
        bank.collect{value: 1}("mine", client, PotKind.Stake, idOf(stranger), 1);
        vm.expectRevert(abi.encodeWithSelector(IBank.NotAuthorised.selector, stranger));
        bank.forgive("tab", 1);
        vm.stopPrank();
    }

    /// @dev An operator that stole nothing but its own key cannot send the credit elsewhere.
    function test_AStolenOperatorKeyDoesNotMoveThePayout() public {
        address operator = exactNode(0);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotOwner.selector, operator, operator));
        vm.prank(operator);
        registry.setPayout(operator, stranger);
        assertEq(registry.payoutOf(operator), ownerOf(operator));
    }

    // ---- draws

    function test_WhoJoinsAndLeavesChangesNoPastDraw() public {
        DrawRequest memory made = request("seed", 15);
        pass(1);
        (address[] memory before,) = lens.draw(made);
        for (uint256 i = 0; i < 6; ++i) {
            registerNode(NEW_KEY + i, exact, false);
            address leaver = exactNode(i);
            vm.prank(leaver);
            registry.deregister(leaver);
            pass(1);
        }
        (address[] memory later, bytes memory hints) = lens.draw(made);
        assertEq(abi.encode(later), abi.encode(before));
        made.hints = hints;
        assertEq(abi.encode(registry.draw(made)), abi.encode(before));
        // One false hint is refused wherever it stands.
        for (uint256 place = 0; place < hints.length; place += 4) {
            made.hints = bytes.concat(hints);
            made.hints[place + 3] ^= 0x01;
            vm.expectPartialRevert(bytes4(keccak256("WrongHint(uint256,uint256,uint256)")));
            registry.draw(made);
        }
    }

    /// @dev Everybody is excluded, or there are too few owners: a draw ends, and with an error.
    function test_ADrawThatCannotEndEnds() public {
        DrawRequest memory made = request("seed", 3);
        made.excluded = new address[](12);
        for (uint256 i = 0; i < 12; ++i) made.excluded[i] = ownerOf(exactNode(i));
        vm.expectPartialRevert(IRegistry.DrawExhausted.selector);
        registry.draw(made);
        made = request("seed", 13);
        made.distinct = true;
        made.bound = Ask(ASK, ASK, ASK);
        vm.expectPartialRevert(IRegistry.DrawExhausted.selector);
        registry.draw(made);
        made = request("seed", 1);
        made.blockNumber = uint64(vm.getBlockNumber());
        vm.expectPartialRevert(IRegistry.BlockNotPast.selector);
        registry.draw(made);
        made = request("seed", 1);
        made.end = 1;
        vm.expectPartialRevert(IRegistry.GroupEmpty.selector);
        registry.draw(made);
    }

    /// @dev An order that pays nothing draws nobody, instead of everybody.
    function test_AnOrderWithoutAPriceDrawsNobody() public {
        DrawRequest memory made = request("seed", 2);
        made.distinct = true;
        vm.expectPartialRevert(IRegistry.DrawExhausted.selector);
        registry.draw(made);
    }

    /// @dev It raises its ask after it was drawn, or lowers it to be drawn.
    function test_AnAskOfLaterMeansNothingBefore() public {
        DrawRequest memory made = request("seed", 2);
        made.distinct = true;
        made.bound = Ask(ASK, ASK, ASK);
        pass(1);
        (address[] memory before,) = lens.draw(made);
        vm.prank(before[0]);
        registry.setAsk(before[0], 0, LAYERS, Ask(ASK + 1, ASK + 1, ASK + 1));
        pass(1);
        (address[] memory later, bytes memory hints) = lens.draw(made);
        assertEq(abi.encode(later), abi.encode(before));
        made.hints = hints;
        assertEq(abi.encode(registry.draw(made)), abi.encode(before));
        made.blockNumber = last();
        (later,) = lens.draw(made);
        assertTrue(later[0] != before[0]);
    }

    /// @dev It hosts other layers for a block, so as not to be drawn, and comes back.
    function test_SlicesAreNoWayOutOfADraw() public {
        address operator = exactNode(0);
        Segment[] memory half = new Segment[](1);
        half[0] = Segment(0, HALF);
        vm.prank(operator);
        registry.changeSlice(operator, 0, LAYERS, half, asksFor(1));
        pass(1);
        assertEq(memberOf(operator).entry.seats, 0);
        half[0] = Segment(0, LAYERS);
        vm.expectPartialRevert(IRegistry.SliceChangedLately.selector);
        vm.prank(operator);
        registry.changeSlice(operator, 0, LAYERS, half, asksFor(1));
        pass(parameters().referenceAge);
        vm.prank(operator);
        registry.changeSlice(operator, 0, LAYERS, half, asksFor(1));
        pass(1);
        assertEq(memberOf(operator).entry.seats, SEAT_CAP);
        assertEq(memberOf(operator).seasoned, 0, "its seats season again");
    }

    // ---- classes, log, factory

    function test_AClassRegisteredFirstByAnotherIsTheSameClass() public {
        ExecutionClass memory class = executionClass(true);
        class.name = "front-run";
        vm.prank(stranger);
        bytes32 id = classes.registerClass(class);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.ClassKnown.selector, id));
        classes.registerClass(class);
        assertEq(id, keccak256(abi.encode(class)));
        // Nobody admits rules of its own.
        Rules memory rules = registry.rulesOf(id);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, address(this)));
        registry.admitClass("mine", rules);
    }

    function test_NobodyWritesAnothersLog() public {
        LogCounts memory counts;
        vm.expectRevert(abi.encodeWithSelector(ILog.NotScheduler.selector, stranger));
        vm.prank(stranger);
        marketLog.post(1, "root", counts, "data");
        vm.prank(scheduler);
        marketLog.post(1, "root", counts, "data");
        vm.expectRevert(abi.encodeWithSelector(ILog.WrongNumber.selector, 1, 2));
        vm.prank(scheduler);
        marketLog.post(1, "another root", counts, "data");
        (uint64 number,) = marketLog.headOf(vm.addr(SCHEDULER_KEY + 1));
        assertEq(number, 0);
    }

    /// @dev Shipped code, created by a factory that lies, is at another address, and the true parts do not know it.
    function test_AFalseFactorysPartsMoveNothing() public {
        Contracts memory parts = factory.addressesOf(parameters());
        FalseFactory liar = new FalseFactory(parameters(), parts);
        address part = liar.create(partCode(4));
        assertTrue(part != address(0) && part != parts.evidence);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, part));
        vm.prank(part);
        registry.convict(scheduler, Fault.ByProof, "mine", 1);
    }


    function test_AFrontRunDeploymentIsTheSameDeployment() public {
        Parameters memory chosen = parameters();
        chosen.lag += 1;
        Contracts memory expected = factory.addressesOf(chosen);
        vm.startPrank(stranger);
        begin(chosen);
        address part = factory.create(chosen, 0, partCode(0));
        vm.stopPrank();
        assertEq(part, expected.bank);
        vm.expectPartialRevert(IDeployment.AlreadyCreated.selector);
        factory.create(chosen, 0, partCode(0));
        vm.expectPartialRevert(IDeployment.WrongCode.selector);
        factory.create(chosen, 1, partCode(2));
        vm.expectRevert(IDeployment.NothingUnderWay.selector);
        factory.parameters();
        // Its money is not this deployment's.
        assertTrue(IBank(part).domainSeparator() != bank.domainSeparator());
    }
}
