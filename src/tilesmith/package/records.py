"""What a kernel package holds: its manifest and its entries. ``form`` has the bytes."""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from dataclasses import dataclass, field

from tilesmith.errors import PackageError
from tilesmith.plan.serial import MOST_BYTES as MOST_PLAN
from tilesmith.runtime.packages import SEPARATOR, Kind, Manifest, name_of

__all__ = [
    "MIXED", "MOST_ENTRIES", "MOST_NAME", "MOST_SIZE", "KernelPackage", "Kind", "Manifest", "PackageEntry", "name_of",
    "new_entry",
]  # fmt: skip

MOST_SIZE = 1 << 26  # bytes of an entry, inflated
MOST_ROWS = 1 << 24  # the same, of rows
MOST_NAME = 8192
MOST_ENTRIES = 1 << 22
MIXED = "mixed"  # the generator of a package whose plans come from several
_LINES = re.compile(r"[ -~\n]+")
_U32 = 1 << 32


@dataclass(frozen=True)
class PackageEntry:
    """One entry, as it is stored.

    ``rank`` orders the plans of one name, 0 the best; ``revision`` is that of the plan's solver; ``time_us`` the
    measured median of its ``run``, 0 if it was not measured. The three are 0 for other kinds. ``digest`` is the sha256
    (hex) of the content, which has ``size`` bytes; ``stored`` is the content, deflated or not.
    Raises ``PackageError`` for a field outside its rule.
    """

    kind: Kind
    name: str
    stored: bytes = field(repr=False)
    is_deflated: bool
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
        if self.is_deflated and len(self.stored) >= self.size:
            raise PackageError(f"{shown}: deflated to {len(self.stored)} bytes, no less than its {self.size}")
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
        if self.is_deflated:
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
    """An entry of this content, deflated where that is shorter."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = deflate.compress(content) + deflate.flush()
    is_deflated = len(deflated) < len(content)
    return PackageEntry(
        kind, name, deflated if is_deflated else content, is_deflated, len(content),
        hashlib.sha256(content).hexdigest(), rank, revision, time_us,
    )  # fmt: skip
