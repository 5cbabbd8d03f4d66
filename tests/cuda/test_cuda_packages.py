"""Launches on a GPU from kernel packages, against the stand-in for its driver."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from cuda_chain import CACHE
from fake_tensors import Interface

from tilesmith import GemmSignature, get_launchable
from tilesmith.db.layers import open_layers
from tilesmith.dispatch.choice import NEAREST_PACKAGE, PACKAGE
from tilesmith.dispatch.kept_calls import forget
from tilesmith.errors import NoCompilerError, NoSolutionError, TargetError
from tilesmith.package.build import Rows, assemble_package, pack_problems
from tilesmith.package.files import write
from tilesmith.targets.detect_cuda import cuda_target_of
from tilesmith.targets.names import parse_target

SMALL = GemmSignature(m=6, n=7, k=8)


@pytest.fixture
def build(checking, tmp_path, monkeypatch):
    """``build(target)``: a package of the target; afterwards nothing is left that could compile."""
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "cuda_reference")  # which the emulator runs
    (tmp_path / "packages").mkdir(mode=0o755)

    def of(target):
        layers = open_layers(())  # CACHE is not the one of launches, below
        packed = pack_problems([SMALL], target, layers, CACHE)
        path = tmp_path / "packages" / "gpu.kdb"
        write(path, assemble_package("gpu", target, packed, layers, Rows()))
        monkeypatch.delenv("TILESMITH_ONLY_SOLVER")
        monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "user.db"))
        monkeypatch.setenv("TILESMITH_PACKAGE_PATH", str(path.parent))

        def none(*args):
            raise NoCompilerError("no NVRTC")

        monkeypatch.setattr("tilesmith.toolchain.toolchains.find_toolchain", none)
        forget()
        return path

    yield of
    forget()


def is_right(launch) -> bool:
    a, b = SMALL.get_sample_args(seed=3)
    out = Interface(np.zeros((6, 7), np.float32))
    launch(Interface(a), Interface(b), out=out)
    return np.allclose(out.array, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["strict", "hybrid"])
def test_a_package_of_cubins_runs_without_a_compiler(build, tmp_path, mode):
    path = build(cuda_target_of(0))
    launch = get_launchable(SMALL, device="cuda", mode=mode)
    assert (launch.choice.basis, launch.choice.layer) == (PACKAGE, str(path))
    assert is_right(launch)
    assert not (tmp_path / "cache").exists()


def test_a_package_of_another_card_is_named(build, monkeypatch):
    here = cuda_target_of(0)
    other = parse_target(f"{here.arch}:{here.cores - 2}")
    path = build(other)
    for mode, error in (("strict", NoSolutionError), ("fast", NoCompilerError)):
        with pytest.raises(error, match=f"{path} holds it for {other.name}.*NEAREST=1") as caught:
            get_launchable(SMALL, device="cuda", mode=mode)
        assert f"a package for {here.name}" in str(caught.value)
    monkeypatch.setenv("TILESMITH_PACKAGE_NEAREST", "1")
    launch = get_launchable(SMALL, device="cuda", mode="strict")
    assert (launch.choice.basis, launch.plan.target) == (NEAREST_PACKAGE, other.name)
    assert is_right(launch)


def test_without_a_driver_the_cpu_is_left(build, monkeypatch, tmp_path):
    build(cuda_target_of(0))
    code = (
        "import tilesmith; s = tilesmith.GemmSignature(m=6, n=7, k=8)\n"
        "print(tilesmith.get_launchable(s, mode='fast')(*s.get_sample_args(seed=0)).shape)\n"
        "try: tilesmith.get_launchable(s, device='cuda')\n"
        "except tilesmith.TilesmithError as error: print(type(error).__name__, error)\n"
    )
    missing = str(tmp_path / "libcuda.so.1")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "TILESMITH_LIBCUDA": missing},
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == "(6, 7)"
    assert second.startswith(f"{TargetError.__name__} device cuda:0 cannot be used")
    assert missing in second
