"""Where kernel packages lie on this machine: the folders and files of TILESMITH_PACKAGE_PATH."""

from __future__ import annotations

from pathlib import Path

from tilesmith import env
from tilesmith.errors import PackageError

SUFFIX = ".kdb"


def package_places() -> tuple[Path, ...]:
    """The folders and ``.kdb`` files that calls look into for packages; an earlier one wins. They may not exist."""
    return env.PACKAGE_PATH.get()


def install_folder() -> Path:
    """The folder that packages are installed into: the first folder of ``package_places``. It may not exist.

    Raises ``PackageError`` if every place is a ``.kdb`` file.
    """
    places = package_places()
    for place in places:
        if place.suffix != SUFFIX or place.is_dir():
            return place
    listed = ", ".join(map(str, places))
    raise PackageError(f"TILESMITH_PACKAGE_PATH has files alone ({listed}): name a folder that packages are put into")
