"""What `troth scheduler init` writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from troth.chain.keystore import create_account, create_vrf_secret, load_account, load_vrf_secret
from troth.chain.passwords import read_password
from troth.overlay.identity import load_or_create_identity
from troth.protocol import vrf
from troth.scheduler.configuration import FILE, load, template
from troth.scheduler.errors import ConfigurationInvalid


@dataclass(frozen=True, slots=True)
class Wishes:
    """The command line of `init`."""

    rpc: str
    contract: str
    class_id: str
    model: Path
    ends: str
    host: str
    port: int
    endpoint: str
    start_block: int
    operator_keystore: Path | None
    vrf_keystore: Path | None
    committee: str = ""
    overlay_port: int = 8444
    overlay_address: str = ""


def initialise(folder: Path, wishes: Wishes, password_file: Path | None) -> dict[str, object]:
    """Write the configuration and, where none is named, new keys; returns what there is now."""
    file = folder / FILE
    if file.exists():
        raise ConfigurationInvalid("There is a configuration already", file, "Edit it, or choose another --home.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    new_keys = wishes.operator_keystore is None or wishes.vrf_keystore is None
    password = read_password(password_file, confirm=new_keys, purpose="the scheduler's keystores")
    # The address of a chain node may hold a provider's secret.
    text = _text(wishes)
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    try:
        load(folder)
        operator = operator_key(folder, wishes.operator_keystore, password)
        vrf_key = vrf_public_key(folder, wishes.vrf_keystore, password)
    except Exception:
        # So that the corrected command can be given again.
        file.unlink()
        raise
    identity = load_or_create_identity(folder / "tls")
    return {
        "operator": operator,
        "vrf_x": hex(vrf_key[0]),
        "vrf_y": hex(vrf_key[1]),
        "endpoint": wishes.endpoint,
        "tls_key_hash": "0x" + identity.spki_sha256.hex(),
        "config": str(file),
        "next": f"send some ether for gas to {operator}, then: "
        f"troth scheduler register --home {folder} --owner-keystore FILE",
    }


def operator_key(folder: Path, keystore: Path | None, password: str) -> str:
    """The operator's address, of a named keystore or of the folder's own, which is made where there is none."""
    if keystore is not None:
        return load_account(keystore.expanduser(), password).address
    path = folder / "keys" / "operator.json"
    return (load_account if path.exists() else create_account)(path, password).address


def vrf_public_key(folder: Path, keystore: Path | None, password: str) -> tuple[int, int]:
    """The same for the VRF key."""
    if keystore is not None:
        return vrf.public_key(load_vrf_secret(keystore.expanduser(), password))
    path = folder / "keys" / "vrf.json"
    return vrf.public_key((load_vrf_secret if path.exists() else create_vrf_secret)(path, password))


def _text(wishes: Wishes) -> str:
    try:
        ends = () if wishes.ends == "auto" else tuple(int(end) for end in wishes.ends.split(","))
    except ValueError as error:
        remedy = "Write for example 15,30, or auto to have nodes placed."
        raise ConfigurationInvalid("--ends is a list of layers", wishes.ends, remedy) from error
    text = template(
        {
            "rpc": wishes.rpc,
            "contract": wishes.contract,
            "start_block": wishes.start_block,
            "host": wishes.host,
            "port": wishes.port,
            "endpoint": wishes.endpoint,
            "committee": wishes.committee,
            "overlay_port": wishes.overlay_port,
            "overlay_address": wishes.overlay_address,
            "serve": [{"class": wishes.class_id, "ends": ends, "model": wishes.model}],
        }
    )
    named = {"operator": wishes.operator_keystore, "vrf": wishes.vrf_keystore}
    lines = [f'{name} = "{path.expanduser().resolve()}"' for name, path in named.items() if path is not None]
    return text + ("\n[keys]\n" + "\n".join(lines) + "\n" if lines else "")
