"""Preloading and examining a machine with a GPU, against the stand-in for its driver."""

import copy
import pickle
from types import SimpleNamespace

import fake_tensors
import pytest

from tilesmith import CachePopulator, GemmSignature, get_launchable
from tilesmith.doctor import health
from tilesmith.doctor.check import FINE, PROBLEM
from tilesmith.doctor.health import examine
from tilesmith.errors import NoCompilerError
from tilesmith.targets.detect_cuda import cuda_target_of

SMALL = GemmSignature(8, 8, 8)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, cuda):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "test.db"))
    return tmp_path


def test_a_gpu_is_named_with_its_compiler(cuda):
    found = [check for check in examine() if check.name == "gpu"]
    assert {check.status for check in found} == {FINE}
    assert cuda_target_of(0).name in found[0].detail
    assert "nvrtc" in found[0].detail


def test_a_gpu_without_its_compiler(monkeypatch):
    def none():
        raise NoCompilerError("no NVRTC, the CUDA compiler library, was found; pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(health, "find_nvrtc", none)
    found = next(check for check in examine() if check.name == "gpu")
    assert (found.status, found.advice) == (PROBLEM, "pip install nvidia-cuda-nvrtc")


def test_preload_for_a_gpu(place, monkeypatch):
    populator = CachePopulator(signatures=[SMALL], devices=["cuda"], mode="fast")
    populator.run()
    assert populator.get_failures() == {}
    assert populator.get_cache_status(SMALL.get_func_name()) == {"cuda": True}
    assert list((place / "cache" / "objects").glob("*.cubin"))
    monkeypatch.setattr("tilesmith.toolchain.build.build_unit", lambda *args: pytest.fail("compiled again"))
    assert get_launchable(SMALL, device="cuda", mode="fast").remembered


@pytest.mark.needs_torch
def test_a_launchable_for_a_gpu_is_copied_and_saved(monkeypatch):
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr("torch.cuda", SimpleNamespace(current_stream=lambda index: stream))
    a, b = map(fake_tensors.Tensor, SMALL.get_sample_args())
    launch = get_launchable(SMALL, device="cuda:0", mode="fast")
    again, layer = pickle.loads(pickle.dumps((launch, launch.bound)))
    assert (again.solver, again.config, again.target, again.ordinal) == (
        launch.solver, launch.config, launch.target, launch.ordinal,
    )  # fmt: skip
    assert layer(a, b).shape == (8, 8)
    assert copy.deepcopy(launch) is launch


@pytest.mark.needs_torch
def test_pytorchs_own_kernel_is_saved_with_the_plan_for_all_others(monkeypatch):
    from tilesmith.dispatch import launchable as launching
    from tilesmith.solvers.external import candidate as external

    monkeypatch.setattr(launching, "takes_part", lambda wanted: True)
    monkeypatch.setattr(external, "takes_part", lambda: True)
    launch = get_launchable(SMALL, device="cuda", mode="fast", only="torch_cublas")
    data = pickle.dumps((launch, launch.bound))
    again, _ = pickle.loads(data)
    assert (again.solver, again.plan.solver) == ("torch_cublas", launch.plan.solver)
    monkeypatch.setattr(launching, "takes_part", lambda wanted: False)
    monkeypatch.setattr(external, "takes_part", lambda: False)
    assert not pickle.loads(data)[0].solver.startswith("torch")
