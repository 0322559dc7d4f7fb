"""Options that commands of several packages have: the same flag, variable and words everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", envvar="TROTH_JSON", help="Print JSON on standard output.")]
BroadcastOption = Annotated[
    bool, typer.Option("--broadcast", envvar="TROTH_BROADCAST", help="Send the transaction; without it, a dry run.")
]
RpcOption = Annotated[str, typer.Option("--rpc", envvar="TROTH_RPC", help="HTTP address of a chain node.")]
FactoryOption = Annotated[
    str, typer.Option("--factory", envvar="TROTH_FACTORY", help="Factory of the deployment; --network names it too.")
]
BankOption = Annotated[
    str, typer.Option("--bank", envvar="TROTH_BANK", help="The deployment's Bank, where the factory made several.")
]
StartBlockOption = Annotated[
    int,
    typer.Option(
        "--start-block",
        envvar="TROTH_START_BLOCK",
        min=0,
        help="A block not after the deployment: none before is read.",
    ),
]
KeystoreOption = Annotated[
    Path | None, typer.Option("--keystore", envvar="TROTH_KEYSTORE", help="Keyfile of the account that acts and pays.")
]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file", envvar="TROTH_PASSWORD_FILE", help="File whose first line opens the keyfiles, mode 0600."
    ),
]
HostOption = Annotated[str, typer.Option("--host", envvar="TROTH_HOST", help="Address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", envvar="TROTH_PORT", help="Port to listen on.")]
LogLevelOption = Annotated[
    str, typer.Option("--log-level", envvar="TROTH_LOG_LEVEL", help="debug, info, warning or error.")
]
OverlayPortOption = Annotated[
    int,
    typer.Option("--overlay-port", envvar="TROTH_OVERLAY_PORT", help="Port on which proxies of the overlay deliver."),
]
OverlayAddressOption = Annotated[
    str,
    typer.Option(
        "--overlay-address",
        envvar="TROTH_OVERLAY_ADDRESS",
        help="name:port as proxies reach it; default: host and port.",
    ),
]
