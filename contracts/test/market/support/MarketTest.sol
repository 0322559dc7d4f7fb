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
    DrawRequest,
    ExecutionClass,
    ModelDescriptor,
    Movement,
    NodeRegistration,
    Parameters,
    PotKind,
    Rules,
    SchedulerRegistration,
    Segment,
    Tab,
    TabConsent
} from "../../../market/interfaces/MarketTypes.sol";
import {
    Admission,
    Draw,
    Order,
    Result,
    Signature,
    SignedOrder,
    Verdict,
    VrfProof,
    Word
} from "../../../market/interfaces/Signed.sol";
import {IRegistry} from "../../../market/interfaces/IRegistry.sol";
import {ISummons} from "../../../market/interfaces/ISummons.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {Prices} from "../../../market/libraries/Prices.sol";
import {P256Prover} from "../../support/P256Prover.sol";
import {Headers} from "./Headers.sol";
import {HistoryMock} from "./HistoryMock.sol";

/// @dev A cheat code that the pinned forge-std does not declare yet.
interface BlockHashes {
    function setBlockhash(uint256 blockNumber, bytes32 blockHash) external;
}

/// @title A whole deployment from the factory: two classes, two schedulers, nodes of whole models and of halves, a
///        client
/// @notice Contracts come from their artifacts, through the factory, so that a test runs what is deployed. Every node
///         has an owner of its own. A test that needs other numbers overrides `parameters`, `executionClass` or the
///         counts.
abstract contract MarketTest is Test {
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

    // ---- messages

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

    function drawSecret(uint64 sequence) internal pure returns (bytes32) {
        return keccak256(abi.encode("draw", sequence));
    }

    function tilesSecret(uint64 sequence) internal pure returns (bytes32) {
        return keccak256(abi.encode("tiles", sequence));
    }

    /// @dev The client's order number `sequence`, checked always.
    function newOrder(bytes32 class, bytes32 ends, uint64 sequence) internal view returns (Order memory order) {
        order.tab = Messages.tabId(clientTab());
        order.sequence = sequence;
        order.executionClass = class;
        order.requestHash = keccak256(abi.encode("request", sequence));
        order.ends = ends;
        (order.promptPrice, order.cachedPrice, order.writtenPrice) = (PRICE, PRICE, PRICE);
        order.nodeShare = 8000;
        order.maxFee = FEE_CAP;
        order.checkRate = 1_000_000;
        order.deadline = uint64(vm.getBlockTimestamp() + 600);
        order.referenceBlock = last();
        order.drawHash = keccak256(abi.encode(drawSecret(sequence)));
        order.tilesHash = keccak256(abi.encode(tilesSecret(sequence)));
        order.replyKey = keccak256("x25519");
    }

    function signOrder(Order memory order) internal view returns (SignedOrder memory) {
        return SignedOrder({
            order: order,
            client: client,
            scheduler: scheduler,
            key: tabKey,
            signature: sign(TAB_KEY, Messages.hash(order))
        });
    }

    /// @dev The order's id everywhere.
    function orderId(Order memory order) internal view returns (bytes32) {
        return digest(Messages.hash(order));
    }

    /// @dev A result of 20 positions computed, 4 from a cache and 8 written, whose heads meet its neighbours'.
    function result(Order memory order, uint8 segment) internal view returns (Result memory made) {
        made.order = orderId(order);
        made.segment = segment;
        made.inputHead = segment == 0 ? order.requestHash : keccak256(abi.encode("head", made.order, segment));
        made.outputHead = keccak256(abi.encode("head", made.order, segment + 1));
        (made.prompt, made.cached, made.written) = (20, 4, 8);
        made.traceCommitment = keccak256(abi.encode(traceRoot(segment), traceSalt(segment)));
        if (uint8(order.ends[segment]) == LAYERS) made.outputHash = keccak256(abi.encode("answer", made.order));
    }

    function traceRoot(uint8 segment) internal pure returns (bytes32) {
        return keccak256(abi.encode("trace", segment));
    }

    function traceSalt(uint8 segment) internal pure returns (bytes32) {
        return keccak256(abi.encode("salt", segment));
    }

    /// @dev Results of all segments, as honest nodes sign them.
    function results(Order memory order, address[] memory nodes)
        internal
        view
        returns (Result[] memory made, bytes[] memory signatures, bytes32 resultsHash)
    {
        made = new Result[](nodes.length);
        signatures = new bytes[](nodes.length);
        bytes32[] memory hashes = new bytes32[](nodes.length);
        for (uint8 s = 0; s < nodes.length; ++s) {
            made[s] = result(order, s);
            hashes[s] = Messages.hash(made[s]);
            signatures[s] = signAs(nodes[s], hashes[s]);
        }
        resultsHash = Messages.resultsHash(hashes);
    }

    /// @dev A scheduler's VRF over 32 bytes.
    function prove(address scheduler_, bytes32 alpha) internal view returns (VrfProof memory proof, bytes32 beta) {
        (proof, beta) = P256Prover.prove(vrfSecrets[scheduler_], alpha);
    }

    // ---- draws

    function segmentsOf(bytes32 ends) internal pure returns (uint256 count) {
        while (count < 32 && ends[count] != 0) ++count;
    }

    function segmentAt(bytes32 ends, uint256 segment) internal pure returns (uint8 first, uint8 end) {
        return (segment == 0 ? 0 : uint8(ends[segment - 1]), uint8(ends[segment]));
    }

    /// @dev Candidates of a segment, of whom the first serves in this stage.
    function inferencersRequest(Order memory order, bytes32 beta, uint256 segment)
        internal
        view
        returns (DrawRequest memory request)
    {
        (request.first, request.end) = segmentAt(order.ends, segment);
        request.executionClass = order.executionClass;
        request.blockNumber = order.referenceBlock;
        request.seed = Messages.segmentSeed(beta, segment);
        Rules memory rules = registry.rulesOf(order.executionClass);
        request.count = rules.candidates;
        request.distinct = true;
        request.bound = Prices.bound(order, request.end - request.first, rules.layers);
    }

    /// @dev Who infers: the first candidate of each segment.
    function inferencers(Order memory order) internal view returns (address[] memory nodes) {
        (, bytes32 beta) = prove(scheduler, Messages.inferAlpha(orderId(order)));
        nodes = new address[](segmentsOf(order.ends));
        for (uint256 s = 0; s < nodes.length; ++s) {
            (address[] memory drawn,) = lens.draw(inferencersRequest(order, beta, s));
            nodes[s] = drawn[0];
        }
    }

    function ownersOf(address[] memory nodes) internal view returns (address[] memory owners) {
        owners = new address[](nodes.length);
        for (uint256 i = 0; i < nodes.length; ++i) {
            owners[i] = registry.ownerOf(nodes[i]);
        }
    }

    /// @dev The k seats that check a segment, with the proof and hints that the contracts want.
    function verifiers(Order memory order, address[] memory nodes, bytes32 resultsHash, uint256 segment)
        internal
        view
        returns (address[] memory seats, VrfProof memory proof, bytes memory hints)
    {
        bytes32 beta;
        (proof, beta) = prove(scheduler, Messages.drawAlpha(orderId(order)));
        DrawRequest memory request;
        (request.first, request.end) = segmentAt(order.ends, segment);
        request.executionClass = order.executionClass;
        request.blockNumber = order.referenceBlock;
        bytes32 seed = Messages.checkSeed(orderId(order), drawSecret(order.sequence), beta, resultsHash);
        request.seed = Messages.segmentSeed(seed, segment);
        request.count = registry.rulesOf(order.executionClass).verifiers;
        request.seasoned = true;
        request.excluded = ownersOf(nodes);
        (seats, hints) = lens.draw(request);
    }

    /// @dev The scheduler's word over results.
    function signDraw(Order memory order, bytes32 resultsHash)
        internal
        view
        returns (Draw memory draw, bytes memory signature)
    {
        (, bytes32 beta) = prove(scheduler, Messages.drawAlpha(orderId(order)));
        draw = Draw({order: orderId(order), results: resultsHash, beta: beta, blockNumber: last()});
        signature = sign(SCHEDULER_KEY, Messages.hash(draw));
    }

    /// @dev The scheduler takes an order, served by these nodes.
    function signAdmission(Order memory order, address[] memory nodes)
        internal
        view
        returns (Admission memory admission, bytes memory signature)
    {
        admission = Admission({order: orderId(order), nodes: Messages.nodesHash(nodes), blockNumber: last()});
        signature = sign(SCHEDULER_KEY, Messages.hash(admission));
    }

    /// @dev Verdicts as a summons' answer shows them.
    function wordsOf(Verdict[] memory verdicts, bytes[] memory signatures) internal pure returns (Word[] memory words) {
        words = new Word[](verdicts.length);
        for (uint256 i = 0; i < words.length; ++i) {
            words[i] =
                Word(verdicts[i].commitment, verdicts[i].opinion, verdicts[i].locks, compact(signatures[i]));
        }
    }

    function compacted(bytes[] memory signatures) internal pure returns (Signature[] memory short) {
        short = new Signature[](signatures.length);
        for (uint256 i = 0; i < short.length; ++i) short[i] = compact(signatures[i]);
    }

    /// @dev A signature as EIP-2098 writes it.
    function compact(bytes memory signature) internal pure returns (Signature memory) {
        (bytes32 r, bytes32 vs) = (bytes32(0), bytes32(0));
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            vs := mload(add(signature, 0x40))
        }
        if (signature[64] == 0x1c) vs |= bytes32(uint256(1) << 255);
        return Signature(r, vs);
    }

    /// @dev Each place once, in the order in which they were drawn.
    function distinct(address[] memory seats) internal pure returns (address[] memory nodes) {
        nodes = new address[](seats.length);
        uint256 count;
        for (uint256 i = 0; i < seats.length; ++i) {
            bool known = false;
            for (uint256 j = 0; j < count; ++j) {
                if (nodes[j] == seats[i]) known = true;
            }
            if (!known) nodes[count++] = seats[i];
        }
        assembly ("memory-safe") {
            mstore(nodes, count)
        }
    }
}
