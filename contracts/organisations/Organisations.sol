// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IRegistry} from "../market/interfaces/IRegistry.sol";
import {Entry, Role, Rules} from "../market/interfaces/MarketTypes.sol";
import {IReputation, Standing} from "../reputation/IReputation.sol";
import {Hosting, HostedModel, IOrganisations, Presence} from "./IOrganisations.sol";

/// @title Organisations: credits by what Reputation and Registry say, and the deployments that they pay
contract Organisations is IOrganisations {
    uint256 private constant MAXIMUM_SOURCE = 256;
    /// @dev Weights of a layer over its width squared: four of attention, eight of a gated feed-forward.
    uint256 private constant LAYER_SQUARES = 12;
    /// @dev No sum of credits can overflow below it: 2^20 wide, 255 layers, 8,000 blocks and 2^32 epochs.
    uint256 private constant WIDEST = 2 ** 20;

    IReputation private immutable REPUTATION;
    IRegistry private immutable REGISTRY;
    uint256 private immutable START_BLOCK;
    uint256 private immutable EPOCH_BLOCKS;
    uint256 private immutable BAR;

    /// @inheritdoc IOrganisations
    uint64 public deployments;
    /// @inheritdoc IOrganisations
    uint256 public total;
    /// @inheritdoc IOrganisations
    mapping(address owner => uint256) public balanceOf;
    /// @inheritdoc IOrganisations
    mapping(address node => uint64) public postedThrough;
    mapping(uint64 deployment => HostedModel) private _deployments;
    mapping(address node => Hosting) private _hostings;

    constructor(IReputation reputation_) {
        if (address(reputation_).code.length == 0) revert NotAReputation(address(reputation_));
        REPUTATION = reputation_;
        REGISTRY = IRegistry(reputation_.registry());
        START_BLOCK = reputation_.startBlock();
        EPOCH_BLOCKS = reputation_.rules().epochBlocks;
        BAR = reputation_.rules().bar;
        emit OrganisationsDeployed(address(reputation_), address(REGISTRY));
    }

    // ---- credits

    /// @inheritdoc IOrganisations
    function post(uint64 epoch, Presence[] calldata nodes) external {
        uint64 current = REPUTATION.epochNow();
        if (current != epoch + 1) revert NotLastEpoch(epoch, current);
        for (uint256 i = 0; i < nodes.length; ++i) {
            address node = nodes[i].node;
            if (postedThrough[node] > epoch) continue;
            postedThrough[node] = epoch + 1;
            Standing memory standing = REPUTATION.standingOf(node);
            if (standing.score < BAR) revert BelowBar(node, standing.score);
            // Of two segments a stranger would name the smaller one.
            address owner = _requireOwnerOrOperator(node);
            bytes32 class = REGISTRY.classOf(node);
            _requirePresent(epoch, class, nodes[i]);
            if (_isHosted(epoch, node)) _credit(epoch, node, owner, nodes[i]);
            else _contribute(epoch, class, owner, nodes[i], standing);
        }
    }

    /// @dev Makes credits: only for a node whose answers members rated in this very epoch, as normal ones.
    function _contribute(uint64 epoch, bytes32 class, address owner, Presence calldata seen, Standing memory standing)
        private
    {
        if (standing.rated == 0 || standing.lastEpoch != epoch) revert NotRated(seen.node, epoch, standing.lastEpoch);
        // The lowest bit is the last credit's, a silent node's zero included.
        if (standing.abnormal & 1 == 1) revert AbnormalCredit(seen.node, epoch);
        (, uint128 layerBytes) = layerBytesOf(class);
        uint128 amount = _amount(seen.end - seen.first, layerBytes);
        total += amount;
        balanceOf[owner] += amount;
        emit Contributed(seen.node, owner, epoch, seen.first, seen.end, amount, uint128(balanceOf[owner]));
    }

    /// @dev Moves credits: the reserve holds them, since all epochs of all layers were set aside at once.
    function _credit(uint64 epoch, address node, address owner, Presence calldata seen) private {
        Hosting memory hosting = _hostings[node];
        if (seen.first != hosting.firstLayer || seen.end != hosting.endLayer) {
            revert InvalidLayers(seen.first, seen.end, hosting.firstLayer, hosting.endLayer);
        }
        HostedModel storage deployment = _deployments[hosting.deployment];
        uint128 amount = _amount(hosting.endLayer - hosting.firstLayer, deployment.layerBytes);
        deployment.reserve -= amount;
        balanceOf[owner] += amount;
        emit HostingCredited(
            hosting.deployment, node, owner, epoch, amount, deployment.reserve, uint128(balanceOf[owner])
        );
    }

    /// @dev The node stood in the group with seats when the epoch began, and when it was over.
    function _requirePresent(uint64 epoch, bytes32 class, Presence calldata seen) private view {
        bytes32 group = REGISTRY.groupId(class, seen.first, seen.end);
        uint256 begin = START_BLOCK + epoch * EPOCH_BLOCKS;
        _requireEntry(group, seen.node, seen.placeBefore, begin);
        _requireEntry(group, seen.node, seen.placeAfter, begin + EPOCH_BLOCKS);
    }

    function _requireEntry(bytes32 group, address node, uint256 place, uint256 blockNumber) private view {
        Entry memory entry = REGISTRY.entryAt(group, place, blockNumber);
        // Who is suspended has no seats, and is drawn for nothing.
        if (entry.operator != node || entry.seats == 0) revert NotInGroup(node, place, blockNumber);
    }

    // ---- deployments

    /// @inheritdoc IOrganisations
    function deploy(bytes32 executionClass, uint16 replicas, uint32 epochs, address node, string calldata source)
        external
        returns (uint64 deployment)
    {
        uint256 length = bytes(source).length;
        if (replicas == 0 || epochs == 0 || length > MAXIMUM_SOURCE) {
            revert InvalidDeployment(replicas, epochs, length);
        }
        _requireTrusted(node);
        uint256 cost = costOf(executionClass, replicas, epochs);
        uint256 balance = balanceOf[msg.sender];
        if (balance < cost) revert NotEnoughCredits(msg.sender, balance, cost);
        balance -= cost;
        deployment = ++deployments;
        (uint16 layers, uint128 layerBytes) = layerBytesOf(executionClass);
        uint64 first = REPUTATION.epochNow() + 1;
        // The cost is at most a balance, which never exceeds 128 bits.
        HostedModel memory made = HostedModel({
            owner: msg.sender,
            executionClass: executionClass,
            replicas: replicas,
            layers: layers,
            hosted: 0,
            first: first,
            end: first + epochs,
            layerBytes: layerBytes,
            reserve: uint128(cost)
        });
        balanceOf[msg.sender] = balance;
        _deployments[deployment] = made;
        emit ModelDeployed(
            deployment, msg.sender, executionClass, replicas, first, made.end, made.reserve, uint128(balance), source
        );
    }

    /// @dev Whose machines do not serve well enough for others gets none of theirs.
    function _requireTrusted(address node) private view {
        address owner = _ownerOf(node);
        if (owner != msg.sender) revert NotOwner(owner, msg.sender);
        Standing memory standing = REPUTATION.standingOf(node);
        if (standing.rated == 0) revert NotRated(node, REPUTATION.epochNow(), 0);
        if (standing.score < BAR) revert BelowBar(node, standing.score);
    }

    /// @inheritdoc IOrganisations
    function host(uint64 number, address node, uint8 firstLayer, uint8 endLayer) external {
        HostedModel storage deployment = _known(number);
        uint64 current = REPUTATION.epochNow();
        _requireOwnerOrOperator(node);
        if (deployment.end <= current + 1) revert DeploymentOver(number, deployment.end);
        bytes32 class = REGISTRY.classOf(node);
        if (class != deployment.executionClass) revert WrongClass(node, class, deployment.executionClass);
        (uint8 first, uint8 end,,) = REGISTRY.sliceOf(node);
        if (firstLayer < first || endLayer <= firstLayer || end < endLayer) {
            revert InvalidLayers(firstLayer, endLayer, first, end);
        }
        Hosting memory before = _hostings[node];
        // Its last epoch can be posted in the one that follows; until then nothing may take its place.
        uint64 until = _endOf(before);
        if (before.deployment != 0 && current <= until) revert StillHosting(node, before.deployment, until);
        uint256 hosted = uint256(deployment.hosted) + endLayer - firstLayer;
        uint256 most = uint256(deployment.replicas) * deployment.layers;
        if (hosted > most) revert DeploymentFull(number, hosted, most);
        uint64 begin = current + 1 < deployment.first ? deployment.first : current + 1;
        deployment.hosted = uint32(hosted);
        _hostings[node] = Hosting(number, begin, deployment.end, firstLayer, endLayer);
        emit HostingBegun(number, node, firstLayer, endLayer, begin, deployment.end, uint32(hosted));
    }

    /// @inheritdoc IOrganisations
    function leave(address node) external {
        _requireOwnerOrOperator(node);
        _endHosting(node, false);
    }

    /// @inheritdoc IOrganisations
    function dismiss(address node) external {
        address owner = _deployments[_hostings[node].deployment].owner;
        if (msg.sender != owner) revert NotOwner(owner, msg.sender);
        _endHosting(node, true);
    }

    function _endHosting(address node, bool dismissed) private {
        Hosting storage hosting = _hostings[node];
        uint64 current = REPUTATION.epochNow();
        if (_endOf(hosting) <= current) revert NotHosting(node);
        HostedModel storage deployment = _deployments[hosting.deployment];
        hosting.end = current;
        deployment.hosted -= uint32(hosting.endLayer - hosting.firstLayer);
        emit HostingEnded(hosting.deployment, node, current, dismissed, deployment.hosted);
    }

    /// @inheritdoc IOrganisations
    function stop(uint64 number) external {
        HostedModel storage deployment = _known(number);
        if (msg.sender != deployment.owner) revert NotOwner(deployment.owner, msg.sender);
        uint64 end = REPUTATION.epochNow() + 1;
        if (deployment.end <= end) revert DeploymentOver(number, deployment.end);
        deployment.end = end;
        emit DeploymentStopped(number, end);
    }

    /// @inheritdoc IOrganisations
    function reclaim(uint64 number) external {
        HostedModel storage deployment = _known(number);
        uint64 current = REPUTATION.epochNow();
        if (current <= deployment.end) revert DeploymentNotOver(number, deployment.end, current);
        (address owner, uint128 amount) = (deployment.owner, deployment.reserve);
        deployment.reserve = 0;
        balanceOf[owner] += amount;
        emit ReserveReturned(number, owner, amount, uint128(balanceOf[owner]));
    }

    // ---- reads

    /// @inheritdoc IOrganisations
    function reputation() external view returns (address) {
        return address(REPUTATION);
    }

    /// @inheritdoc IOrganisations
    function registry() external view returns (address) {
        return address(REGISTRY);
    }

    /// @inheritdoc IOrganisations
    function deploymentOf(uint64 deployment) external view returns (HostedModel memory) {
        return _deployments[deployment];
    }

    /// @inheritdoc IOrganisations
    function hostingOf(address node) external view returns (Hosting memory) {
        return _hostings[node];
    }

    /// @inheritdoc IOrganisations
    function layerBytesOf(bytes32 executionClass) public view returns (uint16 layers, uint128 layerBytes) {
        Rules memory rules = REGISTRY.rulesOf(executionClass);
        uint256 width = rules.hiddenSize < WIDEST ? rules.hiddenSize : WIDEST;
        return (rules.layers, uint128(LAYER_SQUARES * width * width * (rules.dtype == 0 ? 4 : 2)));
    }

    /// @inheritdoc IOrganisations
    function costOf(bytes32 executionClass, uint16 replicas, uint32 epochs) public view returns (uint256) {
        (uint16 layers, uint128 layerBytes) = layerBytesOf(executionClass);
        return uint256(layers) * layerBytes * EPOCH_BLOCKS * replicas * epochs;
    }

    // ---- building blocks

    function _amount(uint256 layers, uint128 layerBytes) private view returns (uint128) {
        return uint128(layers * layerBytes * EPOCH_BLOCKS);
    }

    /// @dev Whether a node hosted a deployment through the whole of an epoch that is paid.
    function _isHosted(uint64 epoch, address node) private view returns (bool) {
        Hosting memory hosting = _hostings[node];
        return hosting.deployment != 0 && hosting.first <= epoch && epoch < _endOf(hosting);
    }

    function _endOf(Hosting memory hosting) private view returns (uint64) {
        uint64 end = _deployments[hosting.deployment].end;
        return hosting.end < end ? hosting.end : end;
    }

    function _known(uint64 number) private view returns (HostedModel storage deployment) {
        deployment = _deployments[number];
        if (deployment.owner == address(0)) revert UnknownDeployment(number);
    }

    function _ownerOf(address node) private view returns (address) {
        (Role role, address owner,) = REGISTRY.roleOf(node);
        if (role != Role.Node) revert NotANode(node);
        return owner;
    }

    function _requireOwnerOrOperator(address node) private view returns (address owner) {
        owner = _ownerOf(node);
        if (msg.sender != owner && msg.sender != node) revert NotOwnerOrOperator(node, msg.sender);
    }
}
