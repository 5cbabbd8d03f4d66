"""Packages as files: opened where they lie, read whole, written in one step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilesmith.db.package_rows import TABLES, check_rows, records_in, rows_in
from tilesmith.db.records import Record
from tilesmith.errors import PackageError
from tilesmith.package.form import encode
from tilesmith.package.records import Form, KernelPackage, Kind, PackageEntry
from tilesmith.runtime.packages import PackageReader
from tilesmith.toolchain.files import replace

__all__ = ["PackageFile", "check_rows", "records_in", "write"]


class PackageFile(PackageReader):
    """A package with all of its entries: to be shown, compared, checked and changed."""

    def entry(self, index: int) -> PackageEntry:
        """The entry at ``index``, as it is stored."""
        try:
            kind, name, rank, revision, time_us, form, _, size, digest, _ = self._package.entry(index)
            stored = self._package.read_stored(index)
        except PackageError as error:
            raise self._named(error) from None
        return PackageEntry(Kind(kind), name, stored, Form(form), size, digest.hex(), rank, revision, time_us)

    def entries(self) -> Iterator[PackageEntry]:
        """Every entry, in order."""
        return map(self.entry, range(len(self)))

    def records(self, kind: Kind, *parts: str) -> tuple[Record, ...]:
        """The rows of an entry of the find-db (``FIND``, problem, target) or the perf-db (``PERF``, and solver)."""
        return rows_in(self, kind, *parts)

    def verify(self) -> None:
        """Read every byte, every plan and every row; ``PackageError`` names the first damage."""
        try:
            self._package.verify()
            for index in range(len(self)):
                kind, name, *_ = self._package.entry(index)
                if kind in TABLES:
                    check_rows(Kind(kind), name, self.read(index))
        except PackageError as error:
            raise self._named(error) from None

    def load(self) -> KernelPackage:
        """The whole package in memory."""
        return KernelPackage(self.manifest, tuple(self.entries()))


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
