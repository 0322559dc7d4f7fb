// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {HostedModel, IOrganisations, Presence} from "../../organisations/IOrganisations.sol";
import {OrganisationsTest, StandInRegistry} from "./support/OrganisationsTest.sol";

/// @title What earns credits, what they buy, and how they move
contract OrganisationsTests is OrganisationsTest {
    event Contributed(
        address indexed node,
        address indexed owner,
        uint64 epoch,
        uint8 first,
        uint8 end,
        uint128 amount,
        uint128 balance
    );

    // ---- earning

    function test_EarnsWhatTheMachineHeldForTheEpoch() public {
        reputation.rate(node(1), 1, 9e8, 0);
        toEpoch(2);
        Presence[] memory seen = presence(1);
        vm.expectEmit(address(organisations));
        emit Contributed(node(1), ALICE, 1, 0, LAYERS, SERVED, SERVED);
        vm.prank(node(1));
        organisations.post(1, seen);
        assertEq(organisations.balanceOf(ALICE), SERVED);
        assertEq(organisations.total(), SERVED);
    }

    function test_FiveServersForThirtyDaysBuyThirtyForFive() public {
        for (uint256 i = 0; i < 5; ++i) {
            addNode(node(10 + i), ALICE, PUBLIC, uint32(10 + i));
        }
        for (uint64 day = 1; day <= 30; ++day) {
            for (uint256 i = 0; i < 5; ++i) {
                serve(10 + i, day);
            }
        }
        assertEq(organisations.balanceOf(ALICE), organisations.costOf(OWN, 30, 5));
        vm.prank(ALICE);
        organisations.deploy(OWN, 30, 5, node(10), "own-model");
        assertEq(organisations.balanceOf(ALICE), 0);
    }

    function test_AnEpochIsCreditedOnce() public {
        serve(1, 1);
        postAs(ALICE, 1, 1);
        assertEq(organisations.balanceOf(ALICE), SERVED);
    }

    function test_NothingIsEarnedUnderWayOrLate() public {
        reputation.rate(node(1), 1, 9e8, 0);
        vm.startPrank(ALICE);
        Presence[] memory seen = presence(1);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotLastEpoch.selector, 1, 1));
        organisations.post(1, seen);
        toEpoch(3);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotLastEpoch.selector, 1, 3));
        organisations.post(1, seen);
    }

    function test_NothingIsEarnedWithoutRequests() public {
        toEpoch(2);
        vm.startPrank(ALICE);
        Presence[] memory seen = presence(1);
        // Nobody ever asked it.
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.BelowBar.selector, node(1), 0));
        organisations.post(1, seen);
        // Members asked it in an earlier epoch.
        reputation.rate(node(1), 0, 9e8, 0);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotRated.selector, node(1), 1, 0));
        organisations.post(1, seen);
    }

    function test_NothingIsEarnedBySilenceOrBelowTheBar() public {
        toEpoch(2);
        vm.startPrank(ALICE);
        Presence[] memory seen = presence(1);
        // Silent in this epoch, and good before: the score is still above the bar.
        reputation.rate(node(1), 1, 5e8, 1);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.AbnormalCredit.selector, node(1), 1));
        organisations.post(1, seen);
        reputation.rate(node(1), 1, 4e8 - 1, 0);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.BelowBar.selector, node(1), 4e8 - 1));
        organisations.post(1, seen);
    }

    function test_NothingIsEarnedByWhoWasAwayForAPart() public {
        toEpoch(2);
        reputation.rate(node(1), 1, 9e8, 0);
        uint256 begin = reputation.startBlock() + EPOCH;
        StandInRegistry.Node memory known = registry.nodeOf(node(1));
        vm.startPrank(ALICE);
        Presence[] memory seen = presence(1);
        (known.since, known.until) = (begin + 1, type(uint256).max);
        registry.setNode(node(1), known);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotInGroup.selector, node(1), 1, begin));
        organisations.post(1, seen);
        (known.since, known.until) = (0, begin + EPOCH);
        registry.setNode(node(1), known);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotInGroup.selector, node(1), 1, begin + EPOCH));
        organisations.post(1, seen);
        // Suspended.
        (known.until, known.seats) = (type(uint256).max, 0);
        registry.setNode(node(1), known);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotInGroup.selector, node(1), 1, begin));
        organisations.post(1, seen);
    }

    function test_NobodyPostsForOthers() public {
        reputation.rate(node(1), 1, 9e8, 0);
        toEpoch(2);
        Presence[] memory seen = presence(1);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotOwnerOrOperator.selector, node(1), BOB));
        vm.prank(BOB);
        organisations.post(1, seen);
    }

    // ---- spending

    function test_WhatIsSpentIsSetAsideAtOnce() public {
        uint64 deployment = deployOwn();
        assertEq(organisations.balanceOf(ALICE), 2 * SERVED);
        assertEq(organisations.deploymentOf(deployment).reserve, 2 * SERVED);
        vm.startPrank(ALICE);
        organisations.deploy(OWN, 2, 1, node(1), "");
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotEnoughCredits.selector, ALICE, 0, SERVED));
        organisations.deploy(OWN, 1, 1, node(1), "");
    }

    function test_OnlyTrustedOrganisationsDeploy() public {
        serve(1, 1);
        vm.startPrank(ALICE);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotOwner.selector, BOB, ALICE));
        organisations.deploy(OWN, 1, 1, node(2), "");
        reputation.rate(node(1), 1, 3e8, 0);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.BelowBar.selector, node(1), 3e8));
        organisations.deploy(OWN, 1, 1, node(1), "");
    }

    function test_CreditsMoveToWhoHostsForAnEpoch() public {
        uint64 deployment = deployOwn();
        vm.prank(node(3));
        organisations.host(deployment, node(3), 0, LAYERS);
        toEpoch(7);
        reputation.rate(node(3), 3, 9e8, 0);
        postAs(node(3), 6, 3);
        assertEq(organisations.balanceOf(BOB), SERVED);
        assertEq(organisations.deploymentOf(deployment).reserve, SERVED);
        assertEq(organisations.total(), 4 * SERVED);
    }

    function test_OneMachineIsOneReplica() public {
        uint64 deployment = deployOwn();
        vm.startPrank(BOB);
        organisations.host(deployment, node(3), 0, LAYERS);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.StillHosting.selector, node(3), deployment, 8));
        organisations.host(deployment, node(3), 0, LAYERS);
        addNode(node(4), BOB, OWN, 4);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.DeploymentFull.selector, deployment, 2 * LAYERS, LAYERS));
        organisations.host(deployment, node(4), 0, LAYERS);
    }

    function test_WhoHostedTakesAnotherPlaceOnlyOnceTheLastEpochCannotBePostedAnyMore() public {
        uint64 deployment = deployOwn();
        vm.prank(node(3));
        organisations.host(deployment, node(3), 0, LAYERS);
        for (uint64 epoch = 5; epoch < 9; ++epoch) {
            serve(1, epoch);
        }
        vm.prank(ALICE);
        uint64 next = organisations.deploy(OWN, 1, 2, node(1), "own-model");
        toEpoch(8);
        vm.prank(node(3));
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.StillHosting.selector, node(3), deployment, 8));
        organisations.host(next, node(3), 0, LAYERS);
        toEpoch(9);
        vm.prank(node(3));
        organisations.host(next, node(3), 0, LAYERS);
        assertEq(organisations.hostingOf(node(3)).deployment, next);
    }

    function test_HostingItselfEarnsNothing() public {
        uint64 deployment = deployOwn();
        addNode(node(5), ALICE, OWN, 5);
        vm.prank(ALICE);
        organisations.host(deployment, node(5), 0, LAYERS);
        toEpoch(7);
        reputation.rate(node(5), 6, 9e8, 0);
        postAs(ALICE, 6, 5);
        assertEq(organisations.balanceOf(ALICE) + organisations.deploymentOf(deployment).reserve, 4 * SERVED);
        assertEq(organisations.total(), 4 * SERVED);
    }

    function test_ADismissedNodeIsNotPaidForTheEpoch() public {
        uint64 deployment = deployOwn();
        vm.prank(BOB);
        organisations.host(deployment, node(3), 0, LAYERS);
        toEpoch(6);
        vm.prank(BOB);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotOwner.selector, ALICE, BOB));
        organisations.dismiss(node(3));
        vm.prank(ALICE);
        organisations.dismiss(node(3));
        toEpoch(7);
        Presence[] memory seen = presence(3);
        vm.prank(BOB);
        vm.expectRevert();
        organisations.post(6, seen);
        assertEq(organisations.balanceOf(BOB), 0);
        assertEq(organisations.deploymentOf(deployment).hosted, 0);
    }

    function test_WhatIsNotSpentComesBackOnce() public {
        uint64 deployment = deployOwn();
        toEpoch(6);
        vm.prank(BOB);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.NotOwner.selector, ALICE, BOB));
        organisations.stop(deployment);
        vm.prank(ALICE);
        organisations.stop(deployment);
        toEpoch(7);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.DeploymentNotOver.selector, deployment, 7, 7));
        organisations.reclaim(deployment);
        toEpoch(8);
        organisations.reclaim(deployment);
        organisations.reclaim(deployment);
        assertEq(organisations.balanceOf(ALICE), 4 * SERVED);
    }

    function test_AnotherClassCannotHost() public {
        uint64 deployment = deployOwn();
        vm.prank(BOB);
        vm.expectRevert(abi.encodeWithSelector(IOrganisations.WrongClass.selector, node(2), PUBLIC, OWN));
        organisations.host(deployment, node(2), 0, LAYERS);
    }

    function testFuzz_CostIsWhatMachinesForThatTimeEarn(uint16 replicas, uint32 epochs) public view {
        assertEq(organisations.costOf(OWN, replicas, epochs), uint256(SERVED) * replicas * epochs);
    }

    function testFuzz_ADeploymentBeyondTheBalanceIsRefused(uint16 replicas, uint32 epochs) public {
        vm.assume(replicas != 0 && epochs != 0 && uint256(replicas) * epochs > 1);
        serve(1, 1);
        vm.prank(ALICE);
        vm.expectRevert();
        organisations.deploy(OWN, replicas, epochs, node(1), "");
    }
}

