"""Transactions that we sign, against eth_account over arbitrary fields."""

from __future__ import annotations

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from troth.chain.keystore import Key
from troth.chain.records import Fees
from troth.chain.transactions import signed
from troth.protocol.calls import Call
from troth.protocol.typed_data import CURVE_ORDER
from troth.protocol.types import address_from_bytes

NUMBERS = st.integers(0, 2**64 - 1)
AMOUNTS = st.integers(0, 2**256 - 1)


@pytest.mark.slow
@given(
    secret=st.integers(1, CURVE_ORDER - 1),
    to=st.none() | st.binary(min_size=20, max_size=20).map(address_from_bytes),
    numbers=st.tuples(st.integers(1, 2**63), NUMBERS, NUMBERS),
    fees=st.builds(Fees, AMOUNTS, AMOUNTS),
    value=AMOUNTS,
    data=st.binary(max_size=80),
)
def test_a_signed_transaction_equals_eth_accounts(secret, to, numbers, fees, value, data) -> None:  # type: ignore[no-untyped-def]
    key = Key.from_secret(secret.to_bytes(32, "big"))
    chain_id, nonce, gas = numbers
    fields = {
        "type": 2, "chainId": chain_id, "nonce": nonce, "gas": gas, "maxFeePerGas": fees.maximum,
        "maxPriorityFeePerGas": fees.priority, "value": value, "data": data,
    }  # fmt: skip
    if to is not None:
        fields["to"] = to
    theirs = Account.sign_transaction(fields, key.secret).raw_transaction
    assert signed(Call("anything", data, value), key, to, numbers, fees) == bytes(theirs)
