"""A hit that is kept for the next process stands as long as nothing that it rests on has changed."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tilesmith import env
from tilesmith.db.opening import open_database
from tilesmith.db.state import RECORDS, state_of
from tilesmith.db.store import Database
from tilesmith.dispatch import hits, launchable, resolve
from tilesmith.dispatch.kept_calls import forget
from tilesmith.dispatch.launchable import forget_launchables, get_launchable
from tilesmith.dispatch.locations import open_databases
from tilesmith.dispatch.request import Request
from tilesmith.errors import NoCompilerError
from tilesmith.problems.conv import ConvSignature
from tilesmith.solvers.external.candidate import CUDNN
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import files, plans
from tilesmith.toolchain.sealed import bind, unbind

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
TARGET = host_target(1)


def lives_in(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    patch.setenv("TILESMITH_DB_PATH", f"{folder / 'team.db'}{os.pathsep}{folder / 'user.db'}")
    patch.setenv("TILESMITH_CACHE_DIR", str(folder / "cache"))
    return folder


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A database of two layers and a cache that hold ``SMALL``'s answer, for all tests to copy."""
    with pytest.MonkeyPatch.context() as patch:
        folder = lives_in(tmp_path_factory.mktemp("searched"), patch)
        get_launchable(SMALL, target=TARGET, mode="hybrid")
        forget()
    return folder


@pytest.fixture
def place(searched, tmp_path, monkeypatch):
    """A copy of it, of the test's own."""
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    return lives_in(tmp_path, monkeypatch)


@pytest.fixture
def ask(place, monkeypatch):
    """``get_launchable`` as a fresh process calls it; ``ask.looked`` says whether the last one asked the databases."""
    real = resolve.resolve

    def watched(*arguments):
        asking.looked = True
        return real(*arguments)

    def asking(signature=SMALL, target=TARGET, mode="hybrid", **more):
        forget_launchables()
        asking.looked = False
        return get_launchable(signature, target=target, mode=mode, **more)

    monkeypatch.setattr(resolve, "resolve", watched)
    return asking


def kept(place: Path) -> Path:
    (path,) = (place / "cache" / "hits").iterdir()
    return path


@pytest.mark.parametrize(("ratio", "hit"), [(10.0, True), (0.1, False)])
def test_a_library_that_lost_keeps_no_hit_away(ask, ratio, hit):
    """A search on a GPU records PyTorch's kernels, too."""
    ours = ask().choice.record
    theirs = replace(ours, solver=CUDNN.name, config="", revision=CUDNN.revision, time_us=ratio * ours.time_us)
    open_databases().writable.put_result(theirs)
    ask()
    assert ask().choice.record == ours
    assert ask.looked is not hit


def test_the_third_process_asks_no_database(ask):
    first = ask()
    assert ask.looked
    for mode in ("hybrid", "fast", "strict"):
        found = ask(mode=mode)
        assert not ask.looked
        assert found.choice == first.choice
        assert found.plan == first.plan
        assert found.remembered
    x, w = SMALL.get_sample_args(seed=1)
    assert (found(x, w) == first(x, w)).all()


def test_a_filter_that_each_call_packs_has_hits_of_its_own(ask, place):
    """Its answer is another kernel if that is here, else the kernel of the frozen filter: nothing is compiled."""
    first, ours = ask().choice.record, open_databases().writable
    assert ask(frozen=False).choice.record == first  # one hit stands for both while they have the same answer
    assert not ask.looked
    assert kept(place)
    solver = next(solver for solver in CPU_SOLVERS if solver.name == "c_reference")
    config = str(solver.default_config(SMALL.canonical.geometry, TARGET))
    other = replace(
        first, solver=solver.name, config=config, revision=solver.revision, time_us=2 * first.time_us, prepare_us=0.0
    )
    packs = replace(first, prepare_us=2 * first.time_us)
    ours.put_results([other, packs])
    assert ask(frozen=False).choice.record == ask().choice.record == packs
    ask(only=solver.name)  # it is compiled
    shutil.rmtree(place / "cache" / "hits")
    for _ in range(2):
        assert ask(frozen=False).choice.record == other
        assert ask().choice.record == packs
    assert not ask.looked
    ask(frozen=False)
    assert not ask.looked
    assert ask(mode="strict", frozen=False).choice.record == packs


