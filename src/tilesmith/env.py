"""Every ``TILESMITH_*`` environment variable: its default, its meaning, and the rule that a value must obey.

A variable is read when it is used, never at import: ``env.CACHE_DIR.get()``. ``VARIABLES`` is the one table; the
documentation and ``tilesmith env`` print it. An empty value means the default.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

from platformdirs import PlatformDirs

from tilesmith.errors import EnvironmentValueError

T = TypeVar("T")

_HOME = PlatformDirs("tilesmith", appauthor=False)  # asks the environment each time: these variables of it
_ASKED = ("HOME", "USERPROFILE", "LOCALAPPDATA") if os.name == "nt" else ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")

_SYSTEM = Path(os.path.join(sys.prefix, "share", "tilesmith"))

# One entry of a list of layers: a URL, whose colons (of its scheme, a password, a port) part nothing, or a path.
_LAYER = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/:@]*:[^/@]*@)?(?:\[[^\]]*\]|[^/:]*)(?::[0-9]+(?![^/:]))?[^:]*|[^:]+"
    if os.pathsep == ":"
    else rf"[^{os.pathsep}]+"
)
FIND_MODES = ("fast", "background", "hybrid", "normal", "trust_verify", "strict")
MAX_THREADS = 1024  # of a launch: what a plan may count
CPU_LEVELS = ("x86_64-v2", "x86_64-v3", "x86_64-v4", "x86_64-v4-bf16", "x86_64-v4-amx")  # of x86-64, lowest first
LOG_LEVELS = ("error", "warning", "info", "debug")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One variable. ``parse`` turns text into a value, or raises ``ValueError`` when it breaks ``rule``."""

    name: str
    default: Callable[[], T]
    default_text: str
    rule: str
    meaning: str
    parse: Callable[[str], T]

    def get(self) -> T:
        """The value now; ``EnvironmentValueError`` names the variable, the value and the rule that it breaks."""
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default()
        try:
            return self.parse(text)
        except ValueError:
            raise EnvironmentValueError(f"{self.name}={text!r} is not {self.rule}") from None

    @property
    def is_set(self) -> bool:
        return bool(os.environ.get(self.name, "").strip())


