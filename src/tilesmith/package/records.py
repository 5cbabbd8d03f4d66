"""What a kernel package holds: its manifest and its entries. ``form`` has the bytes."""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from dataclasses import dataclass, field
from enum import IntEnum

from tilesmith.errors import PackageError
from tilesmith.plan.serial import MOST_BYTES as MOST_PLAN

MOST_SIZE = 1 << 26  # bytes of an entry, inflated
MOST_ROWS = 1 << 24  # the same, of rows
MOST_NAME = 8192
MOST_ENTRIES = 1 << 22
MIXED = "mixed"  # the generator of a package whose plans come from several
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,94}")  # a part of a file's name
_PRINTABLE = re.compile(r"[ -~]+")
_LINES = re.compile(r"[ -~\n]+")
_U32, _U64 = 1 << 32, 1 << 64
_SEPARATOR = "\n"


class Kind(IntEnum):
    """The kind of an entry. Its name has the parts that are given here, separated by line feeds.

    ``PLAN`` and ``FIND`` problem, target; ``BINARY`` the sha256 of its bytes in hex; ``PERF`` problem, target, solver.
    """

    PLAN = 1
    BINARY = 2
    FIND = 3
    PERF = 4


@dataclass(frozen=True)
class Manifest:
    """The facts in the header of a package.

    Args:
        name: Lower-case letters, digits, ``.``, ``_`` and ``-``; 63 characters at most. Later packages of this name
            replace earlier ones.
        target: The target that the plans were made for, such as ``sm_90a:132:h200``.
        maker: The version of Tilesmith that wrote the package.
        generator: The digest of the generator of its plans; ``mixed`` for several.
        counter: Grows with each release of a package of this name, from 0 on.
        date: Seconds since 1970; 0: not said. The clock is never asked.

    Raises:
        PackageError: A field breaks its rule.
    """

    name: str
    target: str
    maker: str
    generator: str
    counter: int = 0
    date: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise PackageError(f"package name {self.name!r} is not 1 to 63 lower-case letters, digits, '.', '_' or '-'")
        if not _TARGET.fullmatch(self.target):
            raise PackageError(f"package target {self.target!r} is not such as sm_90a:132:h200, 95 characters at most")
        for what, text, most in (("maker", self.maker, 47), ("generator", self.generator, 31)):
            if not _PRINTABLE.fullmatch(text) or len(text) > most:
                raise PackageError(f"package {what} {text!r} is not 1 to {most} printable characters")
        for what, number in (("counter", self.counter), ("date", self.date)):
            if not 0 <= number < _U64:
                raise PackageError(f"package {what} {number} is not from 0 to 2^64-1")

    @property
    def file_name(self) -> str:
        """The name of the package's file: its own name and its target, such as ``boo-sm_90a-132-h200.kdb``."""
        return f"{self.name}-{self.target.replace(':', '-')}.kdb"


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
        shown = f"{self.kind.name.lower()} {self.name.replace(_SEPARATOR, ' ')[:200]!r}"
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
        return "" if self.kind == Kind.BINARY else self.name.partition(_SEPARATOR)[0]

    @property
    def target(self) -> str:
        """The target's name; empty for a binary."""
        return "" if self.kind == Kind.BINARY else self.name.split(_SEPARATOR)[1]

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


def name_of(*parts: str) -> str:
    """The name of an entry from its parts, such as problem and target."""
    return _SEPARATOR.join(parts)


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
