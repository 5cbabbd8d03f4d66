"""From drafts to executables for the stand-in, through NVRTC, the plan's bytes and the C runtime.

Kernels that the emulator runs are compiled to PTX alone, which takes a third of the time: the stand-in looks at no
machine code. That of every family is made and looked at by the tests named ``..._compile_without_spills``.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tempfile
import threading
from pathlib import Path

import numpy as np
from stand_in import StandIn

from tilesmith.measure.accuracy import planted_copy
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft, Source
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.runtime.executable import Executable
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain import nvrtc_program
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.nvrtc import find_nvrtc
from tilesmith.toolchain.toolchains import unit_text

H200 = CUDA_TARGETS["sm_90a"]
_folder = tempfile.TemporaryDirectory(prefix="tilesmith-test-")  # goes when the process ends
CACHE = ArtifactCache(_folder.name)
_compiling = threading.Lock()  # what NVRTC tells goes to the one stdout


class PtxCache(ArtifactCache):
    """Compiles to PTX alone, for the kernels that checks take from a cache."""

    def get_or_build(self, source, target, compiler=None) -> Artifact:
        data = (path := ptx(source, target.nvrtc_arch)).read_bytes()
        return Artifact(hashlib.sha256(data).hexdigest(), str(path), data)


PTX_CACHE = PtxCache(_folder.name)


def executable(signature: Signature, draft: Draft, emulator: StandIn | None = None, target=H200) -> Executable:
    if emulator is None:
        paths = {made.digest: made.path for made in (CACHE.get_or_build(source, target) for source in draft.sources)}
    else:
        paths = {}
        for source in draft.sources:
            emulator.emulate(source)
            path = ptx(source, target.nvrtc_arch)
            paths[hashlib.sha256(path.read_bytes()).hexdigest()] = path
    plan = assemble(draft, signature, "test", "", target, list(paths))
    return Executable(plan, [paths[digest] for digest in plan.artifacts])


def check_numbers(signature: Signature, made: Executable) -> None:
    """Against float64: random values, then an Inf and a NaN in each operand; memory is poisoned before each run."""
    values = sample_args(signature)
    planted = [planted_copy(values[i], (np.nan, np.inf), i) for i in (0, 1)]
    alone = [(*values[:i], planted[i], *values[i + 1 :]) for i in (0, 1)]
    with np.errstate(all="ignore"):
        first, second = (~np.isfinite(oracle(signature, case).value) for case in alone)
        # One run of both operands, where it has results that either reaches alone, and some that neither does.
        each = all(part.any() for part in (first & ~second, second & ~first, ~(first | second)))
        for case in (values, *([(*planted, *values[2:])] if each else alone)):
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            verdict = checker.check_plan(checker.plan(made), poison=True)
            assert verdict.ok, verdict.message


def ptx(source: Source, arch: str) -> Path:
    """The file of a kernel's PTX; the text must be one that NVRTC accepts. NVRTC stays in this process."""
    path = Path(_folder.name) / f"{source.symbol}-{arch}.ptx"
    with _compiling:
        if not path.exists():
            _compile(source, arch, path)
    return path


def _compile(source: Source, arch: str, path: Path) -> None:
    nvrtc = find_nvrtc()
    virtual = f"={arch.replace('sm_', 'compute_')}"
    # What is executed is the emulated text: the optimiser takes two thirds of NVRTC's time.
    flags = [*(word.replace(f"={H200.nvrtc_arch}", virtual) for word in nvrtc.flags(H200)), "--Ofast-compile=max"]
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as told:
        status = nvrtc_program.main(nvrtc.library, str(path), flags, unit_text([source]).encode())
    told.seek(0)
    assert status == 0, told.read()