def _switch(text: str) -> bool:
    values = {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}
    try:
        return values[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _choice(values: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(text)
        return text.lower()

    return parse


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError(text)
    return Path(os.path.expanduser(text))


def _folder(text: str) -> Path:
    path = _path(text)
    if not os.path.isdir(path) and os.path.exists(path):  # unlike Path's, these raise for no file system
        raise ValueError(text)
    return path


def _folders(text: str) -> tuple[Path, ...]:
    found = tuple(_path(part.strip()) for part in text.split(os.pathsep) if part.strip())
    if not all(path.is_absolute() for path in found):
        raise ValueError(text)
    return found


def _places(text: str) -> tuple[Path, ...]:
    return _places_of(text, os.environ.get("HOME") if "~" in text else None)


@lru_cache(maxsize=8)
def _places_of(text: str, home: str | None) -> tuple[Path, ...]:
    """The places that a text names, for as long as ``~`` stands for this folder: each call asks for them."""
    found = tuple(_path(part.strip()) for part in text.split(os.pathsep) if part.strip())
    if not found:
        raise ValueError(text)
    return found


def _layers(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in _LAYER.findall(text) if part.strip())


def _threads(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= len(text) <= 9 or not 1 <= int(text) <= MAX_THREADS:
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{0,6})?", text, re.ASCII) is None or not 0.1 <= float(text) <= 3600:
        raise ValueError(text)
    return float(text)


def _solver(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.@-]+", text) is None:
        raise ValueError(text)
    return text


def _user_cache() -> Path:
    return _user_places(*map(os.environ.get, _ASKED))[0]


def _user_layer() -> tuple[str, ...]:
    return _user_places(*map(os.environ.get, _ASKED))[1]


def _user_lab() -> Path:
    return Path(_user_layer()[0]).with_name("lab")


def _user_fleet() -> Path:
    return Path(_user_layer()[0]).with_name("fleet")


def _user_packages() -> tuple[Path, ...]:
    return _user_places(*map(os.environ.get, _ASKED))[2]


@lru_cache(maxsize=8)
def _user_places(*asked: str | None) -> tuple[Path, tuple[str, ...], tuple[Path, ...]]:
    """The user's cache, layer and packages, for as long as the variables that say where they lie are these."""
    data = _HOME.user_data_dir
    return Path(_HOME.user_cache_dir), (os.path.join(data, "tilesmith.db"),), (Path(data, "packages"),)


_SWITCH = "one of 1, 0, on, off, true, false, yes, no"

CACHE_ON: Variable[bool] = Variable(
    "TILESMITH_CACHE_ON", lambda: True, "1", _SWITCH,
    "keep compiled kernels in the artifact cache; 0 compiles into a folder that goes when the process ends", _switch,
)  # fmt: skip
CACHE_DIR: Variable[Path] = Variable(
    "TILESMITH_CACHE_DIR", _user_cache, "the user's cache folder", "a folder's path",
    "where the artifact cache lies", _folder,
)  # fmt: skip
TRUST_FOLDER: Variable[tuple[Path, ...]] = Variable(
    "TILESMITH_TRUST_FOLDER", lambda: (), "none", f"a list of absolute paths of folders separated by {os.pathsep!r}",
    "folders of caches and databases that are used although other users own them or can write to them", _folders,
)  # fmt: skip
TRUSTED_KEYS: Variable[tuple[Path, ...]] = Variable(
    "TILESMITH_TRUSTED_KEYS", lambda: (), "none", f"a list of absolute paths separated by {os.pathsep!r}",
    "files of public keys, or folders of them, whose packages may be installed; they join the user's own", _folders,
)  # fmt: skip
TUNING_SPEC_PATH: Variable[Path | None] = Variable(
    "TILESMITH_TUNING_SPEC_PATH", lambda: None, "none", "a file's path",
    "TOML file of choices that come before every database; empty is none", _path,
)  # fmt: skip
LOG: Variable[str] = Variable(
    "TILESMITH_LOG", lambda: "warning", "warning", f"one of {', '.join(LOG_LEVELS)}",
    "how much is written to stderr", _choice(LOG_LEVELS),
)  # fmt: skip
FIND_MODE: Variable[str] = Variable(
    "TILESMITH_FIND_MODE", lambda: "hybrid", "hybrid", f"one of {', '.join(FIND_MODES)}",
    "what happens to a problem that no database holds", _choice(FIND_MODES),
)  # fmt: skip
DB_PATH: Variable[tuple[str, ...]] = Variable(
    "TILESMITH_DB_PATH", _user_layer, "one file in the user's data folder",
    f"a list of database files or URLs separated by {os.pathsep!r}",
    "database layers; a later one wins over an earlier one, and the last is written", _layers,
)  # fmt: skip
SYSTEM_DB_PATH: Variable[Path] = Variable(
    "TILESMITH_SYSTEM_DB_PATH", lambda: _SYSTEM, "share/tilesmith under Python's prefix", "a folder's path",
    "where packages install databases: every *.db in it is a layer below those of TILESMITH_DB_PATH", _folder,
)  # fmt: skip
DB_TIMEOUT: Variable[float] = Variable(
    "TILESMITH_DB_TIMEOUT", lambda: 5.0, "5", "a number of seconds from 0.1 to 3600",
    "how long one call waits for its databases in all (held by other processes, or fetched) before it works without",
    _seconds,
)  # fmt: skip
PACKAGE_PATH: Variable[tuple[Path, ...]] = Variable(
    "TILESMITH_PACKAGE_PATH", _user_packages, "packages in the user's data folder",
    f"a list of folders and .kdb files separated by {os.pathsep!r}",
    "kernel packages that calls look into; an earlier one wins, and the first folder is installed into", _places,
)  # fmt: skip
PACKAGE_NEAREST: Variable[bool] = Variable(
    "TILESMITH_PACKAGE_NEAREST", lambda: False, "0", _SWITCH,
    "let kernel packages for other machines whose kernels run here serve problems that no package for this machine has",
    _switch,
)  # fmt: skip
LOG_CMD: Variable[bool] = Variable(
    "TILESMITH_LOG_CMD", lambda: False, "0", _SWITCH,
    "print every problem met, once, as a driver command (or its key) to stderr", _switch,
)  # fmt: skip
ONLY_SOLVER: Variable[str] = Variable(
    "TILESMITH_ONLY_SOLVER", lambda: "", "none", "a solver's name (letters, digits, and _ . @ -)",
    "use this solver and no other", _solver,
)  # fmt: skip
NUM_THREADS: Variable[int | None] = Variable(
    "TILESMITH_NUM_THREADS", lambda: None, "all usable cores", f"an integer from 1 to {MAX_THREADS}",
    "threads of a launch when the call names none", _threads,
)  # fmt: skip
CPU_LEVEL: Variable[str | None] = Variable(
    "TILESMITH_CPU_LEVEL", lambda: None, "the processor's", f"one of {', '.join(CPU_LEVELS)}",
    "the highest level of x86-64 that kernels for this machine use; one that the processor lacks changes nothing",
    _choice(CPU_LEVELS),
)  # fmt: skip
LIBCUDA: Variable[str] = Variable(
    "TILESMITH_LIBCUDA", lambda: "", "libcuda.so.1", "a library's path or name",
    "the library of the CUDA driver; tests put a stand-in in its place", lambda text: str(_path(text)),
)  # fmt: skip
EXTERNAL: Variable[bool] = Variable(
    "TILESMITH_EXTERNAL", lambda: True, "1", _SWITCH,
    "let PyTorch's own CUDA kernels take part where PyTorch is loaded; 0 leaves generated kernels alone", _switch,
)  # fmt: skip

LAB_DIR: Variable[Path] = Variable(
    "TILESMITH_LAB_DIR", _user_lab, "lab in the user's data folder", "a folder's path",
    "where `tilesmith gemm` keeps its results and jobs, and rivals what they compiled and tuned", _folder,
)  # fmt: skip
FLEET_DIR: Variable[Path] = Variable(
    "TILESMITH_FLEET_DIR", _user_fleet, "fleet in the user's data folder", "a folder's path",
    "where workers of a fleet keep their databases and what the client has not received yet, and clients what is done",
    _folder,
)  # fmt: skip
CUTLASS_DIR: Variable[Path | None] = Variable(
    "TILESMITH_CUTLASS_DIR", lambda: None, "the wheel nvidia-cutlass", "a folder's path",
    "a checkout of CUTLASS, whose kernels are measured beside ours", _folder,
)  # fmt: skip
RIVAL_SECONDS: Variable[float] = Variable(
    "TILESMITH_RIVAL_SECONDS", lambda: 600.0, "600", "a number of seconds from 0.1 to 3600",
    "how long a rival that compiles or tunes may take for a problem before it is measured without it", _seconds,
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (  # type: ignore[assignment]  # read only, so covariance is safe
    CACHE_ON, CACHE_DIR, TRUST_FOLDER, TRUSTED_KEYS, TUNING_SPEC_PATH, LOG, FIND_MODE, DB_PATH, SYSTEM_DB_PATH,
    DB_TIMEOUT, PACKAGE_PATH, PACKAGE_NEAREST, LOG_CMD, ONLY_SOLVER, NUM_THREADS, CPU_LEVEL, LIBCUDA, EXTERNAL,
    LAB_DIR, FLEET_DIR, CUTLASS_DIR, RIVAL_SECONDS,
)  # fmt: skip


def user_config() -> Path:
    """The folder of the user's settings, as the system's variables say now; it need not exist."""
    return Path(_HOME.user_config_dir)


def system_databases() -> tuple[str, ...]:
    """The installed databases, in the order of their names."""
    folder = str(SYSTEM_DB_PATH.get())
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".db"))
    except OSError:
        return ()
    return tuple(os.path.join(folder, name) for name in names)


def takes_part(wanted: bool | None = None) -> bool:
    """Whether PyTorch's own kernels compete: ``wanted``; None: if PyTorch with CUDA is loaded and EXTERNAL says so."""
    if wanted is not None:
        return wanted
    version = getattr(sys.modules.get("torch"), "version", None)
    return getattr(version, "cuda", None) is not None and EXTERNAL.get()


def check_all() -> None:
    """Read every variable once, so that a bad value is met before work begins."""
    for variable in VARIABLES:
        variable.get()


def unknown_names() -> tuple[str, ...]:
    """Variables of the process that look like ours and are not: most likely misspelt."""
    known = {variable.name for variable in VARIABLES}
    return tuple(sorted(name for name in os.environ if name.startswith("TILESMITH_") and name not in known))
