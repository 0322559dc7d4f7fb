"""Every adversary that is played, what it does, what must catch it, and who may lose money by it.

Those that other tests play are in `references`.
"""

from __future__ import annotations

from dataclasses import dataclass

from adversaries.notes import INFERENCER, SCHEDULER, verifier

STATES, TOKENS = "verdict: states", "verdict: tokens"
OPENINGS, MAJORITY = "client: openings", "majority of verifiers"
CLIENT, NODE, COURT, SUMMONS = "client refuses", "node refuses", "the court", "a summons"
SCHEDULERS, CONTRACT = "scheduler refuses", "the contract"
NOT_CAUGHT, NOTHING = "not caught (stated)", "nothing to gain"
CONVICTED, CHECKED, FAILED = "convicted", "checked", "failed"
SCHEDULER_CONVICTED, UNPAID = "scheduler convicted", "unchecked, not paid"
REFUSED, STRUCK, CLAIMED = "refused", "struck", "claimed and paid"
A_CLAIM, OBJECTION = "a claim", "an objection"
AUDITOR, FOUND = "the auditor", "found"
NEW_CLIENT = "new client"
"""One that a row makes for itself, since its tab does not outlast the row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One adversary.

    Args:
        kind: the network that it is played on: "weights" (SmolLM2), "toy" (two segments), or "claims" (the same, where
            everybody collects small sums and windows are short).
        caught_by: what catches it; for STATES and TOKENS every honest verifier's own check must say so.
        outcome: how the order, its case or its summons must end.
        cheats: part to cheat, as the notes take them.
        losers: parts that lose money by it; nobody else may lose a wei beyond what an answer costs.
        says: what the client is told, in part.
        client: who asks: "client", "suer", which brings cases by itself, or "new client", whose tab the row spoils.
        script: a course of its own in `scripts`.
        reduced: also played by `make test`.
    """

    name: str
    does: str
    caught_by: str
    outcome: str
    cheats: tuple[tuple[str, str], ...] = ()
    losers: tuple[str, ...] = ()
    kind: str = "toy"
    tokens: int = 8
    temperature: float = 0.0
    check: str = "always"
    client: str = "client"
    says: str = ""
    script: str = ""
    reduced: bool = False


def _node(name: str, does: str, caught_by: str, cheat: str, **rest: object) -> Row:
    cheats, losers = ((INFERENCER, cheat),), (INFERENCER,)
    fields = {"outcome": CONVICTED, "losers": losers, "kind": "weights"} | rest
    return Row(name, does, caught_by, cheats=cheats, **fields)  # type: ignore[arg-type]


def _checker(name: str, does: str, caught_by: str, *cheats: str, inferencer: str = "", **rest: object) -> Row:
    named = [(verifier(number), cheat) for number, cheat in enumerate(cheats)]
    named += [(INFERENCER, inferencer)] if inferencer else []
    fields = {"outcome": CHECKED, "kind": "weights"} | rest
    return Row(name, does, caught_by, cheats=tuple(named), **fields)  # type: ignore[arg-type]


def _scheduler(name: str, does: str, caught_by: str, cheat: str, **rest: object) -> Row:
    fields = {"outcome": SCHEDULER_CONVICTED, "losers": (SCHEDULER,)} | rest
    return Row(name, does, caught_by, cheats=((SCHEDULER, cheat),), **fields)  # type: ignore[arg-type]


def _script(name: str, does: str, caught_by: str, script: str, outcome: str, **rest: object) -> Row:
    return Row(name, does, caught_by, outcome, script=script, **rest)  # type: ignore[arg-type]


def _contract(name: str, does: str, script: str, says: str, **rest: object) -> Row:
    return _script(name, does, CONTRACT, script, REFUSED, says=says, **rest)


def _order(name: str, does: str, script: str, says: str = "", **rest: object) -> Row:
    return _script(name, does, SCHEDULERS, script, REFUSED, says=says, **rest)


