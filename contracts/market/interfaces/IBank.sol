// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim, ClaimState, LeafKind, Movement, PotKind, Tab, TabState, Voucher} from "./MarketTypes.sol";

/// @title All money: stake, tabs, bonds, credit
/// @notice Each unit is in one pot. `move` is the only place where money moves between pots; `collect`, tabs' deposits
///         and withdrawals are the only doors. EIP-712 domain of the whole deployment: name "Troth", version "2", this
///         contract.
interface IBank {
    // ---- movements

    /// @notice Money moved between two pots; the balances are those after it (0 for Burnt's source).
    event Moved(
        bytes32 indexed subject,
        PotKind fromKind,
        bytes32 fromId,
        PotKind toKind,
        bytes32 toId,
        uint96 amount,
        uint96 fromBalance,
        uint96 toBalance
    );
    /// @notice Movements of one case, 33 bytes each as `moveMany` takes them; balances follow from those before.
    event MovedMany(bytes32 indexed subject, bytes movements);
    /// @notice Money came in; `amount` is what arrived.
    event Collected(
        bytes32 indexed subject, address indexed from, PotKind kind, bytes32 id, uint96 amount, uint96 balance
    );
    /// @notice Credit was paid out.
    event Withdrawn(address indexed account, address indexed payout, uint96 amount);

    error NotAuthorised(address caller);
    error InsufficientPot(PotKind kind, bytes32 id, uint96 balance, uint96 amount);
    error WrongValue(uint256 value, uint256 expected);
    error AmountTooLarge(uint256 amount);
    error ZeroAmount();
    error NothingToWithdraw(address account);
    error ZeroAddress();
    /// @notice No contract may move or collect this: a tab's money, a pot that nobody could empty.
    error InvalidPot(PotKind kind, bytes32 id);
    /// @notice Not whole movements.
    error InvalidMovements(uint256 length);
    error TransferFailed(address to, uint96 amount);
    /// @notice The token took more from the Bank than it was told to send.
    error TokenTookMore(uint256 taken, uint96 amount);

    /// @notice Registry, Court, Summons, Evidence: moves money. Reverts as a whole if a pot holds too little. Tabs are
    ///         out of reach: their money moves by their payer's word alone. A movement of nothing is passed over.
    /// @param subject what it is about: an order, a case, a summons, an operator
    function move(bytes32 subject, Movement[] calldata movements) external;

    /// @notice Court: the same for the case `subject`, by its bond, accounts and what is burnt, told in one event. A movement is
    ///         33 bytes: a byte with the kind that it leaves above and the kind that it enters below, an account (20
    ///         bytes), an amount (12). A Bond is the subject's; Burnt has no account.
    function moveMany(bytes32 subject, bytes calldata movements) external;

    /// @notice Registry, Court, Summons: takes `amount` of the asset from `from` into a pot (coin: the value of the
    ///         call).
    /// @return received what arrived, less than `amount` if the token takes a fee
    function collect(bytes32 subject, address from, PotKind kind, bytes32 id, uint96 amount)
        external
        payable
        returns (uint96 received);

    /// @notice Anyone: adds to an account's credit (a contract that pays in another way than by tabs settles here).
    function credit(address account, uint96 amount) external payable;

    /// @notice Anyone: pays an account's credit to its payout address.
    function withdraw(address account) external;

    // ---- tabs

    /// @notice `balance` is what arrived; what was redeemed in an earlier life of the tab stands.
    event TabOpened(bytes32 indexed tab, address payer, address payee, address key, uint96 balance);
    event TabToppedUp(bytes32 indexed tab, uint96 amount, uint96 balance);
    /// @notice A voucher or a settled claim was paid: the tab's balance is `paid` less, what was redeemed and the
    ///         payee's credit are `paid` more.
    event TabRedeemed(bytes32 indexed tab, uint96 paid);
    event TabClosing(bytes32 indexed tab, uint40 closesAt);
    /// @notice `returned` is sent to the payer. Where the payer cannot be paid, it comes back by the Collected that
    ///         follows, to the payer's credit.
    event TabClosed(bytes32 indexed tab, uint96 returned);
    /// @notice `amount` counts as redeemed, and the tab did not pay it: the payer's stake did, or it is what a struck
    ///         claim cost the payer.
    event TabForgiven(bytes32 indexed tab, uint96 amount, uint96 redeemed);

