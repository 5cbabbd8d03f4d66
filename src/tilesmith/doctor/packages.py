"""The kernel packages of a machine: whole, and for which target."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tilesmith.dispatch.locations import target_of
from tilesmith.dispatch.packages import installed_packages
from tilesmith.doctor.check import FINE, NOTE, PROBLEM, Check
from tilesmith.errors import LaunchError, PackageError, TargetError
from tilesmith.runtime.packages import PackageReader
from tilesmith.targets.detect_cuda import cuda_devices, target_of_device
from tilesmith.targets.names import parse_target
from tilesmith.toolchain.packages import SUFFIX, package_places
from tilesmith.toolchain.trust import why_distrusted


def packages() -> Iterator[Check]:
    """One check for each package, each byte read; and one for a place that is named and missing."""
    for number, place in enumerate(package_places()):
        if place.exists() or (number == 0 and place.suffix != SUFFIX):  # a first folder is made when one is installed
            continue
        yield Check("package", PROBLEM, f"{place} does not exist", "remove it from TILESMITH_PACKAGE_PATH")
    found = installed_packages()
    here = _targets() if found.state else {}
    near = {reader.path for reader in found.near_readers}
    for path, *_ in found.state:
        yield _package(path, here, path in near)


def _package(path: str, here: dict[str, str], nearest: bool) -> Check:
    distrusted = why_distrusted(path) or why_distrusted(Path(path).parent)
    if distrusted is not None:
        what, _, advice = distrusted.partition("; type ")
        return Check("package", PROBLEM, f"{path} is not used: {what}", advice)
    try:
        package = PackageReader(path)
        problems, manifest = package.check(), package.manifest
    except PackageError as error:
        return Check("package", PROBLEM, str(error), f"install it again, or remove {path}")
    what = f"{path}: {problems} problems for {manifest.target}, version {manifest.counter}, each byte checked"
    if manifest.target in here:
        return Check("package", FINE, what)
    try:
        kin = parse_target(manifest.target).arch in here.values()
    except TargetError:
        kin = False
    this = f"this machine is {' and '.join(here)}"
    if kin and nearest:
        return Check("package", FINE, f"{what}; used as the nearest, as {this}")
    use = f"type `tilesmith package install --nearest {path}` to use it all the same"
    return Check("package", NOTE, f"{what}; {this}", use if kin else "install one for this machine")


def _targets() -> dict[str, str]:
    """The targets of this machine, each with its arch."""
    targets = [target_of(None, None)]
    with contextlib.suppress(LaunchError, TargetError):  # no GPU, or one that is not known
        targets += [target_of_device(device) for device in cuda_devices()]
    return {target.name: target.arch for target in targets}