def _words(name: str, does: str, script: str, loser: str = SCHEDULER, **rest: object) -> Row:
    outcome = SCHEDULER_CONVICTED if loser == SCHEDULER else CONVICTED
    return _script(name, does, CONTRACT, script, outcome, losers=(loser,), **rest)


def _claimed(name: str, does: str, script: str, says: str, **rest: object) -> Row:
    return _contract(name, does, script, says, kind="claims", **rest)


def _audited(name: str, does: str, script: str, says: str = "", **rest: object) -> Row:
    return _script(name, does, AUDITOR, script, FOUND, says=says, **rest)


def _claims(name: str, does: str, caught_by: str, script: str, outcome: str, **rest: object) -> Row:
    return _script(name, does, caught_by, script, outcome, kind="claims", **rest)


INFERENCERS = (
    _node("int8 weights", "weights through int8, a scale per channel", STATES, "int8", reduced=True),
    _node("W8A8", "int8 weights and int8 inputs of every matrix", STATES, "W8A8"),
    _node("fp8 weights", "weights through float8 (e4m3)", STATES, "fp8"),
    _node("int4 weights", "weights through int4", STATES, "int4"),
    _node("fp8 KV cache", "keys and values kept as float8", STATES, "fp8 cache"),
    _node("one layer skipped", "layer 15 of 30 left out", STATES, "a layer skipped"),
    _node("early exit", "the last three layers left out", STATES, "early exit"),
    _node("0.3 % weight change", "every weight off by 0.3 % of itself", STATES, "0.3 %"),
    _node("0.1 % weight change", "every weight off by 0.1 % of itself", STATES, "0.1 %"),
    _node("stale states", "the attention cache of another request", STATES, "stale cache"),
    _node("altered system prompt", "three tokens of the system prompt replaced", STATES, "altered prompt"),
    _node("injected prompt", "eight tokens put before the prompt", STATES, "injected prompt"),
    _node("noise of 1 %", "correct states, each element off by 1 %", STATES, "noise 1 %"),
    _node(
        "noise of 0.0005 %", "correct states, each element off by 0.0005 %", NOT_CAUGHT, "noise 0.0005 %",
        outcome=CHECKED, losers=(),
    ),
    _node("forged text", "half the layers write the text, one honest prefill", TOKENS, "forged", tokens=16),
    _node("fake end", "an end token as the fourth token", TOKENS, "fake end", reduced=True),
    _node("greedy", "the likeliest token, ordered at temperature 1", TOKENS, "greedy", tokens=16, temperature=1),
    _node("wrong seed", "noise of its own, ordered at temperature 1", TOKENS, "wrong seed", tokens=16, temperature=1),
    _node("other temperature", "samples at 2, ordered at 1", TOKENS, "temperature x 2", tokens=16, temperature=1),
    _node(
        "a little other temperature", "samples at 1, ordered at 0.7", TOKENS, "temperature x 1.43",
        tokens=64, temperature=0.7,
    ),
)  # fmt: skip

