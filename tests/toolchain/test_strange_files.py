"""What is no plain file in the cache or beside a database never makes a call wait, and costs its own entry alone."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
from pathlib import Path

import numpy as np
import pytest

from tilesmith import ConvSignature, conv, forget
from tilesmith.cli.main import run
from tilesmith.db.files import records_folder
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.db.state import state_of
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import files
from tilesmith.toolchain.inventory import inventory

pytestmark = pytest.mark.needs_fifos
TARGET = host_target(1)
DEADLINE_S = 30  # against waiting for ever; the calls take a tenth of a second


class _Waits(BaseException):
    """A call waits; no reader takes it for a file that cannot be read, as it would take a TimeoutError."""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A database that has the problem's answer, so that no call measures and each keeps its hit."""
    path = tmp_path_factory.mktemp("tuned") / "test.db"
    signature = ConvSignature((1, 4, 6, 5), (8, 4, 3, 3), padding=1)
    database = open_database(path)
    candidate = next(each for each in candidates(signature, TARGET) if each.name == "c_reference")
    config = str(candidate.solver.default_config(candidate.geometry, TARGET))
    database.put_result(
        Record(
            signature.canonical.key(),
            TARGET.name,
            "c_reference",
            config,
            revision=candidate.solver.revision,
            time_us=1.0,
            spread_us=0.1,
            samples=9,
            error=0.1,
            bound=1.0,
        )  # fmt: skip
    )
    database.close()
    return path


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path, tuned):
    (tmp_path / "data").mkdir()
    shutil.copy(tuned, tmp_path / "data" / "test.db")
    for name in [name for name in os.environ if name.startswith("TILESMITH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "data" / "test.db"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")
    forget()

    def late(*_):
        raise _Waits

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(DEADLINE_S)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    forget()


def is_right() -> bool:
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, 4, 6, 5), (8, 4, 3, 3)))
    forget()
    y = conv(x, w, padding=1)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return bool(np.abs(y - np.einsum("nchwij,kcij->nkhw", windows, w)).max() < 1e-4)


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        here = os.getcwd()
        os.chdir(path.parent)  # its path may have a hundred bytes
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


def a_large_file(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


STRANGE = {
    "a FIFO": os.mkfifo, "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"), "a socket": a_socket,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"), "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name), "a file of 1 TiB": a_large_file,
    "a link to /proc/self/mem": lambda path: path.symlink_to("/proc/self/mem"),
}  # fmt: skip


def make(kind, path):
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    STRANGE[kind](path)


def filled(home) -> list[Path]:
    """The files of a cache after a call that has kept its hit."""
    for _ in range(3):
        assert is_right()
    cache = home / "cache"
    found = [path for path in cache.rglob("*") if path.is_file()]
    assert {path.parent.name if path.suffix != ".plan" else "plans" for path in found} >= {
        "objects", "keys", "plans", "hits", "machine",
    }  # fmt: skip
    return found


@pytest.mark.parametrize("kind", [kind for kind in STRANGE if kind not in ("a socket", "a link to nowhere")])
def test_no_file_of_the_cache_makes_a_call_wait(kind, home):
    for path in filled(home):
        make(kind, path)
    assert is_right()
    assert is_right()


@pytest.mark.parametrize("kind", ["a FIFO", "a link to itself"])
@pytest.mark.parametrize("name", ["objects", "keys", "plans", "hits", "machine", "staging", "locks"])
def test_no_folder_of_the_cache_makes_a_call_wait(kind, name, home):
    filled(home)
    make(kind, home / "cache" / name)
    assert is_right()
    assert is_right()


def test_verify_names_what_is_no_file_and_repair_removes_it(home, capsys):
    paths = filled(home)
    for path, kind in zip(paths, ["a FIFO", "a link to /dev/zero", "a socket", "a FIFO", "a FIFO"], strict=False):
        make(kind, path)
    assert run(["cache", "ls"]) == 0
    capsys.readouterr()
    assert run(["cache", "verify"]) == 1
    assert "it is a pipe, not a file" in capsys.readouterr().err
    assert run(["cache", "verify", "--repair"]) == 0
    assert not [entry for entry in inventory(home / "cache", verify=True) if entry.damage]
    (home / "cache" / "plans").mkdir(exist_ok=True)
    make("a link to /dev/zero", home / "cache" / "plans" / "linked")
    assert run(["cache", "clear", "--yes"]) == 0
    assert list((home / "cache").iterdir()) == []


def test_locks_and_staged_files_of_another_kind_are_cleaned_up(home):
    root = home / "cache"
    for folder in ("locks", "staging"):
        (root / folder).mkdir(parents=True)
        for number, kind in enumerate(["a FIFO", "a link to nowhere", "a link to /dev/zero", "a socket"]):
            make(kind, root / folder / f"{number}")
            os.utime(root / folder / f"{number}", (1, 1), follow_symlinks=False)
    for number in range(4):
        with files.exclusive(root, f"{number}", 1):
            pass
    assert files.remove_abandoned(root) == 8
    mine = home / "mine"
    mine.mkdir()
    (mine / "letter").write_text("not the cache's")
    os.utime(mine / "letter", (1, 1))
    shutil.rmtree(root / "staging", ignore_errors=True)
    (root / "staging").symlink_to(mine)
    files.remove_abandoned(root)
    assert (mine / "letter").exists()


def test_reading_is_bounded_and_names_what_it_met(tmp_path):
    (tmp_path / "ten").write_bytes(bytes(10))
    assert files.read(str(tmp_path / "ten"), 10) == bytes(10)
    with pytest.raises(OSError, match="it has 10 bytes, more than 9"):
        files.read(str(tmp_path / "ten"), 9)
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        files.read("/proc/self/status", 4)  # a file whose size is not told
    with pytest.raises(OSError, match="it is a device, not a file"):
        files.read("/dev/zero")
    with pytest.raises(OSError, match="it is a folder, not a file"):
        files.read(str(tmp_path))


RECORD = Record("p", TARGET.name, "s", "mr=1", time_us=1.0, samples=9)


@pytest.mark.parametrize("kind", ["a FIFO", "a link to /dev/zero", "a socket", "a folder"])
@pytest.mark.parametrize("suffix", ["", "-journal", "-wal"])
@pytest.mark.parametrize("readonly", [True, False])
def test_a_database_that_is_no_file_counts_as_empty(kind, suffix, readonly, tmp_path, caplog):
    path = tmp_path / "some.db"
    before = open_database(path)
    before.put_result(RECORD)
    before.close()
    make(kind, Path(f"{path}{suffix}"))
    database = open_database(path, readonly=readonly)
    assert database.ranking(RECORD.problem, RECORD.target) == ()
    database.put_result(RECORD)
    assert not database.persistent
    assert database.check()
    database.close()
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert f"{path}{suffix} is " in told[0].getMessage()
    assert not suffix or not kind.startswith("a FIFO") or state_of(str(path)) is None


def test_a_record_that_is_no_file_is_not_used(tmp_path):
    path = tmp_path / "some.db"
    records_folder(path).mkdir()
    database = open_database(path)
    database.put_result(RECORD)
    (file,) = records_folder(path).rglob("results/**/*.json")
    make("a FIFO", file)
    assert database.ranking(RECORD.problem, RECORD.target) == ()
    assert "a pipe" in "".join(database.check())


def test_the_state_of_a_fifo_is_told_at_once(tmp_path):
    os.mkfifo(tmp_path / "some.db")
    assert state_of(str(tmp_path / "some.db")) is None
