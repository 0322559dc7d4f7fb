"""The acts: a tab, answers and checks, a cheat, the court, money, audits."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.table import Table

from troth.demo.moments import Moment
from troth.demo.stage import DemoStage, ask, open_client, outcome_of, start_gateway
from troth.protocol.amounts import COIN
from troth.protocol.market import events as on
from troth.protocol.market.proceedings import Outcome
from troth.protocol.market.state import State
from troth.protocol.market.types import PotKind
from troth.protocol.types import to_address
from troth.testnet import cli
from troth.testnet.anvil import gas_used
from troth.testnet.errors import ActFailed, demand
from troth.testnet.gateway import Streamed
from troth.testnet.network import CHECK_PERCENT, FAVOURED_SEATS

MAX_TOKENS = 32
CHEAT_TOKENS = 8
MOST_UNDRAWN = 16
"""Questions until one is drawn: half of them are, so that this many miss it once in sixty-five thousand demos."""
MOST_QUESTIONS = 60
"""The cheat is drawn for every third question or so, and half of the answers are checked: this many miss it once in ten
thousand demos."""
CASE_SECONDS = 300.0
"""A case has windows of twenty blocks of a second each, and closes them early where all have spoken."""
LOGGED_SECONDS = 180.0
ORDERS_OF_AN_ENTRY = 1000
OLD_GAS = (318_000, 745_000)
"""What a task cost when each was paid on chain: exact with one segment, tolerant with two."""
CHEATED_QUESTIONS = (
    "Name a colour.",
    "Name a fruit.",
    "Name a city in Italy.",
    "Name an animal that swims.",
    "Name a metal.",
)
STEPS = {
    on.CaseOpened: Moment.OPENED,
    on.ReviewersDrawn: Moment.REVIEWERS,
    on.ReviewsCommitted: Moment.COMMITTED,
    on.CaseSeeded: Moment.SEEDED,
    on.CaseRestarted: Moment.RESTARTED,
    on.CaseDecided: Moment.DECIDED,
}


def open_tab(stage: DemoStage) -> None:
    """The client's tab, and its gateway on circuits through the relays."""
    network, display = stage.network, stage.display
    opened = open_client(stage, stage.client, network.scheduler)
    display.moment(Moment.TAB.said(tab=f"{opened['tab'][:12]}…", gas=f"{opened['gas']:,}"))
    gateway = start_gateway(stage, stage.client)
    display.moment(Moment.GATEWAY.said(address=gateway.address))


def show_paths(stage: DemoStage) -> None:
    """The circuits over which the last answer came."""
    overlay, gateway = stage.network.overlay, stage.client.gateway
    assert overlay is not None
    assert gateway is not None
    paths = gateway.paths()
    demand(bool(paths), "the answer came over circuits of relays", paths)
    stage.display.moment(Moment.PATHS.said())
    for path in paths:
        relays = [overlay.relay_at(*address.rsplit(":", 1)).name for address in path]
        stage.display.moment(Moment.PATH.said(relays=" → ".join(relays)))


def ask_checked(stage: DemoStage, question: str, expected: str) -> None:
    """Answers without a block's wait, until a draw hits one; its check agrees within seconds."""
    display = stage.display
    display.remember(Moment.QUESTION.said(question=question))
    for number in range(1, MOST_UNDRAWN + 1):
        asked = ask(stage, stage.client, question, MAX_TOKENS)
        demand(expected.lower() in asked.text.lower(), f"the answer names {expected}", asked.text)
        if number == 1:
            display.remember(Moment.ANSWER.said(answer=" ".join(asked.text.split())))
            show_paths(stage)
        receipt, seconds = outcome_of(stage, stage.client, asked.streamed)
        cost, outcome = COIN.show(int(receipt["cost_units"])), receipt["outcome"]
        tell = display.moment if number == 1 else display.step
        tell(Moment.SPEED.said(first=f"{asked.first:.2f}", whole=f"{asked.whole:.2f}", cost=cost, outcome=outcome))
        demand(outcome in {"checked", "undrawn"}, "an honest answer is checked or undrawn", receipt)
        if outcome == "checked":
            display.good(Moment.CHECKED.said(number=number, seconds=f"{seconds:.1f}"))
            return
        display.step("the draw did not hit this answer: the question is asked again until it hits one")
    raise ActFailed("No draw hit an answer", f"{MOST_UNDRAWN} questions", "Run it again: this is rare.")