VERIFIERS = (
    _checker("lazy, random root", "commits to random rows and says yes", OPENINGS, "random rows, yes", reduced=True),
    _checker("copied opening", "opens what another one opened", OPENINGS, "shows its opening", "copies an opening"),
    _checker("never opens", "commits, says yes, opens nothing", OPENINGS, "opens nothing"),
    _checker("always no", "rejects what it found right", MAJORITY, "always no"),
    _checker(
        "always yes", "accepts int8 weights", STATES, "always yes", inferencer="int8",
        outcome=CONVICTED, losers=(INFERENCER,),
    ),
    _checker(
        "1 of 3 colludes", "runs the node's int8 weights and accepts", STATES, "int8", inferencer="int8",
        outcome=CONVICTED, losers=(INFERENCER,),
    ),
    _checker(
        "2 of 3 collude", "both run the node's int8 weights and accept", COURT, "int8", "int8", inferencer="int8",
        outcome=CONVICTED, losers=(INFERENCER,), client="suer", check="court",
    ),
    _checker(
        "3 of 3 collude, nobody doubts", "all run the node's int8 weights and accept", NOT_CAUGHT,
        "int8", "int8", "int8", inferencer="int8",
    ),
    _checker(
        "3 of 3 collude", "the same, and the client wants the chain's word", COURT, "int8", "int8", "int8",
        inferencer="int8", outcome=CONVICTED, client="suer", check="court",
        losers=(INFERENCER,),
    ),
    _checker(
        "nobody brings it", "all verifiers reject, and let the rejection lie", COURT,
        "does not bring it", "does not bring it", "does not bring it", inferencer="cheap model",
        outcome=CONVICTED, losers=(INFERENCER,), client="suer", kind="toy", reduced=True,
    ),
)  # fmt: skip

NODES = (
    _node(
        "signs and shows other rows", "its result commits to another trace than its rows", COURT, "other trace",
        outcome="node missing", client="suer", check="court",
    ),
    _node(
        "withholds its result", "answers, and signs nothing", NOTHING, "withheld result", kind="toy", outcome=FAILED,
        losers=(),
    ),
    _node(
        "signs two results", "another trace commitment for whoever wants it", CONTRACT, "two results",
        kind="toy", outcome=CONVICTED, script="two_results", reduced=True,
    ),
)  # fmt: skip

SCHEDULERS_ROWS = (
    _scheduler("wrong VRF key", "proves its draw with another key", CLIENT, "wrong VRF key",
               outcome="refused", losers=(), says="proof of who infers"),
    _scheduler("skipped parties", "names a node that was not drawn", CONTRACT, "wrong assignment",
               says="not drawn", script="wrong_nodes", reduced=True),
    _scheduler("friends check", "lets other verifiers check than were drawn", CLIENT, "friends check",
               outcome="refused", says="other verifiers", reduced=True),
    _scheduler("altered rows", "shows verifiers a flipped bit", SUMMONS, "altered rows", outcome=UNPAID,
               reduced=True),
    _scheduler("dropped rows", "leaves a row out for verifiers", SUMMONS, "dropped rows", outcome=UNPAID),
    _scheduler("reordered rows", "swaps two rows for verifiers", SUMMONS, "reordered rows", outcome=UNPAID),
    _scheduler("replayed rows", "shows verifiers another order's rows", SUMMONS, "replayed rows", outcome=UNPAID),
    _scheduler("other inputs for verifiers", "gives verifiers another text", SUMMONS, "other text", outcome=UNPAID),
    _scheduler("rows withheld", "never shows verifiers what to judge", SUMMONS, "withheld target", outcome=UNPAID),
    _scheduler("verifiers never asked", "asks no verifier to commit", SUMMONS, "shows nothing to verifiers",
               outcome=UNPAID),
    _scheduler("results withheld", "keeps the results of an answer back", SUMMONS, "withholds results"),
    _scheduler("refuses the check", "answers neither secret nor summons", SUMMONS, "refuses the check", reduced=True),
    _scheduler("checks late", "answers the summons alone", SUMMONS, "checks late", outcome=CHECKED, losers=()),
)  # fmt: skip

CLIENTS = (
    _script("secret never shown", "keeps its first secret", NOTHING, "never_shown", "undrawn", reduced=True),
    _script("secret shown first", "shows its secret before there are results", SCHEDULERS, "shown_first", "refused"),
    _script("one tab, two schedulers", "orders on a tab with another payee", SCHEDULERS, "other_payee", "refused"),
    _script("voucher backwards", "says that less was spent", SCHEDULERS, "backwards", "refused", reduced=True),
    _script("open again", "opens a number that it acknowledged", NOTHING, "unacknowledged_again", "changes nothing"),
    _script("another deployment's voucher", "signs in another Bank's domain", SCHEDULERS, "another_bank", "refused"),
)

