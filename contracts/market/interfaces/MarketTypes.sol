// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// ---------------------------------------------------------------------------------------------------- deployment

/// @notice What is fixed for a deployment. Windows are in blocks, money is in the asset's smallest unit.
/// @param asset the chain's coin (zero) or one ERC-20
/// @param lag D: blocks from an answer to its acknowledgement; a burst of cheats is found before it is paid
/// @param summonsWindow blocks in which a summons is answered
/// @param lookahead blocks from an opening to the block whose RANDAO draws (EIP-4399; 132 on Ethereum)
/// @param drawWindow blocks after the lookahead in which that RANDAO can be proven; within EIP-2935's 8,191
/// @param commitWindow blocks from the draw of reviewers to their commitments
/// @param revealWindow blocks from the seed (exact classes: from the commitments) to the reveals
/// @param claimDelay blocks from a claim to its settlement; longer than the longest case
/// @param answerWindow blocks in which an objection is answered
/// @param closeDelay blocks from closing a tab to its end; longer than a claim and its last objection
/// @param unbonding blocks from deregistration to withdrawal; longer than order, lag and the longest case
/// @param seasoning blocks after which a seat may check and judge (seven days on Ethereum)
/// @param referenceAge blocks that an order's reference block may lie back
/// @param suspensionPause blocks in which a node is suspended by at most one case (a day on Ethereum)
/// @param schedulerStake least stake of a scheduler
/// @param gasPrice asset units per 10^9 gas: for the coin the most at which gas is paid back, for a token what is paid
///        back whatever gas costs, since nobody knows that here
/// @param weights weight of each node's seats in draws (reputation), or zero: all count fully
/// @param prover contract that convicts by proof in place of the deployment's own (IProofs), or zero
struct Parameters {
    address asset;
    uint32 lag;
    uint32 summonsWindow;
    uint32 lookahead;
    uint32 drawWindow;
    uint32 commitWindow;
    uint32 revealWindow;
    uint32 claimDelay;
    uint32 answerWindow;
    uint32 closeDelay;
    uint32 unbonding;
    uint32 seasoning;
    uint32 referenceAge;
    uint32 suspensionPause;
    uint96 schedulerStake;
    uint96 gasPrice;
    address weights;
    address prover;
}

// ---------------------------------------------------------------------------------------------------------- money

/// @notice Where money can be. Every unit that the Bank holds is in exactly one pot.
enum PotKind {
    Credit, // withdrawable; id = account
    Stake, // bonded; id = operator
    Locked, // stake that is earmarked for a case; id = operator
    Tab, // id = tab
    Bond, // of a case or a summons; id = its id
    Burnt // nobody's; id = 0
}

/// @notice One movement; pots are (kind, id), an address as the lower 160 bits of its id.
struct Movement {
    PotKind fromKind;
    bytes32 fromId;
    PotKind toKind;
    bytes32 toId;
    uint96 amount;
}

/// @notice A one-way payment channel; its id is keccak256(abi.encode(payer, payee, key)).
/// @param key signs for this tab: an account, or a contract that answers EIP-1271 (another kind of voucher verifier)
struct Tab {
    address payer;
    address payee;
    address key;
}

/// @notice What is stored of a tab, in one slot. `redeemed` never resets, so that old vouchers never replay.
/// @param balance what is left of the deposits
/// @param redeemed paid out to the payee, ever
/// @param closesAt block from which the payer may take the rest; 0 while open
struct TabState {
    uint96 balance;
    uint96 redeemed;
    uint40 closesAt;
    bool known;
}

/// @notice EIP-712: the payer's latest word on a tab, signed by the tab key.
/// @param spent cumulative, payable at once
/// @param authorised cumulative: the most that may be owed with every order up to `sequence`
/// @param sequence last sequence number that this word covers
/// @param acknowledgedThrough every number up to here is acknowledged (paid by `spent`), less the exceptions
/// @param exceptions bit i: number acknowledgedThrough - i is not acknowledged
struct Voucher {
    bytes32 tab;
    uint96 spent;
    uint96 authorised;
    uint64 sequence;
    uint64 acknowledgedThrough;
    uint256 exceptions;
}

/// @notice EIP-712: the tab key agrees to be the key of this payer's tab with this payee.
struct TabConsent {
    address payer;
    address payee;
}

