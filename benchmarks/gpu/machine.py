"""The card and the moment of a measurement, for result files."""

from __future__ import annotations

import platform
import re
import subprocess
from datetime import UTC, datetime

from tilesmith.targets.detect_cuda import cuda_devices
from tilesmith.toolchain.nvrtc import find_nvrtc

FIELDS = ("driver_version", "clocks.max.sm", "clocks.max.mem", "clocks.sm", "power.limit", "memory.total")


def slug(name: str) -> str:
    """A card's name in file names: ``nvidia_h200``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def facts(command: str) -> dict[str, object]:
    """Machine, driver, clocks, date and command."""
    devices = cuda_devices()
    asked = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader"]
    try:
        line = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()[0]
        read = dict(zip(FIELDS, (cell.strip() for cell in line.split(",")), strict=True))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        read = {}
    return {
        "gpu": devices[0].name, "gpus": len(devices), "cuda": devices[0].driver, **read, "host": platform.machine(),
        "nvrtc": find_nvrtc().identity, "torch": _torch(), "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
    }  # fmt: skip


def _torch() -> str:
    try:
        import torch
    except ImportError:
        return ""
    return str(torch.__version__)