ORDERS = (
    _order("a number twice", "orders under a number that was paid", "same_number", "does not authorise"),
    _order("too cheap", "signs less than the list's price", "too_cheap", "The price list asks"),
    _order("checked too seldom", "signs a smaller q than the class's", "too_few_checks", "check rate"),
    _order("an order too late", "sends an order whose deadline is over", "expired", "deadline"),
    _order("members of long ago", "orders from a group as it was long ago", "long_ago", "reference block"),
    _order("members to come", "orders from a group of a block to come", "to_come", "reference block"),
    _order("another class", "orders by rules of its own choice", "another_class", "does not serve"),
    _order("a stranger's order", "orders on a tab without its key", "strangers_order", "sign"),
    _order("another request", "sends another request than it signed", "another_request", "another request"),
    _order("nothing authorised", "authorises less than its order may cost", "not_authorised",
           "more than the voucher authorises"),
    _order("pays what it did not order", "acknowledges numbers to come", "beyond_its_orders", "acknowledges later"),
    _order("pays half", "acknowledges an answer with half its fee", "pays_too_little", "pays less"),
    _order("another secret", "shows a secret that it did not commit to", "another_secret", "not the first secret"),
    _order("reads another's answer", "asks for a stranger's order by its number", "reads_anothers", "No such order"),
    _script("an order twice", "sends one order again and again", NOTHING, "sent_twice", "served once, paid once",
            says="taken before"),
    _script("a word twice", "delivers a word again", NOTHING, "same_word_again", "changes nothing"),
    _script("one secret for all", "uses its secrets again", NOTHING, "secret_again", CHECKED),
    _script("asks ten times as much", "nodes change their asks while they serve", NOTHING, "price_changes",
            "paid as ordered"),
    _script("summons what came", "summons a check that was done", NOTHING, "summons_what_came", "answered"),
    _contract("summons twice", "summons one check again", "summons_twice", "AlreadySummoned"),
    _contract("summons without a deposit", "puts up one wei", "summons_for_nothing", "WrongDeposit"),
    _contract("summons late", "keeps its checks for one day", "summons_late", "TooLate"),
    _contract("summons over an invented draw", "summons over another word", "summons_invented", "WrongSigner"),
    _contract("summons by another secret", "summons what its secret missed", "summons_another_secret", "Mismatch"),
)  # fmt: skip

WORDS = (
    _words("admits twice", "signs another admission of an order", "two_admissions"),
    _words("draws twice", "signs another draw over an order", "two_draws"),
    _words("a chosen lottery", "draws with an output of its own", "chosen_output"),
    _words("results that do not meet", "gives its second node other rows", "heads_apart"),
    _words("signs two rows", "signs another row of a trace", "two_rows", INFERENCER),
    _words("two verdicts", "says yes, and no elsewhere", "two_verdicts", verifier(0)),
    _words("another trace than committed to", "commits to nothing, judges by what it was shown", "another_trace",
           verifier(0)),
    _words("convicts itself", "shows both of its results itself", "convicts_itself", INFERENCER,
           cheats=((INFERENCER, "two results"),)),
    _contract("frames a node", "forges a second result", "frames_a_node", "DifferentSigners"),
    _contract("one word as two", "shows one result twice", "one_word_twice", "SameMessage"),
    _contract("convicts twice", "shows both results again", "convicts_twice", "AlreadyProven",
              cheats=((INFERENCER, "two results"),), losers=(INFERENCER,)),
)  # fmt: skip

