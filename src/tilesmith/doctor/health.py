"""Whether this machine can do what is asked of it: compilers, devices, folders, databases, cache, environment.

Every check tries what it speaks of, and says what to type where it fails. Nothing is left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tilesmith import __version__, env
from tilesmith.db.admission import why_refused
from tilesmith.db.connect import LOG
from tilesmith.db.opening import open_database
from tilesmith.db.remote import is_url
from tilesmith.db.trial import why_not
from tilesmith.dispatch.spec.choice import read_spec
from tilesmith.doctor.check import FINE, NOTE, PROBLEM, Check
from tilesmith.doctor.gpu_power import gpu_power
from tilesmith.doctor.packages import packages
from tilesmith.doctor.pytorch import pytorch
from tilesmith.errors import CompileError, EnvironmentValueError, LaunchError, NoCompilerError, TilesmithError
from tilesmith.plan.records import Source
from tilesmith.targets.detect import cpu_model, hidden_arch, host_target, refused_arch, usable_cores
from tilesmith.targets.detect_cuda import cuda_devices, target_of_device
from tilesmith.toolchain.build import build_unit
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.toolchain.inventory import inventory
from tilesmith.toolchain.nvrtc import find_nvrtc
from tilesmith.toolchain.trust import why_distrusted

_MIB = 1 << 20
_LITTLE, _TOO_LITTLE = 1024 * _MIB, 64 * _MIB  # bytes left on a disk


def examine() -> Iterator[Check]:
    """Make every check, one at a time. An unexpected error in a check is a problem too."""
    checks: tuple[tuple[str, Callable[[], Iterator[Check]]], ...] = (
        ("tilesmith", _package), ("environment", _environment), ("compiler", _compiler), ("gpu", _gpu),
        ("gpu clocks", gpu_power), ("pytorch", pytorch),
        ("cache folder", _cache_folder), ("cache", _cache), ("database", _databases), ("package", packages),
        ("tuning spec", _spec), ("temporary folder", _temporary),
    )  # fmt: skip
    for name, check in checks:
        try:
            yield from check()
        except EnvironmentValueError as error:
            yield Check(name, NOTE, f"not checked: {error}")
        except (TilesmithError, OSError, sqlite3.Error) as error:
            yield Check(name, PROBLEM, str(error))


def _package() -> Iterator[Check]:
    try:
        importlib.import_module("tilesmith.runtime._runtime")
    except ImportError as error:
        yield Check(
            "tilesmith", PROBLEM, f"the C runtime cannot be loaded: {error}",
            "install the wheel or the checkout again, with pip's --force-reinstall",
        )  # fmt: skip
        return
    target = host_target()
    hidden = hidden_arch()
    capped = f" (TILESMITH_CPU_LEVEL hides {hidden})" if hidden else ""
    refused = refused_arch()
    capped += f" (the kernel does not allow {refused} here)" if refused else ""
    what = f"{__version__} on {target.name}{capped}, {cpu_model()}, {usable_cores()} usable cores"
    yield Check("tilesmith", FINE, what)


def _environment() -> Iterator[Check]:
    bad = False
    for variable in env.VARIABLES:
        try:
            variable.get()
        except EnvironmentValueError as error:
            bad = True
            yield Check("environment", PROBLEM, str(error), f"unset {variable.name}")
    for name in env.unknown_names():
        bad = True
        yield Check(
            "environment", PROBLEM, f"{name} does not exist", f"unset {name}; `tilesmith env` lists the variables"
        )
    if not bad:
        given = [variable.name for variable in env.VARIABLES if variable.is_set]
        yield Check("environment", FINE, f"set: {', '.join(given)}" if given else "all defaults")


# --- compilers and devices --------------------------------------------------------------------------------------------


def _compiler() -> Iterator[Check]:
    strict = env.FIND_MODE.get() == "strict"
    try:
        compiler = find_compiler()
    except NoCompilerError as error:
        what, _, advice = str(error).partition("; ")
        yield Check(
            "compiler", NOTE if strict else PROBLEM, f"{what} (mode strict needs none)" if strict else what, advice
        )
        return
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="tilesmith-doctor-") as folder:
            build_unit([_TRIAL], host_target(1), Path(folder) / "trial.so", compiler)
    except (CompileError, OSError) as error:
        yield Check(
            "compiler", PROBLEM, f"{compiler.identity}: {error}", "set CC to another compiler, or reinstall this one"
        )
        return
    milliseconds = (time.perf_counter() - began) * 1e3
    command = " ".join(compiler.command)
    yield Check("compiler", FINE, f"{compiler.identity} ({command}) compiles a kernel in {milliseconds:.0f} ms")


_TRIAL = Source("c", "ts_trial", "", "int ts_trial(void) { return 42; }\n")


def _gpu() -> Iterator[Check]:
    try:
        devices = cuda_devices()
    except LaunchError as error:
        present = any(Path("/proc/driver/nvidia").glob("gpus/*")) or Path("/dev/nvidia0").exists()
        if present or env.LIBCUDA.is_set:
            yield Check("gpu", PROBLEM, str(error), "install the driver of this GPU, or unset TILESMITH_LIBCUDA")
        else:
            yield Check("gpu", NOTE, "no NVIDIA GPU here; problems run on the CPU")
        return
    if not devices:
        yield Check("gpu", NOTE, "a CUDA driver, but no device that this process may use (see CUDA_VISIBLE_DEVICES)")
        return
    for device in devices:
        what = f"cuda:{device.ordinal} {device.name}, {device.sms} SMs, driver {device.driver}"
        try:
            target = target_of_device(device)
            nvrtc = find_nvrtc()
            nvrtc.flags(target)
        except NoCompilerError as error:
            reason, _, advice = str(error).rpartition("; ")
            yield Check("gpu", PROBLEM, f"{what}: {reason}", advice)
        except TilesmithError as error:
            yield Check("gpu", NOTE, f"{what}: {error}")
        else:
            guess = ", no record of this card: its peaks are estimated" if target.estimated else ""
            yield Check("gpu", FINE, f"{what}: {target.name}{guess}, {nvrtc.identity} ({nvrtc.library})")


# --- folders ----------------------------------------------------------------------------------------------------------


def _cache_folder() -> Iterator[Check]:
    if not env.CACHE_ON.get():
        yield Check("cache folder", NOTE, "the cache is off: each process compiles anew", "unset TILESMITH_CACHE_ON")
        return
    folder = env.CACHE_DIR.get()
    distrusted = why_distrusted(folder)
    if distrusted is not None:
        what, _, advice = distrusted.partition("; type ")
        yield Check("cache folder", PROBLEM, f"{folder} is not used: {what}", advice)
        return
    yield from _folder("cache folder", folder, "TILESMITH_CACHE_DIR", runs=True)


def _temporary() -> Iterator[Check]:
    yield from _folder("temporary folder", Path(tempfile.gettempdir()), "TMPDIR", runs=True)


def _folder(name: str, folder: Path, variable: str, *, runs: bool) -> Iterator[Check]:
    """Whether files can be made in a folder (or in what lies nearest above it), and kernels run from there."""
    here = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    other = f"export {variable}=FOLDER, a folder that can be written"
    try:
        free = shutil.disk_usage(here).free
        with tempfile.TemporaryDirectory(prefix=".tilesmith-doctor-", dir=here) as trial:
            refused = _why_no_kernel_runs(Path(trial)) if runs else ""
    except OSError as error:
        strict = env.FIND_MODE.get() == "strict"
        detail = f"{folder} cannot be written: {error.strerror or error}"
        yield Check(
            name, NOTE if strict else PROBLEM, f"{detail} (mode strict only reads)" if strict else detail, other
        )
        return
    if refused:
        in_memory = sys.platform == "linux"  # where kernels are loaded from, unless the system forbids that, too
        yield Check(
            name,
            NOTE if in_memory else PROBLEM,
            f"kernels in {folder} cannot be run{' from their files, only from memory' * in_memory}: {refused}",
            f"export {variable}=FOLDER, on a disk that is not mounted noexec",
        )
        return
    size = f"{free / (1 << 30):.1f} GiB free"
    if free < _LITTLE:
        status = PROBLEM if free < _TOO_LITTLE else NOTE
        yield Check(
            name, status, f"{folder}: only {size}", "make room, or type `tilesmith cache prune --max-bytes 500M`"
        )
        return
    yield Check(name, FINE, f"{folder}, {size}" if here == folder else f"{folder} (not made yet), {size}")


def _why_no_kernel_runs(folder: Path) -> str:
    try:
        compiler = find_compiler()
        build_unit([_TRIAL], host_target(1), folder / "trial.so", compiler)
    except (NoCompilerError, CompileError):
        return ""  # which is another check's matter
    try:
        return "" if ctypes.CDLL(str(folder / "trial.so")).ts_trial() == 42 else "it computes wrong numbers"
    except OSError as error:
        return str(error)


# --- what is remembered -----------------------------------------------------------------------------------------------


def _cache() -> Iterator[Check]:
    folder = env.CACHE_DIR.get()
    entries = inventory(folder, verify=True)
    size = sum(entry.nbytes for entry in entries)
    damaged = [entry for entry in entries if entry.damage]
    what = f"{len(entries)} files, {size / _MIB:.1f} MiB"
    if damaged:
        first = f"{damaged[0].path.name}: {damaged[0].damage}"
        yield Check("cache", PROBLEM, f"{what}, {len(damaged)} damaged ({first})", "tilesmith cache verify --repair")
        return
    yield Check("cache", FINE, f"{what}, each byte checked")


def _databases() -> Iterator[Check]:
    paths = (*env.system_databases(), *env.DB_PATH.get())
    for place, path in enumerate(paths):
        last = place == len(paths) - 1
        if is_url(path):
            yield Check("database", NOTE, f"{path}: fetched when it is needed; not asked now")
            continue
        file = Path(path)
        if last:
            yield from _database_folder(file)
        if not file.exists() and not _has_records(file):
            if last:
                yield Check("database", FINE, f"{path}: not made yet")
            else:
                yield Check(
                    "database", PROBLEM, f"{path} does not exist", "remove it from TILESMITH_DB_PATH, or put it there"
                )
            continue
        refused = why_refused(file)
        if refused is not None:
            what, _, advice = refused.partition("; type ")
            yield Check("database", PROBLEM, f"{path} is not used: {what}", advice or "remove it, or name another")
            continue
        yield _database(path)


def _database(path: str) -> Check:
    with _listening() as told:  # a file that cannot be used degrades with a warning
        database = open_database(path, readonly=True)
        try:
            damage = list(database.check()) or told
            problems = len(database.problems())
        finally:
            database.close()
    if damage:
        return Check(
            "database", PROBLEM, f"{path}: {len(damage)} damaged ({damage[0]})",
            f"tilesmith db check --db {path} --repair, or put a whole file in its place",
        )  # fmt: skip
    return Check("database", FINE, f"{path}: {database.kind}, answers for {problems} problems")


@contextlib.contextmanager
def _listening() -> Iterator[list[str]]:
    """The warnings about databases while the block runs."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler = Listener(logging.WARNING)
    LOG.addHandler(handler)
    try:
        yield told
    finally:
        LOG.removeHandler(handler)


def _has_records(file: Path) -> bool:
    from tilesmith.db.files import records_folder

    return os.path.isdir(records_folder(file))


def _database_folder(file: Path) -> Iterator[Check]:
    folder = file.absolute().parent
    here = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        reason = why_not(here, thorough=True)
    except OSError as error:
        strict = env.FIND_MODE.get() == "strict"
        detail = f"{folder} cannot be written ({error.strerror or error}): what is measured is forgotten"
        yield Check(
            "database folder", NOTE if strict else PROBLEM, detail, "name another file as the last of TILESMITH_DB_PATH"
        )
        return
    if reason is not None:
        yield Check(
            "database folder",
            NOTE,
            f"{folder}: its file system does not bear SQLite ({reason}); one file a record is kept",
        )
        return
    yield Check("database folder", FINE, f"{folder}: locks and journals work")


def _spec() -> Iterator[Check]:
    path = env.TUNING_SPEC_PATH.get()
    if path is None:
        return
    try:
        count = len(read_spec(path))
    except TilesmithError as error:
        yield Check("tuning spec", PROBLEM, str(error), "repair the line, or unset TILESMITH_TUNING_SPEC_PATH")
        return
    yield Check("tuning spec", FINE, f"{path}: {count} choices come before every database")
