// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {IBank} from "../../../market/interfaces/IBank.sol";
import {LeafKind, Tab} from "../../../market/interfaces/MarketTypes.sol";

/// @title Owners and payouts as the Registry would know them
contract MockRegistry {
    mapping(address operator => address) public ownerOf;
    mapping(address account => address) private _payouts;

    function setOwner(address operator, address owner) external {
        ownerOf[operator] = owner;
    }

    function setPayout(address account, address payout) external {
        _payouts[account] = payout;
    }

    function payoutOf(address account) external view returns (address) {
        return _payouts[account] == address(0) ? account : _payouts[account];
    }
}

/// @title Leaves are worth what was said; a refunded one reverts
contract MockEvidence {
    error LeafVoid(uint64 sequence);

    mapping(uint64 sequence => uint96) public worth;
    mapping(uint64 sequence => bool) public refunded;

    function setWorth(uint64 sequence, uint96 amount) external {
        worth[sequence] = amount;
    }

    function refund(uint64 sequence) external {
        refunded[sequence] = true;
    }

    /// @dev The leaf must be the number's own: it begins with it.
    function leafWorth(Tab calldata, LeafKind, uint64 sequence, bytes calldata leaf) external view returns (uint96) {
        if (refunded[sequence] || uint256(bytes32(leaf)) != sequence) revert LeafVoid(sequence);
        return worth[sequence];
    }

    function forgive(IBank bank, bytes32 tab, uint96 amount) external {
        bank.forgive(tab, amount);
    }
}

/// @title A key that is a contract: another kind of voucher verifier
/// @notice Here a word counts if its digest was approved before, or if the "signature" is the preimage of a ticket's
///         hash.
contract TicketKey {
    mapping(bytes32 digest => bool) public approved;
    bytes32 public immutable TICKET;

    constructor(bytes32 ticket) {
        TICKET = ticket;
    }

    function approve(bytes32 digest, bool yes) external {
        approved[digest] = yes;
    }

    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4) {
        bool valid = approved[digest] || (signature.length == 32 && keccak256(signature) == TICKET);
        return valid ? this.isValidSignature.selector : bytes4(0xffffffff);
    }
}

/// @title A key that answers with too little, or not at all
contract BrokenKey {
    uint256 private immutable KIND;

    constructor(uint256 kind) {
        KIND = kind;
    }

    fallback(bytes calldata) external returns (bytes memory) {
        if (KIND == 0) revert("no");
        if (KIND == 1) return hex"1626ba7e";
        return abi.encode(uint256(1));
    }
}

/// @title Takes coins only if told to, and tries a call when it is paid
contract Receiver {
    bool private _refuses;
    address private _target;
    bytes private _call;
    bool public called;
    bytes public refusal;

    function refuse(bool yes) external {
        _refuses = yes;
    }

    function callBack(address target, bytes calldata data) external {
        (_target, _call) = (target, data);
    }

    function execute(address target, uint256 value, bytes calldata data) external returns (bytes memory answer) {
        bool success;
        (success, answer) = target.call{value: value}(data);
        if (!success) {
            assembly ("memory-safe") {
                revert(add(answer, 0x20), mload(answer))
            }
        }
    }

    receive() external payable {
        require(!_refuses, "refused");
        if (_target == address(0)) return;
        (called, refusal) = _target.call(_call);
    }
}

/// @title A token with permit
contract GoodToken is ERC20Permit {
    constructor() ERC20("Good", "GOOD") ERC20Permit("Good") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}

/// @title One token with every vice, switched on at will
contract BadToken is ERC20 {
    enum Vice {
        None,
        ReturnsFalse,
        Pauses,
        TakesFee,
        TakesAll,
        TakesFromSender,
        GivesMore,
        Reenters,
        FailsAfterTaking,
        TakesUnit
    }

    Vice public vice;
    address private _target;
    bytes private _call;
    bool public called;
    bytes public refusal;

    constructor() ERC20("Bad", "BAD") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function set(Vice chosen) external {
        vice = chosen;
    }

    function reenter(address target, bytes calldata data) external {
        (vice, _target, _call) = (Vice.Reenters, target, data);
    }

    function transfer(address to, uint256 amount) public override returns (bool) {
        if (vice == Vice.ReturnsFalse) return false;
        return super.transfer(to, amount) && vice != Vice.FailsAfterTaking;
    }

    function transferFrom(address from, address to, uint256 amount) public override returns (bool) {
        if (vice == Vice.ReturnsFalse) return false;
        return super.transferFrom(from, to, amount);
    }

    function _update(address from, address to, uint256 amount) internal override {
        if (from == address(0)) return super._update(from, to, amount);
        require(vice != Vice.Pauses, "paused");
        if (vice == Vice.Reenters) {
            (called, refusal) = _target.call(_call);
        }
        super._update(from, to, amount);
        if (vice == Vice.TakesFee) super._update(to, address(0xfee), amount / 100);
        if (vice == Vice.TakesUnit) super._update(to, address(0xfee), 1);
        if (vice == Vice.TakesAll) super._update(to, address(0xfee), amount);
        if (vice == Vice.TakesFromSender) super._update(from, address(0xfee), amount / 100);
        if (vice == Vice.GivesMore) _mint(to, type(uint96).max);
    }
}

/// @title Returns nothing, as USDT does
contract SilentToken {
    mapping(address account => uint256) public balanceOf;
    mapping(address owner => mapping(address spender => uint256)) public allowance;

    function mint(address to, uint256 amount) external {
        balanceOf[to] += amount;
    }

    function approve(address spender, uint256 amount) external {
        allowance[msg.sender][spender] = amount;
    }

    function transfer(address to, uint256 amount) external {
        balanceOf[msg.sender] -= amount;
        balanceOf[to] += amount;
    }

    function transferFrom(address from, address to, uint256 amount) external {
        allowance[from][msg.sender] -= amount;
        balanceOf[from] -= amount;
        balanceOf[to] += amount;
    }
}
