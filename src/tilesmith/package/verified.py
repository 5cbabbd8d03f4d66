"""Packages from elsewhere: read at once, and every byte verified before anything of them is used."""

from __future__ import annotations

from pathlib import Path

from tilesmith.errors import FileFormatError, PackageError
from tilesmith.package.files import PackageFile
from tilesmith.reading import read_named

MOST_PACKAGE = 1 << 30  # bytes of a package


def package_bytes(path: Path) -> bytes:
    """The bytes of a package's file, ``MOST_PACKAGE`` at most. Raises ``PackageError``."""
    try:
        return read_named(path, MOST_PACKAGE, pipes=False)
    except FileFormatError as error:
        raise PackageError(str(error)) from None


def verified(data: bytes, name: str) -> PackageFile:
    """The package in ``data``, every byte verified; ``PackageError`` calls it ``name``."""
    try:
        package = PackageFile(data)
        package.verify()
    except PackageError as error:
        raise PackageError(f"{name}: {error}") from None
    return package
