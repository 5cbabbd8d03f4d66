"""Where kernel packages lie on this machine: the folders and files of TILESMITH_PACKAGE_PATH.

Beside a package that was installed with ``--nearest`` lies its *consent*, a file ``NAME.kdb.nearest``: this very
package may serve machines that it was not made for. Its content follows from the package, so a damaged one is none.
"""

from __future__ import annotations

from pathlib import Path

from tilesmith import env
from tilesmith.errors import PackageError

SUFFIX = ".kdb"
CONSENT_SUFFIX = ".nearest"


def package_places() -> tuple[Path, ...]:
    """The folders and ``.kdb`` files that calls look into for packages; an earlier one wins. They may not exist."""
    return env.PACKAGE_PATH.get()


def consent_text(file_name: str, identity: str) -> bytes:
    """The consent to a package: the name of its file, and its identity (64 hex digits)."""
    return f"tilesmith nearest 1\n{file_name} {identity}\n".encode()


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
