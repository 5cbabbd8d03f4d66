"""Kernel packages that are read where they lie. ``csrc/ts_package.c`` reads them; ``package/form.py`` has the bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tilesmith.errors import PackageError
from tilesmith.runtime._runtime import Package

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,94}")  # a part of a file's name
_PRINTABLE = re.compile(r"[ -~]+")
_U64 = 1 << 64
SEPARATOR = "\n"  # of the parts of an entry's name


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


class PackageReader:
    """A package that lies in a file, which is mapped, or in bytes.

    What its methods return has been compared with its digest. Any number of threads may call them. The file may be
    removed or replaced meanwhile; one that is changed in place is refused.

    Args:
        source: The path of the file; or its bytes.

    Raises:
        PackageError: The file cannot be read, is damaged, or has another version. Every method raises it for a part
            that is damaged.
    """

    def __init__(self, source: Path | str | bytes) -> None:
        self.path = "" if isinstance(source, bytes) else str(source)
        try:
            self._package = Package(source)
        except PackageError as error:
            raise self._named(error) from None
        except ValueError:  # a path with a null byte
            raise PackageError(f"{self.path!r}: is no path") from None
        name, target, maker, generator, counter, date, digest, key, signature = self._package.facts()
        try:
            self.manifest = Manifest(name, target, maker, generator, counter, date)
        except PackageError as error:
            raise self._named(error) from None
        self.identity = digest.hex()
        self.public_key, self.signature = (key, signature) if any(key) else (b"", b"")

    def __len__(self) -> int:
        return len(self._package)

    def find(self, kind: Kind, name: str, rank: int = 0) -> int | None:
        """The index of an entry; None if there is none.

        Args:
            kind: Of the entry.
            name: ``name_of`` its parts.
            rank: Of a plan: 0 the best.
        """
        try:
            return self._package.find(kind, name, rank)
        except PackageError as error:
            raise self._named(error) from None

    def read(self, index: int) -> bytes:
        """The content of the entry at ``index``, from 0 on; ``IndexError`` if there is none."""
        try:
            return self._package.read(index)
        except PackageError as error:
            raise self._named(error) from None

    def check_signature(self) -> bool:
        """Whether the package is signed; ``PackageError`` if the signature is not that of its public key.

        It covers every other byte: what this object reads was signed. Whether the key is one to trust is another
        question: ``tilesmith.package.trust``.
        """
        try:
            return self._package.check_signature()
        except PackageError as error:
            raise self._named(error) from None

    def revision_and_time(self, index: int) -> tuple[int, float | None]:
        """Of the plan at ``index``: its solver's revision, and its median in microseconds if it was measured."""
        try:
            _, _, _, revision, time_us, *_ = self._package.entry(index)
        except PackageError as error:
            raise self._named(error) from None
        return revision, time_us or None

    def check(self) -> int:
        """Read every byte and every plan; ``PackageError`` names the first damage. Returns how many problems it has."""
        try:
            self._package.verify()
            plans = (self._package.entry(index)[:3] for index in range(len(self)))
            return sum(kind == Kind.PLAN and rank == 0 for kind, _, rank in plans)
        except PackageError as error:
            raise self._named(error) from None

    def _named(self, error: PackageError) -> PackageError:
        text = str(error)
        return error if not self.path or self.path in text else PackageError(f"{self.path}: {text}")


def name_of(*parts: str) -> str:
    """The name of an entry from its parts, such as problem and target."""
    return SEPARATOR.join(parts)
