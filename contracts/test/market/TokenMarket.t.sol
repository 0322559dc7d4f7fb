// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {ISummons} from "../../market/interfaces/ISummons.sol";
import {NodeRegistration, Parameters, PotKind} from "../../market/interfaces/MarketTypes.sol";
import {SummonsKind} from "../../market/interfaces/Proceedings.sol";
import {Opinion} from "../../market/interfaces/Signed.sol";
import {BadToken} from "./support/BankMocks.sol";
import {SummonsTest} from "./support/SummonsTest.sol";

/// @title Registry and Summons in a deployment whose asset is a token
abstract contract TokenMarketTest is SummonsTest {
    BadToken internal token = new BadToken();

    function parameters() internal view virtual override returns (Parameters memory chosen) {
        chosen = super.parameters();
        chosen.asset = address(token);
    }

    function register(address owner, uint96 stake, bytes memory call_) internal override {
        fund(owner, stake);
        vm.prank(owner);
        (bool success, bytes memory failure) = address(registry).call(call_);
        if (!success) raise(failure);
    }

    function fund(address account, uint256 amount) internal {
        token.mint(account, amount);
        vm.prank(account);
        token.approve(address(bank), type(uint256).max);
    }

    /// @dev Every token that the Bank holds is in one pot of those that these tests fill.
    function assertWhole(address[] memory parties) internal view {
        uint256 sum = bank.balanceOf(PotKind.Burnt, 0);
        for (uint256 i = 0; i < parties.length; ++i) {
            sum += uint256(stakeOf(parties[i])) + lockedOf(parties[i]) + creditOf(parties[i]);
        }
        assertEq(token.balanceOf(address(bank)), sum);
    }
}

/// @title A token that calls back while the Registry collects stake
contract ReentrantRegistryTest is TokenMarketTest {
    uint256 private constant NEW_KEY = 0x9e30000;

    address private node = vm.addr(NEW_KEY);
    address private owner = vm.addr(ownerKey(NEW_KEY));

    function wholeNodes() internal pure override returns (uint256) {
        return 2;
    }

    function registration() private view returns (NodeRegistration memory) {
        return nodeRegistration(node, exact, false, NODE_STAKE);
    }

    function registerCall(uint256 key, address owner_) private view returns (bytes memory) {
        return abi.encodeCall(IRegistry.registerNode, (registration(), consentOf(key, owner_)));
    }

    /// @dev Whatever the token tries while it is asked for stake, the group and the money are as if it had not.
    function registersOnce(address target, bytes memory call_) private {
        uint256 size = registry.sizeAt(registry.groupId(exact, 0, LAYERS), vm.getBlockNumber());
        token.reenter(target, call_);
        register(owner, NODE_STAKE, registerCall(NEW_KEY, owner));
        assertTrue(token.called() || token.refusal().length != 0, "the token called");
        assertEq(stakeOf(node), NODE_STAKE);
        assertEq(registry.ownerOf(node), owner);
        assertEq(registry.sizeAt(registry.groupId(exact, 0, LAYERS), vm.getBlockNumber()), size + 1);
    }

    function refusedWith(bytes4 failure) private view {
        assertFalse(token.called());
        assertEq(bytes4(token.refusal()), failure);
    }

    function test_RegisteringInsideOfARegistrationTakesNoStakeTwice() public {
        // The token has the operator's consent to be its owner, and stake of its own.
        token.mint(address(token), NODE_STAKE);
        registersOnce(address(registry), registerCall(NEW_KEY, address(token)));
        refusedWith(bytes4(keccak256("ReentrancyGuardReentrantCall()")));
    }

    function test_ToppingUpInsideOfARegistrationIsRefused() public {
        registersOnce(address(registry), abi.encodeCall(IRegistry.topUp, (exactNode(0), 1)));
        refusedWith(bytes4(keccak256("ReentrancyGuardReentrantCall()")));
    }

    function test_TheNewcomerIsUnknownUntilItsStakeIsThere() public {
        registersOnce(address(registry), abi.encodeCall(IRegistry.evict, (node)));
        refusedWith(IRegistry.UnknownOperator.selector);
    }

    /// @dev Its stake is not counted twice by a call that reads it while it arrives.
    function test_AnEvictionInsideOfATopUpSeesWhatIsWhole() public {
        address other = exactNode(0);
        uint96 half = NODE_STAKE / 2;
        slash(other, half);
        fund(ownerOf(other), half);
        token.reenter(address(registry), abi.encodeCall(IRegistry.evict, (other)));
        vm.prank(ownerOf(other));
        registry.topUp(other, half);
        assertTrue(token.called(), "anyone evicts what is not covered, at any time");
        assertEq(registry.entryAt(registry.groupId(exact, 0, LAYERS), 0, vm.getBlockNumber()).seats, SEAT_CAP);
        assertEq(stakeOf(other), NODE_STAKE);
    }

    function test_WithdrawingInsideOfADepositIsRefused() public {
        move(PotKind.Stake, idOf(exactNode(0)), PotKind.Credit, idOf(stranger), 1);
        registersOnce(address(bank), abi.encodeCall(IBank.withdraw, (stranger)));
        refusedWith(bytes4(keccak256("ReentrancyGuardReentrantCall()")));
        assertEq(creditOf(stranger), 1);
    }

    function test_StakeIsWhatArrives() public {
        token.set(BadToken.Vice.TakesFee);
        fund(owner, NODE_STAKE);
        bytes memory call_ = registerCall(NEW_KEY, owner);
        vm.prank(owner);
        (bool success,) = address(registry).call(call_);
        assertTrue(success);
        assertEq(stakeOf(node), NODE_STAKE - NODE_STAKE / 100);
        (,, uint48 one,) = registry.sliceOf(node);
        uint256 place = uint32(one);
        uint256 seats = registry.entryAt(registry.groupId(exact, 0, LAYERS), place, vm.getBlockNumber()).seats;
        assertEq(seats, SEAT_CAP - 1, "a seat that did not arrive is none");
    }
}