TABS = (
    _claimed("redeems twice", "redeems a word that was redeemed", "redeems_twice", "NothingToRedeem"),
    _claimed("redeems an older word", "redeems it after a newer one", "redeems_older", "NothingToRedeem"),
    _claimed("redeems an altered word", "adds to what was spent", "redeems_altered", "InvalidVoucher"),
    _claimed("redeems another Bank's word", "signed for another deployment", "redeems_another_banks",
              "InvalidVoucher"),
    _claimed("redeems another chain's word", "signed for a fork", "redeems_another_chains", "InvalidVoucher"),
    _claimed("redeems another tab's word", "shows it for a tab that holds more", "redeems_anothers",
              "ForeignVoucher"),
    _claimed("spends what is not authorised", "signs more spent than authorised", "spends_above",
              "SpentAboveAuthorised"),
    _claimed("a stranger's word", "redeems a word of its own", "strangers_voucher", "InvalidVoucher"),
    _order("authorises ten tabs' worth", "orders on more than the tab holds", "authorises_too_much", "costs 1 to",
           kind="claims"),
    _order("orders on a closing tab", "closes its tab, then sends an order", "orders_while_closing", "is closing",
           kind="claims", client=NEW_CLIENT),
    _claimed("takes its deposit back at once", "closes and finishes in one go", "takes_back_at_once",
              "TabStillClosing", client=NEW_CLIENT),
    _claimed("a tab opened again", "redeems words of the tab's last life", "opens_again", "NothingToRedeem",
              client=NEW_CLIENT),
    _claimed("opens in another's name", "opens a tab by a consent that it saw", "in_anothers_name",
              "InvalidTabConsent"),
    _claimed("a stolen tab key closes", "closes the tab", "thief_closes", "NotPayer"),
    _script("a stolen tab key spends", "pays a friend all that is in the tab", NOT_CAUGHT, "thief_spends",
            "bounded by its tab", kind="claims", client=NEW_CLIENT, losers=(NEW_CLIENT,)),
    _script("a month-old backup", "goes on with a wallet of long ago", NOTHING, "old_backup", "goes on, paid once",
            kind="claims", client=NEW_CLIENT),
    _script("one wallet on two machines", "orders with both in turn", NOTHING, "two_machines", "goes on, paid once",
            kind="claims", client=NEW_CLIENT),
)  # fmt: skip

CLAIMS = (
    _claims("a payer that vanishes", "reads its answer, and is gone", A_CLAIM, "vanishes", CLAIMED,
            client=NEW_CLIENT, losers=(NEW_CLIENT,)),
    _claims("a tab closed under its work", "closes, and pays nothing", A_CLAIM, "closes_under_work", CLAIMED,
            client=NEW_CLIENT, losers=(NEW_CLIENT,)),
    _claims("claims what was never sent", "claims a number without an order", OBJECTION, "never_sent", STRUCK),
    _claims("claims more than it is worth", "claims twice an answer's fee", OBJECTION, "more_than_worth", STRUCK),
    _claims("one answer under two numbers", "claims one leaf twice", OBJECTION, "under_two_numbers", STRUCK),
    _claims("money under a number left out", "hides a sum in the tree", OBJECTION, "under_a_number_left_out",
            STRUCK),
    _claims("money beyond the last number", "hides a sum in the padding", OBJECTION, "beyond_the_last_number",
            STRUCK),
    _claims("claims what failed", "claims an order without results", OBJECTION, "what_failed", STRUCK,
            cheats=((INFERENCER, "withheld result"),), losers=(SCHEDULER,)),
    _claimed("claims what was paid", "by the word that pays it", "claims_what_was_paid", "InvalidClaim"),
    _claimed("claims by an old word", "after a newer one was redeemed", "claims_by_an_old_word", "NothingToRedeem"),
    _claims("by voucher and by claim", "is paid one answer in both ways", NOTHING, "by_voucher_and_claim",
            "paid once"),
    _claimed("two claims at once", "claims while a claim runs", "two_claims", "ClaimUnderWay"),
    _claimed("a stranger claims", "claims somebody else's work", "strangers_claim", "NotPayee"),
    _claimed("settles another sum", "settles for more than was claimed", "settles_more", "ClaimMismatch"),
    _claimed("settles early", "before the payer had its time", "settles_early", "ClaimNotDue"),
    _claims("objects to a true claim", "asks to see what it owes", A_CLAIM, "objects_to_true", CLAIMED,
            client=NEW_CLIENT, losers=(NEW_CLIENT,)),
    _claimed("objects late", "when there is no time for an answer", "objects_late", "TooLateToObject"),
    _claimed("a payee objects to itself", "for the deposit that pays answers", "payee_objects", "NotPayer"),
    _claimed("strikes early", "before the answer's time is over", "strikes_early", "AnswerStillPossible",
             client=NEW_CLIENT, losers=(NEW_CLIENT,)),
    _claims("a node claims what it did not do", "signs no result, claims the promise", OBJECTION,
            "node_claims_unserved", STRUCK, cheats=((INFERENCER, "withheld result"),)),
)  # fmt: skip

