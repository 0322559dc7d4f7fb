// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ask, DrawRequest, PotKind, Rules, TabState} from "../../../market/interfaces/MarketTypes.sol";
import {Fault, SummonsKind} from "../../../market/interfaces/Proceedings.sol";
import {Messages} from "../../../market/libraries/Messages.sol";

/// @title The hashes of past blocks, as EIP-2935 keeps them
contract MockHistory {
    mapping(uint256 number => bytes32) private _hashes;

    function set(uint256 number, bytes32 hash) external {
        _hashes[number] = hash;
    }

    fallback() external {
        bytes32 hash = _hashes[abi.decode(msg.data, (uint256))];
        require(hash != 0);
        assembly ("memory-safe") {
            mstore(0, hash)
            return(0, 32)
        }
    }
}

/// @title Pots whose sum only `fund` and `collect` change
contract MockBank {
    error InsufficientPot(PotKind kind, bytes32 id, uint96 balance, uint96 amount);

    mapping(PotKind kind => mapping(bytes32 id => uint96)) public balanceOf;
    uint256 public total;
    uint256 public movements;

    function fund(PotKind kind, address account, uint96 amount) external {
        balanceOf[kind][bytes32(uint256(uint160(account)))] += amount;
        total += amount;
    }

    function drain(PotKind kind, address account) external {
        bytes32 id = bytes32(uint256(uint160(account)));
        total -= balanceOf[kind][id];
        balanceOf[kind][id] = 0;
    }

    /// @dev As the Bank reads them: 33 bytes each.
    function moveMany(bytes32 subject, bytes calldata made) external {
        require(made.length % 33 == 0, "not whole movements");
        for (uint256 i = 0; i < made.length; i += 33) {
            bytes32 account = bytes32(uint256(uint160(bytes20(made[i + 1:i + 21]))));
            uint96 amount = uint96(bytes12(made[i + 21:i + 33]));
            PotKind from = PotKind(uint8(made[i]) >> 4);
            PotKind to = PotKind(uint8(made[i]) & 0xf);
            _move(from, _potOf(from, subject, account), to, _potOf(to, subject, account), amount);
            ++movements;
        }
    }

    function _potOf(PotKind kind, bytes32 subject, bytes32 account) private pure returns (bytes32) {
        if (kind == PotKind.Bond) return subject;
        return kind == PotKind.Burnt ? bytes32(0) : account;
    }

    function _move(PotKind from, bytes32 fromId, PotKind to, bytes32 toId, uint96 amount) private {
        uint96 balance = balanceOf[from][fromId];
        if (balance < amount) revert InsufficientPot(from, fromId, balance, amount);
        balanceOf[from][fromId] = balance - amount;
        balanceOf[to][toId] += amount;
    }

    function stakeOf(address operator) external view returns (uint96, uint96) {
        bytes32 id = bytes32(uint256(uint160(operator)));
        return (balanceOf[PotKind.Stake][id], balanceOf[PotKind.Locked][id]);
    }

    function collect(bytes32, address, PotKind kind, bytes32 id, uint96 amount) external payable returns (uint96) {
        require(msg.value == amount, "wrong value");
        balanceOf[kind][id] += amount;
        total += amount;
        return amount;
    }

    /// @notice Tabs that were never opened, by their ids.
    mapping(bytes32 tab => bool) public unopened;

    function forget(bytes32 tab) external {
        unopened[tab] = true;
    }

    function tabOf(bytes32 tab) external view returns (TabState memory state) {
        state.known = !unopened[tab];
    }

    function domainSeparator() external view returns (bytes32) {
        return Messages.separator(address(this));
    }
}

/// @title Summons of checks, with who stayed silent
contract MockSummons {
    address[] private _silent;

    function silence(address operator) external {
        _silent.push(operator);
    }

    function summonsIdOf(bytes32 order, SummonsKind kind, uint8 segment) external pure returns (bytes32) {
        return keccak256(abi.encode(order, kind, segment));
    }

    function silentOf(bytes32) external view returns (address[] memory) {
        return _silent;
    }
}