/// @title Summons in a token
contract TokenSummonsTest is TokenMarketTest {
    function setUp() public override {
        super.setUp();
        fund(summoner, 1 ether);
        fund(scheduler, 1 ether);
    }

    function ask(Play memory made) private returns (uint96 deposit) {
        deposit = summons.depositFor(SummonsKind.Check, 0);
        vm.recordLogs();
        vm.prank(summoner);
        summonsId = summons.summonCheck(made.order, made.draw, made.drawSignature, 0, made.secret);
        read();
    }

    function parties(Play memory made) private view returns (address[] memory all) {
        all = new address[](5 + 2 * wholeNodes());
        (all[0], all[1], all[2], all[3]) = (scheduler, summoner, stranger, vm.addr(SCHEDULER_KEY + 1));
        all[4] = made.nodes[0];
        for (uint256 i = 0; i < wholeNodes(); ++i) {
            (all[5 + 2 * i], all[6 + 2 * i]) = (exactNode(i), tolerantNode(i));
        }
        all[4] = ownerOf(scheduler);
    }

    /// @dev What a token costs in coins nobody knows here: the deployment's price, whatever the base fee.
    function test_ADepositInATokenIsExact() public {
        Play memory made = play(exact, WHOLE, 1);
        assertEq(summons.depositFor(SummonsKind.Check, 0), summons.depositFor(SummonsKind.Check, 1000 gwei));
        vm.deal(summoner, 1);
        vm.expectRevert(abi.encodeWithSelector(ISummons.WrongDeposit.selector, 1, 0, 0));
        vm.prank(summoner);
        summons.summonCheck{value: 1}(made.order, made.draw, made.drawSignature, 0, made.secret);
        uint256 before = token.balanceOf(summoner);
        uint96 deposit = ask(made);
        assertGt(deposit, 0);
        assertEq(before - token.balanceOf(summoner), deposit);
        assertEq(creditOf(scheduler), deposit);
        answerCheck(made, checkOf(made, 0, Opinion.Accept));
        assertEq(status(), ANSWERED);
        assertWhole(parties(made));
    }

    function test_AnUnansweredSummonsPaysItsSummonerInTheToken() public {
        Play memory made = play(exact, WHOLE, 1);
        uint96 deposit = ask(made);
        vm.roll(state.deadline + 1);
        convict(stranger);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - PENALTY);
        assertGe(creditOf(summoner), deposit + PENALTY / 10);
        assertWhole(parties(made));
        bank.withdraw(summoner);
        assertGe(token.balanceOf(summoner), 1 ether + PENALTY / 10);
    }

    /// @dev A summons is stored before the token is called, and a second one inside of it finds it.
    function test_ATokenThatCallsBackSummonsOnce() public {
        Play memory made = play(exact, WHOLE, 1);
        token.reenter(
            address(summons),
            abi.encodeCall(ISummons.summonCheck, (made.order, made.draw, made.drawSignature, 0, made.secret))
        );
        ask(made);
        assertFalse(token.called());
        assertEq(bytes4(token.refusal()), ISummons.AlreadySummoned.selector);
        assertWhole(parties(made));
    }

    /// @dev Who summons with nothing in its purse summons nobody.
    function test_WithoutTheTokenNobodyIsSummoned() public {
        Play memory made = play(exact, WHOLE, 1);
        vm.expectRevert();
        vm.prank(makeAddr("poor"));
        summons.summonCheck(made.order, made.draw, made.drawSignature, 0, made.secret);
        assertEq(uint256(summons.summonsOf(summons.summonsIdOf(made.id, SummonsKind.Check, 0))), 0);
    }
}
