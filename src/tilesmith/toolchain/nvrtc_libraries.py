"""Where libraries of NVRTC lie, and their versions."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

_LIBRARY = re.compile(r"libnvrtc\.so\.(\d+)(?:\.(\d+))?(?:\.\d+)*")


def candidates(homes: tuple[str, ...]) -> Iterator[str]:
    """Libraries in order of preference; within one place the newest first."""
    folders = list(_wheel_folders())
    for home in (*homes, "/usr/local/cuda"):
        if home:
            folders += [Path(home) / "lib64", Path(home) / "lib", Path(home) / "targets/x86_64-linux/lib"]
    for folder in folders:
        found = [path for path in _listed(folder) if _LIBRARY.fullmatch(path.name)]
        yield from map(str, sorted(found, key=lambda path: _numbers(path.name), reverse=True))
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2")


def _wheel_folders() -> list[Path]:
    """``nvidia/cu13/lib`` and ``nvidia/cuda_nvrtc/lib`` wherever packages are; newer CUDA first."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    majors = [folder for place in folders for folder in _listed(place) if re.fullmatch(r"cu\d+", folder.name)]
    majors.sort(key=lambda folder: int(folder.name[2:]), reverse=True)
    return [folder / "lib" for folder in (*majors, *(place / "cuda_nvrtc" for place in folders))]


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _numbers(name: str) -> tuple[int, int]:
    match = _LIBRARY.fullmatch(name)
    assert match is not None
    return int(match[1]), int(match[2] or 0)


def version_of(path: str) -> tuple[int, int] | None:
    """Its version; None for a library that is not there or too old."""
    try:
        library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) != 0:
            return None
        library.nvrtcGetCUBIN  # noqa: B018  # since 11.1: straight to machine code
    except (OSError, AttributeError):
        return None
    return major.value, minor.value
