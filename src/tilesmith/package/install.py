"""Installs packages: fetched, verified, compared with what is installed, and put in place in one step."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilesmith.errors import PackageError
from tilesmith.package.download import Download, Limits, Listener, downloaded
from tilesmith.package.files import PackageFile
from tilesmith.package.index import INDEX_FILE, MOST_BYTES, IndexLine, PackageIndex, parse_index
from tilesmith.package.picking import Pick
from tilesmith.package.records import Manifest
from tilesmith.package.sources import Source, beside, inside, source_of
from tilesmith.package.trust import signer_of, standing, wrong_signature
from tilesmith.package.whole import MOST_PACKAGE, opened, package_bytes, verify
from tilesmith.runtime._runtime import is_signature
from tilesmith.targets.fitting import Fit, fit_of
from tilesmith.targets.target import Target
from tilesmith.toolchain.arriving import PATIENCE, Patience
from tilesmith.toolchain.files import exclusive, publish, read, remove_abandoned
from tilesmith.toolchain.packages import CONSENT_SUFFIX, consent_text

INSTALLED, UPDATED, DOWNGRADED, REPLACED, UNCHANGED = "installed", "updated", "downgraded", "replaced", "unchanged"
_READABLE = 0o644  # by the users of a folder that several share
_LOCK_S = 60.0


@dataclass(frozen=True)
class Rules:
    """The packages that are accepted.

    Args:
        machines: The targets that packages are for; None: any target.
        nearest: Accept a package for another machine whose kernels this one can run: another card, number of SMs or
            threads, a lower arch of a CPU.
        allow_unsigned: Accept a package from a URL without a signature.
        downgrade: An older version may replace a newer one.
        replace: Another package of the same version may replace the one that is installed.
        patience: How long downloads may take.
    """

    machines: tuple[Target, ...] | None
    nearest: bool = False
    allow_unsigned: bool = False
    downgrade: bool = False
    replace: bool = False
    patience: Patience = PATIENCE


@dataclass(frozen=True)
class Installation:
    """The result of an installation: the file, its manifest, its signer (None: not signed), how it suits the machine.

    ``action`` is ``installed``, ``updated``, ``downgraded``, ``replaced`` (another content of the same version, or a
    damaged file) or ``unchanged``.
    """

    path: Path
    manifest: Manifest
    signer: str | None
    fit: Fit
    action: str


def install(place: str, folder: Path, rules: Rules, listener: Listener = lambda done, total: None) -> Installation:
    """Install the package at a path or URL.

    Args:
        place: A path, or a URL of http, https, file, s3 or gs.
        folder: Where packages lie; made if it is missing.
        rules: What is accepted.
        listener: Called with the bytes that have come, and those of the file if they are known.

    Returns:
        What was done. The folder has the package that was there before, or the whole new one, whatever happens.

    Raises:
        PackageError: It cannot be fetched, is damaged, or a rule refuses it. The folder is unchanged.
    """
    return _install(place, folder, rules, None, listener)


def read_index(place: str, patience: Patience = PATIENCE) -> tuple[str, PackageIndex]:
    """The index at a path or URL: of a folder, or the file itself (``*.txt``).

    Returns:
        Where the index lies, and the index. Its signature is not verified.

    Raises:
        PackageError: It cannot be fetched, or is no index.
    """
    is_file = place.partition("?")[0].endswith(".txt") or (os.path.isfile(place) and not os.path.isdir(place))
    found = place if is_file else inside(place, INDEX_FILE)
    source = source_of(found)
    try:
        if isinstance(source, Path):
            return found, parse_index(package_bytes(source, MOST_BYTES))
        with downloaded(source, None, Limits(MOST_BYTES, patience)) as got:
            return found, parse_index(got.data)
    except PackageError as error:
        text = str(error)
        raise error if found in text else PackageError(f"{found}: {text}") from None


def index_signer(place: str, index: PackageIndex) -> str | None:
    """The name of the trusted key that signed the index at ``place``; None for one without a signature.

    Raises ``PackageError`` if the signature is wrong, or its key is not trusted.
    """
    if not index.public_key:
        return None
    is_right = is_signature(index.public_key, index.signature, index.message)
    found = (standing if is_right else wrong_signature)(index.public_key)
    if found.problem:
        raise PackageError(f"{place}: it is {found.problem}")
    return found.name


def install_picked(
    index_place: str, picked: Pick, folder: Path, rules: Rules, listener: Listener = lambda done, total: None
) -> Installation:
    """Install a package of the index that lies at ``index_place``. As ``install`` in all else."""
    line = picked.line
    with contextlib.suppress(PackageError):
        manifest = Manifest(line.name, line.target, "-", "-", line.counter)
        path = folder / manifest.file_name
        data = package_bytes(path)
        if hashlib.sha256(data).hexdigest() == line.sha256:  # what was fetched, verified and trusted before
            package = opened(data, str(path))
            verify(package, str(path))
            signer = _signer(package, str(path), rules.allow_unsigned or isinstance(source_of(index_place), Path))
            if picked.fit != Fit.EXACT:
                _consent(folder, path, package.identity)
            return Installation(path, package.manifest, signer, picked.fit, UNCHANGED)
    return _install(beside(index_place, line.file), folder, rules, line, listener)


def _install(place: str, folder: Path, rules: Rules, line: IndexLine | None, listener: Listener) -> Installation:
    source = source_of(place)
    remove_abandoned(folder)

    def put(data: bytes) -> Installation:
        return _put(data, place, folder, rules, line, is_remote=not isinstance(source, Path))

    if isinstance(source, Path):
        return put(package_bytes(source))
    most = MOST_PACKAGE if line is None else line.nbytes
    return _fetched(source, folder, Limits(most, rules.patience), listener, put)


def _fetched(
    source: Source, folder: Path, limits: Limits, listener: Listener, put: Callable[[bytes], Installation]
) -> Installation:
    got: Download
    with downloaded(source, folder, limits, listener) as got:
        try:
            return put(got.data)
        except PackageError:
            if not got.resumed:
                raise
    # A server that gives two contents one version, or a power cut, has left parts that do not belong together.
    with downloaded(source, folder, limits, listener, anew=True) as got:
        return put(got.data)


def _put(
    data: bytes, place: str, folder: Path, rules: Rules, line: IndexLine | None, *, is_remote: bool
) -> Installation:
    if line is not None and hashlib.sha256(data).hexdigest() != line.sha256:
        raise PackageError(f"{place}: is not the package that the index names: its sha256 is another")
    package = opened(data, place)
    manifest = package.manifest
    if line is not None and (manifest.target, manifest.name, manifest.counter) != (
        line.target,
        line.name,
        line.counter,
    ):
        raise PackageError(f"{place}: is not the package that the index names: its header has another name or counter")
    signer = _signer(package, place, rules.allow_unsigned or not is_remote)
    fit = _fit(manifest, place, rules)
    verify(package, place)
    path = folder / manifest.file_name
    began = time.monotonic()
    with exclusive(folder, manifest.file_name, _LOCK_S) as alone:
        if not alone and time.monotonic() - began >= _LOCK_S:
            raise PackageError(f"{path}: another process has been installing it for {_LOCK_S:.0f} s; try again later")
        action = _action(package, data, path, place, rules)
        if action != UNCHANGED:
            try:
                publish(folder, path, data, mode=_READABLE)
            except OSError as error:
                raise PackageError(f"{path}: cannot be written: {error.strerror or error}") from None
        if fit != Fit.EXACT:
            _consent(folder, path, package.identity)
    return Installation(path, manifest, signer, fit, action)


def _consent(folder: Path, path: Path, identity: str) -> None:
    """Keep that calls may use the package, which is for another machine."""
    beside, text = path.with_name(path.name + CONSENT_SUFFIX), consent_text(path.name, identity)
    try:
        with contextlib.suppress(OSError):
            if read(str(beside)) == text:
                return
        publish(folder, beside, text, mode=_READABLE)
    except OSError as error:
        raise PackageError(f"{beside}: cannot be written: {error.strerror or error}") from None


def _signer(package: PackageFile, place: str, unsigned_is_fine: bool) -> str | None:
    try:
        signer = signer_of(package)
    except PackageError as error:
        raise PackageError(f"{place}: {error}") from None
    if signer is None and not unsigned_is_fine:
        raise PackageError(f"{place}: is not signed, and comes from a URL; `--allow-unsigned` installs it all the same")
    return signer


def _fit(manifest: Manifest, place: str, rules: Rules) -> Fit:
    """How a package suits the targets that it may be for."""
    if rules.machines is None:
        return Fit.EXACT
    fit = max((fit_of(machine, manifest.target) for machine in rules.machines), default=Fit.NONE)
    if fit == Fit.EXACT or (fit != Fit.NONE and rules.nearest):
        return fit
    here = ", ".join(machine.name for machine in rules.machines)
    nearest = "`--nearest` installs it all the same, " if fit != Fit.NONE else ""
    raise PackageError(
        f"{place}: is for {manifest.target}, and not for {here}; {nearest}`--target {manifest.target}` installs it for "
        "another machine"
    )


def _action(package: PackageFile, data: bytes, path: Path, place: str, rules: Rules) -> str:
    """The effect of installing this package on the one that is installed."""
    if not os.path.lexists(path):
        return INSTALLED
    try:
        before = package_bytes(path)
        installed = PackageFile(before)
    except PackageError:  # damaged: nothing is lost with it
        return REPLACED
    if before == data:
        return UNCHANGED
    new, old = package.manifest, installed.manifest
    if (new.name, new.target) != (old.name, old.target):
        if rules.replace:
            return REPLACED
        raise PackageError(f"{path}: is the package {old.name} for {old.target}; `--replace` puts {place} there")
    if new.counter > old.counter:
        return UPDATED
    if new.counter < old.counter:
        if rules.downgrade:
            return DOWNGRADED
        raise PackageError(
            f"{place}: has the counter {new.counter}, and {old.counter} is installed, which is newer; `--downgrade` "
            "installs the older one"
        )
    if installed.identity == package.identity:
        return _of_same_content(package, installed)
    if rules.replace:
        return REPLACED
    raise PackageError(
        f"{place}: has the counter {new.counter} of the package that is installed, and another content; `--replace` "
        "installs it all the same"
    )


def _of_same_content(package: PackageFile, installed: PackageFile) -> str:
    """A signature is not taken away; a damaged file is replaced."""
    if package.public_key or not installed.public_key:
        return REPLACED
    try:
        installed.verify()
    except PackageError:
        return REPLACED
    return UNCHANGED
