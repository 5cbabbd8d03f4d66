"""Finds out what machine this is. Nothing is probed at import; the answer is kept for the life of the process."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tilesmith import env
from tilesmith.errors import TargetError
from tilesmith.targets.cards import GENERIC
from tilesmith.targets.cpu import CPU_TARGETS, archs_within, cpu_target, x86_arch
from tilesmith.targets.target import CpuTarget

# (family, first model, last model): AMD gives each core design ranges of models.
_AMD = {
    (23, 0x00, 0x2F): "zen1", (23, 0x30, 0xFF): "zen2", (24, 0x00, 0xFF): "zen1",
    (25, 0x00, 0x0F): "zen3", (25, 0x10, 0x1F): "zen4", (25, 0x20, 0x5F): "zen3", (25, 0x60, 0xAF): "zen4",
    (26, 0x00, 0xFF): "zen5",
}  # fmt: skip
# Models of family 6.
_INTEL = {
    "haswell": (0x3C, 0x3F, 0x45, 0x46), "broadwell": (0x3D, 0x47, 0x4F, 0x56),
    "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6), "skylake-sp": (0x55,), "ice-lake": (0x7D, 0x7E),
    "ice-lake-sp": (0x6A, 0x6C), "tiger-lake": (0x8C, 0x8D), "rocket-lake": (0xA7,), "alder-lake": (0x97, 0x9A),
    "raptor-lake": (0xB7, 0xBA, 0xBF), "meteor-lake": (0xAA, 0xAC), "lunar-lake": (0xBD,),
    "arrow-lake": (0xB5, 0xC5, 0xC6), "sapphire-rapids": (0x8F,), "emerald-rapids": (0xCF,),
    "granite-rapids": (0xAD, 0xAE), "sierra-forest": (0xAF,), "gracemont": (0xBE,),
}  # fmt: skip
_ARM = {
    (0x41, 0xD03): "cortex-a53", (0x41, 0xD07): "cortex-a57", (0x41, 0xD08): "cortex-a72", (0x41, 0xD0B): "cortex-a76",
    (0x41, 0xD0C): "neoverse-n1", (0x41, 0xD40): "neoverse-v1", (0x41, 0xD42): "cortex-a78ae",
    (0x41, 0xD49): "neoverse-n2", (0x41, 0xD4F): "neoverse-v2", (0x41, 0xD84): "neoverse-v3",
    (0x41, 0xD8E): "neoverse-n3",
}  # fmt: skip
_MAKERS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "HygonGenuine": "hygon", "CentaurHauls": "centaur"}


def processor_text(lines: Iterable[str]) -> str:
    """The processor of a machine whose ``/proc/cpuinfo`` has these lines; ``generic`` if they do not name it.

    One that has no name here is called by its numbers: ``intel-6-207``, ``arm-41-d80``.
    """
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    try:
        if "vendor_id" in fields:
            return _x86(fields["vendor_id"], int(fields["cpu family"]), int(fields["model"]))
        return _arm(int(fields["CPU implementer"], 16), int(fields["CPU part"], 16))
    except (KeyError, ValueError):
        return GENERIC


def _x86(vendor: str, family: int, model: int) -> str:
    maker = _MAKERS.get(vendor, "x86")
    if maker == "amd":
        names = (name for (of, first, last), name in _AMD.items() if of == family and first <= model <= last)
    else:
        names = (name for name, models in _INTEL.items() if maker == "intel" and family == 6 and model in models)
    return next(names, f"{maker}-{family}-{model}")


def _arm(implementer: int, part: int) -> str:
    return _ARM.get((implementer, part), f"arm-{implementer:x}-{part:x}")


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_BOOT = "/proc/sys/kernel/random/boot_id"
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def host_target(cores: int | None = None) -> CpuTarget:
    """The target that this process runs on, for ``cores`` threads (default: all cores that it may use).

    ``TILESMITH_CPU_LEVEL`` caps its level.
    """
    return _capped_target(usable_cores() if cores is None else cores, env.CPU_LEVEL.get())


def hidden_arch() -> str:
    """The processor's arch where ``TILESMITH_CPU_LEVEL`` hides it, else nothing."""
    found = host_cpu().arch
    return found if host_target(1).arch != found else ""


