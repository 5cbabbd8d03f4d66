"""``--device all`` against the stand-in, which has two devices: a process for each, rows in the order of the list."""

from __future__ import annotations

import json

import pytest
from device_worker import told

from fresh_home import cache_dir, home  # noqa: F401
from tilesmith.cli.main import run
from tilesmith.cli.verbs import verify
from tilesmith.targets.detect_cuda import cuda_devices


@pytest.fixture
def listing(cuda, home, tmp_path):  # noqa: F811
    path = tmp_path / "list.txt"
    path.write_text("".join(f"gemm -m {m} -n 7 -k 8\n" for m in range(5, 29)))
    return path


def test_every_gpu_verifies_and_rows_keep_their_order(listing, monkeypatch, capsys):
    assert len(cuda_devices()) == 2
    monkeypatch.setattr(verify, "verify_here", told)
    assert run(["verify", str(listing), "--device", "all", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["command"] for row in rows] == listing.read_text().splitlines()
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["solver"] for row in rows} == {"cuda:0", "cuda:1"}


def test_options_that_contradict_it(listing, capsys):
    assert run(["preload", str(listing), "--device", "all", "--device", "cpu"]) == 2
    assert "stands alone" in capsys.readouterr().err
    assert run(["explain", str(listing), "--device", "all"]) == 2
    assert "write it as cpu, cuda or cuda:1" in capsys.readouterr().err
