"""What `troth scheduler init` writes."""

from __future__ import annotations

from pathlib import Path

from troth.chain.passwords import read_password
from troth.overlay.identity import load_or_create_identity
from troth.scheduler.configuration import load, template
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.founding import Wishes, operator_key, vrf_public_key
from troth.scheduler.sections import FILE


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
