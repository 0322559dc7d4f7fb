// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice What a deployment decides, for ever.
/// @param epochBlocks blocks of an epoch; a ticket is sold in one epoch and spent in it or in the next
/// @param prices of a ticket, by denomination, in the asset's smallest unit, ascending
struct TicketRules {
    uint64 epochBlocks;
    uint96[] prices;
}

/// @notice Tickets that an account paid for; its id is the hash of this.
/// @param count of tickets, 1 to 256
/// @param root of a Merkle tree over the blinded points that members may sign for this purchase
struct Purchase {
    address buyer;
    uint64 epoch;
    uint8 denomination;
    uint16 count;
    bytes32 root;
}

/// @notice The public key under which the tickets of one epoch and denomination are signed.
/// @param key point of G2, 256 bytes as in EIP-2537
struct TicketKey {
    uint64 epoch;
    uint8 denomination;
    bytes key;
}

/// @notice A ticket that is spent. Whose it is, its name, is the account that signed.
/// @param key index of its key among those of the call
/// @param signature the members' over the ticket's name: point of G1, 96 bytes x ‖ y
/// @param spending the ticket's own signature over TicketSpending: 65 bytes
struct Ticket {
    uint8 key;
    bytes signature;
    bytes spending;
}

/// @notice Tickets that one client spends with one payee.
/// @param tabKey key of the tab that they fill; signs orders and vouchers, and commands the tab's payer
/// @param fee what of the worth of each pays the payee for the transaction
/// @param consent the tab key's signature over the market's TabConsent(payer, payee)
struct Spending {
    address payee;
    address tabKey;
    uint96 fee;
    bytes consent;
    Ticket[] tickets;
}

/// @notice A ticket that was never spent, and what shows that it belongs to a purchase.
/// @param blinding scalar: the ticket's point times this is the blinded point at `index`
struct LostTicket {
    address ticket;
    uint16 index;
    uint256 blinding;
    bytes32[] proof;
}

/// @title Payment that nobody can link to who bought it: tickets, blind-signed by a committee
/// @notice A wallet buys tickets with a commitment to blinded points. Members sign these, each with its share of the
///         epoch's key (BLS12-381, signatures in G1), and the client takes the blinding off. A ticket is an account of
///         its own, which signs for one payee and one tab key. The payee brings tickets of many clients at once; their
///         worth fills tabs in the market's Bank, so that orders, claims and cases go on as for any tab. A ticket is
///         spent once: the transaction reserves it for its payee before that one works. There is no owner.
///         Trust: fewer members collude than the committee's threshold; who is beyond it can sign tickets that nobody
///         bought, at most as many as were sold in that epoch, and can link nothing.
interface ITickets {
    event TicketsDeployed(address indexed committee, address indexed bank, TicketRules rules, uint256 startBlock);
    event KeysRegistered(uint64 indexed epoch, bytes32 dealing, bytes[] keys);
    event TicketsBought(bytes32 indexed purchase, Purchase terms, uint256 paid);
    event TicketSpent(address indexed ticket, address indexed payer, uint64 epoch, uint8 denomination);
    /// @notice A ticket that was spent before was passed over: nobody is paid for it.
    event TicketPassedOver(address indexed ticket, address indexed payer);
    /// @param fee of all of the tickets that counted
    /// @param opened whether the tab took the money; if not, it lies with the payer, whom the tab key commands
    event SpendingPaid(
        address indexed payer, address indexed payee, address tabKey, uint96 amount, uint96 fee, bool opened
    );
    event TicketRefunded(bytes32 indexed purchase, address indexed ticket, uint16 index, uint96 amount);