/// @notice Leaves that were authorised but not acknowledged, claimed at once.
/// @param first first claimed sequence number; leaf i of the tree is number first + i
/// @param last last claimed sequence number
/// @param exceptions bit i: number first + i is not claimed (only the first 256 numbers can be left out)
/// @param total sum of all leaves
/// @param root Merkle-sum root over the leaves (library SumTree)
struct Claim {
    uint64 first;
    uint64 last;
    uint256 exceptions;
    uint96 total;
    bytes32 root;
}

/// @notice A claim on its way; its id is keccak256(abi.encode(state)), the lowest sixteen bits cleared. The Bank stores id and
///         number of open objections in one word per tab, so that a new objection never invalidates a call that is on its way.
/// @param voucher the word of the payer that it stands on
/// @param owed voucher.spent + claim.total, at most voucher.authorised
/// @param settlesAt block from which it can be settled
/// @param claimer who filed it, the payee or its owner, and gets its gas back
struct ClaimState {
    Claim claim;
    Voucher voucher;
    uint96 owed;
    uint40 settlesAt;
    address claimer;
}

/// @notice Which order's money a tab leaf is.
enum LeafKind {
    Order, // client to scheduler: an order and its results
    Promise // scheduler to node: a promise with the node's result or verdict
}

// ----------------------------------------------------------------------------------------------- parties and classes

enum Role {
    None,
    Node,
    Scheduler
}

/// @notice A transformer at fixed weights; its id is keccak256(abi.encode(descriptor)).
struct ModelDescriptor {
    string architecture;
    uint16 layers;
    uint32 hiddenSize;
    uint32 vocabulary;
    uint8 dtype;
    bytes32 weightsRoot;
}

/// @notice Contiguous layers [first, end).
struct Segment {
    uint8 first;
    uint8 end;
}

/// @notice How a model is run, compared, priced and judged; its id is keccak256(abi.encode(executionClass)).
/// @param dtype of the traces: 0 float32, 1 bfloat16
/// @param exact whether honest runs are bitwise reproducible; if so roots are compared, else sampled tiles
/// @param mantissaBits how many mantissa bits are compared
/// @param steps how many steps at that precision two elements may differ
/// @param theta share of agreeing elements that makes two openings agree, basis points
/// @param tiles tiles that each party of a case opens; 0 in an exact class
/// @param candidates how many nodes may infer a segment (c)
/// @param verifiers seats that check a drawn answer (k); odd
/// @param reviewers seats of the court (m'); odd
/// @param checkPrice asset units per 10^9 positions that one seat earns for checking or reviewing: six units (u)
/// @param feeCap the most an order of this class can cost (g)
/// @param leastCheckRate least share of orders that clients draw (q), millionths
/// @param honestShare share of honest seats that the penalty is made for (r), basis points
/// @param penalty what a conviction takes (L)
/// @param seat stake of one seat
/// @param seatCap most seats of one node
/// @param stateCut cut on the state score of a verifier, millionths
/// @param marginCut cut on the token margin of a verifier, millionths
/// @param secondCut score, in millionths of the first cut, beyond which a tolerant class takes stake; above 1,000,000
/// @param poolLimit outcomes between the cuts, per owner in a pool window, that convict
/// @param poolWindow blocks of that window
/// @param calibration hash of the data the thresholds come from
struct ExecutionClass {
    bytes32 model;
    string name;
    uint8 dtype;
    bool exact;
    uint8 mantissaBits;
    uint16 steps;
    uint16 theta;
    uint8 tiles;
    uint8 candidates;
    uint8 verifiers;
    uint8 reviewers;
    uint96 checkPrice;
    uint96 feeCap;
    uint32 leastCheckRate;
    uint16 honestShare;
    uint96 penalty;
    uint96 seat;
    uint16 seatCap;
    uint32 stateCut;
    uint32 marginCut;
    uint32 secondCut;
    uint16 poolLimit;
    uint32 poolWindow;
    bytes32 calibration;
}

/// @notice What the other contracts need to know of a class, packed in three slots. Never holds seat 0.
struct Rules {
    uint96 penalty;
    uint96 seat;
    uint16 seatCap;
    uint8 dtype;
    bool exact;
    uint8 mantissaBits;
    uint8 tiles;
    uint8 verifiers;
    uint8 reviewers;
    uint96 checkPrice;
    uint96 feeCap;
    uint32 leastCheckRate;
    uint16 theta;
    uint16 steps;
    uint32 secondCut;
    uint16 poolLimit;
    uint32 poolWindow;
    uint32 hiddenSize;
    uint16 layers;
    uint8 candidates;
}

