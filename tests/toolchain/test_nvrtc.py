"""NVRTC: cubins for every arch without a GPU, what kernels take read back, and errors of one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilesmith.errors import CompileError, NoCompilerError
from tilesmith.plan.records import Source
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import nvrtc as nvrtc_module
from tilesmith.toolchain.build import build_unit
from tilesmith.toolchain.cache import ArtifactCache, artifact_key
from tilesmith.toolchain.nvrtc import Nvrtc, find_nvrtc
from tilesmith.toolchain.resources import read_resources
from tilesmith.toolchain.toolchains import find_toolchain

H200 = CUDA_TARGETS["sm_90a"]
TEXT = """extern "C" __global__ void ts_copy(float *y, const float *x, long long n) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[n] = s[63 - threadIdx.x];
}
"""
SOURCE = Source("cuda", "ts_copy", "", TEXT)


@pytest.mark.parametrize("arch", CUDA_TARGETS)
def test_a_cubin_for_every_arch(arch, tmp_path):
    target = CUDA_TARGETS[arch]
    (found,) = build_unit([SOURCE], target, tmp_path / "unit.cubin")
    data = (tmp_path / "unit.cubin").read_bytes()
    assert data[:4] == b"\x7fELF"
    assert int.from_bytes(data[18:20], "little") == 190
    assert found.symbol == "ts_copy"
    assert found.shared_bytes >= 256
    assert 4 <= found.registers <= 32
    assert (found.stack_bytes, found.spill_store_bytes, found.spill_load_bytes, found.warnings) == (0, 0, 0, ())


def test_the_cache_keeps_cubins_and_what_they_take(tmp_path):
    cache = ArtifactCache(tmp_path)
    made = cache.get_or_build(SOURCE, H200)
    assert made.path.suffix == ".cubin"
    assert cache.find(made.digest) == made
    assert cache.lookup(SOURCE, H200) == made
    assert [r.symbol for r in cache.resources(SOURCE, H200)] == ["ts_copy"]
    assert cache.resources(SOURCE, CUDA_TARGETS["sm_80"]) == ()


def test_a_key_depends_on_version_and_arch_but_not_on_the_number_of_sms():
    newer = replace(find_nvrtc(), version=(99, 0))
    keys = {
        artifact_key(SOURCE, H200, find_nvrtc()),
        artifact_key(SOURCE, H200, newer),
        artifact_key(SOURCE, CUDA_TARGETS["sm_80"], newer),
    }
    assert len(keys) == 3
    assert artifact_key(SOURCE, replace(H200, cores=1), newer) in keys


def test_spills_are_read_back():
    log = """ptxas info    : Compiling entry function 'ts_k' for 'sm_90a'
ptxas info    : Function properties for ts_k
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 1024 bytes smem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'ts_k'
ptxas info    : Compiling entry function 'ts_l' for 'sm_90a'
ptxas info    : Used 8 registers
"""
    first, second = read_resources(log)
    assert (first.registers, first.shared_bytes, first.stack_bytes) == (168, 1024, 16)
    assert (first.spill_store_bytes, first.spill_load_bytes) == (8, 12)
    assert "C7510" in first.warnings[0]
    assert (second.symbol, second.registers, second.shared_bytes, second.warnings) == ("ts_l", 8, 0, ())


def test_refused_text_names_the_line_and_keeps_the_source(tmp_path):
    bad = Source("cuda", "ts_bad", "", 'extern "C" __global__ void ts_bad() { no_such_thing(); }\n')
    with pytest.raises(CompileError, match=r"nvrtc 13.* refused generated source: unit.cu\(1\): error.*kept in .*\.cu"):
        build_unit([bad], H200, tmp_path / "unit.cubin")
    assert not (tmp_path / "unit.cubin").exists()


def test_languages_and_targets_that_do_not_meet(tmp_path):
    with pytest.raises(CompileError, match="language 'c' does not run on sm_90a:132"):
        build_unit([replace(SOURCE, language="c")], H200, tmp_path / "x")
    with pytest.raises(CompileError, match="does not compile for sm_90a:132"):
        build_unit([SOURCE], H200, tmp_path / "x", find_toolchain(host_target()))


def test_too_old_and_missing_are_one_line(monkeypatch):
    with pytest.raises(
        NoCompilerError, match=r"NVRTC 12.2 \(/x\) is too old for sm_100a, which needs 12.8; pip install"
    ):
        Nvrtc("/x", (12, 2)).flags(CUDA_TARGETS["sm_100a"])
    nvrtc_module._find.cache_clear()
    monkeypatch.setattr(nvrtc_module, "candidates", lambda homes: iter(["/nowhere/libnvrtc.so.13"]))
    with pytest.raises(NoCompilerError, match="no NVRTC.*pip install nvidia-cuda-nvrtc"):
        find_nvrtc()
    nvrtc_module._find.cache_clear()


MOVED = """extern "C" __global__ void ts_moved(float *y, unsigned long long a, unsigned long long b, int n) {
  float s[4] = {y[0], y[1], y[2], y[3]};
  for (int i = 0; i < n; i++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int j = 0; j < 2; j++)
      asm volatile("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
                   : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "l"(a + i + j), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    WAIT
    for (int j = 0; j < 4; j++) y[threadIdx.x + i * 512 + j * 128] = s[j];
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
"""


def test_sums_that_are_read_while_products_write_them_are_refused(tmp_path):
    waits = Source("cuda", "ts_moved", "", MOVED.replace("WAIT", 'asm volatile("wgmma.wait_group.sync.aligned 0;");'))
    build_unit([waits], H200, tmp_path / "waits.cubin")
    with pytest.raises(CompileError, match="registers are moved while asynchronous products write them"):
        build_unit([replace(waits, text=MOVED.replace("WAIT", ""))], H200, tmp_path / "moved.cubin")