@pytest.mark.parametrize("mode", ["normal", "trust_verify"])
def test_modes_that_measure_ask(ask, mode):
    for _ in range(3):
        ask(mode=mode)
        assert ask.looked


def test_strict_keeps_nothing(ask, place):
    for _ in range(2):
        ask(mode="strict")
        assert ask.looked
    assert not (place / "cache" / "hits").exists()


def a_record(database: Database) -> object:
    return replace(database.best(SMALL.canonical.key(), TARGET.name), date="2030-01-01T00:00:00Z")


def test_every_change_of_a_layer_is_seen(ask, place):
    """A write to either file, within one tick of the clock or with the clock permuted back, another file, none."""
    ask()
    user = open_database(place / "user.db")
    record = a_record(user)

    def written():
        times = os.stat(place / "user.db")
        user.put_result(replace(record, time_us=0.125))
        os.utime(place / "user.db", ns=(times.st_atime_ns, times.st_mtime_ns))

    def team_written():
        shutil.copy(place / "user.db", place / "team.db")
        team = open_database(place / "team.db")
        team.put_result(replace(record, time_us=0.5))
        team.close()

    def replaced():
        shutil.copy(place / "user.db", place / "other.db")
        os.replace(place / "other.db", place / "user.db")

    for change in (written, team_written, replaced):
        ask()
        assert not ask.looked, change.__name__
        change()
        assert ask().choice.basis == "database"
        assert ask.looked, change.__name__
        open_databases.__globals__["_opened"].clear()  # as a new process, which opens the file that is there now
        ask()
    assert ask().choice.time_us == 0.125
    user.close()


def test_two_transactions_within_a_tick(place):
    """Size and times may be the same: SQLite's counter in the header is not."""
    path = str(place / "user.db")
    database = open_database(path)
    record = a_record(database)
    states = []
    for time_us in (1.5, 2.5):
        database.put_result(replace(record, time_us=time_us))
        states.append(state_of(path)[4])
    assert states[0] != states[1]


@pytest.mark.parametrize("other", ["-journal", "-wal", RECORDS])
def test_a_file_that_is_being_written_tells_nothing(ask, place, other):
    ask()
    (place / f"user.db{other}").write_bytes(b"")
    assert state_of(str(place / "user.db")) is None
    open_databases.__globals__["_opened"].clear()
    kept(place).unlink()
    for _ in range(2):
        ask()
        assert ask.looked
    assert not list((place / "cache" / "hits").iterdir())


def test_a_link_tells_nothing(place):
    (place / "link.db").symlink_to(place / "user.db")
    assert state_of(str(place / "link.db")) is None
    assert state_of(str(place / "none.db")) == []
    assert state_of(str(place)) is None
    assert state_of("a\0b") is None


def test_layers_that_are_old_are_not_kept(ask, place):
    """This process holds what the file was; the file has another answer now."""
    team = open_database(place / "user.db")
    record = a_record(team)
    team.close()
    ask()
    opened = open_databases()
    copy = place / "copy.db"
    shutil.copy(place / "user.db", copy)
    changed = open_database(copy)
    changed.put_result(replace(record, time_us=0.25))
    changed.close()
    os.replace(copy, place / "user.db")
    assert ask().choice.time_us != 0.25
    assert open_databases() is opened
    assert ask().choice.time_us != 0.25
    assert ask.looked
    open_databases.__globals__["_opened"].clear()
    for _ in range(2):
        assert ask().choice.time_us == 0.25
    assert not ask.looked