/// @notice What a node asks for its segment, asset units per 10^9 positions.
struct Ask {
    uint64 prompt;
    uint64 cached;
    uint64 written;
}

/// @param segments one or two, each inside [first, end), whose groups the node joins
/// @param asks one per segment
/// @param payout where credit is paid; zero: the owner
struct NodeRegistration {
    address operator;
    address payout;
    bytes32 executionClass;
    uint8 first;
    uint8 end;
    Segment[] segments;
    Ask[] asks;
    uint96 stake;
    string endpoint;
    bytes32 tlsKeyHash;
}

struct SchedulerRegistration {
    address operator;
    address payout;
    uint256 vrfX;
    uint256 vrfY;
    uint96 stake;
    string endpoint;
    bytes32 tlsKeyHash;
}

/// @notice EIP-712: an operator's agreement to be registered by `owner`.
struct Consent {
    address owner;
    address operator;
}

/// @notice A member of a group at one place of its compact array, from a block on; one storage slot.
/// @param since block at which the newest seats were added
/// @param seats all seats; 0 while suspended
/// @param settled seats that were there before the newest ones; they season from earlier
struct Entry {
    address operator;
    uint32 fromBlock;
    uint32 since;
    uint16 seats;
    uint16 settled;
}

/// @notice What is drawn. The rule: for i = 0, 1, …: h = keccak256(abi.encode(seed, i)); place = (h >> 128) mod size;
///         the entry there at `blockNumber` is accepted if (h mod 2^128) mod (seatCap * 10,000) < seats * weight, its owner
///         is not excluded, and (if `distinct`) it was not accepted before and its ask does not exceed `bound`.
/// @param seasoned count only seats that are at least `seasoning` old at `blockNumber`
/// @param distinct candidates are different nodes, within a price; verifiers and reviewers are seats at the class's price, and a
///        node has all of its drawn ones
/// @param excluded owners
/// @param bound what an ask for this segment may be at most, where `distinct`; zero is a bound like another
/// @param hints four bytes for each look-up that the latest word does not answer, in order (Registry.draw; Lens.draw makes them)
struct DrawRequest {
    bytes32 executionClass;
    uint8 first;
    uint8 end;
    uint64 blockNumber;
    bytes32 seed;
    uint16 count;
    bool seasoned;
    bool distinct;
    address[] excluded;
    Ask bound;
    bytes hints;
}

// ------------------------------------------------------------------------------------- what parties sign (EIP-712, flat)

/// @notice A client's order, signed by its tab key. Its digest is the order's id everywhere.
/// @param tab the client's tab with the scheduler, who is its payee
/// @param sequence number of the order on its tab, from 1
/// @param requestHash keccak256 of a salt and the canonical request
/// @param ends byte s is the end of segment s, zero after the last
/// @param promptPrice what the client pays, asset units per 10^9 positions
/// @param nodeShare share of these prices that nodes may ask, basis points: seats that ask more are passed over
/// @param maxFee the most it costs, at most the class's cap
/// @param checkRate q, millionths, at least the class's least; 1,000,000: always
/// @param deadline Unix seconds after which it is not admitted
/// @param referenceBlock block whose groups, asks and keys count
/// @param drawHash keccak256 of the first secret: the lottery
/// @param tilesHash keccak256 of the second secret: the tiles of a check
/// @param replyKey X25519 key for what comes back sealed
struct Order {
    bytes32 tab;
    uint64 sequence;
    bytes32 executionClass;
    bytes32 requestHash;
    bytes32 ends;
    uint64 promptPrice;
    uint64 cachedPrice;
    uint64 writtenPrice;
    uint16 nodeShare;
    uint96 maxFee;
    uint32 checkRate;
    uint64 deadline;
    uint64 referenceBlock;
    bytes32 drawHash;
    bytes32 tilesHash;
    bytes32 replyKey;
}

/// @notice The scheduler takes an order and names who serves it.
/// @param nodes keccak256(abi.encodePacked(inferencer of each segment)), each as a 32-byte word
/// @param blockNumber newest block that the scheduler saw
struct Admission {
    bytes32 order;
    bytes32 nodes;
    uint64 blockNumber;
}

enum Work {
    Inference,
    Check
}

