// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice Where a node stood in the group of a segment when an epoch began, and when it ended.
/// @param first of the segment's layers [first, end)
/// @param placeBefore its place in the group at the epoch's first block
/// @param placeAfter its place at the first block of the epoch that follows
struct Presence {
    address node;
    uint8 first;
    uint8 end;
    uint32 placeBefore;
    uint32 placeAfter;
}

/// @notice An organisation's model on others' machines.
/// @param owner whose credits pay for it
/// @param replicas how often all layers of the model are hosted at most
/// @param layers of the model
/// @param hosted layers that nodes host now, of `replicas * layers`
/// @param first epoch that is paid
/// @param end first epoch that is not paid any more
/// @param layerBytes weight of one layer, see `IOrganisations.layerBytesOf`
/// @param reserve credits that are set aside for it
struct HostedModel {
    address owner;
    bytes32 executionClass;
    uint16 replicas;
    uint16 layers;
    uint32 hosted;
    uint64 first;
    uint64 end;
    uint128 layerBytes;
    uint128 reserve;
}

/// @notice A node's part of a deployment: layers [firstLayer, endLayer) in the epochs [first, end).
struct Hosting {
    uint64 deployment;
    uint64 first;
    uint64 end;
    uint8 firstLayer;
    uint8 endLayer;
}

/// @title Contribution credits: what owners' machines served for all, spent on machines for a model of their own
/// @notice PlanetServe, section 2.2. A credit is one byte of weights that a node held for one block of an epoch in which the
///         committee's members rated its answers, none of them abnormal, at a score that is not below the bar. Nobody signs
///         credits: who was rated is what Reputation settled, what a node hosts is what the Registry keeps, and this
///         contract reads both. Credits are made by serving alone, are no money, and move in one way: from the reserve of a
///         deployment to the owners whose nodes hosted it for an epoch. There is no administrator, and no way to transfer.
interface IOrganisations {
    /// @notice The contract stands.
    event OrganisationsDeployed(address indexed reputation, address indexed registry);
    /// @notice A node of the owner served an epoch, and this is what the owner has after it.
    event Contributed(
        address indexed node,
        address indexed owner,
        uint64 epoch,
        uint8 first,
        uint8 end,
        uint128 amount,
        uint128 balance
    );
    /// @notice An owner set credits aside for a model of its own. `source` says where nodes find its files.
    event ModelDeployed(
        uint64 indexed deployment,
        address indexed owner,
        bytes32 indexed executionClass,
        uint16 replicas,
        uint64 first,
        uint64 end,
        uint128 reserve,
        uint128 balance,
        string source
    );
    /// @notice A node took layers of a deployment; `hosted` are those of all its nodes then.
    event HostingBegun(
        uint64 indexed deployment,
        address indexed node,
        uint8 firstLayer,
        uint8 endLayer,
        uint64 first,
        uint64 end,
        uint32 hosted
    );
    /// @notice The node is paid for epochs before `end` alone; `dismissed` by the deployment's owner.
    event HostingEnded(uint64 indexed deployment, address indexed node, uint64 end, bool dismissed, uint32 hosted);
    /// @notice An epoch's credits moved from a deployment's reserve to the owner of a node that hosted it.
    event HostingCredited(
        uint64 indexed deployment,
        address indexed node,
        address indexed owner,
        uint64 epoch,
        uint128 amount,
        uint128 reserve,
        uint128 balance
    );
    event DeploymentStopped(uint64 indexed deployment, uint64 end);
    /// @notice What was not spent went back to its owner.
    event ReserveReturned(uint64 indexed deployment, address indexed owner, uint128 amount, uint128 balance);

    error NotAReputation(address place);
    error NotLastEpoch(uint64 epoch, uint64 current);
    error NotANode(address operator);
    error NotOwnerOrOperator(address operator, address caller);
    error NotOwner(address owner, address caller);
    error NotInGroup(address node, uint256 place, uint256 blockNumber);
    /// @notice Nobody asked the node anything in this epoch, or somebody settled a later one since.
    error NotRated(address node, uint64 epoch, uint64 lastRated);
    error AbnormalCredit(address node, uint64 epoch);
    error BelowBar(address node, uint256 score);
    error InvalidDeployment(uint16 replicas, uint32 epochs, uint256 source);
    error NotEnoughCredits(address owner, uint256 balance, uint256 cost);
    error UnknownDeployment(uint64 deployment);
    error DeploymentOver(uint64 deployment, uint64 end);
    error DeploymentNotOver(uint64 deployment, uint64 end, uint64 current);
    error DeploymentFull(uint64 deployment, uint256 hosted, uint256 most);
    error WrongClass(address node, bytes32 class, bytes32 deployed);
    error InvalidLayers(uint8 firstLayer, uint8 endLayer, uint8 first, uint8 end);
    error StillHosting(address node, uint64 deployment, uint64 end);
    error NotHosting(address node);

    /// @notice Owner or operator of every named node, in the epoch that follows and before that is settled: credits what
    ///         they served in an epoch. One that was credited already is passed over.
    function post(uint64 epoch, Presence[] calldata nodes) external;

    /// @notice An owner of a trusted node: sets the credits for replicas and epochs aside, all at once. Paid from the next
    ///         epoch on.
    /// @param node of the caller, rated and not below the bar
    function deploy(bytes32 executionClass, uint16 replicas, uint32 epochs, address node, string calldata source)
        external
        returns (uint64 deployment);

    /// @notice A node's owner or operator: it hosts these layers of a deployment, from the next epoch on.
    function host(uint64 deployment, address node, uint8 firstLayer, uint8 endLayer) external;

    /// @notice A node's owner or operator: this epoch is not paid any more.
    function leave(address node) external;

    /// @notice A deployment's owner, whose requests a node does not answer: this epoch is not paid any more.
    function dismiss(address node) external;

    /// @notice A deployment's owner: this epoch is the last one.
    function stop(uint64 deployment) external;

    /// @notice Anybody, once a deployment's last epoch can be posted no more: what is left goes back to its owner.
    function reclaim(uint64 deployment) external;

    // ---- reads

    function reputation() external view returns (address);
    function registry() external view returns (address);
    function balanceOf(address owner) external view returns (uint256);
    /// @notice Credits that were ever made: the sum of all balances and reserves.
    function total() external view returns (uint256);
    /// @notice The last deployment; they are numbered from 1.
    function deployments() external view returns (uint64);
    function deploymentOf(uint64 deployment) external view returns (HostedModel memory);
    function hostingOf(address node) external view returns (Hosting memory);
    /// @notice One more than the last epoch for which a node was credited; 0 for none.
    function postedThrough(address node) external view returns (uint64);
    /// @notice Bytes that one layer of a class's model counts: twelve times its width squared, in the class's number
    ///         format, which is a gated transformer's layer to about a tenth.
    function layerBytesOf(bytes32 executionClass) external view returns (uint16 layers, uint128 layerBytes);
    /// @notice What a deployment costs.
    function costOf(bytes32 executionClass, uint16 replicas, uint32 epochs) external view returns (uint256);
}
