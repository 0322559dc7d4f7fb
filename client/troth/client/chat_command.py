"""`troth client chat` and `ask`: options, and which way of paying answers."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from troth.client.options import (
    DEFAULT_HOME,
    CheckOption,
    ClassOption,
    CommitteeOption,
    ContractOption,
    DirectOption,
    HomeOption,
    JsonOption,
    MaxCostOption,
    MaxPriceOption,
    OverlayOption,
    PasswordOption,
    RpcOption,
    SchedulerOption,
    millionths,
    read_configuration,
)

if TYPE_CHECKING:
    from troth.client.choices import Choices
    from troth.client.configuration import Configuration
    from troth.client.home import Home

QuestionArgument = Annotated[
    str | None, typer.Argument(help="The question; - reads it from standard input; none: a conversation.")
]
SystemOption = Annotated[str, typer.Option("--system", envvar="TROTH_SYSTEM", help="System message.")]
MaxTokensOption = Annotated[
    int, typer.Option("--max-tokens", envvar="TROTH_MAX_TOKENS", min=1, max=65_536, help="Longest answer.")
]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", envvar="TROTH_TEMPERATURE", min=0.0, max=2.0, help="0 is greedy.")
]
TopPOption = Annotated[
    float,
    typer.Option(
        "--top-p",
        envvar="TROTH_TOP_P",
        min=0.000001,
        max=1.0,
        help="Choose among the likeliest tokens that make up this share.",
    ),
]


def chat(  # noqa: PLR0917
    context: typer.Context,
    question: QuestionArgument = None,
    system: SystemOption = "",
    max_tokens: MaxTokensOption = 256,
    temperature: TemperatureOption = 0.0,
    top_p: TopPOption = 1.0,
    max_cost: MaxCostOption = "",
    max_price: MaxPriceOption = "",
    check: CheckOption = "",
    scheduler: SchedulerOption = "",
    execution_class: ClassOption = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    contract: ContractOption = "",
    committee: CommitteeOption = "",
    overlay: OverlayOption = "",
    direct: DirectOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Ask one question, or hold a conversation; the answer streams, the verdict follows."""
    import asyncio

    from troth.client.choices import Choices
    from troth.client.home import Home
    from troth.client.prompt import read_question

    if question is None and context.info_name == "ask":
        raise typer.BadParameter("name the question; - reads it from standard input", param_hint="QUESTION")
    first = read_question(question or "") if question is not None or as_json else ""
    place = Home(home.expanduser())
    configuration = read_configuration(
        place, rpc, contract, scheduler, execution_class, committee=committee, overlay=overlay, direct=direct
    )
    choices, talk = Choices(max_tokens, millionths(temperature, 0), millionths(top_p, 1)), (system, first)
    if configuration.market is not None:
        limits = (max_cost, max_price)
        asyncio.run(_on_tabs(place, configuration, password_file, choices, limits, check, talk, as_json))
    else:
        asyncio.run(_per_task(place, configuration, password_file, choices, max_cost, talk, as_json))


def _on_tabs(  # noqa: PLR0917
    home: Home,
    configuration: Configuration,
    password_file: Path | None,
    choices: Choices,
    limits: tuple[str, str],
    check: str,
    talk: tuple[str, str],
    as_json: bool,
) -> Coroutine[Any, Any, None]:
    from troth.client.orders import terminal

    return terminal.chat(home, configuration, password_file, choices, limits, check, *talk, as_json=as_json)


def _per_task(  # noqa: PLR0917
    home: Home,
    configuration: Configuration,
    password_file: Path | None,
    choices: Choices,
    max_cost: str,
    talk: tuple[str, str],
    as_json: bool,
) -> Coroutine[Any, Any, None]:
    from troth.client.conversation import converse, print_json_answer
    from troth.client.money import parse_amount
    from troth.client.wallet import open_wallet

    limited = replace(choices, max_cost=parse_amount(max_cost) if max_cost else None)
    key = open_wallet(home, password_file)
    return (print_json_answer if as_json else converse)(home, configuration, key, limited, *talk)
