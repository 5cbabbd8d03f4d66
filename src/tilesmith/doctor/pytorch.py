"""PyTorch of this machine: its version, threads and CUDA. A process of its own imports it, and may fail or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from tilesmith.doctor.check import FINE, NOTE, PROBLEM, Check
from tilesmith.targets.detect import usable_cores
from tilesmith.targets.detect_cuda import cuda_devices, has_cuda

_SECONDS = 120.0  # a first import from a slow disk
_ASK = """
import json, torch
available = torch.cuda.is_available()
built = [int("".join(c for c in name[3:] if c.isdigit())) for name in torch.cuda.get_arch_list()] if available else []
here = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())] if available else []
unfit = [f"{major}.{minor}" for major, minor in here
         if not any(each // 10 == major and each % 10 <= minor for each in built)]
print(json.dumps({
    "version": torch.__version__, "threads": torch.get_num_threads(), "cuda": torch.version.cuda or "",
    "available": available, "devices": len(here), "unfit": unfit,
}))
"""


def pytorch() -> Iterator[Check]:
    """Whether PyTorch is here and runs, with how many threads, and whether it reaches the GPUs."""
    if find_spec("torch") is None:
        yield Check("pytorch", NOTE, "not installed: no rivals are measured through it", "pip install torch")
        return
    found = facts()
    if "error" in found:
        yield Check("pytorch", PROBLEM, f"it is installed and cannot be imported: {found['error']}", "install it again")
        return
    threads, cores = found["threads"], usable_cores()
    built = f"built for CUDA {found['cuda']}" if found["cuda"] else "built without CUDA"
    what = f"{found['version']}, {threads} threads on {cores} usable cores, {built}"
    if threads > cores:
        yield Check(
            "pytorch", NOTE, f"{what}: threads that share a core wait for each other", f"export OMP_NUM_THREADS={cores}"
        )
    else:
        yield Check("pytorch", FINE, what)
    if not has_cuda() or not cuda_devices():
        return
    if not found["cuda"]:
        yield Check("pytorch cuda", NOTE, "this PyTorch has no CUDA, and there is a GPU", "install a build with CUDA")
    elif not found["available"]:
        yield Check(
            "pytorch cuda", PROBLEM, f"PyTorch for CUDA {found['cuda']} cannot use the GPU that the driver shows",
            "install the build for this driver's CUDA version",
        )  # fmt: skip
    elif found["unfit"]:
        unfit = ", ".join(found["unfit"])
        yield Check(
            "pytorch cuda", NOTE, f"this build has no kernels for GPUs of compute capability {unfit}: it compiles them",
            "install a build for this GPU",
        )  # fmt: skip
    else:
        yield Check("pytorch cuda", FINE, f"CUDA {found['cuda']}, {found['devices']} devices")


@lru_cache(maxsize=1)
def facts() -> dict[str, Any]:
    """The facts that a process which imports PyTorch reports of it, or ``error``."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=_SECONDS, check=False,
            env=dict(os.environ),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_SECONDS:.0f} s"}
    lines = done.stdout.splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    except ValueError:
        found = {}
    if "version" not in found:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"error": last}
    return found
