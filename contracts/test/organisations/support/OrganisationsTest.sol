// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {Entry, Role, Rules} from "../../../market/interfaces/MarketTypes.sol";
import {IOrganisations, Presence} from "../../../organisations/IOrganisations.sol";
import {ReputationRules, Standing} from "../../../reputation/IReputation.sol";

/// @title What Organisations asks a market's Registry; a node is at one place of one group
contract StandInRegistry {
    struct Node {
        address owner;
        bytes32 class;
        uint8 first;
        uint8 end;
        uint32 place;
        uint256 since;
        uint256 until;
        uint16 seats;
    }

    mapping(address node => Node) private _nodes;
    mapping(bytes32 group => mapping(uint256 place => address node)) private _places;
    mapping(bytes32 class => Rules) private _rules;

    function setClass(bytes32 class, uint32 width, uint16 layers, uint8 dtype) external {
        (_rules[class].hiddenSize, _rules[class].layers, _rules[class].dtype) = (width, layers, dtype);
    }

    function setNode(address node, Node calldata what) external {
        _nodes[node] = what;
        _places[groupId(what.class, what.first, what.end)][what.place] = node;
    }

    function nodeOf(address node) external view returns (Node memory) {
        return _nodes[node];
    }

    function groupId(bytes32 class, uint8 first, uint8 end) public pure returns (bytes32) {
        return keccak256(abi.encode(class, first, end));
    }

    function entryAt(bytes32 group, uint256 place, uint256 blockNumber) external view returns (Entry memory entry) {
        address node = _places[group][place];
        Node storage known = _nodes[node];
        if (known.since > blockNumber || blockNumber >= known.until) return entry;
        return Entry(node, uint32(known.since), uint32(known.since), known.seats, 0);
    }

    function roleOf(address operator) external view returns (Role, address, uint40) {
        address owner = _nodes[operator].owner;
        return (owner == address(0) ? Role.None : Role.Node, owner, 0);
    }

    function classOf(address operator) external view returns (bytes32) {
        return _nodes[operator].class;
    }

    function sliceOf(address operator) external view returns (uint8, uint8, uint48, uint48) {
        return (_nodes[operator].first, _nodes[operator].end, 0, 0);
    }

    function rulesOf(bytes32 class) external view returns (Rules memory) {
        return _rules[class];
    }
}

/// @title What Organisations asks Reputation
contract StandInReputation {
    address public immutable registry;
    uint256 public immutable startBlock;
    uint32 private immutable EPOCH_BLOCKS;
    mapping(address node => Standing) private _standings;

    constructor(address registry_, uint32 epochBlocks) {
        (registry, startBlock, EPOCH_BLOCKS) = (registry_, block.number, epochBlocks);
    }

    function rules() external view returns (ReputationRules memory chosen) {
        (chosen.epochBlocks, chosen.bar) = (EPOCH_BLOCKS, 4e8);
    }

    function epochNow() public view returns (uint64) {
        return uint64((block.number - startBlock) / EPOCH_BLOCKS);
    }

    function rate(address node, uint64 epoch, uint32 score, uint8 abnormal) external {
        _standings[node] = Standing(score, abnormal, 1, uint32(epoch), address(0));
    }

    function standingOf(address node) external view returns (Standing memory) {
        return _standings[node];
    }
}

/// @notice Five nodes of two classes: `PUBLIC`, which the committee rates, and `OWN`, which an organisation brings.
abstract contract OrganisationsTest is Test {
    uint32 internal constant EPOCH = 40;
    bytes32 internal constant PUBLIC = keccak256("public");
    bytes32 internal constant OWN = keccak256("own");
    uint8 internal constant LAYERS = 10;
    /// @dev Of a node that hosts a whole model, in an epoch: both models are 64 wide, in 16-bit words.
    uint128 internal constant SERVED = uint128(LAYERS) * 12 * 64 * 64 * 2 * EPOCH;
    address internal constant ALICE = address(0xa11ce);
    address internal constant BOB = address(0xb0b);

    StandInRegistry internal registry;
    StandInReputation internal reputation;
    IOrganisations internal organisations;

    function setUp() public virtual {
        vm.roll(1000);
        registry = new StandInRegistry();
        reputation = new StandInReputation(address(registry), EPOCH);
        registry.setClass(PUBLIC, 64, LAYERS, 1);
        registry.setClass(OWN, 64, LAYERS, 1);
        organisations = deployed(address(reputation));
        addNode(node(1), ALICE, PUBLIC, 1);
        addNode(node(2), BOB, PUBLIC, 2);
        addNode(node(3), BOB, OWN, 3);
        toEpoch(1);
    }

    function deployed(address reputation_) internal returns (IOrganisations created) {
        bytes memory code = vm.getCode("contracts/organisations/Organisations.sol:Organisations");
        code = abi.encodePacked(code, abi.encode(reputation_));
        assembly ("memory-safe") {
            created := create(0, add(code, 32), mload(code))
        }
        require(address(created) != address(0), "Organisations was not deployed");
    }

    function node(uint256 number) internal pure returns (address) {
        return address(uint160(0xa0de000000 + number));
    }

    function addNode(address operator, address owner, bytes32 class, uint32 place) internal {
        registry.setNode(
            operator, StandInRegistry.Node(owner, class, 0, LAYERS, place, 0, type(uint256).max, 1)
        );
    }

    function toEpoch(uint256 epoch) internal {
        vm.roll(reputation.startBlock() + epoch * EPOCH + 5);
    }

    function presence(uint256 number) internal view returns (Presence[] memory nodes) {
        StandInRegistry.Node memory known = registry.nodeOf(node(number));
        nodes = new Presence[](1);
        nodes[0] = Presence(node(number), known.first, known.end, known.place, known.place);
    }

    /// @dev The node is rated well in an epoch, and its owner posts that in the next one.
    function serve(uint256 number, uint64 epoch) internal {
        reputation.rate(node(number), epoch, 9e8, 0);
        toEpoch(epoch + 1);
        postAs(registry.nodeOf(node(number)).owner, epoch, number);
    }

    function postAs(address sender, uint64 epoch, uint256 number) internal {
        Presence[] memory seen = presence(number);
        vm.prank(sender);
        organisations.post(epoch, seen);
    }

    /// @dev Alice served four epochs, and has one replica for two of them from epoch 6 on.
    function deployOwn() internal returns (uint64 deployment) {
        for (uint64 epoch = 1; epoch < 5; ++epoch) {
            serve(1, epoch);
        }
        vm.prank(ALICE);
        deployment = organisations.deploy(OWN, 1, 2, node(1), "own-model");
    }
}