/// @title Two organisations that do what they may in any order
contract OrganisationsActors is OrganisationsTest {
    function move(uint256 seed) public {
        uint64 current = reputation.epochNow();
        uint256 number = 1 + seed % 3;
        address owner = registry.nodeOf(node(number)).owner;
        uint256 kind = seed / 3 % 8;
        uint64 last = organisations.deployments();
        uint64 some = last == 0 ? 0 : uint64(1 + seed / 24 % last);
        if (kind < 3) {
            reputation.rate(node(number), current, 9e8, uint8(seed / 24 % 5 == 0 ? 1 : 0));
            vm.roll(block.number + EPOCH);
            Presence[] memory seen = presence(number);
            vm.prank(owner);
            try organisations.post(current, seen) {} catch {}
            return;
        }
        vm.startPrank(owner);
        if (kind == 3) {
            try organisations.deploy(OWN, uint16(1 + seed % 3), uint32(1 + seed % 4), node(number), "") {} catch {}
        } else if (kind == 4) {
            try organisations.host(some, node(3), 0, LAYERS) {} catch {}
        } else if (kind == 5) {
            try organisations.leave(node(3)) {} catch {}
        } else if (kind == 6) {
            try organisations.stop(some) {} catch {}
        } else {
            try organisations.reclaim(some) {} catch {}
        }
        vm.stopPrank();
    }

    function held() external view returns (uint256 sum) {
        sum = organisations.balanceOf(ALICE) + organisations.balanceOf(BOB);
        for (uint64 i = 1; i <= organisations.deployments(); ++i) {
            HostedModel memory deployment = organisations.deploymentOf(i);
            assertLe(deployment.hosted, uint256(deployment.replicas) * deployment.layers);
            sum += deployment.reserve;
        }
    }

    function total() external view returns (uint256) {
        return organisations.total();
    }
}

/// @title No order of calls makes or loses a credit that nobody served for
contract OrganisationsInvariants is OrganisationsTest {
    OrganisationsActors private actors;

    function setUp() public override {
        super.setUp();
        actors = new OrganisationsActors();
        actors.setUp();
        targetContract(address(actors));
        bytes4[] memory selectors = new bytes4[](1);
        selectors[0] = OrganisationsActors.move.selector;
        targetSelector(FuzzSelector({addr: address(actors), selectors: selectors}));
    }

    function invariant_CreditsAreConserved() public view {
        assertEq(actors.held(), actors.total());
    }
}
