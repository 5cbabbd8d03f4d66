"""Packages as files: opened where they lie, read whole, written in one step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilesmith.db.lines import read_line
from tilesmith.db.records import Record
from tilesmith.errors import FileFormatError, PackageError
from tilesmith.package.form import encode
from tilesmith.package.records import KernelPackage, Kind, Manifest, PackageEntry, name_of
from tilesmith.runtime._runtime import Package
from tilesmith.toolchain.files import replace

_TABLES = {Kind.FIND: "results", Kind.PERF: "trials"}


class PackageFile:
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

    def entry(self, index: int) -> PackageEntry:
        """The entry at ``index``, as it is stored."""
        try:
            kind, name, rank, revision, time_us, is_deflated, _, size, digest, _ = self._package.entry(index)
            stored = self._package.read_stored(index)
        except PackageError as error:
            raise self._named(error) from None
        return PackageEntry(Kind(kind), name, stored, bool(is_deflated), size, digest.hex(), rank, revision, time_us)

    def entries(self) -> Iterator[PackageEntry]:
        """Every entry, in order."""
        return map(self.entry, range(len(self)))

    def records(self, kind: Kind, *parts: str) -> tuple[Record, ...]:
        """The rows of an entry of the find-db (``FIND``, problem, target) or the perf-db (``PERF``, and solver)."""
        index = self.find(kind, name_of(*parts))
        return () if index is None else records_in(kind, self.read(index))

    def verify(self) -> None:
        """Read every byte, every plan and every row; ``PackageError`` names the first damage."""
        try:
            self._package.verify()
            for index in range(len(self)):
                kind, name, *_ = self._package.entry(index)
                if kind in _TABLES:
                    check_rows(Kind(kind), name, self.read(index))
        except PackageError as error:
            raise self._named(error) from None

    def load(self) -> KernelPackage:
        """The whole package in memory."""
        return KernelPackage(self.manifest, tuple(self.entries()))

    def _named(self, error: PackageError) -> PackageError:
        text = str(error)
        return error if not self.path or self.path in text else PackageError(f"{self.path}: {text}")


def records_in(kind: Kind, content: bytes) -> tuple[Record, ...]:
    """The records of an entry's rows; rows of a newer format are left out.

    Raises ``PackageError`` for a row that is damaged, or of another table.
    """
    found = []
    try:
        for line in content.decode().splitlines():
            row = read_line(line)
            if row is not None:
                if row[0] != _TABLES[kind] or not isinstance(row[1], Record):
                    raise PackageError(f"a row of the table {row[0]} stands among {_TABLES[kind]}")
                found.append(row[1])
    except (FileFormatError, UnicodeDecodeError) as error:
        raise PackageError(f"a row {error}") from None
    return tuple(found)


def check_rows(kind: Kind, name: str, content: bytes) -> None:
    """``PackageError`` unless every row is whole, and of the problem and target (and solver) that the name says."""
    for record in records_in(kind, content):
        parts = (record.problem, record.target, *((record.solver,) if kind == Kind.PERF else ()))
        if name_of(*parts) != name:
            raise PackageError(f"a row of {record.problem} on {record.target} stands under {name[:200]!r}")


def write(path: Path | str, package: KernelPackage) -> int:
    """Write a package in one step: readers see the file that lay there before, or the whole new one.

    Args:
        path: The file; its folder exists.
        package: What to write.

    Returns:
        The bytes of the file.

    Raises:
        PackageError: The file cannot be written, or two entries have the same key.
    """
    data = encode(package)
    try:
        replace(Path(path), data, durable=True)
    except (OSError, ValueError) as error:
        raise PackageError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return len(data)
