"""Multiples of points of P-256 by the OpenSSL that Python's own TLS is linked with, called directly.

``cryptography`` shows a multiple only through ECDH, at the cost of three. Python's TLS has the same arithmetic in a
shared library, nearly everywhere: ``CURVE`` is None where it does not, and then module ``p256`` goes by ECDH.

A single multiple takes the same time for every scalar, as it does for ECDH, which calls the same function. Threads do
not wait for each other: calls share nothing but the curve's constants, and let go of the interpreter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from troth.protocol.errors import InvalidProof

_NAME = 415
"""OpenSSL's number of the curve, NID_X9_62_prime256v1."""
_UNCOMPRESSED, _BYTES = 4, 65
_CONSTANT_TIME = 4
"""BN_FLG_CONSTTIME."""
_POINTER = ctypes.c_void_p

Coordinates = tuple[int, int]


class OpensslCurve:
    """The functions of one library; raises AttributeError where it lacks one of them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        def function(name: str, result: Any, *arguments: Any) -> Any:
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found

        number, size, data = ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
        pointer = _POINTER
        self._new = function("EC_POINT_new", pointer, pointer)
        self._free = function("EC_POINT_clear_free", None, pointer)
        self._read = function("EC_POINT_oct2point", number, pointer, pointer, data, size, pointer)
        self._write = function("EC_POINT_point2oct", size, pointer, pointer, number, data, size, pointer)
        self._add = function("EC_POINT_add", number, pointer, pointer, pointer, pointer, pointer)
        self._multiply = function("EC_POINT_mul", number, pointer, pointer, pointer, pointer, pointer, pointer)
        self._scalar = function("BN_bin2bn", pointer, data, number, pointer)
        self._flag = function("BN_set_flags", None, pointer, number)
        self._free_scalar = function("BN_clear_free", None, pointer)
        self._forget_errors = function("ERR_clear_error", None)
        self._curve = function("EC_GROUP_new_by_curve_name", pointer, number)(_NAME)
        if not self._curve:
            raise AttributeError("This OpenSSL has no P-256")

    def decoded(self, data: bytes) -> Coordinates | None:
        """The point with this compressed or uncompressed form; None where there is none."""
        with self._point() as point:
            if self._read(self._curve, point, data, len(data), None):
                return self._coordinates(point)
            # Python's TLS reads the same queue of errors: what is left in it would be taken for one of a connection.
            self._forget_errors()
            return None

    def sum_of_multiples(self, terms: Sequence[tuple[Coordinates | None, int]]) -> Coordinates | None:
        """The sum of scalar·point over all terms, None in place of a point for the generator; None for infinity.

        Scalars lie below the group's order. Raises InvalidProof for a point that is not on the curve.
        """
        with self._point() as total, self._point() as part:
            for index, (point, scalar) in enumerate(terms):
                self._multiple(part if index else total, point, scalar)
                if index:
                    self._require(self._add(self._curve, total, total, part, None))
            return self._coordinates(total)

    def _multiple(self, result: int, point: Coordinates | None, scalar: int) -> None:
        data = scalar.to_bytes(32, "big")
        number = self._scalar(data, len(data), None)
        try:
            self._flag(number, _CONSTANT_TIME)
            if point is None:
                self._require(self._multiply(self._curve, result, number, None, None, None))
                return
            with self._point() as factor:
                encoded = b"".join((b"\x04", point[0].to_bytes(32, "big"), point[1].to_bytes(32, "big")))
                self._require(self._read(self._curve, factor, encoded, len(encoded), None))
                self._require(self._multiply(self._curve, result, None, factor, number, None))
        finally:
            self._free_scalar(number)

    def _coordinates(self, point: int) -> Coordinates | None:
        encoded = ctypes.create_string_buffer(_BYTES)
        if self._write(self._curve, point, _UNCOMPRESSED, encoded, _BYTES, None) != _BYTES:
            return None
        return int.from_bytes(encoded.raw[1:33], "big"), int.from_bytes(encoded.raw[33:], "big")

    @contextmanager
    def _point(self) -> Iterator[int]:
        point = self._new(self._curve)
        if not point:
            raise MemoryError("OpenSSL has no memory for a point")
        try:
            yield point
        finally:
            self._free(point)

    def _require(self, done: int) -> None:
        if not done:
            self._forget_errors()
            raise InvalidProof("This is no point of P-256", None, "Check where the coordinates are from.")


def _load() -> OpensslCurve | None:
    try:
        import _ssl

        # Names are looked for in what this module is linked with, too; it has no file where it is built into Python.
        return OpensslCurve(ctypes.CDLL(_ssl.__file__))
    except (ImportError, AttributeError, OSError):
        return None


CURVE = _load()
"""None where Python's TLS does not show its OpenSSL."""