/// @notice The scheduler owes a node for work on an order, signed by the key of their tab before the node begins.
/// @param sequence number of the promise on their tab, from 1
/// @param work Inference or Check, as a number
/// @param referenceBlock of the order
/// @param price most that the work costs; inference is paid by the positions of the result at `ask`, a check in full
struct Promise {
    bytes32 tab;
    uint64 sequence;
    bytes32 order;
    uint8 segment;
    uint8 work;
    uint64 referenceBlock;
    uint64 promptAsk;
    uint64 cachedAsk;
    uint64 writtenAsk;
    uint96 price;
}

/// @notice One row of a node's trace, chained to the row before it.
struct Row {
    bytes32 order;
    uint8 segment;
    uint32 position;
    bytes32 rowHash;
    bytes32 previous;
}

/// @notice What a node signs at the end of its part; only this can convict it.
/// @param inputHead chain head of the rows it read, the output head of the segment before; the first one's is the request hash
/// @param outputHead chain head of the rows it gave
/// @param prompt positions computed from the prompt; cached: of it taken from a cache; written: tokens it wrote
/// @param traceCommitment keccak256(abi.encode(trace root, salt))
/// @param outputHash salted hash of the answer; zero but at the last segment
struct Result {
    bytes32 order;
    uint8 segment;
    bytes32 inputHead;
    bytes32 outputHead;
    uint32 prompt;
    uint32 cached;
    uint32 written;
    bytes32 traceCommitment;
    bytes32 outputHash;
}

/// @notice The scheduler's word after the answer, from which the lag runs.
/// @param results keccak256 over the struct hashes of all results, in order of segments
/// @param beta output of its VRF over (order, "draw")
/// @param blockNumber newest block that the scheduler saw
struct Draw {
    bytes32 order;
    bytes32 results;
    bytes32 beta;
    uint64 blockNumber;
}

/// @notice A verifier's hidden trace root, signed before it sees the node's rows.
/// @param result struct hash of the result that it will judge: who is shown another one commits once more
struct TraceCommitment {
    bytes32 order;
    uint8 segment;
    bytes32 result;
    bytes32 commitment;
}

/// @notice What a verifier or reviewer says. CannotTell costs nobody anything.
enum Opinion {
    None,
    Accept,
    Reject,
    CannotTell,
    MissingPrompt, // of the opener: prompt or answer
    MissingInput, // of the scheduler: rows of the segments before
    MissingTrace // of the node: its own rows
}

/// @notice A verifier's verdict over one result.
/// @param result struct hash of the result
/// @param commitment of its TraceCommitment
/// @param opinion Accept, Reject or CannotTell, as a number
/// @param locks a rejection that suspends the node: the verifier locks L for it
struct Verdict {
    bytes32 order;
    uint8 segment;
    bytes32 result;
    bytes32 commitment;
    uint8 opinion;
    bool locks;
}

/// @notice A signature of 64 bytes (EIP-2098): parity above s.
struct Signature {
    bytes32 r;
    bytes32 vs;
}

/// @notice What a verdict says where order, segment and result are known, with its signature.
struct Word {
    bytes32 commitment;
    uint8 opinion;
    bool locks;
    Signature signature;
}

/// @notice The scheduler promises that a leaf is in its log.
/// @param entry number of the log entry that will hold it at the latest
struct Inclusion {
    bytes32 order;
    bytes32 leaf;
    uint64 entry;
}

/// @notice A reviewer's hidden reveal in one round of a case:
///         keccak256(abi.encode(hearing, reviewer, root, opinion, score, spread, salt)).
/// @param caseId the hearing: Messages.hearing(caseId, round), so that a commitment of one round is worth nothing in another
struct ReviewCommitment {
    bytes32 caseId;
    bytes32 commitment;
}

/// @notice An RFC 9381 proof (suite 0x01) with what EcVrf needs to check it cheaply.
struct VrfProof {
    bytes proof;
    uint256[] hints;
}

/// @notice An order with all that was signed over it, as a case, a summons or a conviction needs it.
/// @param client the tab's payer
/// @param key the tab's key
struct SignedOrder {
    Order order;
    address client;
    address scheduler;
    address key;
    bytes signature;
}

// ---------------------------------------------------------------------------------------------------------------- court

enum CaseKind {
    None,
    Rejection, // drawn, and a majority of the drawn verifiers rejected
    Acceptance, // drawn, and no majority rejected: the client says that the result is false
    Doubt // not drawn, or not checked: only the leaf can fall
}

enum CasePhase {
    None,
    Opened,
    Drawn,
    Committed,
    Seeded
}