    error UnknownTab(bytes32 tab);
    error InvalidTabConsent(address key, bytes32 tab);
    error TabAlreadyOpen(bytes32 tab);
    error TabIsClosing(bytes32 tab, uint40 closesAt);
    error TabNotClosing(bytes32 tab);
    error TabStillClosing(bytes32 tab, uint40 closesAt, uint256 blockNumber);
    error NotPayer(bytes32 tab, address caller);
    error NotPayee(bytes32 tab, address caller);
    error LengthsDiffer(uint256 tabs, uint256 vouchers, uint256 signatures);
    error ForeignVoucher(bytes32 tab, bytes32 voucherTab);
    error InvalidVoucher(address key, bytes32 voucherHash);
    error SpentAboveAuthorised(uint96 spent, uint96 authorised);
    error NothingToRedeem(bytes32 tab, uint96 owed, uint96 redeemed);

    /// @notice Opens msg.sender's tab with `payee`; one that was closed opens again with its `redeemed`.
    /// @param consent the key's signature of TabConsent(payer, payee)
    function openTab(address payee, address key, uint96 amount, bytes calldata consent)
        external
        payable
        returns (bytes32 tab);

    /// @notice The same for an account's key in a deployment in the coin, cheaper: the value is the deposit.
    /// @param r of the key's signature
    /// @param vs its s, and its parity in the uppermost bit (EIP-2098)
    function openTabInCoin(address payee, address key, bytes32 r, bytes32 vs) external payable returns (bytes32 tab);

