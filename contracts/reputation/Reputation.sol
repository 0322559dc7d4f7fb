// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {IRegistry} from "../market/interfaces/IRegistry.sol";
import {Role} from "../market/interfaces/MarketTypes.sol";
import {BlockHeader} from "../market/libraries/BlockHeader.sol";
import {Signatures} from "../market/libraries/Signatures.sol";
import {ICommittee} from "../overlay/ICommittee.sol";
import {
    IReputation,
    LeaderProof,
    Rater,
    ReputationRules,
    ReputationUpdate,
    UpdateEvidence,
    SilenceReport,
    Standing
} from "./IReputation.sol";
import {Scores} from "./Scores.sol";

/// @title Reputation: scores of a market's nodes, by the members of a Committee
contract Reputation is IReputation, EIP712 {
    /// @dev A credit that says: nobody scored this node in this epoch. Its score stays.
    uint32 private constant NOT_SCORED = type(uint32).max;
    uint256 private constant MAXIMUM_NODES = 256;
    uint256 private constant MAXIMUM_RATERS = 64;
    uint256 private constant REWARD_PART = 10;

    bytes32 private constant ENROLL_TYPE =
        keccak256("EnrollRater(address owner,address operator,uint256 vrfX,uint256 vrfY)");
    bytes32 private constant UPDATE_TYPE = keccak256(
        "ReputationUpdate(uint64 epoch,bytes32 seed,address leader,bytes32 promptRoot,bytes32 nodesHash,bytes32 creditsHash,bytes32 nextList)"
    );
    bytes32 private constant SILENCE_TYPE =
        keccak256("SilenceReport(uint64 epoch,bytes32 seed,bytes32 list,uint256 silent)");

    ICommittee private immutable COMMITTEE;
    IRegistry private immutable REGISTRY;
    /// @inheritdoc IReputation
    // Readers call it by this name, as they do with the other contracts.
    // solhint-disable-next-line immutable-vars-naming
    uint256 public immutable startBlock;

    ReputationRules private _rules;
    uint64 private _through;
    address private _lastLeader;
    bytes32 private _nextList;
    /// @dev Of the update that settled the last epoch, as in `EpochSettled`.
    bytes32 private _lastDigest;
    address[] private _roster;
    mapping(address operator => Rater) private _raters;
    mapping(address owner => address operator) private _operators;
    mapping(address operator => bool) private _expelled;
    mapping(address node => Standing) private _standings;

    /// @dev Of an epoch that is being settled.
    struct Work {
        uint64 epoch;
        bytes32 list;
        uint256 needed;
        address[] owners;
        uint8[] reports;
        uint256 silence;
    }

    constructor(ICommittee committee_, IRegistry registry_, ReputationRules memory chosen) EIP712("Troth", "1") {
        _requireSound(chosen);
        if (address(registry_).code.length == 0) revert NotAContract(address(registry_));
        if (address(committee_).code.length == 0) revert NotAContract(address(committee_));
        (COMMITTEE, REGISTRY, startBlock) = (committee_, registry_, block.number);
        _rules = chosen;
        emit ReputationDeployed(address(committee_), address(registry_), chosen, block.number);
    }

    // ---- members

    /// @inheritdoc IReputation
    function enroll(address operator, uint256 vrfX, uint256 vrfY, bytes calldata consent) external payable {
        if (msg.value != _rules.bond) revert WrongBond(msg.value, _rules.bond);
        if (!COMMITTEE.isMember(operator)) revert NotInCommittee(operator);
        if (_raters[operator].owner != address(0) || _expelled[operator]) revert AlreadyEnrolled(operator);
        // Quorums count parties: whoever could enroll twice would have two votes.
        if (_operators[msg.sender] != address(0)) revert OwnerEnrolled(msg.sender, _operators[msg.sender]);
        if (_roster.length == MAXIMUM_RATERS) revert RosterFull(MAXIMUM_RATERS);
        if (!EcVrf.isOnCurve(vrfX, vrfY)) revert InvalidVrfKey(vrfX, vrfY);
        bytes32 digest = _hashTypedDataV4(keccak256(abi.encode(ENROLL_TYPE, msg.sender, operator, vrfX, vrfY)));
        address signer = Signatures.signerOf(digest, consent);
        if (signer != operator) revert InvalidConsent(operator, signer);
        // From the next epoch on: its seed is not known, so that nobody picks a key by whom it would draw.
        uint32 first = uint32(epochNow() + 1);
        _raters[operator] = Rater(msg.sender, first, type(uint32).max, 0, vrfX, vrfY);
        _operators[msg.sender] = operator;
        _roster.push(operator);
        emit RaterEnrolled(operator, msg.sender, vrfX, vrfY, first);
    }

    /// @inheritdoc IReputation
    function leave(address operator) external {
        Rater storage rater = _enrolled(operator);
        if (msg.sender != rater.owner && msg.sender != operator && COMMITTEE.isMember(operator)) {
            revert NotOwnerOrOperator(operator, msg.sender);
        }
        if (rater.exitBlock != 0) revert AlreadyLeaving(operator, rater.exitBlock);
        rater.end = uint32(epochNow() + 1);
        rater.exitBlock = uint32(block.number + _rules.leaveBlocks);
        emit RaterLeft(operator, rater.end, rater.exitBlock);
    }

    /// @inheritdoc IReputation
    function withdraw(address operator) external {
        Rater storage rater = _enrolled(operator);
        (address owner, uint256 exitBlock) = (rater.owner, rater.exitBlock);
        // Slashable until the exit block, inclusive.
        if (exitBlock == 0 || block.number <= exitBlock) revert StillBonded(operator, exitBlock, block.number);
        _remove(operator, owner);
        uint256 bond = _rules.bond;
        emit BondReturned(operator, owner, bond);
        _send(owner, bond);
    }

    /// @inheritdoc IReputation
    function expel(
        address operator,
        uint64 epoch,
        bytes32 seed,
        UpdateEvidence calldata first,
        UpdateEvidence calldata second
    ) external {
        Rater storage rater = _enrolled(operator);
        bytes32 digest = _requireSignedBy(operator, epoch, seed, first);
        if (digest == _requireSignedBy(operator, epoch, seed, second)) revert SameUpdate(digest);
        _remove(operator, rater.owner);
        _expelled[operator] = true;
        uint256 bond = _rules.bond;
        uint256 reward = bond / REWARD_PART;
        emit RaterExpelled(operator, epoch, bond, reward, msg.sender);
        _send(msg.sender, reward);
    }

    // ---- epochs

    /// @inheritdoc IReputation
    function settle(
        ReputationUpdate calldata update,
        LeaderProof calldata lead,
        SilenceReport[] calldata reports,
        bytes[] calldata signatures
    ) external {
        Work memory work = _requireDue(update);
        bool drawn = lead.proof.length != 0;
        _requireLeader(update, lead, drawn);
        bytes32 digest = _structHash(update);
        work.owners = _requireSigned(work, digest, update.leader, signatures);
        _countReports(work, update, reports);
        _rate(work, update);
        (_through, _lastLeader, _nextList) = (update.epoch + 1, update.leader, update.nextList);
        _lastDigest = digest;
        emit EpochSettled(update.epoch, update.leader, digest, update.nextList, signatures.length, drawn);
    }

    /// @inheritdoc IReputation
    function reportSilence(ReputationUpdate calldata update, SilenceReport[] calldata reports) external {
        uint64 current = epochNow();
        if (update.epoch > current || current > update.epoch + 1) revert WrongEpoch(update.epoch, current);
        if (_through != update.epoch + 1) revert NotTheLast(update.epoch, _through);
        bytes32 digest = _structHash(update);
        if (digest != _lastDigest) revert AnotherUpdate(digest, _lastDigest);
        Work memory work;
        work.epoch = update.epoch;
        _setList(work, update);
        _countReports(work, update, reports);
        _rateSilent(work, update);
    }

    /// @dev Epoch, seed and list are those that they must be.
    function _requireDue(ReputationUpdate calldata update) private view returns (Work memory work) {
        uint64 current = epochNow();
        if (update.epoch != current) revert WrongEpoch(update.epoch, current);
        if (_through > current) revert AlreadySettled(current);
        bytes32 known = seedOf(current);
        if (update.seed != known || known == 0) revert WrongSeed(update.seed, known);
        uint256 count = update.nodes.length;
        if (count != update.credits.length || count > MAXIMUM_NODES) revert InvalidList(count, update.credits.length);
        work.epoch = current;
        _setList(work, update);
        // An epoch that nobody settled fixed no list: the next one rates nobody, and fixes one again.
        bytes32 list = _through == current ? _nextList : bytes32(0);
        bool isEmpty = count == 0 && update.promptRoot == bytes32(0);
        if (list == 0 ? !isEmpty : list != work.list) revert ListNotFixed(work.list, list);
    }

    /// @dev What reports name, and how many signatures and reports it takes.
    function _setList(Work memory work, ReputationUpdate calldata update) private view {
        work.list = keccak256(abi.encode(keccak256(abi.encodePacked(update.nodes)), update.promptRoot));
        work.needed = COMMITTEE.threshold();
        // The threshold is the least number above 2n / 3; half of it, rounded up, is the least above n / 3.
        work.silence = (work.needed + 1) / 2;
    }

    function _requireLeader(ReputationUpdate calldata update, LeaderProof calldata lead, bool drawn) private view {
        bytes32 randomness = update.seed;
        if (drawn) {
            Rater storage last = _raters[_lastLeader];
            if (!_counts(last, update.epoch)) revert NotARater(_lastLeader, update.epoch);
            bytes32 alpha = alphaOf(update.epoch, update.seed);
            randomness = EcVrf.verify(last.vrfX, last.vrfY, alpha, lead.proof, lead.hints);
        }
        address leader = leaderBy(update.epoch, randomness);
        if (leader == address(0)) revert NoLeader(update.epoch);
        if (leader != update.leader) revert WrongLeader(update.leader, leader);
    }

    /// @dev The signers' owners; reverts unless enough members that count signed, the leader among them.
    function _requireSigned(Work memory work, bytes32 structHash, address leader, bytes[] calldata signatures)
        private
        view
        returns (address[] memory owners)
    {
        uint256 count = signatures.length;
        if (count < work.needed) revert TooFewSignatures(count, work.needed);
        bytes32 digest = _hashTypedDataV4(structHash);
        owners = new address[](count);
        address previous;
        bool led;
        for (uint256 i = 0; i < count; ++i) {
            address signer = _requireRater(digest, signatures[i], previous, work.epoch);
            owners[i] = _raters[signer].owner;
            led = led || signer == leader;
            previous = signer;
        }
        if (!led) revert LeaderDidNotSign(leader);
    }

    function _countReports(Work memory work, ReputationUpdate calldata update, SilenceReport[] calldata reports)
        private
        view
    {
        uint256 count = update.nodes.length;
        work.reports = new uint8[](count);
        address previous;
        for (uint256 i = 0; i < reports.length; ++i) {
            uint256 silent = reports[i].silent;
            if (count < MAXIMUM_NODES && silent >> count != 0) revert ReportOutsideList(silent, count);
            bytes32 structHash = keccak256(abi.encode(SILENCE_TYPE, update.epoch, update.seed, work.list, silent));
            previous = _requireRater(_hashTypedDataV4(structHash), reports[i].signature, previous, work.epoch);
            for (uint256 j = 0; silent >> j != 0; ++j) {
                if (silent >> j & 1 == 1) ++work.reports[j];
            }
        }
    }

    function _rate(Work memory work, ReputationUpdate calldata update) private {
        ReputationRules memory chosen = _rules;
        address previous;
        for (uint256 i = 0; i < update.nodes.length; ++i) {
            address node = update.nodes[i];
            if (node <= previous) revert NodesOutOfOrder(previous, node);
            previous = node;
            uint256 credit = update.credits[i];
            bool silent = work.reports[i] >= work.silence;
            if (credit == NOT_SCORED) {
                if (!silent) continue;
                credit = 0;
            } else if (silent) {
                revert SilentAndScored(node, work.reports[i]);
            } else if (credit > Scores.ONE) {
                revert InvalidCredit(node, credit);
            }
            Standing memory standing = _standings[node];
            if (standing.owner == address(0)) standing = _newcomer(node, chosen.initial);
            _requireDisinterested(work, node, standing.owner);
            _rateOne(work, node, credit, silent, standing, chosen);
        }
    }

    /// @dev Whom the settled update left as it was. Who signed it does not count here: reports speak, and only against.
    function _rateSilent(Work memory work, ReputationUpdate calldata update) private {
        ReputationRules memory chosen = _rules;
        uint256 found;
        for (uint256 i = 0; i < update.nodes.length; ++i) {
            if (work.reports[i] < work.silence) continue;
            address node = update.nodes[i];
            if (update.credits[i] != NOT_SCORED) revert SilentAndScored(node, work.reports[i]);
            Standing memory standing = _standings[node];
            if (standing.rated != 0 && standing.lastEpoch == work.epoch) continue;
            if (standing.owner == address(0)) standing = _newcomer(node, chosen.initial);
            _rateOne(work, node, 0, true, standing, chosen);
            ++found;
        }
        if (found == 0) revert NobodySilent(work.epoch);
    }

    function _rateOne(
        Work memory work,
        address node,
        uint256 credit,
        bool silent,
        Standing memory standing,
        ReputationRules memory chosen
    ) private {
        standing = Scores.rated(standing, credit, work.epoch, chosen);
        _standings[node] = standing;
        emit NodeRated(
            node, standing.owner, work.epoch, uint32(credit), silent, standing.score, standing.abnormal
        );
    }

    /// @dev An operator has one owner for ever in the Registry, so that it is kept here.
    function _newcomer(address node, uint32 initial) private view returns (Standing memory) {
        (Role role, address owner,) = REGISTRY.roleOf(node);
        if (role != Role.Node) revert NotANode(node);
        return Standing(initial, 0, 0, 0, owner);
    }

    /// @dev Nobody's own signature counts for its owner's nodes.
    function _requireDisinterested(Work memory work, address node, address owner) private pure {
        address[] memory owners = work.owners;
        uint256 others = owners.length;
        for (uint256 i = 0; i < owners.length; ++i) {
            if (owners[i] == owner) --others;
        }
        if (others < work.needed) revert JudgesItself(node, owner, others, work.needed);
    }

    // ---- reads

    /// @inheritdoc IReputation
    function rules() external view returns (ReputationRules memory) {
        return _rules;
    }

    /// @inheritdoc IReputation
    function committee() external view returns (address) {
        return address(COMMITTEE);
    }

    /// @inheritdoc IReputation
    function registry() external view returns (address) {
        return address(REGISTRY);
    }

    /// @inheritdoc IReputation
    function epochNow() public view returns (uint64) {
        return uint64((block.number - startBlock) / _rules.epochBlocks);
    }

    /// @inheritdoc IReputation
    function seedOf(uint64 epoch) public view returns (bytes32) {
        return BlockHeader.known(startBlock + uint256(epoch) * _rules.epochBlocks - 1);
    }

    /// @inheritdoc IReputation
    function alphaOf(uint64 epoch, bytes32 seed) public view returns (bytes32) {
        return keccak256(abi.encode(block.chainid, address(this), epoch, seed));
    }

    /// @inheritdoc IReputation
    function leaderBy(uint64 epoch, bytes32 randomness) public view returns (address leader) {
        uint256 least;
        for (uint256 i = 0; i < _roster.length; ++i) {
            address operator = _roster[i];
            uint256 rank = uint256(keccak256(abi.encode(randomness, operator)));
            if (leader != address(0) && rank >= least) continue;
            if (_counts(_raters[operator], epoch) && COMMITTEE.isMember(operator)) (leader, least) = (operator, rank);
        }
    }

    /// @inheritdoc IReputation
    function settled() external view returns (uint64, address, bytes32) {
        return (_through, _lastLeader, _nextList);
    }

    /// @inheritdoc IReputation
    function standingOf(address node) public view returns (Standing memory standing) {
        standing = _standings[node];
        if (standing.owner == address(0)) standing.score = _rules.initial;
    }

    /// @inheritdoc IReputation
    function isTrusted(address node) external view returns (bool) {
        return standingOf(node).score >= _rules.bar;
    }

    /// @inheritdoc IReputation
    function raterOf(address operator) external view returns (Rater memory) {
        return _raters[operator];
    }

    /// @inheritdoc IReputation
    function raters() external view returns (address[] memory) {
        return _roster;
    }

    /// @inheritdoc IReputation
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    // ---- building blocks

    function _structHash(ReputationUpdate calldata update) private pure returns (bytes32) {
        return keccak256(
            abi.encode(
                UPDATE_TYPE,
                update.epoch,
                update.seed,
                update.leader,
                update.promptRoot,
                keccak256(abi.encodePacked(update.nodes)),
                keccak256(abi.encodePacked(update.credits)),
                update.nextList
            )
        );
    }

    function _requireSignedBy(address operator, uint64 epoch, bytes32 seed, UpdateEvidence calldata signed)
        private
        view
        returns (bytes32 structHash)
    {
        structHash = keccak256(
            abi.encode(
                UPDATE_TYPE,
                epoch,
                seed,
                signed.leader,
                signed.promptRoot,
                signed.nodes,
                signed.credits,
                signed.nextList
            )
        );
        address signer = Signatures.signerOf(_hashTypedDataV4(structHash), signed.signature);
        if (signer != operator) revert WrongSigner(operator, signer);
    }

    /// @dev Ascending signers: nobody counts twice.
    function _requireRater(bytes32 digest, bytes calldata signature, address previous, uint64 epoch)
        private
        view
        returns (address signer)
    {
        signer = Signatures.signerOf(digest, signature);
        if (!_counts(_raters[signer], epoch) || !COMMITTEE.isMember(signer)) revert NotARater(signer, epoch);
        if (signer <= previous) revert SignersOutOfOrder(previous, signer);
    }

    function _counts(Rater storage rater, uint64 epoch) private view returns (bool) {
        return rater.owner != address(0) && rater.first <= epoch && epoch < rater.end;
    }

    function _enrolled(address operator) private view returns (Rater storage rater) {
        rater = _raters[operator];
        if (rater.owner == address(0)) revert NotEnrolled(operator);
    }

    function _remove(address operator, address owner) private {
        delete _raters[operator];
        delete _operators[owner];
        uint256 last = _roster.length - 1;
        for (uint256 i = 0; i < last; ++i) {
            if (_roster[i] == operator) {
                _roster[i] = _roster[last];
                break;
            }
        }
        _roster.pop();
    }

    function _send(address to, uint256 amount) private {
        (bool success,) = to.call{value: amount}("");
        if (!success) revert TransferFailed(to, amount);
    }

    function _requireSound(ReputationRules memory chosen) private pure {
        if (chosen.epochBlocks < 8 || chosen.epochBlocks > 8000) revert InvalidRules(1);
        if (uint256(chosen.keep) + chosen.take > Scores.ONE || chosen.take == 0) revert InvalidRules(2);
        if (chosen.abnormal > Scores.ONE) revert InvalidRules(3);
        if (chosen.bar > Scores.ONE || chosen.initial > Scores.ONE) revert InvalidRules(4);
        if (chosen.window == 0 || chosen.window > 8) revert InvalidRules(5);
        if (chosen.sensitivity < 2) revert InvalidRules(6);
        if (chosen.leaveBlocks < 2 * uint256(chosen.epochBlocks) || chosen.leaveBlocks > 2 ** 24) revert InvalidRules(7);
    }
}
