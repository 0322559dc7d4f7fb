"""What work costs, in one place: the rules of the contracts' library ``Prices``, in the same names and roundings.

Prices are asset units per 10^9 positions. Every sum is rounded up once, at its end, so that six decimals suffice and
a fee split into parts never costs less than its whole. A drawn answer costs the client the same as another: the price
of a check is spread over all orders by its rate.
"""

from __future__ import annotations

from troth.protocol.errors import InvalidField
from troth.protocol.market.signed import Order, Promise, Result
from troth.protocol.market.types import Ask, ExecutionClass, Rules

PER = 10**9
MILLION = 10**6
BASIS_POINTS = 10_000

REWARD_UNITS = 6
"""VeriLLM, Appendix E: who is right earns six units. Less, and a verifier that guesses 'accept' earns more."""
PENALTY_UNITS = 2
"""Who is wrong or silent pays two units. Less makes it cheap to stay silent."""
BOND_UNITS = 8
"""Who opens a case puts up eight units beside the committee's pay. Less makes cases by the hundred cheap."""


def positions(result: Result) -> int:
    """Positions of a result: all that were computed, read from a cache or written."""
    return result.prompt + result.cached + result.written


def price(order: Order, rules: Rules, segments: int, last: Result) -> int:
    """What an answer costs: its positions, and q checks by k seats for each of ``segments``.

    ``last`` is the result of the last segment. What costs more than the order's bound and the class's cap was not
    ordered, and is owed by nobody.
    """
    checks = positions(last) * rules.check_price * rules.verifiers * segments * order.check_rate
    work = order.prompt_price * last.prompt + order.cached_price * last.cached + order.written_price * last.written
    return _up(work * MILLION + checks, PER * MILLION)


def fee(order: Order, rules: Rules, segments: int, last: Result) -> int:
    """What a client owes for an answer: its price, as far as the order's bound and the class's cap go."""
    return min(price(order, rules, segments, last), order.max_fee, rules.fee_cap)


def most(order: Order, rules: Rules, segments: int, *, prompt: int, written: int) -> int:
    """The price at these counts with nothing cached: what a client puts into an order's ``max_fee``.

    Above the class's cap there is no such order.
    """
    checks = (prompt + written) * rules.check_price * rules.verifiers * segments * order.check_rate
    dearest = max(order.prompt_price, order.cached_price)
    return _up((dearest * prompt + order.written_price * written) * MILLION + checks, PER * MILLION)


def unit(rules: Rules, count: int) -> int:
    """The paper's unit u for so many positions; at least one."""
    return max(_up(rules.check_price * count, PER * REWARD_UNITS), 1)


def check_reward(rules: Rules, count: int) -> int:
    """What a seat earns for checking or reviewing so many positions: six units."""
    return unit(rules, count) * REWARD_UNITS


def promise_worth(promised: Promise, result: Result) -> int:
    """What a promise of inference is worth with this result: at most its price."""
    work = (
        promised.prompt_ask * result.prompt
        + promised.cached_ask * result.cached
        + promised.written_ask * result.written
    )
    return min(_up(work, PER), promised.price)


def bound(order: Order, width: int, layers: int) -> Ask:
    """What a node may ask at most for ``width`` of ``layers`` layers: seats that ask more are passed over.

    Nobody can be promised more than everything, so that a node share above the whole counts as the whole.
    """
    return most_asked((order.prompt_price, order.cached_price, order.written_price), order.node_share, width, layers)


def most_asked(prices: tuple[int, int, int], node_share: int, width: int, layers: int) -> Ask:
    """The same of prices for a prompt's, a cached and a written position, and the nodes' share in basis points."""
    if not 0 < width <= layers:
        raise InvalidField("A segment has 1 to all layers of its model", (width, layers), "Check the layer split.")
    share, whole = min(node_share, BASIS_POINTS) * width, BASIS_POINTS * layers
    prompt, cached, written = (price * share // whole for price in prices)
    return Ask(prompt=prompt, cached=cached, written=written)


def within(ask: Ask, limit: Ask) -> bool:
    """Whether an ask does not exceed a bound in any of its prices."""
    return ask.prompt <= limit.prompt and ask.cached <= limit.cached and ask.written <= limit.written


def rules_of(execution_class: ExecutionClass, *, hidden_size: int, layers: int) -> Rules:
    """What the contracts keep of a class, with the shape of its model."""
    return Rules(
        penalty=execution_class.penalty,
        seat=execution_class.seat,
        seat_cap=execution_class.seat_cap,
        dtype=execution_class.dtype,
        exact=execution_class.exact,
        mantissa_bits=execution_class.mantissa_bits,
        tiles=execution_class.tiles,
        verifiers=execution_class.verifiers,
        reviewers=execution_class.reviewers,
        check_price=execution_class.check_price,
        fee_cap=execution_class.fee_cap,
        least_check_rate=execution_class.least_check_rate,
        theta=execution_class.theta,
        steps=execution_class.steps,
        second_cut=execution_class.second_cut,
        pool_limit=execution_class.pool_limit,
        pool_window=execution_class.pool_window,
        hidden_size=hidden_size,
        layers=layers,
        candidates=execution_class.candidates,
    )


def _up(value: int, divisor: int) -> int:
    return -(-value // divisor)
