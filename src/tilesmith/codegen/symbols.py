"""Kernel symbols: ``ts_<op>_<dtype>_<tile>__<arch>_<variant>``; the variant digests the text itself.

So two kernels with one symbol are the same kernel, and any number of kernels fit into one compile unit.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from tilesmith.plan.records import Source

_PART = re.compile(r"[a-z0-9]+")
_ARCH = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_SYMBOL = re.compile(r"ts_([a-z0-9]+)_([a-z0-9]+)_([a-z0-9]+)__([a-z0-9_]+)_([0-9a-f]{12})")
MARK = "@SYM@"


@dataclass(frozen=True)
class Symbol:
    """The parts of a kernel's name; ``op``, ``dtype`` and ``tile`` are lower-case letters and digits alone."""

    op: str
    dtype: str
    tile: str
    arch: str
    variant: str

    def __str__(self) -> str:
        return f"ts_{self.op}_{self.dtype}_{self.tile}__{self.arch}_{self.variant}"


def parse_symbol(text: str) -> Symbol:
    """The inverse of ``str(symbol)``; ``ValueError`` if ``text`` is no kernel symbol."""
    match = _SYMBOL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no kernel symbol (ts_<op>_<dtype>_<tile>__<arch>_<variant>)")
    return Symbol(*match.groups())


def make_source(language: str, op: str, dtype: str, tile: str, arch: str, prelude: str, body: str) -> Source:
    """Name a kernel after its text: every ``@SYM@`` in ``body`` becomes the symbol.

    ``body`` must define ``@SYM@`` itself, and give everything else it defines a name that starts with ``@SYM@``.
    """
    arch = re.sub(r"[^a-z0-9]+", "_", arch.lower())
    for part, rule in ((op, _PART), (dtype, _PART), (tile, _PART), (arch, _ARCH)):
        if not rule.fullmatch(part):
            raise ValueError(f"{part!r} cannot be part of a kernel symbol")
    if MARK not in body:
        raise ValueError(f"a kernel's text must name its symbol {MARK}")
    variant = hashlib.sha256((prelude + "\0" + body).encode()).hexdigest()[:12]
    symbol = str(Symbol(op, dtype, tile, arch, variant))
    return Source(language, symbol, prelude, body.replace(MARK, symbol))