/// @title Nodes of one group per class that were there at a block; draws by the rule of DrawRequest, or as they are forced
contract MockRegistry {
    struct Member {
        address operator;
        uint64 since;
    }

    struct Conviction {
        address operator;
        Fault fault;
        bytes32 subject;
        uint64 offenceBlock;
    }

    error NotEnough(uint256 found);
    error UnknownClass(bytes32 executionClass);

    mapping(bytes32 executionClass => Rules) private _rules;
    mapping(address operator => address) public ownerOf;
    mapping(address operator => bytes32) public classOf;
    mapping(address scheduler => uint256[2]) private _keys;
    mapping(bytes32 executionClass => Member[]) private _members;
    mapping(uint256 count => address[]) private _forced;
    mapping(address operator => bytes32) public suspendedBy;
    Conviction[] public convictions;

    function setClass(bytes32 executionClass, Rules calldata rules) external {
        _rules[executionClass] = rules;
    }

    function setOwner(address operator, address owner) external {
        ownerOf[operator] = owner;
    }

    function setKey(address scheduler, uint256 x, uint256 y) external {
        _keys[scheduler] = [x, y];
    }

    function join(address operator, address owner, bytes32 executionClass) external {
        ownerOf[operator] = owner;
        classOf[operator] = executionClass;
        _members[executionClass].push(Member({operator: operator, since: uint64(block.number)}));
    }

    /// @dev Draws of so many seats give these, unless one of them is excluded.
    function force(address[] calldata drawn) external {
        _forced[drawn.length] = drawn;
    }

    function convictionCount() external view returns (uint256) {
        return convictions.length;
    }

    function rulesOf(bytes32 executionClass) external view returns (Rules memory rules) {
        rules = _rules[executionClass];
        if (rules.seat == 0) revert UnknownClass(executionClass);
    }

    function committeeOf(bytes32 executionClass) external view returns (bool, uint8, uint8) {
        Rules memory rules = _rules[executionClass];
        return (rules.exact, rules.verifiers, rules.reviewers);
    }

    function vrfKeyOf(address scheduler) external view returns (uint256 x, uint256 y) {
        return (_keys[scheduler][0], _keys[scheduler][1]);
    }

    function draw(DrawRequest calldata request) external view returns (address[] memory drawn) {
        require(request.seasoned && !request.distinct && request.blockNumber < block.number, "wrong request");
        drawn = _forced[request.count];
        if (drawn.length != 0) {
            for (uint256 i = 0; i < drawn.length; ++i) {
                if (_isExcluded(request.excluded, drawn[i])) revert NotEnough(i);
            }
            return drawn;
        }
        Member[] storage members = _members[request.executionClass];
        drawn = new address[](request.count);
        uint256 found = 0;
        for (uint256 i = 0; found < drawn.length; ++i) {
            if (i > 64 + 32 * drawn.length) revert NotEnough(found);
            uint256 h = uint256(keccak256(abi.encode(request.seed, i)));
            Member memory member = members[(h >> 128) % members.length];
            if (member.since > request.blockNumber || _isExcluded(request.excluded, member.operator)) continue;
            drawn[found++] = member.operator;
        }
    }

    function suspend(address operator, bytes32 caseId) external returns (bool) {
        if (suspendedBy[operator] != 0) return false;
        suspendedBy[operator] = caseId;
        return true;
    }

    function restore(address operator, bytes32 caseId) external {
        require(suspendedBy[operator] == caseId, "not suspended by it");
        suspendedBy[operator] = 0;
    }

    function convict(address operator, Fault fault, bytes32 subject, uint64 offenceBlock) external {
        convictions.push(
            Conviction({operator: operator, fault: fault, subject: subject, offenceBlock: offenceBlock})
        );
    }

    function _isExcluded(address[] calldata excluded, address operator) private view returns (bool) {
        for (uint256 i = 0; i < excluded.length; ++i) {
            if (excluded[i] == ownerOf[operator]) return true;
        }
        return false;
    }
}
