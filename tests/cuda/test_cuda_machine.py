"""The machine's GPUs in C: the targets that Python finds through the same driver."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace

import pytest

from machine_library import CTarget, machine_library, ts_query
from package_samples import MANIFEST, package
from tilesmith import env
from tilesmith.cli.main import run
from tilesmith.package.files import PackageFile, write
from tilesmith.package.index import index_of, write_index
from tilesmith.targets.detect import host_target
from tilesmith.targets.detect_cuda import _devices, cuda_devices, cuda_target_of


@pytest.mark.parametrize(
    "name", ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "Tesla Grafik-Chip \u00fc", "NVIDIA Graphics Device"]
)
def test_a_gpu_has_the_name_that_python_gives(cuda, name):
    library, target, count = machine_library(), CTarget(), ctypes.c_uint32()
    assert library.ts_cuda_open(str(cuda.path).encode(), None) == 0
    cuda.call_devices(name)
    _devices.cache_clear()
    try:
        assert library.ts_machine_gpus(ctypes.byref(count), None) == 0
        assert count.value == len(cuda_devices()) > 0
        for device in range(count.value):
            assert library.ts_machine_gpu(device, ctypes.byref(target), None) == 0
            assert target.name == cuda_target_of(device).name
        assert library.ts_machine_gpu(count.value, ctypes.byref(target), None)
        assert not any("retain" in call for call in cuda.log())  # no context was made
    finally:
        cuda.call_devices("NVIDIA H200")
        _devices.cache_clear()


def test_a_gpu_that_no_kernel_is_for(cuda):
    library, error = machine_library(), ctypes.create_string_buffer(256)
    assert library.ts_cuda_open(str(cuda.path).encode(), None) == 0
    cuda.library.fake_set_major(7)
    try:
        assert library.ts_machine_gpu(0, ctypes.byref(CTarget()), error)
    finally:
        cuda.library.fake_set_major(9)
    assert error.value == b"GPUs of compute capability 7.0 with 132 SMs are not supported"


def test_ts_query_prints_gpus(cuda):
    done = subprocess.run(
        [str(ts_query())], env={"TILESMITH_LIBCUDA": str(cuda.path)}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["sm_90a:132:h200"]


def test_an_index_has_packages_for_each_gpu(cuda, tmp_path, monkeypatch, capsys):
    """`--auto` installs what is for the CPU and for the GPU of this machine, and nothing else."""
    monkeypatch.setenv("TILESMITH_LIBCUDA", str(cuda.path))
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", str(tmp_path / "installed"))
    (tmp_path / "shelf").mkdir()
    for target in (host_target(env.NUM_THREADS.get()).name, "sm_90a:132:h200", "sm_90a:132:h100", "aarch64:4:generic"):
        manifest = replace(MANIFEST, target=target)
        write(tmp_path / "shelf" / manifest.file_name, package(1, manifest))
    write_index(tmp_path / "shelf", index_of(tmp_path / "shelf"))
    assert run(["package", "install", "--auto", str(tmp_path / "shelf")]) == 0
    found = [PackageFile(path).manifest.target for path in (tmp_path / "installed").glob("*.kdb")]
    assert sorted(found) == sorted([host_target(env.NUM_THREADS.get()).name, "sm_90a:132:h200"])
    assert capsys.readouterr().out.count("installed, test 3") == 2
