"""``tilesmith doctor``: each thing that can be wrong is named, with what to type."""

import json

import pytest

from tilesmith import ConvSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.doctor import health
from tilesmith.doctor import pytorch as health_of_pytorch
from tilesmith.doctor.check import FINE, NOTE, PROBLEM
from tilesmith.doctor.gpu_power import judged, read_state
from tilesmith.doctor.health import examine
from tilesmith.errors import NoCompilerError

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")


def check(name):
    """The worst of this name."""
    return max((c for c in examine() if c.name == name), key=lambda c: (FINE, NOTE, PROBLEM).index(c.status))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))


def test_a_machine_that_is_well(capsys, tmp_path):
    get_launchable(SMALL, mode="hybrid")
    before = sorted(tmp_path.rglob("*"))
    assert run(["doctor"]) == 0
    out, err = capsys.readouterr()
    for name in ("tilesmith", "environment", "compiler", "cache folder", "cache", "database", "temporary folder"):
        assert any(line.startswith(f"fine     {name} ") for line in out.splitlines()), name
    assert "0 problems" in err
    assert sorted(tmp_path.rglob("*")) == before
    assert run(["doctor", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["status"] for row in rows} <= {FINE, NOTE}


def test_a_fresh_machine_is_well(tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert PROBLEM not in {c.status for c in examine()}
    assert sorted(tmp_path.rglob("*")) == before
    assert "not made yet" in check("cache folder").detail


def test_no_compiler(monkeypatch):
    def none():
        raise NoCompilerError("no C compiler: none of cc, gcc, clang on PATH runs; install one (`apt install gcc`)")

    monkeypatch.setattr(health, "find_compiler", none)
    found = check("compiler")
    assert (found.status, found.advice) == (PROBLEM, "install one (`apt install gcc`)")
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")
    assert check("compiler").status == NOTE


def test_a_compiler_that_does_not_compile(monkeypatch, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 && exit 0\necho error: no\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    found = check("compiler")
    assert found.status == PROBLEM
    assert "CC" in found.advice


def test_bad_values_do_not_stop_it(monkeypatch, capsys):
    monkeypatch.setenv("TILESMITH_FIND_MODE", "lazy")
    monkeypatch.setenv("TILESMITH_LOG", "loud")
    monkeypatch.setenv("TILESMITH_FIND_MODES", "fast")
    assert run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "TILESMITH_FIND_MODE='lazy'" in out
    assert "TILESMITH_LOG='loud'" in out
    assert "TILESMITH_FIND_MODES does not exist" in out
    assert "> unset TILESMITH_LOG" in out


def test_folders_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "file" / "user.db"))
    for name in ("cache folder", "database folder"):
        found = check(name)
        assert found.status == PROBLEM, name
        assert found.advice


@pytest.mark.needs_users
def test_folders_that_others_can_write_are_named_with_what_to_type(monkeypatch, tmp_path):
    for name in ("cache", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "data" / "x.db"))
    (tmp_path / "data" / "x.db").touch()
    for name, folder in (("cache folder", "cache"), ("database", "data")):
        found = check(name)
        assert found.status == PROBLEM
        assert found.detail.endswith("is not used: every user can write to it")
        assert f"`export TILESMITH_TRUST_FOLDER={tmp_path / folder}`" in found.advice
    monkeypatch.setenv("TILESMITH_TRUST_FOLDER", str(tmp_path))
    assert check("cache folder").status != PROBLEM


def test_a_full_disk(monkeypatch):
    usage = type("Usage", (), {"free": 10 << 20})
    monkeypatch.setattr(health.shutil, "disk_usage", lambda path: usage)
    assert check("cache folder").status == PROBLEM
    assert "cache prune" in check("cache folder").advice


def test_kernels_that_cannot_be_run(monkeypatch):
    def refused(path):
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(health.ctypes, "CDLL", refused)
    found = check("cache folder")
    assert "failed to map segment" in found.detail
    assert "noexec" in found.advice


