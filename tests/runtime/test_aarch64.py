"""Kernels that are generated for aarch64, and the C runtime: on this machine, since the C is portable, and on an
emulated aarch64.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import numpy as np
import pytest

import needs
from machine_library import CSRC, run
from tilesmith.cli.main import run as verb
from tilesmith.db.layers import Layers
from tilesmith.dispatch.planning import existing_config
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.package.records import name_of
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Plan, Source
from tilesmith.plan.serial import encode
from tilesmith.plan.slots import arguments
from tilesmith.problems.driver import ConvParser
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.table import candidates
from tilesmith.targets.names import parse_target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.compilers import _zig, find_compiler
from tilesmith.toolchain.toolchains import unit_text
from torch_answer import to_logical, torch_answer, torch_gemm

TARGET = parse_target("aarch64:2:neoverse-n1")
RUN = ("cuda", "cuda_run", "decode", "error", "image", "pool", "run", "wait")  # what runs plans
ZIG_TARGET = "aarch64-linux-gnu.2.28"
RUNTIME_TESTS = Path(__file__).parent
# What a result may be off by, as a share of the largest one: the rounding of its type, and of sums in fp32.
PROBLEMS = {
    "conv -n 2 -c 16 -H 9 -W 11 -k 24 -y 3 -x 3 -p 1 -q 1 -F 1 -I NHWC -O NHWC -f NHWC": 1e-6,
    "conv -n 1 -c 12 -H 10 -W 9 -k 12 -y 3 -x 3 -p 1 -q 1 -g 12 -F 1": 1e-6,
    "conv -n 1 -c 8 -H 6 -W 5 -k 16 -y 2 -x 2 -u 2 -v 2 -m trans -F 1": 1e-6,
    "conv -n 2 -c 8 -H 8 -W 7 -k 16 -y 3 -x 3 -p 1 -q 1 -F 4": 1e-6,
    "convfp16 -n 1 -c 16 -H 8 -W 8 -k 16 -y 1 -x 1 -F 1": 1e-3,
    "convbfp16 -n 1 -c 16 -H 8 -W 8 -k 16 -y 3 -x 3 -p 1 -q 1 -F 2": 1e-2,
    "convint8 -n 1 -c 16 -H 8 -W 8 -k 16 -y 3 -x 3 -p 1 -q 1 -F 1": 0,
    "gemmfp16 -m 33 -n 48 -k 40": 1e-3,
}


def planned(command: str) -> tuple[object, Plan, tuple[Source, ...]]:
    """The canonical problem, its plan in mode ``fast``, and the plan's sources; nothing is compiled."""
    signature = ConvParser.command_to_signature(command).canonical
    request = Request(signature, TARGET, "fast", Layers(()), ArtifactCache(Path("/nowhere")), None)
    choice = decide(request)
    (candidate,) = candidates(signature, TARGET, (choice.solver,))
    draft = candidate.solver.draft(candidate.geometry, existing_config(candidate, choice.config, TARGET), TARGET)
    digests = [hashlib.sha256(unit_text([source]).encode()).hexdigest() for source in draft.sources]
    return signature, assemble(draft, signature, choice.solver, choice.config, TARGET, digests), draft.sources


def check(folder: Path, command: str, signature, start: list[str]) -> None:
    """What a program computes for a problem, against PyTorch's float64 answer."""
    args, result = sample_args(signature), arguments(signature)[-1]
    tensors = [np.ascontiguousarray(arg).tobytes() for arg in args]
    (folder / "tensors").write_bytes(b"".join(tensors) + b"\xff" * result.nbytes)  # NaN in each type
    words = [*start, str(folder / "tensors"), str(folder / "result")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (command, done)
    y = np.frombuffer((folder / "result").read_bytes(), dtype(result.dtype).numpy()).reshape(result.shape)
    if isinstance(signature, GemmSignature):
        expected, got = torch_gemm(signature, args), y.astype(np.float64)
    else:
        layout = {"fwd": signature.output_layout, "bwd": signature.input_layout, "wrw": signature.kernel_layout}
        expected, got = torch_answer(signature, args), to_logical(y, layout[signature.mode]).astype(np.float64)
    assert np.abs(got - expected).max() <= PROBLEMS[command] * np.abs(expected).max(), command


def test_kernels_for_aarch64_compute_the_same_on_this_machine(tmp_path):
    """Linked into a program: the C that is generated is portable."""
    found = {command: planned(command) for command in PROBLEMS}
    kernels = {source.symbol: source for _, _, sources in found.values() for source in sources}
    for symbol, source in kernels.items():
        (tmp_path / f"{symbol}.c").write_text(unit_text([source]))
    (tmp_path / "kernels.h").write_text("".join(f"KERNEL({symbol})\n" for symbol in sorted(kernels)))
    files = [RUNTIME_TESTS / "run_plans.c", *tmp_path.glob("ts_*.c"), *(CSRC / f"ts_{name}.c" for name in RUN)]
    flags = ["-std=gnu11", "-O1", "-w", "-ffp-contract=fast", f"-I{CSRC}", f"-I{tmp_path}"]
    program = str(tmp_path / "program")
    run([*find_compiler().command, *flags, *map(str, files), "-o", program, "-lpthread", "-ldl", "-lm"])
    for command, (signature, plan, _) in found.items():
        (tmp_path / "plan").write_bytes(encode(plan))
        check(tmp_path, command, signature, [program, str(tmp_path / "plan")])


@pytest.mark.needs_zig
@pytest.mark.needs_qemu
def test_a_package_on_an_emulated_aarch64(tmp_path, monkeypatch):
    """Reader, runtime and kernels, all made by zig; warnings in the runtime are errors."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "test.db"))
    monkeypatch.setenv("QEMU_LD_PREFIX", needs.aarch64_libraries())
    (tmp_path / "list.txt").write_text("\n".join(PROBLEMS))
    assert verb(["package", "build", str(tmp_path / "list.txt"), "--target", TARGET.name, "-o", str(tmp_path)]) == 0
    files = [RUNTIME_TESTS / "run_package.c", *CSRC.glob("ts_*.c")]
    flags = ["-std=c11", "-O2", "-fno-sanitize=all", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{CSRC}"]
    program = str(tmp_path / "program")
    run([*_zig().command, "-target", ZIG_TARGET, *flags, *map(str, files), "-o", program, "-lpthread", "-ldl"])
    start = [needs.emulator(), program, str(tmp_path / "list-aarch64-2-neoverse-n1.kdb")]
    for command in PROBLEMS:
        signature = ConvParser.command_to_signature(command).canonical
        (tmp_path / "name").write_text(name_of(signature.key(), TARGET.name))
        check(tmp_path, command, signature, [*start, str(tmp_path / "name")])
