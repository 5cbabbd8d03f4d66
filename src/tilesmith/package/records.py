"""Records of a kernel package: its manifest and its entries. ``form`` has the bytes."""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from dataclasses import dataclass, field
from enum import IntEnum

from tilesmith.errors import PackageError
from tilesmith.plan.serial import MOST_BYTES as MOST_PLAN
from tilesmith.runtime._runtime import unlzma
from tilesmith.runtime.packages import SEPARATOR, Kind, Manifest, name_of

__all__ = [
    "MIXED", "MOST_ENTRIES", "MOST_NAME", "MOST_SIZE", "Form", "KernelPackage", "Kind", "Manifest", "PackageEntry",
    "name_of", "new_entry",
]  # fmt: skip

MOST_SIZE = 1 << 26  # bytes of an entry, inflated
MOST_ROWS = 1 << 24  # the same, of rows
MOST_NAME = 8192
MOST_ENTRIES = 1 << 22
MIXED = "mixed"  # the generator of a package whose plans come from several
# The parameters of LZMA, which the reader in C (``ts_lzma.c``) has too. For kernels of fewer bytes it is not tried, and
# taken only where it saves an eighth: it takes three times as long to expand.
_LZMA = {"lc": 1, "lp": 2, "pb": 3}
_NICE_BYTES = 64  # of a match, after which none is sought: kernels take 0.1 % less than with 273, large ones 1 %
_LEAST_LZMA = 4096
_LINES = re.compile(r"[ -~\n]+")
_U32 = 1 << 32


class Form(IntEnum):
    """How an entry is stored: as it is, deflated (RFC 1951), or as LZMA, which packages of version 1 do not have."""

    PLAIN = 0
    DEFLATED = 1
    LZMA = 2


@dataclass(frozen=True)
class PackageEntry:
    """One entry, as it is stored.

    ``rank`` orders the plans of one name, 0 the best; ``revision`` is that of the plan's solver; ``time_us`` the
    measured median of its ``run``, 0 if it was not measured. The three are 0 for other kinds. ``digest`` is the sha256
    (hex) of the content, which has ``size`` bytes; ``stored`` is the content in its ``form``.
    Raises ``PackageError`` for a field outside its rule.
    """

    kind: Kind
    name: str
    stored: bytes = field(repr=False)
    form: Form
    size: int
    digest: str
    rank: int = 0
    revision: int = 0
    time_us: float = 0.0

    def __post_init__(self) -> None:
        shown = f"{self.kind.name.lower()} {self.name.replace(SEPARATOR, ' ')[:200]!r}"
        if not _LINES.fullmatch(self.name) or len(self.name) > MOST_NAME:
            raise PackageError(f"{shown}: its name is not 1 to {MOST_NAME} printable characters")
        most = {Kind.PLAN: MOST_PLAN, Kind.BINARY: MOST_SIZE}.get(self.kind, MOST_ROWS)
        if not 0 < self.size <= most:
            raise PackageError(f"{shown}: {self.size} bytes; an entry of its kind has 1 to {most}")
        if self.form and len(self.stored) >= self.size:
            raise PackageError(f"{shown}: compressed to {len(self.stored)} bytes, no less than its {self.size}")
        for what, number in (("rank", self.rank), ("revision", self.revision)):
            if not 0 <= number < _U32 or (number and self.kind != Kind.PLAN):
                raise PackageError(f"{shown}: {what} {number} is not from 0 to 2^32-1, and 0 for all but plans")
        if not (math.isfinite(self.time_us) and self.time_us >= 0) or (self.time_us and self.kind != Kind.PLAN):
            raise PackageError(f"{shown}: a time of {self.time_us} us")

    @property
    def key(self) -> tuple[int, bytes, int]:
        """Entries of a package have distinct keys, and lie in their order."""
        return self.kind, self.name.encode(), self.rank

    @property
    def problem(self) -> str:
        """The problem's key; empty for a binary."""
        return "" if self.kind == Kind.BINARY else self.name.partition(SEPARATOR)[0]

    @property
    def target(self) -> str:
        """The target's name; empty for a binary."""
        return "" if self.kind == Kind.BINARY else self.name.split(SEPARATOR)[1]

    def content(self) -> bytes:
        """The content, compared with its digest; ``PackageError`` if it is another."""
        data = self.stored
        if self.form == Form.LZMA:
            data = unlzma(self.stored, self.size) or b""
        elif self.form == Form.DEFLATED:
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            try:
                data = inflate.decompress(self.stored, self.size + 1)
            except zlib.error:
                data = b""
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise PackageError(f"{self.kind.name.lower()} {self.name[:200]!r} is damaged: its checksum is wrong")
        return data


@dataclass(frozen=True)
class KernelPackage:
    """A package in memory: its manifest, and its entries in the order of their keys."""

    manifest: Manifest
    entries: tuple[PackageEntry, ...]

    def of_kind(self, kind: Kind) -> tuple[PackageEntry, ...]:
        return tuple(entry for entry in self.entries if entry.kind == kind)


def new_entry(
    kind: Kind, name: str, content: bytes, rank: int = 0, revision: int = 0, time_us: float = 0.0
) -> PackageEntry:
    """An entry of this content in the form that is shortest; a binary is LZMA where that saves an eighth."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    form, stored = Form.DEFLATED, deflate.compress(content) + deflate.flush()
    if kind == Kind.BINARY and len(content) >= _LEAST_LZMA and (packed := _lzma(content)):
        form, stored = (Form.LZMA, packed) if 8 * len(packed) <= 7 * len(stored) else (form, stored)
    if len(stored) >= len(content):
        form, stored = Form.PLAIN, content
    return PackageEntry(
        kind, name, stored, form, len(content), hashlib.sha256(content).hexdigest(), rank, revision, time_us
    )


def _lzma(content: bytes) -> bytes:
    """A raw stream with an end marker; empty where this Python was built without liblzma."""
    try:
        import lzma
    except ImportError:
        return b""
    window = max(4096, 1 << (len(content) - 1).bit_length())
    how = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": window, **_LZMA}
    how["nice_len"] = _NICE_BYTES
    return lzma.compress(content, format=lzma.FORMAT_RAW, filters=[how])
