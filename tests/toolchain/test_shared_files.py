"""Files of many processes: what is held is left alone, what its maker has left goes, and nobody waits for the dead."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from tilesmith.plan.records import Source
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import build as build_module
from tilesmith.toolchain import files
from tilesmith.toolchain.cache import ArtifactCache

OLD = 10.0


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "root"


def made_old(path):
    then = time.time() - OLD
    os.utime(path, (then, then))


def killed_while(work: str, root) -> None:
    """A process that does ``work``, says so, and is killed."""
    begin = (
        "import sys, time; from pathlib import Path; from tilesmith.toolchain import files; root = Path(sys.argv[1]); "
    )
    child = subprocess.Popen(
        [sys.executable, "-c", begin + work, str(root)], stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()


def test_published_whole_or_not_at_all(root, monkeypatch):
    files.publish(root, root / "a" / "b", b"one")
    files.publish(root, root / "a" / "b", b"two")
    assert (root / "a" / "b").read_bytes() == b"two"

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        files.publish(root, root / "a" / "b", b"three")
    assert (root / "a" / "b").read_bytes() == b"two"
    assert list((root / "staging").iterdir()) == []


def test_one_at_a_time(root):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        with files.exclusive(root, "key", 30):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert list((root / "locks").iterdir()) == []


def test_nobody_waits_for_the_dead(root):
    killed_while("t = files.exclusive(root, 'key', 9); t.__enter__(); print(1, flush=True); time.sleep(60)", root)
    assert len(list((root / "locks").iterdir())) == 1
    began = time.monotonic()
    with files.exclusive(root, "key", 60):
        pass
    assert time.monotonic() - began < 5
    assert list((root / "locks").iterdir()) == []


def test_who_waits_too_long_goes_on(root):
    with files.exclusive(root, "key", 9):
        began = time.monotonic()
        with files.exclusive(root, "key", 0.05):
            pass
        assert 0.04 < time.monotonic() - began < 5


def test_no_place_for_locks(tmp_path):
    (tmp_path / "file").write_text("")
    with files.exclusive(tmp_path / "file", "key", 1):
        pass


def test_sweep_takes_what_is_abandoned_and_nothing_else(root):
    killed_while(
        "f = files.scratch(); f.__enter__(); t = files.exclusive(root, 'dead', 9); t.__enter__(); "
        "(root / 'staging').mkdir(); (root / 'staging' / 'x').write_text(''); print(1, flush=True); time.sleep(60)",
        root,
    )
    temporary = tempfile.gettempdir()
    (left,) = os.listdir(temporary)
    assert files.remove_abandoned(root) == 0  # what is young may belong to somebody who is about to take its lock
    for path in ((root / "locks" / "dead.lock"), (root / "staging" / "x"), os.path.join(temporary, left)):
        made_old(path)
    with files.scratch() as alive, files.exclusive(root, "alive", 9):
        made_old(alive)
        made_old(root / "locks" / "alive.lock")
        assert files.remove_abandoned(root) == 3
        assert alive.is_dir()
        assert os.listdir(root / "locks") == ["alive.lock"]
    assert os.listdir(root / "staging") == os.listdir(root / "locks") == os.listdir(temporary) == []


def test_a_cache_that_cannot_be_read_is_left_for_another(root, monkeypatch, caplog):
    target, source = host_target(1), Source("c", "ts_a", "", "int ts_a(void) { return 1; }")
    cache = ArtifactCache(root)
    first = cache.get_or_build(source, target)
    assert cache.give_up(OSError("I/O error"))
    assert not cache.give_up(OSError("I/O error"))
    again = cache.get_or_build(source, target)
    assert again.digest == first.digest
    assert root not in again.path.parents
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_processes_that_miss_one_kernel_compile_it_once(root, monkeypatch):
    target, source = host_target(1), Source("c", "ts_a", "", "int ts_a(void) { return 1; }")
    built = []
    real = build_module.build_unit

    def build(sources, *rest):
        built.append(1)
        time.sleep(0.05)
        return real(sources, *rest)

    monkeypatch.setattr(build_module, "build_unit", build)
    threads = [
        threading.Thread(target=lambda: ArtifactCache(root).get_or_build(source, target)) for _ in range(6)
    ]  # locks count between open files: threads with caches of their own stand for processes
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
