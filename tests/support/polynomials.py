"""Polynomials over the field of P-256, as lists of coefficients from the constant on: sums, products, roots."""

from __future__ import annotations

import random

from troth.protocol.p256 import P


def plus(first: list[int], second: list[int]) -> list[int]:
    """Sum of polynomials modulo p; coefficients from the constant one up, no leading zeros."""
    size = max(len(first), len(second))
    total_ = [(a + b) % P for a, b in zip(padded(first, size), padded(second, size), strict=True)]
    while total_ and total_[-1] == 0:
        total_.pop()
    return total_


def padded(polynomial: list[int], size: int) -> list[int]:
    return polynomial + [0] * (size - len(polynomial))


def product(first: list[int], second: list[int]) -> list[int]:
    result = [0] * (len(first) + len(second) - 1) if first and second else []
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            result[i + j] += a * b
    return plus(result, [])


def remainder(dividend: list[int], divisor: list[int]) -> list[int]:
    rest = plus(dividend, [])
    inverse = pow(divisor[-1], -1, P)
    while len(rest) >= len(divisor):
        shift, factor = len(rest) - len(divisor), rest[-1] * inverse
        rest = plus(rest, [0] * shift + [-factor * value for value in divisor])
    return rest


def common(first: list[int], second: list[int]) -> list[int]:
    while second:
        first, second = second, remainder(first, second)
    return first


def power(base: list[int], exponent: int, modulus: list[int]) -> list[int]:
    result = [1]
    for bit in bin(exponent)[2:]:
        result = remainder(product(result, result), modulus)
        if bit == "1":
            result = remainder(product(result, base), modulus)
    return result


def roots(polynomial: list[int]) -> list[int]:
    """Roots in the field: the part that divides x^p - x, split at random (Cantor and Zassenhaus)."""
    linear = common(polynomial, plus(power([0, 1], P, polynomial), [0, -1]))
    source, open_parts, found = random.Random(7), [linear], []
    while open_parts:
        part = open_parts.pop()
        if len(part) == 2:
            found.append(-part[0] * pow(part[1], -1, P) % P)
        elif len(part) > 2:
            half = common(part, plus(power([source.randrange(P), 1], (P - 1) // 2, part), [-1]))
            if 1 < len(half) < len(part):
                open_parts += [half, quotient(part, half)]
            else:
                open_parts.append(part)
    return found


def quotient(dividend: list[int], divisor: list[int]) -> list[int]:
    rest, result = dividend, [0] * (len(dividend) - len(divisor) + 1)
    inverse = pow(divisor[-1], -1, P)
    while len(rest) >= len(divisor):
        shift, factor = len(rest) - len(divisor), rest[-1] * inverse % P
        result[shift] = factor
        rest = plus(rest, [0] * shift + [-factor * value for value in divisor])
    return result