    error InvalidRules(uint256 epochBlocks, uint256 denominations);
    error NotAContract(address given);
    error WrongEpoch(uint64 epoch, uint64 current);
    error AlreadyRegistered(uint64 epoch);
    error WrongKeyCount(uint256 keys, uint256 denominations);
    /// @notice No point of G2's subgroup other than zero, or another than the registered one.
    error InvalidKey(uint64 epoch, uint8 denomination);
    error TooFewSignatures(uint256 signatures, uint256 needed);
    error NotAMember(address signer);
    error SignersOutOfOrder(address previous, address signer);
    error NoKeys(uint64 epoch);
    error UnknownDenomination(uint8 denomination);
    error InvalidCount(uint256 count);
    error AlreadyBought(bytes32 purchase);
    error WrongValue(uint256 given, uint256 needed);
    error TokenGaveLess(uint256 received, uint256 needed);
    error TicketExpired(uint64 epoch, uint64 current);
    error UnknownKey(uint8 key);
    error MalformedTicket(uint256 signatureBytes, uint256 spendingBytes);
    error NobodySigned(bytes spending);
    error InvalidTickets(uint256 count);
    /// @notice More tickets of an epoch and denomination were shown than sold: members made tickets out of nothing.
    error MoreSpentThanSold(uint64 epoch, uint8 denomination);
    error FeeAboveWorth(uint96 fee, uint96 price);
    /// @notice Filling a tab took nearly all gas and did not end: with more of it the tab may take the money.
    error Starved(uint256 left, uint256 given);
    error UnknownPurchase(bytes32 purchase);
    error NotLostYet(uint64 epoch, uint64 current);
    error NotInPurchase(bytes32 purchase, address ticket, uint16 index);
    error AlreadySpent(address ticket);
    error AlreadyRefunded(bytes32 purchase, uint16 index);

    /// @notice Anyone: an epoch's keys, one for each denomination, signed by more than 2/3 of the members in ascending
    ///         order of signers: `TicketKeys(uint64 epoch,bytes32 keys,bytes32 dealing)`, where `keys` is keccak256
    ///         over them one after the other. Once for each epoch, at its end at the latest.
    function registerKeys(uint64 epoch, bytes32 dealing, bytes[] calldata keys, bytes[] calldata signatures) external;

    /// @notice Anyone: buys `count` tickets of one denomination in the current epoch.
    function buy(uint64 epoch, uint8 denomination, uint16 count, bytes32 root)
        external
        payable
        returns (bytes32 purchase);

    /// @notice Anyone, usually the payee: spends tickets of many clients. One invalid signature of members reverts all;
    ///         a ticket that was spent before is passed over, so that nobody else's is held up.
    function spend(TicketKey[] calldata keys, Spending[] calldata spendings) external;

    /// @notice Anyone: pays the price of tickets that were never spent back to their buyer, once they cannot be spent
    ///         any more.
    function refund(Purchase calldata purchase, LostTicket[] calldata tickets) external;

    // ---- reads

    /// @notice Whose members sign.
    function committee() external view returns (address);
    /// @notice Whose tabs are filled.
    function bank() external view returns (address);
    function rules() external view returns (TicketRules memory);
    function startBlock() external view returns (uint256);
    function epochNow() external view returns (uint64);
    /// @notice keccak256 of each denomination's key; empty where none are registered.
    function keysOf(uint64 epoch) external view returns (bytes32[] memory);
    /// @notice What members signed beside an epoch's keys: by it clients tell whose part of a signature is nonsense.
    function dealingOf(uint64 epoch) external view returns (bytes32);
    function isPurchase(bytes32 purchase) external view returns (bool);
    /// @notice Tickets sold and neither spent nor refunded.
    function outstanding(uint64 epoch, uint8 denomination) external view returns (uint256);
    /// @notice Bit i says that the i-th of these, at most 256, is spent.
    function spent(address[] calldata tickets) external view returns (uint256);
    /// @notice Bit i says that the ticket at index i of a purchase was refunded.
    function refunded(bytes32 purchase) external view returns (uint256);
    /// @notice Who pays the tabs of a tab key: a TicketPayer, which is made when it is first paid.
    function payerOf(address tabKey) external view returns (address);
    function domainSeparator() external view returns (bytes32);
}
