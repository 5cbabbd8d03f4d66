"""The modes, each by what it may do: strict in a process that watches itself, trust_verify on planted records."""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

import tilesmith
from tilesmith import ConvSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.db.opening import open_database
from tilesmith.dispatch import resolve
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import CompileError, NoSolutionError
from tilesmith.measure import device_bench

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
OTHER = ConvSignature((1, 8, 8, 8), (8, 3, 3, 8), shared_layout="NHWC")
# Everything that the interpreter is asked to start, write, move or remove while a problem is answered.
STRICT_CHILD = """
import json, os, sys
import numpy, tilesmith
import tilesmith.dispatch.launchable
events = []
def watch(name, arguments):
    if name == "open":
        mode, flags = str(arguments[1] or ""), int(arguments[2] or 0)
        if set(mode) & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            events.append([name, str(arguments[0])])
    elif name.split(".")[0] in ("subprocess", "tempfile", "shutil") or name in (
        "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate",
        "os.utime", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.spawn",
    ):
        events.append([name, str(arguments[:1])])
sys.addaudithook(watch)
signature = tilesmith.parse_key(sys.argv[1])
answer = error = ""
try:
    launch = tilesmith.get_launchable(signature)
    numbers = launch(*signature.get_sample_args(seed=0))
    answer = [launch.solver, launch.config, launch.choice.basis, numbers.tobytes().hex()]
except tilesmith.TilesmithError as failure:
    error = f"{type(failure).__name__}: {failure}"
print(json.dumps([answer, error, events]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home of its own with the cache and the database in their default places."""
    for name in ("TILESMITH_CACHE_DIR", "TILESMITH_DB_PATH", "TILESMITH_FIND_MODE"):
        monkeypatch.delenv(name)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    yield home
    _writable(home, True)


def _writable(folder, yes):
    for root, _, names in os.walk(folder):
        for path in (root, *(os.path.join(root, name) for name in names)):
            os.chmod(path, 0o700 if yes else 0o500)


