"""`troth node init`: configuration, operator key and TLS identity in a folder that only the operator reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from troth.chain.keystore import (
    address_in,
    create_account,
    create_private,
    load_account,
    read_password,
    read_private,
)
from troth.chain.new_files import create_file
from troth.node.configuration import FILE, NodeConfiguration, NodeInitOptions, load, render, segment_of
from troth.node.errors import ConfigError, ModelError
from troth.node.home import DEFAULT_HOME
from troth.node.models.folder import find_model
from troth.protocol.types import Address, Segment
from troth.transport.identity import load_or_create_identity

OPERATOR_KEY = Path("keys") / "operator.json"
OWNER_KEY = Path("keys") / "owner.json"
HTTPS_PORT = 443
"""Of an endpoint that names no port."""


def require_unconfigured(home: Path) -> None:
    """Raise ConfigError where there is a configuration already."""
    path = home / FILE
    if path.exists():
        raise ConfigError("this folder is configured already", str(path), "Edit the file, or choose another --home.")


def set_up(
    home: Path,
    choices: NodeInitOptions,
    import_key: Path | None,
    password_file: Path | None,
    *,
    new_owner: bool = False,
) -> dict[str, Any]:
    """Write the files; an existing configuration or key is never replaced. ``new_owner``: make the owner's key, too.

    Raises:
        ConfigError: the folder is configured already, or a choice is wrong.
        KeystoreError: the key cannot be imported or written.
    """
    require_unconfigured(home)
    path = home / FILE
    for text in (choices.slice, *choices.segments):
        segment_of(text)  # says what is wrong in words; the file's own check only shows its pattern
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = render(choices)
    configuration = load(home, text)
    if configuration.overlay is not None:
        _require_whole(home, choices)
    keys = _keys(home, import_key, password_file, new_owner=new_owner)
    identity = load_or_create_identity(configuration.tls_folder)
    # At the end, so that the command can be given again, corrected or after a kill. Only its user may read it: the
    # address of a chain node may hold a provider's secret.
    create_file(path, text.encode())
    return {
        **keys,
        "config": str(path),
        "endpoint": configuration.endpoint,
        "tls_key_hash": "0x" + identity.spki_sha256.hex(),
        **_forwarded(configuration),
        "next": _next(home, keys, choices.model),
    }


def _forwarded(configuration: NodeConfiguration) -> dict[str, str]:
    """What has to lead where, if the endpoint names another port than the node listens on; empty if it does not."""
    port = urlsplit(configuration.endpoint).port or HTTPS_PORT
    if configuration.tunnel is not None or port == configuration.port:
        return {}
    asked = f"port {port} of the endpoint has to lead to {configuration.host}:{configuration.port}"
    return {"forward": f"{asked}, where the node listens: by a router or a proxy, or set listen.port in {FILE}"}


def _next(home: Path, keys: dict[str, str], model: str) -> list[str]:
    """What is left to do, in this order."""
    at = "" if home == DEFAULT_HOME else f" --home {home}"
    steps = []
    try:
        find_model(home, model)
    except ModelError as error:
        # Before there is stake that depends on it.
        steps.append(f"import the model, which is not there yet ({error.what}: {error.value})")
    if "owner" in keys:
        steps.append(f"send the stake to {keys['owner']}")
    steps.append(f"send some coins for gas to {keys['operator']}")
    register = "--broadcast" if "owner" in keys else "--owner-keystore FILE"
    return [*steps, f"troth node register{at} {register}"]


def _keys(home: Path, import_key: Path | None, password_file: Path | None, *, new_owner: bool) -> dict[str, str]:
    """The operator's address, and the owner's where its key is there or was to be made: one password opens both."""
    owner_path = home / OWNER_KEY
    if not new_owner or owner_path.exists():
        password = _operator_password(home, import_key, password_file, with_owner=False)
        keys = {"operator": str(_operator(home, import_key, password))}
        owner = address_in(owner_path) if owner_path.exists() else None
        return keys if owner is None else {**keys, "owner": owner}
    password = _operator_password(home, import_key, password_file, with_owner=True)
    operator = _operator(home, import_key, password)
    return {"operator": operator, "owner": create_account(owner_path, password).address}


def _require_whole(home: Path, choices: NodeInitOptions) -> None:
    """Raise ConfigError for an overlay entry of a node that hosts a part of its model; ModelError without the model."""
    layers = find_model(home, choices.model).layers
    if segment_of(choices.slice) != Segment(0, layers):
        raise ConfigError("an overlay entry needs the whole model", choices.slice, f"Use --slice 0:{layers}.")


def _operator_password(home: Path, import_key: Path | None, password_file: Path | None, *, with_owner: bool) -> str:
    """The password of the operator's key, asked for twice where the key is new; ``with_owner``: of the owner's, too."""
    is_there = (home / OPERATOR_KEY).exists()
    is_new = import_key is None and not is_there
    opened = "a new operator key" if is_new else "the operator's keystore" if is_there else "the imported keystore"
    purpose = f"{opened} and the owner's key" if with_owner else opened
    return read_password(password_file, confirm=is_new, purpose=purpose)


def _operator(home: Path, import_key: Path | None, password: str) -> Address:
    """The operator's address; an imported keyfile is copied after its password was tried.

    Raises ConfigError where a key is to be imported and another one is there.
    """
    path = home / OPERATOR_KEY
    if path.exists():
        operator = load_account(path, password).address
        if import_key is not None and address_in(import_key) not in {None, operator}:
            raise ConfigError(
                "another operator's key is there already", f"{path}: {operator}", "Move it away, or import no key."
            )
        return operator
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if import_key is None:
        return create_account(path, password).address
    operator = load_account(import_key, password).address
    create_private(path, read_private(import_key))
    return operator