    /// @notice The same after an EIP-2612 permit for `amount`, in one transaction.
    function openTabWithPermit(
        address payee,
        address key,
        uint96 amount,
        bytes calldata consent,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external returns (bytes32 tab);

    /// @notice Anyone: adds to an open tab.
    function topUp(bytes32 tab, uint96 amount) external payable;

    /// @notice Anyone: pays what a voucher says above what was redeemed, or as much of it as there is, to the payee's
    ///         credit.
    function redeem(Tab calldata tab, Voucher calldata voucher, bytes calldata signature)
        external
        returns (uint96 paid);

    /// @notice Many at once. A voucher that pays nothing is passed over, that of a closed tab too; an invalid one
    ///         reverts all.
    function redeemMany(Tab[] calldata tabs, Voucher[] calldata vouchers, bytes[] calldata signatures)
        external
        returns (uint96 paid);

    /// @notice Payer: no orders from now on; the rest is free after the closing delay.
    function close(Tab calldata tab) external;

    /// @notice Anyone: returns the rest to the payer once the delay is over and no claim is under way; to its credit,
    ///         if it cannot be paid.
    function finishClosing(Tab calldata tab) external;

    // ---- claims

    event Claimed(bytes32 indexed tab, bytes32 indexed claimId, ClaimState state);
    event Objected(
        bytes32 indexed tab,
        bytes32 indexed claimId,
        uint64 sequence,
        address objector,
        uint96 deposit,
        uint40 deadline
    );
    event ObjectionAnswered(bytes32 indexed tab, bytes32 indexed claimId, uint64 sequence, uint96 amount);
    event ClaimStruck(bytes32 indexed tab, bytes32 indexed claimId, uint64 sequence);
    /// @notice `short` is what the tab did not cover.
    event ClaimSettled(bytes32 indexed tab, bytes32 indexed claimId, uint96 owed, uint96 paid, uint96 short);

    error ClaimUnderWay(bytes32 tab);
    error ClaimMismatch(bytes32 tab, bytes32 stored, bytes32 given);
    error InvalidClaim(uint64 first, uint64 last, uint96 total);
    error ClaimAboveAuthorised(uint256 owed, uint96 authorised);
    error NotClaimed(uint64 sequence);
    error TooManyObjections(bytes32 claimId, uint16 objections);
    error WrongPath(bytes32 root, bytes32 shown);
    error LeafWorthLess(uint64 sequence, uint96 worth, uint96 amount);
    error AlreadyObjected(bytes32 claimId, uint64 sequence);
    error NoObjection(bytes32 claimId, uint64 sequence);
    error TooLateToObject(uint40 settlesAt, uint256 blockNumber);
    error AnswerStillPossible(uint40 deadline, uint256 blockNumber);
    error AnswerTooLate(uint40 deadline, uint256 blockNumber);
    error ObjectionsOpen(bytes32 claimId, uint16 objections);
    error ClaimNotDue(uint40 settlesAt, uint256 blockNumber);

    /// @notice Payee or its owner: claims leaves that were authorised but not acknowledged; one claim per tab at a
    ///         time. At the settlement the tab pays the claimer's gas, at most as much as the claim itself brought;
    ///         of a token, a tenth of that.
    function claim(Tab calldata tab, Voucher calldata voucher, bytes calldata signature, Claim calldata claim_)
        external;

    /// @notice Payer or key: asks to see the leaf of one number, or of a place of the tree beyond the last one or left
    ///         out, which must be empty. The answer's gas is reserved from what the tab holds beyond the claim; a
    ///         caller that gives value (a coin, at least that gas), or whose tab holds too little, pays it itself. An
    ///         answered number may be asked again. What is reserved pays the dearest answer, that with an order.
    function object(Tab calldata tab, ClaimState calldata state, uint64 sequence) external payable;

    /// @notice Anyone: shows the leaf; its deposit pays the caller's gas (what another leaf than an order's, or an
    ///         empty place, does not need goes to the tab).
    /// @param amount of the leaf; 0: the place is empty, and `leaf` is not looked at
    /// @param siblings and their sums, from the bottom (library SumTree)
    /// @param leaf abi-encoded as Leaves.leafWorth takes it
    function answer(
        Tab calldata tab,
        ClaimState calldata state,
        uint64 sequence,
        LeafKind kind,
        uint96 amount,
        bytes32[] calldata siblings,
        uint96[] calldata sums,
        bytes calldata leaf
    ) external;

    /// @notice Anyone: strikes a claim whose objection was not answered in time. The deposit goes back to the tab (to
    ///         the payer's credit, once that is closed); those of other objections to a struck claim follow by a call
    ///         each. What objection and strike cost counts as redeemed, up to what the claim's voucher
    ///         authorises: the payee pays for a claim that it cannot show.
    function strike(Tab calldata tab, ClaimState calldata state, uint64 sequence) external;

    /// @notice Anyone: pays a claim that stood.
    function settle(Tab calldata tab, ClaimState calldata state) external;

    // ---- reads

    function ASSET() external view returns (address);
    function domainSeparator() external view returns (bytes32);
    function tabOf(bytes32 tab) external view returns (TabState memory);
    function balanceOf(PotKind kind, bytes32 id) external view returns (uint96);
    function stakeOf(address operator) external view returns (uint96 stake, uint96 locked);
    /// @notice Id of the claim under way, 0 if there is none, and its open objections.
    function claimOf(bytes32 tab) external view returns (bytes32 claimId, uint16 objections);
    /// @notice An open objection; zeros if there is none.
    function objectionOf(bytes32 claimId, uint64 sequence) external view returns (uint96 deposit, uint40 deadline);
    /// @notice What settled claims showed to be owed and nobody has paid since, and the block of the last such
    ///         settlement.
    function shortOf(bytes32 tab) external view returns (uint96 short, uint40 blockNumber);
    /// @notice Evidence: the payer's stake paid so much of a shortfall, which counts as redeemed from now on.
    function forgive(bytes32 tab, uint96 amount) external;
}
