// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {ITroth} from "../../interfaces/ITroth.sol";
import {
    ExecutionClass,
    ModelDescriptor,
    NodeRegistration,
    Parameters,
    SchedulerRegistration,
    Segment
} from "../../interfaces/TrothTypes.sol";
import {P256Prover} from "./P256Prover.sol";

/// @title A deployed contract with two classes, a scheduler, six nodes and a client
abstract contract TrothTest is Test {
    uint32 internal constant COMMIT_WINDOW = 20;
    uint32 internal constant SAMPLE_WINDOW = 15;
    uint32 internal constant REVEAL_WINDOW = 10;
    uint32 internal constant DISPUTE_WINDOW = 12;
    uint32 internal constant UNBONDING_PERIOD = 400;
    uint96 internal constant SCHEDULER_STAKE = 1 ether;
    uint96 internal constant NODE_STAKE = 1 ether;
    uint96 internal constant UNIT = 0.001 ether;
    uint96 internal constant DEPOSIT = 10 ether;
    uint256 internal constant NODES = 6;
    uint256 internal constant VRF_SECRET = 7;
    uint256 internal constant SCHEDULER_KEY = 0x5c4ed;
    uint256 internal constant CLIENT_KEY = 0xc11e47;
    uint256 internal constant NODE_KEY = 0x40de00;

    ITroth internal troth;
    address internal reserve = makeAddr("reserve");
    address internal owner = makeAddr("owner");
    address internal payout = makeAddr("payout");
    address internal scheduler = vm.addr(SCHEDULER_KEY);
    address internal client = vm.addr(CLIENT_KEY);
    bytes32 internal model;
    bytes32 internal tolerant;
    bytes32 internal exact;
    mapping(address operator => uint256) internal keys;

    function setUp() public virtual {
        vm.roll(1000);
        vm.warp(1_000_000);
        troth = deploy(parameters());
        model = troth.registerModel(descriptor());
        tolerant = troth.registerClass(executionClass(false));
        exact = troth.registerClass(executionClass(true));
        vm.deal(owner, 1000 ether);
        registerScheduler(SCHEDULER_KEY, VRF_SECRET, SCHEDULER_STAKE);
        for (uint256 i = 0; i < NODES; ++i) {
            registerNode(NODE_KEY + i, tolerant, NODE_STAKE);
            registerNode(NODE_KEY + 100 + i, exact, NODE_STAKE);
        }
        vm.deal(client, 100 ether);
        vm.prank(client);
        troth.deposit{value: DEPOSIT}(client);
        vm.roll(1010);
    }

    /// @dev From the artifacts: a test that said `new Troth` would run what the tests' quick compiler makes of it, not what
    /// is deployed, and would compile the contract again.
    function deploy(Parameters memory chosen) internal returns (ITroth deployed) {
        return ITroth(created(trothCreation(chosen, created(reviewPathCreation(chosen)))));
    }

    function trothCreation(Parameters memory chosen, address reviewPath) internal view returns (bytes memory) {
        return bytes.concat(vm.getCode("Troth.sol:Troth"), abi.encode(chosen, reviewPath));
    }

    function reviewPathCreation(Parameters memory chosen) internal view returns (bytes memory) {
        return bytes.concat(vm.getCode("ReviewPath.sol:ReviewPath"), abi.encode(chosen));
    }

    function created(bytes memory creation) internal returns (address deployed) {
        assembly ("memory-safe") {
            deployed := create(0, add(creation, 0x20), mload(creation))
        }
        require(deployed != address(0), "deployment failed");
    }

    function layers() internal view virtual returns (uint8) {
        return 4;
    }

    function parameters() internal view virtual returns (Parameters memory) {
        return Parameters({
            commitWindow: COMMIT_WINDOW,
            sampleWindow: SAMPLE_WINDOW,
            revealWindow: REVEAL_WINDOW,
            disputeWindow: DISPUTE_WINDOW,
            unbondingPeriod: UNBONDING_PERIOD,
            minimumSchedulerStake: SCHEDULER_STAKE,
            reserve: reserve
        });
    }

    function descriptor() internal view virtual returns (ModelDescriptor memory) {
        return ModelDescriptor({
            architecture: "llama/0x01/0x02",
            layers: layers(),
            hiddenSize: 32,
            vocabulary: 49_152,
            dtype: 0,
            weightsRoot: keccak256("weights")
        });
    }

    function executionClass(bool isExact) internal view virtual returns (ExecutionClass memory) {
        return ExecutionClass({
            model: keccak256(abi.encode(descriptor())),
            name: isExact ? "exact" : "tolerant",
            dtype: 0,
            exact: isExact,
            mantissaBits: 10,
            steps: 8,
            theta: 9000,
            tiles: isExact ? 0 : 1,
            candidates: 2,
            verifiers: 3,
            reviewers: 5,
            unit: UNIT,
            minimumStake: NODE_STAKE,
            stateCut: 1000,
            marginCut: 20_000,
            calibration: keccak256("calibration")
        });
    }

    function registerScheduler(uint256 key, uint256 vrfSecret, uint96 stake) internal returns (address operator) {
        operator = vm.addr(key);
        keys[operator] = key;
        SchedulerRegistration memory registration = schedulerRegistration(operator, vrfSecret);
        bytes memory consent = consentOf(key, owner);
        vm.prank(owner);
        troth.registerScheduler{value: stake}(registration, consent);
    }

    function registerNode(uint256 key, bytes32 class, uint96 stake) internal returns (address operator) {
        operator = vm.addr(key);
        keys[operator] = key;
        bytes memory consent = consentOf(key, owner);
        NodeRegistration memory registration = nodeRegistration(operator, class);
        vm.prank(owner);
        troth.registerNode{value: stake}(registration, consent);
    }

    function schedulerRegistration(address operator, uint256 vrfSecret)
        internal
        view
        returns (SchedulerRegistration memory)
    {
        (uint256 x, uint256 y) = P256Prover.publicKey(vrfSecret);
        return SchedulerRegistration({
            operator: operator,
            payout: payout,
            vrfX: x,
            vrfY: y,
            endpoint: "https://scheduler.example",
            tlsKeyHash: keccak256("tls")
        });
    }

    /// @dev A node of the whole model that serves it at once, or in halves.
    function nodeRegistration(address operator, bytes32 class) internal view returns (NodeRegistration memory) {
        Segment[] memory segments = new Segment[](3);
        segments[0] = Segment({first: 0, end: layers()});
        segments[1] = Segment({first: 0, end: layers() / 2});
        segments[2] = Segment({first: layers() / 2, end: layers()});
        return NodeRegistration({
            operator: operator,
            payout: payout,
            executionClass: class,
            first: 0,
            end: layers(),
            segments: segments,
            endpoint: "https://node.example",
            tlsKeyHash: keccak256("tls")
        });
    }

    function consentOf(uint256 key, address owner_) internal view returns (bytes memory) {
        return signed(
            key,
            keccak256(abi.encode(keccak256("Consent(address owner,address operator)"), owner_, vm.addr(key)))
        );
    }

    /// @dev An EIP-712 signature over a struct hash.
    function signed(uint256 key, bytes32 structHash) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(key, keccak256(abi.encodePacked(hex"1901", troth.domainSeparator(), structHash)));
        return abi.encodePacked(r, s, v);
    }

    /// @dev Goes some blocks forward. (block.number itself is constant within a call for the optimizer.)
    function pass(uint256 blocks) internal {
        vm.roll(vm.getBlockNumber() + blocks);
    }

    function nodeAddress(uint256 index) internal pure returns (address) {
        return vm.addr(NODE_KEY + index);
    }

    function exactNodeAddress(uint256 index) internal pure returns (address) {
        return vm.addr(NODE_KEY + 100 + index);
    }

    function stakeOf(address operator) internal view returns (uint96) {
        return troth.accountOf(operator).stake;
    }

    function creditOf(address account) internal view returns (uint96) {
        return troth.accountOf(account).credit;
    }

    /// @dev Everything that anybody of this stage owns; fees of live tasks are on top.
    function owned() internal view returns (uint256 sum) {
        sum = troth.escrowOf(client) + owned(scheduler) + owned(reserve) + owned(client) + owned(address(this));
        for (uint256 i = 0; i < NODES; ++i) {
            sum += owned(nodeAddress(i)) + owned(exactNodeAddress(i));
        }
    }

    function owned(address account) internal view returns (uint256) {
        return uint256(stakeOf(account)) + creditOf(account);
    }

    /// @dev The contract holds what is owned and the locked fees, to the wei.
    function assertSolvent(uint256 locked) internal view {
        assertEq(address(troth).balance, owned() + locked, "solvency");
    }
}
