"""What `troth committee init` writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from troth.chain.keystore import create_account, load_account
from troth.chain.passwords import read_password
from troth.committee.configuration import FILE, Bonding, load, template
from troth.committee.errors import ConfigurationInvalid
from troth.overlay.identity import load_or_create_identity


@dataclass(frozen=True, slots=True)
class Wishes:
    """The command line of `init`."""

    rpc: str
    committee: str
    bonding: Bonding
    host: str
    port: int
    endpoint: str


def initialise(folder: Path, wishes: Wishes, password_file: Path | None) -> dict[str, object]:
    """Write the configuration and, where there are none, keys; returns what there is now."""
    file = folder / FILE
    if file.exists():
        raise ConfigurationInvalid("There is a configuration already", file, "Edit it, or choose another --home.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    password = read_password(password_file, confirm=True, purpose="the member's keystore")
    # The address of a chain node may hold a provider's secret.
    file.touch(mode=0o600)
    text = template(wishes.rpc, wishes.committee, wishes.bonding, (wishes.host, wishes.port), wishes.endpoint)
    file.write_text(text, encoding="utf-8")
    try:
        configuration = load(folder)
        path = configuration.operator_keystore
        operator = (load_account if path.exists() else create_account)(path, password).address
    except Exception:
        # So that the corrected command can be given again.
        file.unlink()
        raise
    tls_key_hash = "0x" + load_or_create_identity(configuration.tls_folder).spki_sha256.hex()
    return {
        "operator": operator,
        "tls_key_hash": tls_key_hash,
        "endpoint": wishes.endpoint,
        "member": f"{operator},{tls_key_hash},{wishes.endpoint}",
        "config": str(file),
        "next": "one of you: troth committee deploy with --member for each; then chain.committee in each configuration",
    }