PARTIES = (
    _claimed("makes a rival leave", "deregisters somebody else's node", "deregisters_another",
             "NotOwnerOrOperator"),
    _claimed("evicts an honest node", "calls for its eviction", "evicts_honest", "NothingToEvict"),
    _claimed("redirects a payout", "with a stolen operator key", "redirects_payout", "NotOwner"),
    _claimed("registers with a seen consent", "as the owner of somebody else's node", "seen_consent",
             "InvalidConsent"),
    _claimed("moves money by hand", "from a stake to itself", "moves_by_hand", "NotAuthorised"),
    _claimed("writes another's log", "posts without being a scheduler", "anothers_log", "NotScheduler"),
    _claimed("withdraws stake at work", "without having left", "frees_stake", "NotExiting"),
    _claims("leaves before its conviction", "deregisters once it has cheated", CONTRACT, "leaves_first", CONVICTED,
            cheats=((INFERENCER, "two results"),), losers=(INFERENCER,), says="StillUnbonding"),
    _claims("pays its nodes nothing", "acknowledges no work", A_CLAIM, "never_pays_nodes", CLAIMED,
            cheats=((SCHEDULER, "pays no node"),)),
)  # fmt: skip

RECEIPTS = (
    _audited("a receipt of another answer", "changes what the node answered", "another_answer", "does not hold"),
    _audited("a receipt with another check", "shows the check of another answer", "another_check", "does not hold"),
    _audited("a receipt without its draw", "shows another secret, and no check", "without_its_draw", "does not hold"),
    _audited("a receipt of another price", "changes the order's price", "another_price", "does not hold"),
    _audited("a receipt of another deployment", "names another Bank", "of_another_deployment", "does not hold"),
)

LOGS = (
    _audited("leaves it out of its log", "promises a leaf, and posts none", "leaves_out", "M17",
             cheats=((SCHEDULER, "leaves it out of its log"),), kind="claims"),
    _audited("serves another log", "serves other data than it posted", "serves_another", "M13",
             cheats=((SCHEDULER, "serves another log"),), kind="claims"),
)  # fmt: skip

# A node that was paid less than it thinks it is owed works for that scheduler no more, so that these rows are the last
# of their networks.
STRIKES = (
    _checker("lazy, copied root", "says yes over the rows that it was shown", SCHEDULERS,
             "random rows, then the copied ones"),
    _scheduler("pays a node less", "acknowledges half of what it promised", NODE, "pays a node less",
               outcome="claimable", losers=(), script="pays_less", reduced=True),
)  # fmt: skip

PLAYED = (
    *INFERENCERS,
    *VERIFIERS,
    *NODES,
    *SCHEDULERS_ROWS,
    *CLIENTS,
    *ORDERS,
    *WORDS,
    *TABS,
    *CLAIMS,
    *PARTIES,
    *RECEIPTS,
    *LOGS,
    *STRIKES,
)