def ask_with_openai(stage: DemoStage, question: str) -> None:
    """The same gateway for a program that knows nothing of Troth, and one option that it may set."""
    try:
        from openai import OpenAI
    except ImportError:
        stage.display.step("the openai package is not installed here: that program is left out")
        return
    gateway = stage.client.gateway
    assert gateway is not None
    begun = time.monotonic()
    with OpenAI(base_url=f"{gateway.address}/v1", api_key=gateway.key) as program:
        model = program.models.list().data[0].id
        made = program.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_tokens=MAX_TOKENS,
            temperature=0,
            extra_body={"troth": {"check": "always"}},
        )
    answer, usage = made.choices[0].message.content or "", made.usage
    demand(bool(answer) and usage is not None, "the openai package gets an answer", made.model_dump())
    assert usage is not None
    # A check that is under way would lack the node that the next act stops.
    outcome_of(stage, stage.client, Streamed(made.id, answer, "", ""))
    tokens = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
    stage.display.step(f"openai.chat.completions.create(check: always): {answer!r}")
    stage.display.step(f"{tokens}, {time.monotonic() - begun:.1f} s")


def cheat_until_caught(stage: DemoStage, weights: Path) -> str:
    """Nothing random is fixed: ask until the cheat is drawn to serve and its answer is drawn to be checked.

    Returns the order that was rejected.
    """
    network, liar = stage.network, stage.network.favoured
    network.start_cheating(liar, weights)
    stage.display.moment(Moment.CHEATING.said(percent=CHECK_PERCENT))
    operator = network.nodes[liar].operator.lower()
    seen: Counter[str] = Counter()
    for number in range(1, MOST_QUESTIONS + 1):
        question = CHEATED_QUESTIONS[number % len(CHEATED_QUESTIONS)]
        asked = ask(stage, stage.client, question, CHEAT_TOKENS, quiet=True)
        receipt, seconds = outcome_of(stage, stage.client, asked.streamed)
        outcome, cheated = str(receipt["outcome"]), operator in " ".join(receipt["tasks"][-1]["nodes"]).lower()
        who = stage.name_of(receipt["tasks"][-1]["nodes"][0])
        told = {"number": number, "question": question, "answer": repr(asked.text.strip()), "node": who}
        tell = stage.display.moment if outcome == "rejected" else stage.display.step
        tell(Moment.CAUGHT.said(**told, outcome=outcome))
        seen.update(asked=1, cheated=int(cheated), drawn=int(outcome != "undrawn"))
        if outcome == "rejected":
            demand(cheated, "only the cheat is rejected", who)
            stage.display.good(Moment.REJECTED.said(seconds=f"{seconds:.1f}", **seen))
            return str(receipt["tasks"][-1]["order"])
        demand(outcome in {"checked", "undrawn"}, "nobody honest is rejected", receipt)
        demand(not (cheated and outcome == "checked"), "no int8 answer passes a check", receipt)
    raise ActFailed("No draw hit the cheat", f"{MOST_QUESTIONS} questions", "Run it again: this is rare.")


async def court(stage: DemoStage) -> None:
    """Follow the case from its opening to its outcome, by the events of the chain."""
    network, display = stage.network, stage.display
    operator = to_address(network.nodes[network.favoured].operator)
    async with stage.following() as (_, follower):
        told = 0

        def over(state: State) -> bool:
            nonlocal told
            record = next(iter(state.cases.values()), None)
            events = () if record is None else record.events
            for event in events[told:]:
                if type(event) in STEPS:
                    display.moment(STEPS[type(event)].said(block=event.meta.block))
                if isinstance(event, on.CaseOpened):
                    display.moment(Moment.OPENER.said(node=stage.name_of(event.state.opener)))
            told = len(events)
            return record is not None and not record.live

        state = await follower.wait_until(over, CASE_SECONDS)
    opened = [f"{type(one).__name__} {one}" for record in state.cases.values() for one in record.events[:1]]
    demand(len(opened) == 1, "there is one case", opened)
    (record,) = state.cases.values()
    require_convicted(record.outcome)
    left = state.pot(PotKind.STAKE, operator) + state.pot(PotKind.LOCKED, operator)
    before = int(network.execution["class"]["seat_units"]) * FAVOURED_SEATS
    taken = before - left
    demand(taken >= int(network.execution["class"]["penalty_units"]), "the penalty is taken", taken)
    lost = {"taken": COIN.show(taken), "node": network.favoured, "stake": COIN.show(before)}
    display.good(Moment.CONVICTED.said(**lost))


def require_convicted(outcome: Outcome | None) -> None:
    """Raise ActFailed unless the court convicts: where nodes were too slow for windows of seconds, nobody did wrong."""
    if outcome is Outcome.UNDECIDED:
        what = "The court came to no decision: twice, too few nodes computed the answer again in time"
        remedy = "This machine is slow, or has much else to do, and the demo's windows are seconds: run it again later."
        raise ActFailed(what, outcome.name.lower(), remedy)
    found = "none" if outcome is None else outcome.name.lower().replace("_", " ")
    demand(outcome is Outcome.CONVICTED, "the court convicts the cheat", found)


def refunded(stage: DemoStage, order: str) -> None:
    """What the client's receipt says once the court has spoken."""
    receipt = stage.troth("client", "receipts", order, "--home", stage.client.home)
    demand(receipt["refund_units"] is not None and receipt["case"] == "convicted", "the client is refunded", receipt)
    fee = COIN.show(int(receipt["refund_units"]))
    stage.display.good(Moment.REFUND.said(fee=fee))