def _everything(folder):
    """Each file and folder with all that changes when anybody writes, folders included: a journal that came and went
    leaves its folder's time.
    """
    found = {}
    for root, _, names in os.walk(folder):
        for path in (root, *(os.path.join(root, name) for name in names)):
            stat = os.stat(path)
            found[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return found


def _forbid_files():
    """No byte can be written to any file, whoever the user is (modes of files bind no root)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _strictly(home, signature, **variables):
    empty = home.parent / "empty"
    empty.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "TMPDIR")}
    environment |= {"PATH": str(empty), "TILESMITH_FIND_MODE": "strict", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    _writable(home, False)
    before = _everything(home)
    done = subprocess.run(
        [sys.executable, "-c", STRICT_CHILD, signature.key()], capture_output=True, text=True, timeout=60, check=False,
        env=environment, cwd=empty, preexec_fn=_forbid_files,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert _everything(home) == before
    assert list(empty.iterdir()) == []
    assert done.stderr == ""
    answer, error, events = json.loads(done.stdout)
    assert events == []
    return answer, error


def test_the_watch_sees_what_other_modes_do(place):
    """A watch that sees nothing proves nothing."""
    watched = subprocess.run(
        [sys.executable, "-c", STRICT_CHILD, SMALL.key()], capture_output=True, text=True, timeout=60, check=True,
        env=os.environ | {"TILESMITH_FIND_MODE": "fast", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    names = {name for name, _ in json.loads(watched.stdout)[2]}
    assert {"subprocess.Popen", "open", "os.mkdir", "os.rename"} <= names
    assert list(place.iterdir())


def test_strict_reads_and_does_nothing_else(place):
    first = get_launchable(SMALL, mode="hybrid")
    want = first(*SMALL.get_sample_args(seed=0))
    answer, error = _strictly(place, SMALL)
    assert error == ""
    assert answer == [first.solver, first.config, "database", want.tobytes().hex()]


def test_a_strict_miss_names_what_to_type_and_leaves_nothing(place):
    get_launchable(SMALL, mode="hybrid")
    answer, error = _strictly(place, OTHER)
    assert answer == ""
    assert error.startswith("NoSolutionError: strict mode: no database holds this problem")
    target = tilesmith.host_target(1).name
    typed = "`tilesmith preload --mode hybrid --threads 1 conv -n 1 -c 8 "
    for said in (typed, "TILESMITH_DB_PATH", str(place), target):
        assert said in error


def test_strict_in_an_empty_home(place):
    answer, error = _strictly(place, SMALL)
    assert answer == ""
    assert "no database holds" in error
    assert list(place.iterdir()) == []


def test_strict_without_the_kernel_or_with_the_cache_off(place, tmp_path):
    get_launchable(SMALL, mode="hybrid")
    _, error = _strictly(place, SMALL, TILESMITH_CACHE_DIR=str(tmp_path / "nothing"))
    assert "does not hold the kernel" in error
    assert "`tilesmith preload --mode hybrid --threads 1 conv " in error
    assert not (tmp_path / "nothing").exists()
    _, error = _strictly(place, SMALL, TILESMITH_CACHE_ON="0")
    assert "TILESMITH_CACHE_ON=0" in error


def test_what_a_strict_miss_says_to_type_helps(monkeypatch, capsys):
    """In the same shell, the mode of the environment included."""
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")
    with pytest.raises(NoSolutionError) as caught:
        get_launchable(SMALL)
    typed = re.search("`tilesmith (preload [^`]*)`", str(caught.value))
    assert run(shlex.split(typed[1])) == 0
    assert get_launchable(SMALL).choice.basis == "database"


def test_strict_sees_what_is_recorded_later():
    with pytest.raises(NoSolutionError):
        get_launchable(SMALL, mode="strict")
    get_launchable(SMALL, mode="hybrid")
    assert get_launchable(SMALL, mode="strict").choice.basis == "database"


def test_two_threads_with_two_modes_at_once():
    """Modes belong to calls: a thread that must not measure is not drawn into the measurement of another."""
    measuring, done, found = threading.Event(), threading.Event(), {}
    measure = resolve._measure

    def slow(*args):
        measuring.set()
        assert done.wait(30)
        measure(*args)

    def ask(mode):
        try:
            found[mode] = get_launchable(SMALL, mode=mode).choice.basis
        except NoSolutionError:
            found[mode] = "refused"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "_measure", slow)
        slow_one = threading.Thread(target=ask, args=("normal",))
        slow_one.start()
        assert measuring.wait(30)
        others = [threading.Thread(target=ask, args=(mode,)) for mode in ("fast", "strict")]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(30)
        assert found == {"fast": "prediction", "strict": "refused"}
        done.set()
        slow_one.join(60)
    assert found["normal"] == "measurement"


def test_the_mode_of_a_call_comes_before_that_of_the_process(monkeypatch):
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")
    x, w = (array.transpose(0, 3, 1, 2) for array in SMALL.get_sample_args(seed=0))
    with pytest.raises(NoSolutionError):
        tilesmith.conv(x, w, padding=1)
    y = tilesmith.conv(x, w, padding=1, mode="fast")
    assert np.isfinite(y).all()
    a = np.ones((4, 4), np.float32)
    with pytest.raises(NoSolutionError):
        tilesmith.gemm(a, a)
    assert (tilesmith.gemm(a, a, mode="fast") == 4).all()
    with pytest.raises(tilesmith.TilesmithError, match="mode 'lazy' does not exist"):
        tilesmith.gemm(a, a, mode="lazy")


# --- trust_verify -------------------------------------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """``plant(factor)``: a system layer whose records say ``factor`` times what was measured here."""
    measured = tmp_path / "measured.db"
    first = get_launchable(SMALL, mode="hybrid", database=measured)
    records = open_databases(measured).writable.ranking(SMALL.key(), first.target.name)
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{tmp_path / 'system.db'}:{tmp_path / 'user.db'}")

    def plant(factor):
        system = open_database(tmp_path / "system.db")
        for record in records:
            if record.ok:
                system.put_result(replace(record, time_us=record.time_us * factor, origin="import"))
        system.close()
        tilesmith.forget()
        return first

    return plant


@pytest.fixture
def calls(monkeypatch):
    """What is timed and searched."""
    made, time_plan, measure = [], device_bench.time_plan, resolve._measure
    monkeypatch.setattr(device_bench, "time_plan", lambda *a, **k: (made.append("time"), time_plan(*a, **k))[1])

    def search(request, strategy, *rest):
        made.append(strategy)
        measure(request, "defaults", *rest)  # in place of a long search

    monkeypatch.setattr(resolve, "_measure", search)
    return made


def _user_records(target):
    return open_databases().writable.ranking(SMALL.key(), target.name)


def test_a_shipped_answer_that_holds_is_kept_and_timed_once(shipped, calls, tmp_path):
    first = shipped(50.0)
    launch = get_launchable(SMALL, mode="trust_verify")
    assert (launch.solver, launch.choice.layer) == (first.solver, str(tmp_path / "system.db"))
    assert calls == ["time"]
    (kept,) = _user_records(launch.target)
    assert (kept.solver, kept.config, kept.origin) == (launch.solver, launch.config, "verify")
    assert kept.time_us < 25 * first.choice.time_us
    forget_launchables()
    assert get_launchable(SMALL, mode="trust_verify").choice.layer == str(tmp_path / "user.db")
    assert calls == ["time"]


def test_a_shipped_answer_that_does_not_hold_is_searched_anew_once(shipped, calls, tmp_path, caplog):
    shipped(1e-3)
    launch = get_launchable(SMALL, mode="trust_verify")
    assert calls == ["time", "time", "model"]
    assert "searching anew" in caplog.text
    assert any(record.ok for record in _user_records(launch.target))
    forget_launchables()
    again = get_launchable(SMALL, mode="trust_verify")
    assert again.choice.layer == str(tmp_path / "user.db")
    assert (again.solver, again.config) == (launch.solver, launch.config)
    assert calls == ["time", "time", "model"]


def test_a_search_that_fails_keeps_the_shipped_answer_and_is_remembered(shipped, calls, monkeypatch, tmp_path):
    first = shipped(1e-3)

    def fail(*args):
        calls.append("failed")
        raise CompileError("the compiler is on strike")

    monkeypatch.setattr(resolve, "_measure", fail)
    launch = get_launchable(SMALL, mode="trust_verify")
    assert (launch.solver, launch.config) == (first.solver, first.config)
    forget_launchables()
    assert get_launchable(SMALL, mode="trust_verify").choice.layer == str(tmp_path / "user.db")
    assert calls == ["time", "time", "failed"]


@pytest.mark.parametrize("mode", ["fast", "hybrid", "strict"])
def test_other_modes_take_a_shipped_answer_as_it_is(shipped, calls, mode, tmp_path):
    shipped(1e-3)
    get_launchable(SMALL, mode="fast")
    tilesmith.forget()
    assert get_launchable(SMALL, mode=mode).choice.layer == str(tmp_path / "system.db")
    assert calls == []


def test_an_own_answer_is_not_verified(calls):
    get_launchable(SMALL, mode="hybrid")
    del calls[:]
    forget_launchables()
    assert get_launchable(SMALL, mode="trust_verify").choice.basis == "database"
    assert calls == []