def refused_arch() -> str:
    """The processor's arch where the kernel does not let this process use its matrix tiles, else nothing."""
    found = found_cpu().arch
    return found if host_cpu().arch != found else ""


@dataclass(frozen=True)
class HostCpu:
    """The facts that last until the next boot: the highest arch of the processor, whatever caps it or is refused to a
    process, the processor's name in targets, and bytes of its caches, 0 where the system does not tell.
    """

    arch: str
    card: str
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int

    @property
    def caches(self) -> tuple[int, int, int]:
        return self.l1_bytes, self.l2_bytes, self.l3_bytes


_recalled: HostCpu | None = None


def host_cpu() -> HostCpu:
    """The CPU as this process may use it: of a lower arch where the kernel refuses it the matrix tiles."""
    found = found_cpu()
    if not CPU_TARGETS[found.arch].bf16_tiles or _tiles_allowed():
        return found
    return replace(found, arch=next(a for a in reversed(archs_within(found.arch)) if not CPU_TARGETS[a].bf16_tiles))


@lru_cache(maxsize=1)
def _tiles_allowed() -> bool:
    """Ask the kernel to let this process use tile registers (Linux 5.16 and later); False where it refuses.

    The permission holds for the process and for those that it forks: no process may rely on that of another. The first
    use of a tile without it ends the process.
    """
    words = 158, 0x1023, 18  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    try:
        import ctypes  # only processors with tiles need it

        return sys.platform == "linux" and bool(ctypes.CDLL(None).syscall(*map(ctypes.c_long, words)) == 0)
    except (ImportError, OSError):  # a Python without libffi, or one that is linked statically
        return False


def found_cpu() -> HostCpu:
    """The CPU that this process runs on, as it was recalled or is found out now."""
    if _recalled is not None:
        return _recalled
    found = _cache_sizes(_CACHES)
    return HostCpu(_host_arch(), processor_text(_lines(_CPUINFO)), *(found.get(level, 0) for level in (1, 2, 3)))


def recall_host_cpu(found: HostCpu) -> None:
    """The facts that another process of this boot has stored."""
    global _recalled
    _recalled = found


@lru_cache(maxsize=1)
def boot_id() -> str:
    """The kernel's identifier of this boot; empty where it has none."""
    try:
        return _line(_BOOT)
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=64)
def _capped_target(cores: int, level: str | None) -> CpuTarget:
    host = host_cpu()
    arch = level if level in archs_within(host.arch) else host.arch
    return cpu_target(arch, cores, host.caches, host.card)


def usable_cores() -> int:
    """Cores that this process may use: its CPU affinity, and the quota of its control group where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _quota_cores(_QUOTA) or cores))


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """The CPU's name as the system tells it, for reports; empty when unknown."""
    for line in _lines(_CPUINFO):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Processor"):
            return value.strip()
    return platform.processor()


def _host_arch() -> str:
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return "aarch64"
    if machine in ("x86_64", "amd64"):
        features = _x86_features(_lines(_CPUINFO))
        # Systems without /proc: every x86-64 CPU since 2009 runs this.
        return x86_arch(features) if features else "x86_64-v2"
    raise TargetError(f"machine {machine!r} is not supported; known: x86_64, aarch64")


def _x86_features(lines: list[str]) -> frozenset[str]:
    """The feature flags that every core has."""
    cores = [frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return frozenset.intersection(*cores) if cores else frozenset()


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Bytes of the data caches of the first core by level; empty where the system does not tell."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            nbytes = int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1)
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and nbytes > 0:
            sizes[level] = nbytes
    return sizes


def _quota_cores(path: Path) -> int | None:
    """Whole cores that a version 2 control group grants, rounded up; None without a quota."""
    try:
        quota, period = _line(path).split()
        return None if quota == "max" else -(-int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _line(path: str | Path) -> str:
    """The text of a system file of one short line: read once, since each process asks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 256).decode("ascii").strip()
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
