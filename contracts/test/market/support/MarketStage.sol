// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {IBank} from "../../../market/interfaces/IBank.sol";
import {IClasses} from "../../../market/interfaces/IClasses.sol";
import {ICourt} from "../../../market/interfaces/ICourt.sol";
import {Contracts, IDeployment} from "../../../market/interfaces/IDeployment.sol";
import {IEvidence} from "../../../market/interfaces/IEvidence.sol";
import {ILeaves} from "../../../market/interfaces/ILeaves.sol";
import {ILens} from "../../../market/interfaces/ILens.sol";
import {ILog} from "../../../market/interfaces/ILog.sol";
import {
    Ask,
    Consent,
    ExecutionClass,
    ModelDescriptor,
    Movement,
    NodeRegistration,
    Parameters,
    PotKind,
    SchedulerRegistration,
    Segment,
    Tab,
    TabConsent
} from "../../../market/interfaces/MarketTypes.sol";
import {IRegistry} from "../../../market/interfaces/IRegistry.sol";
import {ISummons} from "../../../market/interfaces/ISummons.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {P256Prover} from "../../support/P256Prover.sol";
import {Headers} from "./Headers.sol";
import {HistoryMock} from "./HistoryMock.sol";

/// @title A whole deployment from the factory: two classes, two schedulers, nodes of whole models and of halves, a
///        client
/// @notice Contracts come from their artifacts, through the factory, so that a test runs what is deployed. Every node
///         has an owner of its own. A test that needs other numbers overrides `parameters`, `executionClass` or the
///         counts.
abstract contract MarketStage is Test {
    uint256 internal constant START = 10_000;
    uint256 internal constant PARTS = 12;
    uint8 internal constant LAYERS = 4;
    uint8 internal constant HALF = 2;
    bytes32 internal constant WHOLE = bytes32(uint256(LAYERS) << 248);
    bytes32 internal constant HALVES = bytes32(uint256(HALF) << 248 | uint256(LAYERS) << 240);
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    uint96 internal constant FEE_CAP = 0.01 ether;
    uint96 internal constant PENALTY = 0.4 ether;
    uint96 internal constant SEAT = 1 ether;
    uint16 internal constant SEAT_CAP = 4;
    uint96 internal constant NODE_STAKE = 4 ether;
    uint96 internal constant SCHEDULER_STAKE = 2 ether;
    /// @dev Six units a row: u is 10^9 wei a row.
    uint96 internal constant CHECK_PRICE = 6 ether;
    /// @dev 1 gwei of gas, as asset units per 10^9 gas.
    uint96 internal constant GAS_PRICE = 1 ether;
    uint64 internal constant PRICE = 1 ether;
    uint64 internal constant ASK = 0.5 ether;
    uint96 internal constant DEPOSIT = 10 ether;

    uint256 internal constant SCHEDULER_KEY = 0x5c4ed0;
    uint256 internal constant VRF_SECRET = 7;
    uint256 internal constant CLIENT_KEY = 0xc11e47;
    uint256 internal constant TAB_KEY = 0x7ab4e7;
    uint256 internal constant EXACT_KEY = 0xe8ac70000;
    uint256 internal constant TOLERANT_KEY = 0x701e40000;
    uint256 internal constant HALVES_KEY = 0x1000;
    uint256 internal constant OWNER_KEY = 0x08e40000000;

    IDeployment internal factory;
    IBank internal bank;
    IRegistry internal registry;
    ICourt internal court;
    ISummons internal summons;
    IEvidence internal evidence;
    ILog internal marketLog;
    ILens internal lens;
    IClasses internal classes;
    ILeaves internal leaves;

    bytes32 internal model;
    bytes32 internal exact;
    bytes32 internal tolerant;
    address internal scheduler = vm.addr(SCHEDULER_KEY);
    address internal client = vm.addr(CLIENT_KEY);
    address internal tabKey = vm.addr(TAB_KEY);
    address internal stranger = makeAddr("stranger");
    /// @dev What signs for an operator or account that this stage made.
    mapping(address account => uint256) internal keys;
    mapping(address scheduler => uint256) internal vrfSecrets;

    function setUp() public virtual {
        vm.roll(START);
        vm.warp(1_000_000);
        vm.fee(1 gwei);
        vm.etch(HISTORY, address(new HistoryMock()).code);
        factory = deployFactory();
        bind(deploy(parameters()));
        model = classes.registerModel(descriptor());
        exact = classes.registerClass(executionClass(true));
        tolerant = classes.registerClass(executionClass(false));
        (keys[client], keys[tabKey]) = (CLIENT_KEY, TAB_KEY);
        vm.deal(client, 1000 ether);
        vm.deal(stranger, 1000 ether);
        addParties();
        pass(parameters().seasoning + 1);
    }

    // ---- what the stage is made of

    function parameters() internal view virtual returns (Parameters memory) {
        return Parameters({
            asset: address(0),
            lag: 50,
            summonsWindow: 10,
            lookahead: 8,
            drawWindow: 200,
            commitWindow: 20,
            revealWindow: 20,
            claimDelay: 1300,
            answerWindow: 50,
            closeDelay: 1400,
            unbonding: 1700,
            seasoning: 100,
            referenceAge: 30,
            suspensionPause: 100,
            schedulerStake: SCHEDULER_STAKE,
            gasPrice: GAS_PRICE,
            weights: address(0),
            prover: address(0)
        });
    }

    function descriptor() internal view virtual returns (ModelDescriptor memory) {
        return ModelDescriptor({
            architecture: "llama/0x01/0x02",
            layers: LAYERS,
            hiddenSize: 32,
            vocabulary: 49_152,
            dtype: 0,
            weightsRoot: keccak256("weights")
        });
    }

    function executionClass(bool isExact) internal view virtual returns (ExecutionClass memory class) {
        class.model = keccak256(abi.encode(descriptor()));
        class.name = isExact ? "exact" : "tolerant";
        class.exact = isExact;
        (class.mantissaBits, class.steps, class.theta) = (10, 8, 9000);
        class.tiles = isExact ? 0 : 1;
        (class.candidates, class.verifiers, class.reviewers) = (2, 3, 15);
        (class.checkPrice, class.feeCap) = (CHECK_PRICE, FEE_CAP);
        (class.leastCheckRate, class.honestShare) = (50_000, 8000);
        (class.penalty, class.seat, class.seatCap) = (PENALTY, SEAT, SEAT_CAP);
        (class.stateCut, class.marginCut, class.secondCut) = (1000, 20_000, 2_000_000);
        (class.poolLimit, class.poolWindow) = (3, 5000);
        class.calibration = keccak256("calibration");
    }

    /// @dev Nodes of the whole model, per class.
    function wholeNodes() internal view virtual returns (uint256) {
        return 12;
    }

    /// @dev Nodes that are in the groups of both halves, per class.
    function halfNodes() internal view virtual returns (uint256) {
        return 0;
    }

    function addParties() internal virtual {
        registerScheduler(SCHEDULER_KEY, VRF_SECRET);
        registerScheduler(SCHEDULER_KEY + 1, VRF_SECRET + 1);
        for (uint256 i = 0; i < wholeNodes(); ++i) {
            registerNode(EXACT_KEY + i, exact, false);
            registerNode(TOLERANT_KEY + i, tolerant, false);
        }
        for (uint256 i = 0; i < halfNodes(); ++i) {
            registerNode(EXACT_KEY + HALVES_KEY + i, exact, true);
            registerNode(TOLERANT_KEY + HALVES_KEY + i, tolerant, true);
        }
    }

    // ---- deployment

    function deployFactory() internal returns (IDeployment) {
        bytes memory creation = vm.getCode("contracts/market/Deployment.sol:Deployment");
        return IDeployment(created(bytes.concat(creation, abi.encode(codeHashes()))));
    }

    /// @dev Parts in the order of Contracts.
    function partNames() internal pure returns (string[PARTS] memory) {
        return [
            "Bank", "Registry", "Court", "Summons", "Evidence", "Log", "Lens", "Docket", "Judgement", "Classes", "Leaves",
            "Proofs"
        ];
    }

    function partCode(uint256 index) internal view virtual returns (bytes memory) {
        string memory name = partNames()[index];
        return vm.getCode(string.concat("contracts/market/", name, ".sol:", name));
    }

    function codeHashes() internal view returns (bytes32[] memory hashes) {
        hashes = new bytes32[](PARTS);
        for (uint256 i = 0; i < PARTS; ++i) {
            hashes[i] = keccak256(partCode(i));
        }
    }

    /// @dev A whole deployment with these parameters.
    function deploy(Parameters memory chosen) internal returns (Contracts memory) {
        begin(chosen);
        for (uint256 i = 0; i < PARTS; ++i) {
            factory.create(chosen, i, partCode(i));
        }
        return factory.addressesOf(chosen);
    }

    function begin(Parameters memory chosen) internal {
        uint256 last = vm.getBlockNumber() - 1;
        factory.begin(chosen, setHeader(last, keccak256("one")), setHeader(last - 1, keccak256("other")));
    }

    function bind(Contracts memory parts) internal {
        bank = IBank(parts.bank);
        registry = IRegistry(parts.registry);
        court = ICourt(parts.court);
        summons = ISummons(parts.summons);
        evidence = IEvidence(parts.evidence);
        marketLog = ILog(parts.log);
        lens = ILens(parts.lens);
        classes = IClasses(parts.classes);
        leaves = ILeaves(parts.leaves);
    }

    function created(bytes memory creation) internal returns (address deployed) {
        assembly ("memory-safe") {
            deployed := create(0, add(creation, 0x20), mload(creation))
        }
        require(deployed != address(0), "deployment failed");
    }

    // ---- blocks

    /// @dev Goes some blocks forward. (block.number itself is constant within a call for the optimizer.)
    function pass(uint256 blocks) internal {
        vm.roll(vm.getBlockNumber() + blocks);
        vm.warp(vm.getBlockTimestamp() + 12 * blocks);
    }

    function last() internal view returns (uint64) {
        return uint64(vm.getBlockNumber() - 1);
    }

    /// @dev Makes a past block one with this RANDAO, for blockhash as far as it reaches and for EIP-2935.
    function setHeader(uint256 number, bytes32 randao) internal returns (bytes memory header) {
        header = Headers.build(number, randao);
        if (number + 256 >= vm.getBlockNumber()) BlockHashes(address(vm)).setBlockhash(number, keccak256(header));
        vm.store(HISTORY, bytes32(number), keccak256(header));
    }

    // ---- parties

    function ownerKey(uint256 key) internal pure returns (uint256) {
        return OWNER_KEY + key;
    }

    function ownerOf(address operator) internal view returns (address) {
        return vm.addr(ownerKey(keys[operator]));
    }

    function exactNode(uint256 index) internal pure returns (address) {
        return vm.addr(EXACT_KEY + index);
    }

    function tolerantNode(uint256 index) internal pure returns (address) {
        return vm.addr(TOLERANT_KEY + index);
    }

    function registerScheduler(uint256 key, uint256 vrfSecret) internal returns (address operator) {
        operator = vm.addr(key);
        (keys[operator], vrfSecrets[operator]) = (key, vrfSecret);
        keys[vm.addr(ownerKey(key))] = ownerKey(key);
        SchedulerRegistration memory registration = schedulerRegistration(operator, vrfSecret);
        register(ownerOf(operator), registration.stake, abi.encodeCall(
            registry.registerScheduler, (registration, consentOf(key, ownerOf(operator)))
        ));
    }

    function schedulerRegistration(address operator, uint256 vrfSecret)
        internal
        view
        virtual
        returns (SchedulerRegistration memory)
    {
        (uint256 x, uint256 y) = P256Prover.publicKey(vrfSecret);
        return SchedulerRegistration({
            operator: operator,
            payout: address(0),
            vrfX: x,
            vrfY: y,
            stake: SCHEDULER_STAKE,
            endpoint: "https://scheduler.example",
            tlsKeyHash: keccak256("tls")
        });
    }

    /// @dev A node of the whole model, or one of both halves, with all seats that the class allows.
    function registerNode(uint256 key, bytes32 class, bool halves) internal returns (address operator) {
        operator = vm.addr(key);
        return registerNode(key, vm.addr(ownerKey(key)), nodeRegistration(operator, class, halves, NODE_STAKE));
    }

    function registerNode(uint256 key, address owner, NodeRegistration memory registration)
        internal
        returns (address operator)
    {
        operator = registration.operator;
        keys[operator] = key;
        keys[vm.addr(ownerKey(key))] = ownerKey(key);
        bytes memory call_ = abi.encodeCall(registry.registerNode, (registration, consentOf(key, owner)));
        register(owner, registration.stake, call_);
    }

    function nodeRegistration(address operator, bytes32 class, bool halves, uint96 stake)
        internal
        pure
        returns (NodeRegistration memory)
    {
        Segment[] memory segments = new Segment[](halves ? 2 : 1);
        segments[0] = Segment({first: 0, end: halves ? HALF : LAYERS});
        if (halves) segments[1] = Segment({first: HALF, end: LAYERS});
        return NodeRegistration({
            operator: operator,
            payout: address(0),
            executionClass: class,
            first: 0,
            end: LAYERS,
            segments: segments,
            asks: asksFor(segments.length),
            stake: stake,
            endpoint: "https://node.example",
            tlsKeyHash: keccak256("tls")
        });
    }

    function asksFor(uint256 count) internal pure returns (Ask[] memory asks) {
        asks = new Ask[](count);
        for (uint256 i = 0; i < count; ++i) {
            // Half a model for half of the price.
            asks[i] = Ask({prompt: ASK / uint64(count), cached: ASK / uint64(count), written: ASK / uint64(count)});
        }
    }

    /// @dev The stake is the value of the call, whatever the asset's tests do with tokens.
    function register(address owner, uint96 stake, bytes memory call_) internal virtual {
        vm.deal(owner, owner.balance + stake);
        vm.prank(owner);
        (bool success, bytes memory failure) = address(registry).call{value: stake}(call_);
        if (!success) raise(failure);
    }

    function raise(bytes memory failure) internal pure {
        assembly ("memory-safe") {
            revert(add(failure, 32), mload(failure))
        }
    }

    // ---- money

    function idOf(address account) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    function creditOf(address account) internal view returns (uint96) {
        return bank.balanceOf(PotKind.Credit, idOf(account));
    }

    function stakeOf(address operator) internal view returns (uint96) {
        return bank.balanceOf(PotKind.Stake, idOf(operator));
    }

    function lockedOf(address operator) internal view returns (uint96) {
        return bank.balanceOf(PotKind.Locked, idOf(operator));
    }

    /// @dev Moves money as the court does.
    function move(PotKind from, bytes32 fromId, PotKind to, bytes32 toId, uint96 amount) internal {
        Movement[] memory movements = new Movement[](1);
        movements[0] = Movement(from, fromId, to, toId, amount);
        vm.prank(address(court));
        bank.move("test", movements);
    }

    /// @dev Burns stake, as an outcome of the court does before it convicts.
    function slash(address operator, uint96 amount) internal {
        move(PotKind.Stake, idOf(operator), PotKind.Burnt, 0, amount);
    }

    function clientTab() internal view returns (Tab memory) {
        return Tab({payer: client, payee: scheduler, key: tabKey});
    }

    /// @dev Opens the client's tab with the scheduler.
    function openClientTab() internal returns (bytes32 tab) {
        bytes memory consent = sign(TAB_KEY, Messages.hash(TabConsent({payer: client, payee: scheduler})));
        vm.prank(client);
        return bank.openTab{value: DEPOSIT}(scheduler, tabKey, DEPOSIT, consent);
    }

    /// @dev Opens the scheduler's tab with a node; its key is the scheduler's operator, who promises.
    function openNodeTab(address node) internal returns (bytes32 tab) {
        address payer = ownerOf(scheduler);
        bytes memory consent = sign(SCHEDULER_KEY, Messages.hash(TabConsent({payer: payer, payee: node})));
        vm.deal(payer, payer.balance + DEPOSIT);
        vm.prank(payer);
        return bank.openTab{value: DEPOSIT}(node, scheduler, DEPOSIT, consent);
    }

    // ---- signatures

    /// @dev An EIP-712 signature over a struct hash, under this deployment's domain.
    function sign(uint256 key, bytes32 structHash) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest(structHash));
        return abi.encodePacked(r, s, v);
    }

    function signAs(address account, bytes32 structHash) internal view returns (bytes memory) {
        require(keys[account] != 0, "a party of another stage");
        return sign(keys[account], structHash);
    }

    function digest(bytes32 structHash) internal view returns (bytes32) {
        return Messages.digest(Messages.separator(address(bank)), structHash);
    }

    function consentOf(uint256 key, address owner) internal view returns (bytes memory) {
        return sign(key, Messages.hash(Consent({owner: owner, operator: vm.addr(key)})));
    }
}

/// @dev A cheat code that the pinned forge-std does not declare yet.
interface BlockHashes {
    function setBlockhash(uint256 blockNumber, bytes32 blockHash) external;
}