enum Outcome {
    None,
    Upheld, // the result stands: the opener loses its bond
    Convicted, // the node loses L
    Refunded, // the leaf falls, nobody is slashed
    Undecided, // no cluster, twice: the leaf falls, nobody is slashed
    OpenerMissing, // the case is lost, the leaf stays open
    SchedulerMissing, // the scheduler loses L
    NodeMissing, // the node showed nothing: it loses L
    Lapsed // the opener did not carry it on: the bond is lost
}

/// @notice A case on its way; the Court stores keccak256(abi.encode(state)).
/// @param order digest of the order
/// @param result struct hash of the result that is judged
/// @param node who signed it
/// @param opener who put up the bond
/// @param verifiers drawn verifiers, one per seat, with a byte each in `opinions`; empty for a Doubt
/// @param excluded owners who cannot review
/// @param rows rows of the trace: prompt + cached + written - 1, at least 1, and no more than fit 2^22 tiles
/// @param fee what the order costs: the client's refund
/// @param unit u of the case: what a seat earns, over six
/// @param bond what the opener put up
/// @param locked what is locked of the node's stake
/// @param suspends whether the node is suspended for it
/// @param phaseBlock block in which this phase began
/// @param round counts all rounds under this case id, so that nothing that was signed for one counts in another: even in the
///        first round of an opening, odd in the second, after an undecided first one
/// @param answeredAt block that the scheduler's draw names
/// @param drawer who drew the reviewers, committer who ended the commitments, seeder who proved the tiles' seed, in this round:
///        each gets its gas back
/// @param reviewers distinct nodes, with their drawn seats in `seats`, a byte each
/// @param commitments one per reviewer, zero where there is none
struct CaseState {
    CaseKind kind;
    CasePhase phase;
    uint8 segment;
    uint8 round;
    bool suspends;
    uint40 phaseBlock;
    uint64 referenceBlock;
    uint64 answeredAt;
    uint32 rows;
    bytes32 order;
    bytes32 executionClass;
    bytes32 ends;
    bytes32 result;
    bytes32 traceCommitment;
    address client;
    address scheduler;
    address node;
    address opener;
    uint96 fee;
    uint96 unit;
    uint96 bond;
    uint96 locked;
    address[] verifiers;
    bytes opinions;
    address[] excluded;
    address[] reviewers;
    bytes seats;
    bytes32[] commitments;
    bytes32 seed;
    address drawer;
    address committer;
    address seeder;
}

/// @notice What the node shows: its root and salt, and its tiles. Absent: root zero.
struct NodeReveal {
    bytes32 root;
    bytes32 salt;
    bytes tiles;
    bytes32[] siblings;
}

// -------------------------------------------------------------------------------------------------------------- summons

enum SummonsKind {
    None,
    Results, // an admitted order without results
    Check // a drawn segment without verdicts
}

/// @notice A summons on its way; Summons stores keccak256(abi.encode(state)).
/// @param extended whether it was passed on
/// @param offenceBlock block of the admission or draw that proves it
/// @param referenceBlock of the order, from which the conviction voids
/// @param order digest of the order
/// @param results what the draw names; zero for Results
/// @param named what the scheduler's word names: the admission's nodes, or the draw's beta
/// @param secret the client's first one; zero for Results
/// @param passedTo a node that was silent, and now must speak; zero: the scheduler must answer
/// @param deposit what the summoner put up and the scheduler holds
/// @param fee the order's bound, by which silence is priced
struct SummonsState {
    SummonsKind kind;
    uint8 segment;
    bool extended;
    uint40 deadline;
    uint64 offenceBlock;
    uint64 referenceBlock;
    bytes32 order;
    bytes32 executionClass;
    bytes32 ends;
    bytes32 results;
    bytes32 named;
    bytes32 secret;
    address client;
    address scheduler;
    address summoner;
    address passedTo;
    uint96 deposit;
    uint96 fee;
}

/// @notice Why a party was convicted.
enum Fault {
    None,
    FalseResult, // by the court
    NothingShown, // by the court: nothing was shown, or rows are missing
    Unanswered, // a summons was not answered
    TwoResults,
    TwoRows,
    TwoVerdicts,
    TwoAdmissions,
    TwoDraws,
    WrongNodes, // other nodes than those that were drawn
    WrongBeta, // another output than that of the VRF
    HeadsApart, // heads that do not meet, under the scheduler's signature
    PromiseBroken, // a settled claim that the tab did not cover
    ByProof, // by the prover
    Pooled // more outcomes between the cuts than honest noise gives
}