def test_other_questions_ask(ask, place, monkeypatch):
    """Each part of what a hit is kept for, changed by itself."""
    ask()
    ask()
    assert not ask.looked
    for change in (
        {"signature": replace(SMALL, dilation=2)}, {"target": host_target(2)}, {"only": "c_reference"},
        {"database": place / "user.db"}, {"cache": place / "elsewhere"},
    ):  # fmt: skip
        ask(**change)
        assert ask.looked, change
    with monkeypatch.context() as changed:
        changed.setattr(plans, "generator_digest", lambda _: "another generator")
        ask()
        assert ask.looked
    with monkeypatch.context() as changed:
        spec = place / "spec.toml"
        spec.write_text('[[choice]]\nproblem = "*"\nsolver = "c_reference"\n')
        changed.setenv(env.TUNING_SPEC_PATH.name, str(spec))
        assert ask().solver == "c_reference"
    ask()  # the others have measured, and so changed the database
    ask()
    assert not ask.looked


def test_a_plan_of_another_generator_is_not_kept(ask, place, monkeypatch):
    """It serves where there is no compiler, and must not do so for ever where there is one."""
    monkeypatch.setattr(plans, "generator_digest", lambda _: "another generator")
    with monkeypatch.context() as changed:
        changed.setattr("tilesmith.toolchain.toolchains.find_toolchain", refuse)
        for _ in range(2):
            assert ask().remembered
            assert ask.looked
    assert not (place / "cache" / "hits").exists()
    assert not ask().remembered


def refuse(*_):
    raise NoCompilerError("no C compiler: install one")


def test_a_lost_kernel_is_made_again(ask, place):
    ask()
    for path in (place / "cache" / "objects").iterdir():
        path.unlink()
    ask()
    assert ask.looked
    assert ask()
    assert not ask.looked


def test_a_hit_of_another_form_is_a_miss(ask, place, caplog):
    ask()
    path = kept(place)
    name, whole = f"hits/{path.name}", path.read_bytes()
    line, _, plan = unbind(name, whole).partition(b"\n")
    record = json.loads(line)
    for changed in ([], {}, {**record, "choice": record["choice"][:-1]}, {**record, "choice": None}):
        path.write_bytes(bind(name, json.dumps(changed).encode() + b"\n" + plan))
        assert ask().choice.basis == "database"
        assert ask.looked
        assert path.read_bytes() == whole  # and kept again
    path.write_bytes(whole[:-1])
    ask()
    assert ask.looked
    assert not caplog.text


def test_a_cache_that_cannot_be_written_keeps_none_and_says_nothing(ask, place, monkeypatch, caplog):
    def failing(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_publish", failing)
    for _ in range(2):
        ask()
        assert ask.looked
    assert not caplog.text


def test_an_answer_from_a_url_is_not_kept(place):
    """The copy that was fetched may be old, and says nothing of what lies there."""
    named = launchable.named_databases()
    request = Request(SMALL, TARGET, "hybrid", named, launchable.open_cache())
    resolved = resolve.resolve(request)
    for url in ("https://example.invalid/a.db", "file:///a.db"):
        fetched = replace(request, databases=replace(named, paths=(url, *named.paths[1:])))
        hits.keep(fetched, resolved, resolve.recorded_hit)
        assert not (place / "cache" / "hits").exists()
    hits.keep(request, resolved, resolve.recorded_hit)
    assert kept(place)


def test_an_answer_that_changes_while_it_is_looked_at_is_not_kept(place):
    """The states that are kept are those from before and after the look: another process may write between the two."""
    named = launchable.named_databases()
    request = Request(SMALL, TARGET, "hybrid", named, launchable.open_cache())
    resolved = resolve.resolve(request)
    writes = []

    def look(fresh):
        found = resolve.recorded_hit(fresh)
        if fresh.mode == "strict":  # the last look
            user = open_database(place / "user.db")
            user.put_result(replace(a_record(user), time_us=0.125))
            user.close()
            writes.append(found)
        return found

    hits.keep(request, resolved, look)
    assert writes
    assert not (place / "cache" / "hits").exists()
