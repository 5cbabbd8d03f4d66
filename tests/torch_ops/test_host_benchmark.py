"""benchmarks/host.py: it names the kernels that it times, and every call has a time in every way that it takes."""

import json
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def host(monkeypatch):
    """The benchmark with few calls; what it sets is as before afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import host

    for name, value in (("TURNS", 2), ("CALLS", 3), ("WARM", 2)):
        monkeypatch.setattr(host, name, value)
    threads = torch.get_num_threads()
    yield host
    torch.set_num_threads(threads)


def test_the_command_times_every_call_and_names_the_kernels(host, tmp_path, monkeypatch, capsys):
    out = tmp_path / "host.json"
    monkeypatch.setattr(sys, "argv", ["host.py", "--out", str(out)])
    host.main()
    said = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["kernels"]["conv"].startswith("c_")
    assert f"tilesmith.gemm: {found['kernels']['gemm']}" in said
    assert list(found["us"]) == ["no gradients", "gradients", "with backward", "inference mode"]  # none of a device
    assert all(time > 0 for mode in found["us"].values() for time in mode.values())
    assert {"torch linear", "tilesmith.gemm", "optimized Conv2d"} <= found["us"]["gradients"].keys()
