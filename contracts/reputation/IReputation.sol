// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice What a deployment decides once. Parts of 1 are counted in 10⁹.
/// @param epochBlocks blocks of an epoch, 8 to 8,000: within what EIP-2935 knows
/// @param keep weight of the score before, α of PlanetServe section 3.4
/// @param take weight of the epoch's credit, β; α + β is at most 1
/// @param abnormal a credit below it is abnormal, τ
/// @param bar a node whose score is below it takes no work
/// @param initial score of a node that nobody has rated
/// @param window credits that are looked back on, W: 1 to 8
/// @param sensitivity 1 / γ, 2 at least: with γ = 1 the share of abnormal credits could never exceed it
/// @param leaveBlocks blocks from a member's leaving to its bond; at least two epochs
/// @param bond wei that a member stands to lose
struct ReputationRules {
    uint32 epochBlocks;
    uint32 keep;
    uint32 take;
    uint32 abnormal;
    uint32 bar;
    uint32 initial;
    uint8 window;
    uint8 sensitivity;
    uint32 leaveBlocks;
    uint96 bond;
}

/// @notice What the members agree on at the end of an epoch.
/// @param seed hash of the last block of the epoch before: after a reorganisation below it no signature counts
/// @param promptRoot root over the commitments of this epoch's prompts, fixed an epoch ago with the nodes
/// @param nodes operators of all nodes that were to be examined, ascending, 256 at most
/// @param credits of each, in 10⁹, or `NOT_SCORED`
/// @param nextList keccak256(keccak256(nodes), promptRoot) of the epoch that follows; zero: nobody is examined then
struct ReputationUpdate {
    uint64 epoch;
    bytes32 seed;
    address leader;
    bytes32 promptRoot;
    address[] nodes;
    uint32[] credits;
    bytes32 nextList;
}

/// @notice One member's word that nodes did not answer its own attempts.
/// @param silent bit i is node i of the epoch's list
/// @param signature over `SilenceReport(uint64 epoch,bytes32 seed,bytes32 list,uint256 silent)`
struct SilenceReport {
    uint256 silent;
    bytes signature;
}

/// @notice What a member signs of an update, hashed: enough to show that it signed two.
struct UpdateEvidence {
    address leader;
    bytes32 promptRoot;
    bytes32 nodes;
    bytes32 credits;
    bytes32 nextList;
    bytes signature;
}

/// @notice A VRF proof of the last leader with its hints (library EcVrf); empty where that leader is silent.
struct LeaderProof {
    bytes proof;
    uint256[] hints;
}

/// @notice How a node stands.
/// @param score in 10⁹
/// @param abnormal bits of the last W credits, the newest lowest: set where it was abnormal
/// @param rated epochs that rated it
/// @param lastEpoch the last of them
/// @param owner who shares the score; zero before it was rated
struct Standing {
    uint32 score;
    uint8 abnormal;
    uint24 rated;
    uint32 lastEpoch;
    address owner;
}

/// @notice A member of the Committee that takes part here.
/// @param owner who bonded it, and gets the bond back; one owner has one member
/// @param first epoch in which it counts
/// @param end first epoch in which it does not count any more
/// @param exitBlock after which the bond may be withdrawn; 0 while it stays
struct Rater {
    address owner;
    uint32 first;
    uint32 end;
    uint32 exitBlock;
    uint256 vrfX;
    uint256 vrfY;
}

/// @title Reputation by challenge (PlanetServe section 3.4): what the Committee's members agree on, and nothing else
/// @notice There is no administrator. More than 2/3 of the Committee's members sign an update for each epoch, and this
///         contract computes the scores. A score says who may be given work; it takes nobody's stake. Signatures are EIP-712
///         in this contract's domain, {"Troth", "1"}.
interface IReputation {
    /// @notice The contract stands, with rules that nobody can change.
    event ReputationDeployed(
        address indexed committee, address indexed registry, ReputationRules rules, uint256 startBlock
    );
    event RaterEnrolled(address indexed operator, address indexed owner, uint256 vrfX, uint256 vrfY, uint32 first);
    event RaterLeft(address indexed operator, uint32 end, uint32 exitBlock);
    event RaterExpelled(address indexed operator, uint64 epoch, uint256 bond, uint256 reward, address reporter);
    event BondReturned(address indexed operator, address owner, uint256 bond);
    /// @param digest keccak256 of the signed update, without the domain
    /// @param drawn whether the leader was drawn by the last leader's VRF; else by the seed alone
    event EpochSettled(
        uint64 indexed epoch, address indexed leader, bytes32 digest, bytes32 nextList, uint256 signers, bool drawn
    );
    /// @notice The node's score after the epoch, and what it follows from.
    event NodeRated(
        address indexed node, address indexed owner, uint64 epoch, uint32 credit, bool silent, uint32 score, uint8 abnormal
    );

