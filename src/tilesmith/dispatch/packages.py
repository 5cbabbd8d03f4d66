"""The kernel packages of this machine: opened once a process, and looked for again by each call that asks for them.

A look lists the folders of TILESMITH_PACKAGE_PATH and reads the times of their files: a package that was installed,
replaced or removed since is met by the next ``get_launchable`` and the next new problem. A package that is damaged, or
that another user can have written, is left out until its file changes, with one warning.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilesmith import env
from tilesmith.errors import PackageError
from tilesmith.toolchain.cache import Artifact
from tilesmith.toolchain.files import read
from tilesmith.toolchain.packages import CONSENT_SUFFIX, SUFFIX, consent_text
from tilesmith.toolchain.trust import why_distrusted

if TYPE_CHECKING:  # most machines have no package: the first one imports what reads it
    from tilesmith.runtime.packages import PackageReader

# Path, number, size and times of a file: another file, or a changed one, has others.
FileState = tuple[str, int, int, int, int]
_SUFFIXES = (SUFFIX, SUFFIX + CONSENT_SUFFIX)
_CONSENT_BYTES = 4096
_log = logging.getLogger("tilesmith.package")
_lock = threading.Lock()
_opened: dict[FileState, PackageReader | None] = {}  # None: one that is left out


@dataclass(frozen=True, eq=False)
class Packages:
    """The packages at a moment; an earlier one wins. Two are equal if they are the same object.

    ``state`` changes with each of their files, ``consents`` with the files beside them that say that one was installed
    with ``--nearest``. ``nearest`` allows plans of all packages for other machines whose kernels run here.
    """

    state: tuple[FileState, ...] = ()
    nearest: bool = False
    consents: tuple[FileState, ...] = ()

    @property
    def readers(self) -> tuple[PackageReader, ...]:
        """Those that can be used; opened when they are first asked for."""
        return tuple(reader for file in self.state if (reader := _open(file)) is not None)

    @property
    def near_readers(self) -> tuple[PackageReader, ...]:
        """Those that may serve other machines than their own."""
        if self.nearest:
            return self.readers
        paths = {file[0] for file in self.consents}
        return tuple(r for r in self.readers if r.path + CONSENT_SUFFIX in paths and _consented(r)) if paths else ()

    def drop_file(self, path: str, error: Exception) -> bool:
        """Leave the package at this path out from now on; False if it is none that was used."""
        package = next((each for each in self.readers if each.path == path), None)
        if package is not None:
            self.drop(package, error)
        return package is not None

    def drop(self, package: PackageReader, error: Exception) -> None:
        """Leave a package that cannot be used out from now on."""
        with _lock:
            for file in self.state:
                if _opened.get(file) is package:
                    _opened[file] = None
                    _log.warning("kernel package %s is not used: %s", package.path, error)

    def binary(self, digest: str) -> Artifact | None:
        """The verified binary with this digest; None if no package has it."""
        for package in self.readers:
            from tilesmith.runtime.packages import Kind

            try:
                index = package.find(Kind.BINARY, digest)
                if index is not None:
                    return Artifact(digest, package.path, package.read(index))
            except PackageError as error:
                self.drop(package, error)
        return None


NONE = Packages()
_last = NONE  # what the last look found; the same object as long as nothing changes


def installed_packages() -> Packages:
    """The packages of TILESMITH_PACKAGE_PATH as they lie there now; the same object as long as none changes."""
    global _last
    found = tuple(_files())
    state = tuple([file for file in found if not file[0].endswith(CONSENT_SUFFIX)])
    consents = tuple([file for file in found if file[0].endswith(CONSENT_SUFFIX)])
    nearest = bool(state) and env.PACKAGE_NEAREST.get()
    if (state, nearest, consents) != (_last.state, _last.nearest, _last.consents):
        with _lock:
            for gone in _opened.keys() - set(state):
                del _opened[gone]
        _last = Packages(state, nearest, consents)
    return _last


def forget_packages() -> None:
    """Open every package again, and try again those that were left out."""
    with _lock:
        _opened.clear()


def _files() -> Iterator[FileState]:
    for place in env.PACKAGE_PATH.get():
        folder = str(place)
        try:
            with os.scandir(folder) as entries:
                paths = sorted(each.path for each in entries if each.name.endswith(_SUFFIXES) and each.name[0] != ".")
        except NotADirectoryError:
            paths = [folder, folder + CONSENT_SUFFIX]
        except (OSError, ValueError):
            continue
        for path in paths:
            try:
                about = os.stat(path)
            except OSError:  # removed since
                continue
            yield path, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _open(file: FileState) -> PackageReader | None:
    try:
        return _opened[file]
    except KeyError:
        pass
    with _lock:
        if file not in _opened:
            _opened[file] = _opened_now(file[0])
        return _opened[file]


def _consented(package: PackageReader) -> bool:
    """Whether the file beside a package is the consent to this very one."""
    try:
        found = read(package.path + CONSENT_SUFFIX, _CONSENT_BYTES, own=True)
    except OSError:
        return False
    return found == consent_text(os.path.basename(package.path), package.identity)


def _opened_now(path: str) -> PackageReader | None:
    reason = why_distrusted(path) or why_distrusted(Path(path).parent)
    if reason is None:
        from tilesmith.runtime.packages import PackageReader

        try:
            return PackageReader(path)
        except PackageError as error:
            reason = str(error)
    _log.warning("kernel package %s is not used: %s", path, reason)
    return None
