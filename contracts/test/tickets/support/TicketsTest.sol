// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {ICommittee, Member} from "../../../overlay/ICommittee.sol";
import {
    ITickets, LostTicket, Purchase, Spending, Ticket, TicketKey, TicketRules
} from "../../../tickets/ITickets.sol";
import {TicketCurve} from "../../../tickets/TicketCurve.sol";
import {TicketBank} from "./TicketBank.sol";

/// @notice Seven members, three denominations, and a committee's key that one hand holds: what members' shares add up
///         to is the Python side's subject. The contracts come from their artifacts.
abstract contract TicketsTest is Test {
    uint256 internal constant ORDER = 0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001;
    uint256 internal constant MEMBERS = 7;
    uint256 internal constant NEEDED = 5;
    uint64 internal constant EPOCH = 100;
    bytes32 internal constant DEALING = keccak256("dealing");
    bytes internal constant G2 =
        hex"00000000000000000000000000000000024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d177"
        hex"0bac0326a805bbefd48056c8c121bdb80000000000000000000000000000000013e02b6052719f607dacd3a088274f65"
        hex"596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e00000000000000000000000000000000"
        hex"0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801"
        hex"000000000000000000000000000000000606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab"
        hex"3f370d275cec1da1aaa9075ff05f79be";

    ICommittee internal committee;
    TicketBank internal bank;
    ITickets internal tickets;
    uint256[] internal memberKeys;
    uint96[] internal prices;
    address internal buyer = makeAddr("buyer");
    address internal payee = makeAddr("payee");
    address internal tabKey = makeAddr("tab key");
    /// @dev The chain's coin, or a token that a test set before it sets up the rest.
    address internal asset;

    function setUp() public virtual {
        vm.roll(1000);
        prices = [uint96(0.001 ether), 0.01 ether, 0.1 ether];
        memberKeys = sorted(MEMBERS);
        committee = ICommittee(create_("Committee.sol:Committee", abi.encode(members())));
        bank = new TicketBank(asset);
        tickets = ITickets(
            create_(
                "contracts/tickets/Tickets.sol:Tickets",
                abi.encode(committee, bank, TicketRules(EPOCH, prices))
            )
        );
        register(0);
        vm.deal(buyer, 1000 ether);
    }

    // ---- members

    function secretOf(uint64 epoch, uint8 denomination) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode("secret", epoch, denomination))) % ORDER;
    }

    function publicKey(uint256 secret) internal view returns (bytes memory key) {
        bool done;
        (done, key) = address(0x0e).staticcall(abi.encodePacked(G2, secret));
        require(done, "no EIP-2537");
    }

    function keyOf(uint64 epoch, uint8 denomination) internal view returns (TicketKey memory) {
        return TicketKey(epoch, denomination, publicKey(secretOf(epoch, denomination)));
    }

    function keysOf(uint64 epoch) internal view returns (bytes[] memory keys) {
        keys = new bytes[](prices.length);
        for (uint8 i = 0; i < keys.length; ++i) {
            keys[i] = publicKey(secretOf(epoch, i));
        }
    }

    function register(uint64 epoch) internal {
        bytes[] memory keys = keysOf(epoch);
        tickets.registerKeys(epoch, DEALING, keys, signedKeys(epoch, keys, NEEDED));
    }

    function signedKeys(uint64 epoch, bytes[] memory keys, uint256 count)
        internal
        view
        returns (bytes[] memory signatures)
    {
        bytes memory joined;
        for (uint256 i = 0; i < keys.length; ++i) {
            joined = bytes.concat(joined, keys[i]);
        }
        bytes32 kind = keccak256("TicketKeys(uint64 epoch,bytes32 keys,bytes32 dealing)");
        bytes32 digest = digestOf(keccak256(abi.encode(kind, epoch, keccak256(joined), DEALING)));
        signatures = new bytes[](count);
        for (uint256 i = 0; i < count; ++i) {
            signatures[i] = signed(memberKeys[i], digest);
        }
    }

    // ---- tickets

    /// @dev A signature of the members over a name, x ‖ y.
    function signature(uint256 secret, address name) internal view returns (bytes memory) {
        return compact(TicketCurve.blinded(name, secret));
    }

    function compact(bytes memory point) internal pure returns (bytes memory short) {
        short = new bytes(96);
        for (uint256 i = 0; i < 48; ++i) {
            (short[i], short[48 + i]) = (point[16 + i], point[80 + i]);
        }
    }

    function ticketKey(uint256 number) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode("ticket", number)));
    }

    function nameOf(uint256 number) internal pure returns (address) {
        return vm.addr(ticketKey(number));
    }

    /// @dev Buys tickets of these numbers, whose blinding is the number plus one.
    function buy(uint64 epoch, uint8 denomination, uint256 first, uint16 count) internal returns (Purchase memory) {
        bytes32 root = rootOf(first, count);
        uint256 value = asset == address(0) ? uint256(prices[denomination]) * count : 0;
        vm.prank(buyer);
        tickets.buy{value: value}(epoch, denomination, count, root);
        return Purchase(buyer, epoch, denomination, count, root);
    }

    function sentFor(uint64 epoch, uint8 denomination, Spending memory made) internal view returns (bytes memory) {
        (TicketKey[] memory keys, Spending[] memory spendings) = (new TicketKey[](1), new Spending[](1));
        (keys[0], spendings[0]) = (keyOf(epoch, denomination), made);
        return abi.encodeCall(ITickets.spend, (keys, spendings));
    }

    function spending(uint64 epoch, uint8 denomination, uint256 first, uint256 count, uint96 fee)
        internal
        view
        returns (Spending memory)
    {
        return spendingTo(payee, tabKey, epoch, denomination, first, count, fee);
    }

    function spendingTo(
        address payee_,
        address key,
        uint64 epoch,
        uint8 denomination,
        uint256 first,
        uint256 count,
        uint96 fee
    ) internal view returns (Spending memory made) {
        made = Spending(payee_, key, fee, "", new Ticket[](count));
        for (uint256 i = 0; i < count; ++i) {
            bytes memory own = signed(ticketKey(first + i), spendingDigest(payee_, key, fee));
            made.tickets[i] = Ticket(0, signature(secretOf(epoch, denomination), nameOf(first + i)), own);
        }
    }

    function spend(uint64 epoch, uint8 denomination, Spending memory made) internal {
        (TicketKey[] memory keys, Spending[] memory all) = (new TicketKey[](1), new Spending[](1));
        (keys[0], all[0]) = (keyOf(epoch, denomination), made);
        tickets.spend(keys, all);
    }

    /// @dev Its own calls come before the one that must revert.
    function refused(uint64 epoch, uint8 denomination, Spending memory made, bytes memory reason) internal {
        (TicketKey[] memory keys, Spending[] memory all) = (new TicketKey[](1), new Spending[](1));
        (keys[0], all[0]) = (keyOf(epoch, denomination), made);
        vm.expectRevert(reason);
        tickets.spend(keys, all);
    }

    function spendingDigest(address payee_, address key, uint96 fee) internal view returns (bytes32) {
        bytes32 kind = keccak256("TicketSpending(address payee,address tabKey,uint96 fee)");
        return digestOf(keccak256(abi.encode(kind, payee_, key, fee)));
    }

    // ---- the tree over blinded points, of any number of leaves

    function leafOf(uint256 number, uint16 index) internal view returns (bytes32) {
        bytes memory point = TicketCurve.blinded(nameOf(number), number + 1);
        return keccak256(bytes.concat(keccak256(abi.encodePacked(index, point))));
    }

    function rootOf(uint256 first, uint16 count) internal view returns (bytes32) {
        bytes32[] memory level = leavesOf(first, count);
        while (level.length > 1) level = above(level);
        return level[0];
    }

    function proofOf(uint256 first, uint16 count, uint256 index) internal view returns (bytes32[] memory proof) {
        bytes32[] memory level = leavesOf(first, count);
        proof = new bytes32[](0);
        while (level.length > 1) {
            uint256 sibling = index ^ 1;
            if (sibling < level.length) {
                bytes32[] memory longer = new bytes32[](proof.length + 1);
                for (uint256 i = 0; i < proof.length; ++i) {
                    longer[i] = proof[i];
                }
                longer[proof.length] = level[sibling];
                proof = longer;
            }
            (level, index) = (above(level), index / 2);
        }
    }

    function lost(uint256 first, uint16 count, uint16 index) internal view returns (LostTicket memory) {
        return LostTicket(nameOf(first + index), index, first + index + 1, proofOf(first, count, index));
    }

    function refund(Purchase memory purchase, LostTicket memory one) internal {
        LostTicket[] memory all = new LostTicket[](1);
        all[0] = one;
        tickets.refund(purchase, all);
    }

    function leavesOf(uint256 first, uint16 count) private view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](count);
        for (uint16 i = 0; i < count; ++i) {
            leaves[i] = leafOf(first + i, i);
        }
    }

    function above(bytes32[] memory level) private pure returns (bytes32[] memory next) {
        next = new bytes32[]((level.length + 1) / 2);
        for (uint256 i = 0; i < next.length; ++i) {
            (bytes32 left, uint256 right) = (level[2 * i], 2 * i + 1);
            if (right == level.length) next[i] = left;
            else if (left < level[right]) next[i] = keccak256(abi.encode(left, level[right]));
            else next[i] = keccak256(abi.encode(level[right], left));
        }
    }

    // ---- inside

    function digestOf(bytes32 structHash) internal view returns (bytes32) {
        return keccak256(abi.encodePacked(hex"1901", tickets.domainSeparator(), structHash));
    }

    function signed(uint256 key, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    function create_(string memory artifact, bytes memory arguments) internal returns (address created) {
        bytes memory code = abi.encodePacked(vm.getCode(artifact), arguments);
        assembly ("memory-safe") {
            created := create(0, add(code, 32), mload(code))
        }
        require(created != address(0), artifact);
    }

    function members() private view returns (Member[] memory first) {
        first = new Member[](MEMBERS);
        for (uint256 i = 0; i < MEMBERS; ++i) {
            first[i] = Member(vm.addr(memberKeys[i]), keccak256(abi.encode(i)), "https://member.example:8543");
        }
    }

    function sorted(uint256 count) private pure returns (uint256[] memory keys) {
        keys = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            uint256 at = i;
            for (; at > 0 && vm.addr(keys[at - 1]) > vm.addr(0x71c + i); --at) {
                keys[at] = keys[at - 1];
            }
            keys[at] = 0x71c + i;
        }
    }
}