    error InvalidRules(uint256 rule);
    error NotAContract(address place);
    error NotInCommittee(address operator);
    error AlreadyEnrolled(address operator);
    error OwnerEnrolled(address owner, address operator);
    error WrongBond(uint256 paid, uint256 bond);
    error InvalidConsent(address operator, address signer);
    error InvalidVrfKey(uint256 vrfX, uint256 vrfY);
    error RosterFull(uint256 raters);
    error NotEnrolled(address operator);
    error NotOwnerOrOperator(address operator, address caller);
    error AlreadyLeaving(address operator, uint256 exitBlock);
    error StillBonded(address operator, uint256 exitBlock, uint256 blockNumber);
    error TransferFailed(address owner, uint256 amount);
    error WrongEpoch(uint64 epoch, uint64 current);
    error AlreadySettled(uint64 epoch);
    error WrongSeed(bytes32 seed, bytes32 known);
    error ListNotFixed(bytes32 list, bytes32 known);
    error InvalidList(uint256 nodes, uint256 credits);
    error NodesOutOfOrder(address previous, address node);
    error WrongLeader(address leader, address drawn);
    error NoLeader(uint64 epoch);
    error LeaderDidNotSign(address leader);
    error TooFewSignatures(uint256 signatures, uint256 needed);
    /// @notice The signature is none, or its signer (of other words, perhaps) is no member that counts in this epoch.
    error NotARater(address signer, uint64 epoch);
    error SignersOutOfOrder(address previous, address signer);
    error NotANode(address operator);
    error InvalidCredit(address node, uint256 credit);
    /// @notice Somebody whose node is rated signed, and without its signature there are too few.
    error JudgesItself(address node, address owner, uint256 others, uint256 needed);
    /// @notice A node with a credit has answered: nobody may call it silent.
    error SilentAndScored(address node, uint256 reports);
    error ReportOutsideList(uint256 silent, uint256 nodes);
    /// @notice Reports are of the last epoch that was settled: `through` is one more.
    error NotTheLast(uint64 epoch, uint64 through);
    error AnotherUpdate(bytes32 digest, bytes32 settled);
    /// @notice No node is left that enough members report and nobody rated in this epoch.
    error NobodySilent(uint64 epoch);
    error SameUpdate(bytes32 digest);
    error WrongSigner(address operator, address signer);

    /// @notice Bonds a member of the Committee; it counts from the next epoch on. Sent by its owner with the bond.
    /// @param consent the operator's signature of `EnrollRater(address owner,address operator,uint256 vrfX,uint256 vrfY)`
    function enroll(address operator, uint256 vrfX, uint256 vrfY, bytes calldata consent) external payable;

    /// @notice Owner or operator; anybody for one who is not in the Committee any more. It counts until the epoch ends.
    function leave(address operator) external;

    /// @notice Anybody, after the exit block: the bond goes to the owner.
    function withdraw(address operator) external;

    /// @notice Settles the current epoch, once: rates nodes and fixes who is examined in the next one.
    /// @param lead the last leader's VRF proof over `alphaOf(epoch, seed)`, which draws this epoch's leader; empty: the
    ///        seed draws
    /// @param reports of members to whom nodes were silent, signers ascending. More than 1/3 of the members make a
    ///        credit of 0 out of `NOT_SCORED`
    /// @param signatures of members over
    ///        `ReputationUpdate(uint64 epoch,bytes32 seed,address leader,bytes32 promptRoot,bytes32 nodesHash,bytes32 creditsHash,bytes32 nextList)`,
    ///        the arrays as keccak256 of their words; signers ascending, the leader among them
    function settle(
        ReputationUpdate calldata update,
        LeaderProof calldata lead,
        SilenceReport[] calldata reports,
        bytes[] calldata signatures
    ) external;

    /// @notice Anybody, in the epoch that an update settled and in the next one until that is settled, too: rates with 0
    ///         whom the update did not score and more than 1/3 of the members report. Whoever settles chooses which
    ///         reports it shows; so the others are brought here.
    /// @param update the one that settled the epoch
    /// @param reports as `settle` takes them; a node that was rated in this epoch stays as it is
    function reportSilence(ReputationUpdate calldata update, SilenceReport[] calldata reports) external;

    /// @notice Anybody: a member that signed two updates for one epoch and seed is expelled and loses its bond, of which
    ///         a tenth goes to the sender and the rest stays here for ever.
    function expel(
        address operator,
        uint64 epoch,
        bytes32 seed,
        UpdateEvidence calldata first,
        UpdateEvidence calldata second
    ) external;

    // ---- reads

    function rules() external view returns (ReputationRules memory);
    function committee() external view returns (address);
    function registry() external view returns (address);
    function startBlock() external view returns (uint256);
    /// @notice The current epoch, from 0.
    function epochNow() external view returns (uint64);
    /// @notice Hash of the last block before an epoch; zero if it is to come or too old.
    function seedOf(uint64 epoch) external view returns (bytes32);
    /// @notice What the last leader proves: keccak256(chain id, this contract, epoch, seed).
    function alphaOf(uint64 epoch, bytes32 seed) external view returns (bytes32);
    /// @notice The member with the least keccak256(randomness, operator) of those that count in an epoch; zero if none.
    function leaderBy(uint64 epoch, bytes32 randomness) external view returns (address);
    /// @notice One more than the last settled epoch (0: none), its leader, and the list that it fixed for the next.
    function settled() external view returns (uint64 through, address leader, bytes32 nextList);
    function standingOf(address node) external view returns (Standing memory);
    /// @notice Whether a node's own score is at the bar or above.
    function isTrusted(address node) external view returns (bool);
    function raterOf(address operator) external view returns (Rater memory);
    /// @notice All that are bonded, those that leave included, in no particular order.
    function raters() external view returns (address[] memory);
    function domainSeparator() external view returns (bytes32);
}