def redeem(stage: DemoStage) -> None:
    """The scheduler's and the nodes' work becomes money: one voucher for any number of answers."""
    network = stage.network
    paid = 0
    for node in (one for name, one in network.nodes.items() if name != network.favoured):
        tabs = stage.troth("node", "tabs", "--home", node.home)["tabs"]
        payable = sum(int(one["payable_units"]) for one in tabs)
        if payable == 0:
            continue
        done = stage.troth("node", "redeem", "--home", node.home, "--broadcast")
        demand(int(done["amount_units"]) == payable, "a voucher pays what the node's book says", done)
        redeemed = {"amount": COIN.show(int(done["amount_units"])), "gas": f"{done['gas']:,}"}
        stage.display.moment(Moment.REDEEMED.said(node=node.name, **redeemed))
        paid += 1
        if paid == 2:
            return
    demand(paid > 0, "a node was paid", "every tab is empty")


async def logged(stage: DemoStage) -> None:
    """Wait until the scheduler has posted what it served."""
    scheduler = to_address(stage.network.scheduler.operator)
    async with stage.following() as (_, follower):
        state = await follower.wait_until(lambda state: bool(state.logs.get(scheduler)), LOGGED_SECONDS)
    (entry, *_) = state.logs[scheduler]
    counts = entry.counts
    posted = {"orders": counts.orders, "drawn": counts.drawn, "rejected": counts.rejected}
    stage.display.moment(Moment.LOGGED.said(block=entry.meta.block, entry=entry.number, **posted))


async def gas(stage: DemoStage) -> None:
    """What the transactions of a running network cost, beside a task that is paid on chain."""
    kinds = {on.TabRedeemed: "a voucher redeemed", on.EntryLogged: "an entry of the log"}
    answers = {on.TabRedeemed: "any number", on.EntryLogged: f"up to {ORDERS_OF_AN_ENTRY:,}"}
    async with stage.following() as (market, follower):
        events = await market.events(market.place.block, follower.block)
    found: dict[type[Any], set[str]] = {kind: set() for kind in kinds}
    for event in events:
        if type(event) in found:
            found[type(event)].add("0x" + event.meta.transaction.hex())
    table = Table("transaction", "gas", "pays for answers", title="gas", title_justify="left")
    table.columns[1].justify = "right"
    every = 0
    for kind, transactions in found.items():
        spent = [gas_used(stage.network.rpc, one) for one in transactions]
        every += sum(spent)
        table.add_row(kinds[kind], f"{sum(spent) // max(len(spent), 1):,}", answers[kind])
    asked = len(set(stage.orders))
    table.add_row("an answer by itself", "0", "1")
    table.add_row(f"all of these over the {asked} answers here", f"{every // asked:,} each", str(asked))
    table.add_row("the same, were it an entry of a thousand", f"{every // ORDERS_OF_AN_ENTRY:,} each", "1,000")
    table.add_row("[bold]a task that is paid on chain (before)", f"[bold]{OLD_GAS[0]:,} to {OLD_GAS[1]:,}", "1")
    stage.display.console.print(table)


def audit(stage: DemoStage) -> None:
    """A receipt as a file, then the scheduler's log, then all events of the deployment."""
    network, home = stage.network, stage.client.home
    listed = stage.troth("client", "receipts", "--home", home)
    checked = next(one for one in listed if one["checked"])
    file = network.home / "receipt.json"
    stage.troth("client", "receipts", checked["order"], "--prove", file, "--home", home)
    place = ("--rpc", network.rpc, "--factory", network.factory)
    for what in (("receipt", file), ("log", network.scheduler.operator)):
        code, _ = _audited(stage, *what, *place)
        demand(code == 0, f"`troth audit {what[0]}` exits 0", code)
        stage.display.good(Moment.AUDITED.said(what=what[0]))
    display = stage.display
    display.step("the last audit must find the scheduler that refused a check, and so must exit 1")
    display.step("the command that it prints works while its network runs: `troth demo network` keeps one")
    code, report = _audited(stage, "market", *place)
    refuser = network.refuser.operator
    demand(code == 1 and refuser.lower() in report.lower(), "`troth audit market` exits 1 and names who refused", code)
    display.good(Moment.NAMED.said(scheduler=refuser))


def _audited(stage: DemoStage, *arguments: object) -> tuple[int, str]:
    """Exit code and report, which is printed."""
    done = cli.output_of(cli.command("audit", *arguments), stage.network.password_file)
    if done.returncode not in {0, 1}:
        what = f"exit code {done.returncode}"
        raise ActFailed("The audit did not complete", what, f"It said:\n{done.stdout}{done.stderr}")
    stage.display.console.print(done.stdout.rstrip(), markup=False, soft_wrap=True)
    return done.returncode, done.stdout
