"""The relay beside the gateway: what is written for it, and that it leads to no wallet."""

from __future__ import annotations

import pytest

from troth.client.configuration import ClientConfiguration
from troth.client.errors import ConfigurationError
from troth.client.home import Home
from troth.client.own_relay import ListenAddress, own_relay_name, prepare_relay
from troth.overlay.relay.configuration import load
from troth.transport.identity import load_identity

COMMITTEE, OTHER = "0x" + "11" * 20, "0x" + "22" * 20
CONFIGURATION = ClientConfiguration("0x" + "33" * 20, "http://127.0.0.1:1", committee=COMMITTEE, region="eu")


def test_it_is_set_up_once_with_keys_of_its_own(tmp_path):
    home = Home(tmp_path)
    assert own_relay_name(home) == b""
    assert prepare_relay(home, CONFIGURATION, ListenAddress("0.0.0.0", 9007, "203.0.113.9:9007")) == "203.0.113.9:9007"
    written = load(home.relay)
    assert (written.host, written.port) == ("0.0.0.0", 9007)
    assert written.committee is not None
    assert (written.committee.contract.lower(), written.committee.region) == (COMMITTEE, "eu")
    assert own_relay_name(home) == load_identity(written.tls_folder).spki_sha256
    name = own_relay_name(home)
    # Another start changes nothing, whatever it says.
    assert prepare_relay(home, CONFIGURATION, ListenAddress("0.0.0.0", 1, "203.0.113.1:1")) == "203.0.113.9:9007"
    assert own_relay_name(home) == name


def test_without_an_address_it_takes_this_machine_s_own(tmp_path):
    assert prepare_relay(Home(tmp_path), CONFIGURATION, ListenAddress(port=9008)) == "127.0.0.1:9008"


def test_a_relay_of_another_committee_is_not_used(tmp_path):
    home = Home(tmp_path)
    prepare_relay(home, CONFIGURATION, ListenAddress(port=9009))
    with pytest.raises(ConfigurationError, match="another committee"):
        prepare_relay(home, ClientConfiguration("0x" + "33" * 20, committee=OTHER), ListenAddress(port=9009))


def test_a_damaged_relay_is_no_hop_of_ours_and_no_reason_to_stop(tmp_path):
    home = Home(tmp_path)
    prepare_relay(home, CONFIGURATION, ListenAddress(port=9010))
    (home.relay / "relay.toml").write_text("version = 99\n")
    assert own_relay_name(home) == b""