def test_a_damaged_cache(tmp_path):
    get_launchable(SMALL, mode="fast")
    plan = next((tmp_path / "cache" / "plans").rglob("*.plan"))
    plan.write_bytes(plan.read_bytes()[:-1])
    found = check("cache")
    assert (found.status, found.advice) == (PROBLEM, "tilesmith cache verify --repair")
    assert plan.name in found.detail


def test_layers(monkeypatch, tmp_path):
    get_launchable(SMALL, mode="hybrid", database=tmp_path / "user.db")
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{tmp_path / 'team.db'}:{tmp_path / 'user.db'}")
    found = [c for c in examine() if c.name == "database"]
    assert [c.status for c in found] == [PROBLEM, FINE]
    assert "does not exist" in found[0].detail
    assert "answers for 1 problems" in found[1].detail
    (tmp_path / "team.db").write_bytes(b"no database" * 1000)
    assert next(c for c in examine() if c.name == "database").status == PROBLEM
    assert (tmp_path / "team.db").read_bytes() == b"no database" * 1000


def test_a_file_system_without_locks(monkeypatch):
    monkeypatch.setattr(health, "why_not", lambda folder, thorough: "a lock was granted twice")
    found = check("database folder")
    assert found.status == NOTE
    assert "one file a record" in found.detail


def test_a_bad_tuning_spec(monkeypatch, tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text("[[choice]]\nproblem = 'conv'\n")
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", str(path))
    assert f"{path}:1: " in check("tuning spec").detail
    path.write_text("[[choice]]\nproblem = 'conv'\nsolver = 'c_reference'\n")
    assert "1 choices" in check("tuning spec").detail


def test_a_driver_that_cannot_be_opened(monkeypatch):
    monkeypatch.setenv("TILESMITH_LIBCUDA", "/nonexistent/libcuda.so")
    assert check("gpu").status == PROBLEM
    assert "/nonexistent/libcuda.so" in check("gpu").detail


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("0, NVIDIA H200, 700.00, 700.00, 1980, 1980, 1980, 0x0000000000000001, 33", FINE, "limit 700 W (usual 700 W)"),
        ("1, NVIDIA H200, 350.00, 700.00, 1980, 1980, 1980, 0x0000000000000004, 33", NOTE, "slowed now by its power"),
        ("0, NVIDIA L4, 72.00, 72.00, 2040, 1000, 2040, 0x0000000000000020, 88", NOTE, "set to 1000 MHz, usual 2040"),
        ("0, NVIDIA T, [N/A], [N/A], 2040, [N/A], [N/A], [N/A], 50", FINE, "limit unknown W"),
    ],
)
def test_a_card_that_is_held_back(line, status, told):
    found = judged(read_state(line))
    assert found.status == status
    assert told in found.detail


def test_pytorch(monkeypatch):
    told = {"version": "2.9.0", "threads": 1, "cuda": "", "available": False, "devices": 0, "unfit": []}
    monkeypatch.setattr(health_of_pytorch, "find_spec", lambda name: None)
    assert (check("pytorch").status, check("pytorch").advice) == (NOTE, "pip install torch")
    monkeypatch.setattr(health_of_pytorch, "find_spec", lambda name: True)
    for given, status, words in (
        (told, FINE, "2.9.0, 1 threads"),
        (told | {"threads": 4096}, NOTE, "4096 threads on"),
        ({"error": "ImportError: libc10.so"}, PROBLEM, "libc10.so"),
    ):
        monkeypatch.setattr(health_of_pytorch, "facts", lambda given=given: given)
        found = check("pytorch")
        assert found.status == status
        assert words in found.detail
    monkeypatch.setattr(health_of_pytorch, "has_cuda", lambda: True)
    monkeypatch.setattr(health_of_pytorch, "cuda_devices", lambda: ("a GPU",))
    monkeypatch.setattr(health_of_pytorch, "facts", lambda: told | {"cuda": "12.8"})
    assert [each.status for each in health_of_pytorch.pytorch()] == [FINE, PROBLEM]
