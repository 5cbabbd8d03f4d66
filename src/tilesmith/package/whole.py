"""Packages from elsewhere: read at once, and every byte verified before anything of them is used."""

from __future__ import annotations

from pathlib import Path

from tilesmith.errors import FileFormatError, PackageError
from tilesmith.package.files import PackageFile
from tilesmith.reading import read_named

MOST_PACKAGE = 1 << 30  # bytes of a package


def package_bytes(path: Path, most: int = MOST_PACKAGE) -> bytes:
    """The bytes of a package's file, ``most`` at most. Raises ``PackageError``."""
    try:
        return read_named(path, most, pipes=False)
    except FileFormatError as error:
        raise PackageError(str(error)) from None


def opened(data: bytes, name: str) -> PackageFile:
    """The package in ``data``, its header and page table verified; ``PackageError`` calls it ``name``."""
    try:
        return PackageFile(data)
    except PackageError as error:
        raise PackageError(f"{name}: {error}") from None


def verify(package: PackageFile, name: str) -> None:
    """Verify every byte; ``PackageError`` calls the package ``name``."""
    try:
        package.verify()
    except PackageError as error:
        raise PackageError(f"{name}: {error}") from None
