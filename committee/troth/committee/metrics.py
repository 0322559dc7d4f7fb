"""What a member counts for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """One registry per member, so that several in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.relays = Gauge("troth_committee_relays", "Relays in the newest list.", registry=self.registry)
        self.destinations = Gauge("troth_committee_destinations", "Destinations in it.", registry=self.registry)
        self.valid_until = Gauge("troth_committee_valid_until", "Unix time of its end.", registry=self.registry)
        self.signed = Counter("troth_committee_signed", "Lists signed by this member.", registry=self.registry)
        self.led = Counter("troth_committee_led", "Slots led by this member.", ["outcome"], registry=self.registry)
        self.refused = Counter("troth_committee_refused", "Entries refused.", ["way"], registry=self.registry)
        self.taken = Counter("troth_committee_taken", "Descriptors taken.", ["kind"], registry=self.registry)
