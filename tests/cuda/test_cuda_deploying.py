"""Preloading and examining a machine with a GPU, against the stand-in for its driver."""

import pytest

from tilesmith import CachePopulator, GemmSignature, get_launchable
from tilesmith.dispatch import health
from tilesmith.dispatch.health import FINE, PROBLEM, examine
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
    monkeypatch.setattr("tilesmith.toolchain.cache.build_unit", lambda *args: pytest.fail("compiled again"))
    assert get_launchable(SMALL, device="cuda", mode="fast").remembered
