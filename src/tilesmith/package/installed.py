"""The packages that are installed on this machine, and its targets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilesmith.dispatch.locations import target_of
from tilesmith.errors import LaunchError, PackageError, TargetError
from tilesmith.package.files import PackageFile
from tilesmith.package.trust import examine
from tilesmith.targets.detect_cuda import cuda_devices, target_of_device
from tilesmith.targets.target import Target
from tilesmith.toolchain.files import exclusive
from tilesmith.toolchain.packages import CONSENT_SUFFIX, SUFFIX, package_places

_LOCK_S = 60.0


@dataclass(frozen=True)
class InstalledPackage:
    """A package of a place where calls look.

    ``signer`` is the name of the trusted key that signed it, empty if there is none; ``problem`` says why the file
    cannot be read, and then the fields of its manifest are empty.
    """

    file: str
    name: str = ""
    target: str = ""
    counter: int = 0
    bytes: int = 0
    signer: str = ""
    problem: str = ""


def machine_targets() -> tuple[Target, ...]:
    """The targets of this machine: its CPU as calls use it without further words, then each distinct GPU."""
    found: list[Target] = [target_of(None, None)]
    try:
        devices = cuda_devices()
    except LaunchError:  # no driver
        devices = ()
    for device in devices:
        try:
            target: Target = target_of_device(device)
        except TargetError:  # a GPU that Tilesmith does not run on
            continue
        if target.name not in [each.name for each in found]:
            found.append(target)
    return tuple(found)


def installed_packages() -> tuple[InstalledPackage, ...]:
    """Every package where calls look, in the order in which they look. Headers are read, contents are not."""
    return tuple(map(_installed, _files()))


def uninstall(name: str, folder: Path, target: str = "") -> tuple[Path, ...]:
    """Remove the installed packages of a name.

    Args:
        name: The packages' name; or the name of one file, ending in ``.kdb``, which may be damaged.
        folder: Where they lie.
        target: Of this target alone; empty: of each.

    Returns:
        The files that are gone.

    Raises:
        PackageError: There is none, or it cannot be removed.
    """
    gone = []
    for path in sorted(_in_folder(folder)):
        if path.name != name:
            found = _installed(path)
            if found.problem or found.name != name or target not in ("", found.target):
                continue
        with exclusive(folder, path.name, _LOCK_S):
            try:
                os.unlink(path)
            except OSError as error:
                raise PackageError(f"{path}: cannot be removed: {error.strerror or error}") from None
            with contextlib.suppress(OSError):
                os.unlink(f"{path}{CONSENT_SUFFIX}")
        gone.append(path)
    if not gone:
        raise PackageError(f"{folder} has no package {name}{f' for {target}' if target else ''}")
    return tuple(gone)


def _files() -> Iterator[Path]:
    for place in package_places():
        if os.path.isdir(place):
            yield from sorted(_in_folder(place))
        elif os.path.lexists(place):
            yield place


def _in_folder(folder: Path) -> list[Path]:
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise PackageError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return [folder / name for name in names if name.endswith(SUFFIX) and name[0] != "."]


def _installed(path: Path) -> InstalledPackage:
    try:
        package = PackageFile(path)
        m = package.manifest
        signer = examine(package).name if package.public_key else ""
        return InstalledPackage(str(path), m.name, m.target, m.counter, os.stat(path).st_size, signer)
    except (PackageError, OSError) as error:
        return InstalledPackage(str(path), problem=str(error))
