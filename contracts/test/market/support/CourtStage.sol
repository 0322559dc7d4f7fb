// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {ICourt} from "../../../market/interfaces/ICourt.sol";
import {Contracts} from "../../../market/interfaces/IDeployment.sol";
import {Parameters, PotKind, Rules} from "../../../market/interfaces/MarketTypes.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {P256Prover} from "../../support/P256Prover.sol";
import {MockBank, MockHistory, MockRegistry, MockSummons} from "./CourtMocks.sol";

/// @title A court with a scheduler, nodes and their owners
abstract contract CourtStage is Test {
    uint32 internal constant LAG = 60;
    uint32 internal constant SUMMONS_WINDOW = 20;
    uint32 internal constant LOOKAHEAD = 132;
    uint32 internal constant DRAW_WINDOW = 1000;
    uint32 internal constant COMMIT_WINDOW = 100;
    uint32 internal constant REVEAL_WINDOW = 50;
    uint32 internal constant REFERENCE_AGE = 50;
    uint32 internal constant UNBONDING = 10_000;
    /// @dev Ten gwei.
    uint96 internal constant GAS_PRICE = 1e19;

    uint96 internal constant L = 2 ether;
    uint96 internal constant STAKE = 10 ether;
    uint96 internal constant FEE_CAP = 0.05 ether;
    /// @dev 60 positions of prompt, 40 written, and a check by three seats at q = 1.
    uint96 internal constant FEE = 18e15 + 60e9 + 120e9;
    /// @dev u of 100 positions.
    uint96 internal constant UNIT = 0.001 ether;
    uint96 internal constant CHECK_PRICE = 6e22;
    uint32 internal constant SECOND_CUT = 1_500_000;

    uint256 internal constant NODE_KEY = 0x40de00;
    uint256 internal constant SCHEDULER_KEY = 0x5c4ed;
    uint256 internal constant CLIENT_KEY = 0xc11e47;
    uint256 internal constant TAB_KEY = 0x7ab;
    uint256 internal constant VRF_SECRET = 7;
    uint256 internal constant NODES = 20;
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    uint8 internal constant NONE = 0;
    uint8 internal constant ACCEPT = 1;
    uint8 internal constant REJECT = 2;
    uint8 internal constant CANNOT_TELL = 3;
    uint8 internal constant MISSING_PROMPT = 4;
    uint8 internal constant MISSING_INPUT = 5;
    uint8 internal constant MISSING_TRACE = 6;

    MockBank internal bank;
    MockRegistry internal registry;
    MockSummons internal summons;
    ICourt internal court;
    address internal docket;
    address internal judgement;
    bytes32 internal exact = keccak256("exact");
    bytes32 internal tolerant = keccak256("tolerant");
    address internal scheduler = vm.addr(SCHEDULER_KEY);
    address internal client = vm.addr(CLIENT_KEY);
    address internal stranger = makeAddr("stranger");
    mapping(address operator => uint256) internal keys;
    bytes32 internal constant HONEST = keccak256("honest trace");
    bytes32 internal constant FALSE = keccak256("false trace");
    Contracts private _contracts;

    function setUp() public virtual {
        vm.roll(10_000);
        vm.fee(0);
        vm.etch(HISTORY, address(new MockHistory()).code);
        bank = new MockBank();
        registry = new MockRegistry();
        summons = new MockSummons();
        _deploy();
        registry.setClass(exact, rules(true, 5));
        registry.setClass(tolerant, rules(false, 5));
        (uint256 x, uint256 y) = P256Prover.publicKey(VRF_SECRET);
        registry.setKey(scheduler, x, y);
        registry.setOwner(scheduler, makeAddr("scheduler's owner"));
        bank.fund(PotKind.Stake, scheduler, STAKE);
        for (uint256 i = 0; i < NODES; ++i) {
            _join(i, exact);
            _join(100 + i, tolerant);
        }
        vm.deal(client, 1000 ether);
        vm.deal(stranger, 1000 ether);
        vm.roll(10_010);
    }

    // ---- the stage

    function _deploy() private {
        uint256 nonce = vm.getNonce(address(this));
        _contracts.bank = address(bank);
        _contracts.registry = address(registry);
        _contracts.summons = address(summons);
        _contracts.court = vm.computeCreateAddress(address(this), nonce);
        _contracts.docket = vm.computeCreateAddress(address(this), nonce + 1);
        _contracts.judgement = vm.computeCreateAddress(address(this), nonce + 2);
        court = ICourt(_created("Court.sol:Court"));
        docket = _created("Docket.sol:Docket");
        judgement = _created("Judgement.sol:Judgement");
    }

    function _created(string memory name) private returns (address deployed) {
        bytes memory creation = vm.getCode(name);
        assembly ("memory-safe") {
            deployed := create(0, add(creation, 0x20), mload(creation))
        }
        require(deployed != address(0), "deployment failed");
    }

    /// @dev The parts read their wiring from their creator.
    function contracts() external view returns (Contracts memory) {
        return _contracts;
    }

    function parameters() public view virtual returns (Parameters memory chosen) {
        chosen.lag = LAG;
        chosen.summonsWindow = SUMMONS_WINDOW;
        chosen.lookahead = LOOKAHEAD;
        chosen.drawWindow = DRAW_WINDOW;
        chosen.commitWindow = COMMIT_WINDOW;
        chosen.revealWindow = REVEAL_WINDOW;
        chosen.referenceAge = REFERENCE_AGE;
        chosen.unbonding = UNBONDING;
        chosen.gasPrice = GAS_PRICE;
    }

    function rules(bool isExact, uint8 reviewers) internal pure returns (Rules memory chosen) {
        chosen.penalty = L;
        chosen.seat = 5 ether;
        chosen.seatCap = 8;
        chosen.exact = isExact;
        chosen.mantissaBits = 10;
        chosen.steps = 8;
        chosen.theta = 9000;
        chosen.tiles = isExact ? 0 : 1;
        chosen.verifiers = 3;
        chosen.reviewers = reviewers;
        chosen.checkPrice = CHECK_PRICE;
        chosen.feeCap = FEE_CAP;
        chosen.leastCheckRate = 50_000;
        chosen.secondCut = SECOND_CUT;
        chosen.poolLimit = 2;
        chosen.poolWindow = 5000;
        chosen.hiddenSize = 32;
        chosen.layers = 4;
        chosen.candidates = 2;
    }

    /// @dev Node `index`, with an owner of its own.
    function _join(uint256 index, bytes32 class) internal returns (address operator) {
        operator = node(index);
        keys[operator] = NODE_KEY + index;
        registry.join(operator, ownerOf(index), class);
        bank.fund(PotKind.Stake, operator, STAKE);
    }

    function node(uint256 index) internal pure returns (address) {
        return vm.addr(NODE_KEY + index);
    }

    function ownerOf(uint256 index) internal pure returns (address) {
        return address(uint160(uint256(keccak256(abi.encode("owner", index)))));
    }

    function pass(uint256 blocks) internal {
        vm.roll(vm.getBlockNumber() + blocks);
    }

    function signed(uint256 key, bytes32 structHash) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, Messages.digest(bank.domainSeparator(), structHash));
        return abi.encodePacked(r, s, v);
    }

    // ---- money

    function stakeOf(address operator) internal view returns (uint96) {
        return bank.balanceOf(PotKind.Stake, bytes32(uint256(uint160(operator))));
    }

    function lockedOf(address operator) internal view returns (uint96) {
        return bank.balanceOf(PotKind.Locked, bytes32(uint256(uint160(operator))));
    }

    function creditOf(address account) internal view returns (uint96) {
        return bank.balanceOf(PotKind.Credit, bytes32(uint256(uint160(account))));
    }

    function burnt() internal view returns (uint96) {
        return bank.balanceOf(PotKind.Burnt, 0);
    }
}
