"""What a member vouches for: machines whose evidence it has verified itself, each answering a nonce of its own.

A machine asks every member for a nonce, has its hardware sign a digest of that nonce and of its keys, and posts the
evidence. What a member found it keeps, and it lists a destination's measurement only where it found the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from troth.committee.directory.proposal import CheckedDestination
from troth.committee.directory.store import MemberStore, VouchedRow
from troth.committee.errors import EntryRefused, Full
from troth.overlay.attestation.binding import NONCE_BYTES, Binding
from troth.overlay.attestation.errors import EvidenceMisbound
from troth.overlay.attestation.measurement import Attested, parse_measurement
from troth.overlay.attestation.policy import PlatformPolicy
from troth.overlay.attestation.verifying import verify
from troth.overlay.directory.attesting import ShownMachine
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address

NONCE_SECONDS = 300
"""Between a nonce and its evidence: a device's report takes seconds, and collateral comes over the internet."""
MOST_USED = 65_536
AT_ONCE, WAITING = 2, 64
"""Evidence that is verified at once, and that waits for it: some milliseconds each."""
_ISSUED = struct.Struct(">Q8s")


class Nonces:
    """Nonces that need no memory until they are used: time and chance under a key of this process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._used: OrderedDict[bytes, float] = OrderedDict()

    def new(self) -> bytes:
        """32 bytes that are accepted once, within `NONCE_SECONDS`."""
        issued = _ISSUED.pack(int(self._clock()), secrets.token_bytes(8))
        return issued + self._tag(issued)

    def use(self, nonce: bytes) -> None:
        """Raise EvidenceMisbound unless this process gave it lately and nobody used it; Full where too many were."""
        issued = nonce[: _ISSUED.size]
        now, remedy = self._clock(), "Ask for another one."
        if len(nonce) != NONCE_BYTES or not hmac.compare_digest(nonce[_ISSUED.size :], self._tag(issued)):
            raise EvidenceMisbound("This nonce is not of this member", nonce[:16].hex(), remedy)
        if not 0 <= now - _ISSUED.unpack(issued)[0] <= NONCE_SECONDS:
            raise EvidenceMisbound(f"A nonce holds for {NONCE_SECONDS} s", nonce.hex(), remedy)
        while self._used and next(iter(self._used.values())) < now - NONCE_SECONDS - 1:
            self._used.popitem(last=False)
        if nonce in self._used:
            raise EvidenceMisbound("This nonce was used before", nonce.hex(), remedy)
        if len(self._used) >= MOST_USED:
            raise Full("Too many machines show evidence", len(self._used), "Try again in some minutes.")
        self._used[nonce] = now

    def _tag(self, issued: bytes) -> bytes:
        return hmac.digest(self._key, issued, hashlib.sha256)[: NONCE_BYTES - _ISSUED.size]


@dataclass(frozen=True, slots=True)
class _Vouched:
    """For whom, as a binding without its nonce."""

    tls_key_hash: bytes
    seal_key: bytes
    operator: str
    kind: str


class Vouching:
    """Machines that this member vouches for; they survive a restart.

    Args:
        policy: None for a member that vouches for nobody.
        bonded: whether an operator is registered as this kind: evidence of others is not verified.
        lifetime: seconds for which what was verified holds at most; a machine shows itself again before.
    """

    def __init__(
        self,
        policy: PlatformPolicy | None,
        store: MemberStore,
        bonded: Callable[[Address, str], bool],
        lifetime: float,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._policy = policy
        self._store = store
        self._bonded = bonded
        self._lifetime = lifetime
        self._clock = clock
        self._nonces = Nonces(clock)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._found: dict[_Vouched, Attested] = {}
        for row in store.vouched():
            name = _Vouched(row.tls_key_hash, row.seal_key, row.operator, row.kind)
            self._found[name] = Attested(parse_measurement(row.measurement), row.until)

    def nonce(self) -> bytes:
        """A nonce for one machine; raises EntryRefused where this member vouches for nobody."""
        self._require_policy()
        return self._nonces.new()

    async def take(self, shown: ShownMachine, domain: Domain) -> Attested:
        """Verify what a machine shows, and keep what was found.

        Raises an AttestationError, EntryRefused for a stranger, Full where too many wait.
        """
        policy = self._require_policy()
        if not self._bonded(Address(shown.operator_address), shown.kind):
            what = f"The operator is not bonded as a {shown.kind}"
            raise EntryRefused(what, shown.operator_address, "Register it on chain first.")
        self._nonces.use(shown.nonce)
        if self._waiting >= WAITING:
            raise Full("Too much evidence waits to be verified", self._waiting, "Try again in a minute.")
        self._waiting += 1
        try:
            async with self._at_once:
                binding, now = shown.binding(domain), int(self._clock())
                found = await asyncio.to_thread(verify, shown.evidence, binding, policy, now)
        finally:
            self._waiting -= 1
        return self._keep(binding, Attested(found.measurement, min(found.until, int(now + self._lifetime))))

    def require(self, entry: CheckedDestination) -> None:
        """Raise EntryRefused unless this member found of a destination what it says of itself."""
        said, one = entry.descriptor.attested, entry.descriptor
        if said is None:
            return
        found = self._found.get(_Vouched(one.tls_key_hash, one.seal_key, entry.operator, one.kind))
        if found is None or found.measurement != said.measurement or found.until < said.until:
            what = "This member has not found of the machine what it says of itself"
            raise EntryRefused(what, str(said.measurement), "Show it evidence for a nonce of this member's.")
        if said.until <= self._clock():
            raise EntryRefused("What was found of the machine has ended", said.until, "Show evidence again.")

    def _keep(self, binding: Binding, found: Attested) -> Attested:
        now = int(self._clock())
        self._found = {name: one for name, one in self._found.items() if one.until > now}
        keys = (binding.tls_key_hash, binding.seal_key, binding.operator, binding.kind)
        self._found[_Vouched(*keys)] = found
        self._store.vouch(VouchedRow(*keys, str(found.measurement), found.until), now)
        return found

    def _require_policy(self) -> PlatformPolicy:
        if self._policy is None:
            raise EntryRefused("This member vouches for no machine", None, "Its operator sets [attestation].")
        return self._policy
