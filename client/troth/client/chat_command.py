"""`troth client chat` and `ask`."""

from __future__ import annotations

from typing import Annotated

import typer

from troth.client.options import AskingOptions, MaxCostOption, millionths
from troth.transport.command_options import JsonOption, grouped

QuestionArgument = Annotated[
    str | None, typer.Argument(help="The question; - reads it from standard input; none: a conversation.")
]
SystemOption = Annotated[str, typer.Option("--system", envvar="TROTH_SYSTEM", help="System message.")]
MaxTokensOption = Annotated[
    int, typer.Option("--max-tokens", envvar="TROTH_MAX_TOKENS", min=1, max=65_536, help="Longest answer.")
]
TemperatureOption = Annotated[
    float,
    typer.Option(
        "--temperature",
        envvar="TROTH_TEMPERATURE",
        min=0.0,
        max=2.0,
        help="0 takes the likeliest token each time; 1 draws as the model says.",
    ),
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
TopKOption = Annotated[
    int,
    typer.Option(
        "--top-k",
        envvar="TROTH_TOP_K",
        min=0,
        max=2**32 - 1,
        help="Choose among so many of the likeliest tokens; 0: among all.",
    ),
]
MinPOption = Annotated[
    float,
    typer.Option(
        "--min-p",
        envvar="TROTH_MIN_P",
        min=0.0,
        max=1.0,
        help="Choose among tokens at least so many times as likely as the likeliest; 0: among all.",
    ),
]


ResumeOption = Annotated[str, typer.Option("--resume", help="Go on with a conversation: a file of /save, or `last`.")]


@grouped
def chat(
    context: typer.Context,
    question: QuestionArgument = None,
    *,
    system: SystemOption = "",
    max_tokens: MaxTokensOption = 256,
    temperature: TemperatureOption = 0.0,
    top_p: TopPOption = 1.0,
    top_k: TopKOption = 0,
    min_p: MinPOption = 0.0,
    max_cost: MaxCostOption = "",
    resume: ResumeOption = "",
    asking: AskingOptions,
    as_json: JsonOption = False,
) -> None:
    """Ask one question, or hold a conversation; the answer streams, the verdict follows. /help lists its commands."""
    from troth.client.choices import SamplingChoices
    from troth.client.interrupts import interruptible
    from troth.client.orders import terminal
    from troth.client.prompt import read_question

    if question is None and context.info_name == "ask":
        raise typer.BadParameter("name the question; - reads it from standard input", param_hint="QUESTION")
    first = read_question(question or "") if question is not None or as_json else ""
    place = asking.place()
    configuration = asking.configuration()
    if resume and first:
        raise typer.BadParameter("it goes on with a conversation: leave the question out", param_hint="--resume")
    choices = SamplingChoices(
        max_tokens, millionths(temperature, 0), millionths(top_p, 1), top_k=top_k, min_p_millionths=millionths(min_p, 0)
    )
    given = (
        place,
        configuration,
        asking.password_file,
        choices,
        (max_cost, asking.max_price),
        asking.check,
        system,
        first,
    )
    interruptible(terminal.chat(*given, as_json=as_json, resume=resume))
