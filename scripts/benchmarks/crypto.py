"""What the protocol's cryptography costs off chain: VRF, commitment, signatures."""

from __future__ import annotations

import secrets

import numpy as np

from benchmarks.figures import Figure, median_milliseconds
from troth.protocol import vrf
from troth.protocol.market.messages import market_domain
from troth.protocol.market.signed import Row
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileLayout
from troth.protocol.typed_data import recover, sign
from troth.protocol.types import Address, Hash32

ROWS, COLUMNS = 191, 576


def measure() -> list[Figure]:
    """Medians on one thread of this machine."""
    return [*_vrf(), *_commitment(), *_signatures()]


def _vrf() -> list[Figure]:
    secret = vrf.generate_key()
    public = vrf.public_key(secret)
    alpha = secrets.token_bytes(32)
    proof = vrf.prove(secret, alpha)
    return [
        Figure("VRF prove", median_milliseconds(lambda: vrf.prove(secret, alpha)), "ms", paper=0.47, reach=0.4),
        Figure(
            "VRF verify", median_milliseconds(lambda: vrf.verify(public, alpha, proof)), "ms", paper=0.52, reach=0.8
        ),
    ]


def _commitment() -> list[Figure]:
    states = np.random.default_rng(1).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    layout = TileLayout(secrets.token_bytes(32), secrets.token_bytes(32), ROWS, COLUMNS, Dtype.FLOAT32)
    milliseconds = median_milliseconds(lambda: layout.commit(states).root, repeats=30, warm_up=3)
    return [
        Figure(
            "commitment, per scalar",
            milliseconds * 1e3 / (ROWS * COLUMNS),
            "µs",
            paper=1.7,
            reach=0.15,
            note=f"{ROWS} rows of {COLUMNS} float32 in {milliseconds:.2f} ms: cut, hash, tree",
        )
    ]


def _signatures() -> list[Figure]:
    secret = secrets.token_bytes(32)
    domain = market_domain(31337, Address("0x000000000000000000000000000000000000dEaD"))
    row = Row(Hash32(secrets.token_bytes(32)), 0, 7, Hash32(secrets.token_bytes(32)), Hash32(secrets.token_bytes(32)))
    signature = sign(row, domain, secret)
    return [
        Figure(
            "sign a row (EIP-712)", median_milliseconds(lambda: sign(row, domain, secret)), "ms", paper=0.19, reach=0.05
        ),
        Figure(
            "recover its signer",
            median_milliseconds(lambda: recover(row, domain, signature)),
            "ms",
            paper=0.21,
            reach=0.05,
        ),
    ]
