"""Folders that others can write, and files of other users: not used, one line says what to type, and calls go on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilesmith import ConvSignature, env, forget, get_launchable
from tilesmith.db.layers import open_layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.errors import EnvironmentValueError, NoSolutionError
from tilesmith.plan.records import Source
from tilesmith.ready.preload import CachePopulator
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import files, trust
from tilesmith.toolchain.cache import ArtifactCache

pytestmark = pytest.mark.needs_users
TARGET = host_target(1)
SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
ANSWER = Source("c", "ts_answer", "", "int ts_answer(void) { return 42; }")
STRANGER = 54321  # a user that no machine has


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("TILESMITH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "data" / "test.db"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")
    monkeypatch.setattr(trust, "_owner_of_package", lambda: 0)
    forget()
    yield tmp_path
    forget()


def everyone(path):
    path.chmod(0o777)


def everyone_with_a_sticky_bit(path):
    path.chmod(0o1777)


def a_group(path):
    os.chown(path, -1, STRANGER)
    path.chmod(0o770)


def another_user(path):
    os.chown(path, STRANGER, -1)


OPENED = {
    "everyone": everyone, "sticky": everyone_with_a_sticky_bit, "a group": a_group, "another user": another_user,
}  # fmt: skip
WAYS = [
    pytest.param(OPENED[name], id=name, marks=pytest.mark.needs_root if name.startswith("a") else ()) for name in OPENED
]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("opened", WAYS)
def test_a_cache_folder_that_others_can_write_is_not_used(opened, home, caplog, monkeypatch):
    first = ArtifactCache(home / "cache").get_or_build(ANSWER, TARGET)
    opened(home / "cache")
    before = sorted(path for path in (home / "cache").rglob("*"))
    cache = ArtifactCache(home / "cache")
    assert cache.find(first.digest) is None
    assert cache.lookup(ANSWER, TARGET) is None
    again = cache.get_or_build(ANSWER, TARGET)
    assert home / "cache" not in again.path.parents
    assert cache.find(again.digest) == again
    assert not cache.lasts
    assert sorted(path for path in (home / "cache").rglob("*")) == before
    (told,) = warnings(caplog)
    assert f"cache folder {home / 'cache'} is not used: " in told
    assert f"`export TILESMITH_TRUST_FOLDER={home / 'cache'}`" in told
    monkeypatch.setenv("TILESMITH_TRUST_FOLDER", f"/elsewhere:{home}")
    assert ArtifactCache(home / "cache").find(first.digest) == first


@pytest.mark.parametrize("opened", WAYS)
def test_a_call_goes_on_without_a_folder_that_others_can_write(opened, home, caplog):
    get_launchable(SMALL)
    assert (home / "cache" / "objects").is_dir()
    opened(home / "cache")
    forget()
    from tilesmith.dispatch import locations

    locations._cache.cache_clear()  # as in another process
    launch = get_launchable(SMALL)
    assert not launch.remembered
    launch(*SMALL.get_sample_args(seed=0))
    forget()
    get_launchable(SMALL)
    assert len(warnings(caplog)) == 1
    locations._cache.cache_clear()
    with pytest.raises(NoSolutionError, match="strict mode"):
        get_launchable(SMALL, mode="strict")
    populator = CachePopulator(commands=["conv -n 1 -c 4 -H 6 -W 6 -k 4 -y 1 -x 1"], cache_dir=str(home / "cache"))
    populator.run()
    assert "or others can: see the warning" in next(iter(populator.get_failures().values()))


def test_a_folder_that_is_made_here_can_be_written_by_nobody_else(home):
    before = os.umask(0)
    try:
        get_launchable(SMALL)
        open_database(home / "data" / "test.db").put_result(Record("p", "t:1", "s", "", time_us=1.0))
    finally:
        os.umask(before)
    made = [home / "cache", *(home / "cache").rglob("*"), home / "data"]
    assert not [path for path in made if path.stat().st_mode & 0o022]


@pytest.mark.needs_root
def test_a_file_of_another_user_is_a_miss(home, caplog):
    cache = ArtifactCache(home / "cache")
    artifact = cache.get_or_build(ANSWER, TARGET)
    for path in (artifact.path, *(home / "cache" / "keys").iterdir()):
        for opened in OPENED.values():
            opened(path)
            assert ArtifactCache(home / "cache").lookup(ANSWER, TARGET) is None, path
            os.chown(path, 0, 0)
            path.chmod(0o600)
            assert ArtifactCache(home / "cache").lookup(ANSWER, TARGET) == artifact
    os.chown(artifact.path, STRANGER, -1)
    assert cache.get_or_build(ANSWER, TARGET) == artifact
    assert artifact.path.stat().st_uid == 0
    assert "it belongs to user 54321" in caplog.text


@pytest.mark.needs_root
def test_folders_of_root_serve_every_user(home):
    """Read-only system layers and shared caches that an administrator has made."""
    for path in (home, home / "data"):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    script = (
        f"import os, sys; os.setgid({STRANGER}); os.setuid({STRANGER})\n"
        "from tilesmith.toolchain.trust import why_distrusted\n"
        "print([why_distrusted(path) for path in sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import tilesmith.toolchain.trust\n{script}", str(home), "/", "/usr"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[None, None, None]", done.stderr


@pytest.mark.needs_root
def test_who_owns_the_package_is_trusted_as_its_code_is(home, monkeypatch):
    """In a container: built by one user, run by another without a name."""
    os.chown(home, STRANGER, STRANGER)
    assert "belongs to user 54321" in trust.why_distrusted(home)
    monkeypatch.setattr(trust, "_owner_of_package", lambda: STRANGER)
    assert trust.why_distrusted(home) is None


def test_a_group_of_this_user_alone_may_write(monkeypatch, home):
    home.chmod(0o770)
    monkeypatch.setattr(trust, "_is_own_group", lambda group: group == home.stat().st_gid)
    assert trust.why_distrusted(home) is None
    monkeypatch.setattr(trust, "_is_own_group", lambda group: False)
    assert f"group {home.stat().st_gid} can write to it; type `chmod go-w {home}`" in trust.why_distrusted(home)


def test_nothing_is_published_where_others_can_write(home):
    folder = home / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="every user can write to it"):
        files.publish(folder, folder / "objects" / "x", b"")
    assert not (folder / "objects").exists()


def test_trusted_folders_are_named_by_their_whole_path(monkeypatch):
    monkeypatch.setenv("TILESMITH_TRUST_FOLDER", "1")
    with pytest.raises(EnvironmentValueError, match="TILESMITH_TRUST_FOLDER='1' is not a list of absolute paths"):
        env.TRUST_FOLDER.get()
    monkeypatch.setenv("TILESMITH_TRUST_FOLDER", f"/a{os.pathsep}/b/c")
    assert env.TRUST_FOLDER.get() == (Path("/a"), Path("/b/c"))


# --- databases ---

RECORD = Record("p", TARGET.name, "s", "mr=1", time_us=1.0, samples=9)


def database_at(path, kind):
    path.parent.mkdir(exist_ok=True)
    if kind == "files":
        Path(f"{path}.records").mkdir()
    database = open_database(path)
    database.put_result(RECORD)
    database.close()


def answers(*paths):
    layers = open_layers([str(path) for path in paths], readonly=True)
    found = [answer.record for answer in layers.answers(RECORD.problem, RECORD.target)]
    layers.close()
    return found


@pytest.mark.parametrize("kind", ["sqlite", "files"])
@pytest.mark.parametrize("opened", WAYS)
def test_a_layer_that_others_can_write_is_ignored(opened, kind, home, caplog, monkeypatch):
    team, user = home / "team" / "team.db", home / "data" / "test.db"
    database_at(team, kind)
    database_at(user, "sqlite")
    assert answers(team, user) == [RECORD, RECORD]
    opened(team.parent)
    assert answers(team, user) == answers(team, user) == [RECORD]
    (told,) = warnings(caplog)
    assert f"database {team} cannot be used (" in told
    assert f"`export TILESMITH_TRUST_FOLDER={team.parent}`" in told
    monkeypatch.setenv("TILESMITH_TRUST_FOLDER", str(team.parent))
    assert answers(team, user) == [RECORD, RECORD]


@pytest.mark.needs_root
@pytest.mark.parametrize("suffix", ["", "-journal", "-wal"])
def test_a_database_of_another_user_or_with_a_journal_of_one_is_ignored(suffix, home):
    path = home / "data" / "test.db"
    database_at(path, "sqlite")
    Path(f"{path}{suffix}").touch()
    os.chown(f"{path}{suffix}", STRANGER, -1)
    assert answers(path) == []


def test_a_database_that_others_can_write_does_not_keep_what_is_measured(home, caplog):
    path = home / "open" / "test.db"
    path.parent.mkdir()
    path.parent.chmod(0o777)
    database = open_database(path)
    database.put_result(RECORD)
    assert database.ranking(RECORD.problem, RECORD.target) == (RECORD,)
    assert not database.persistent
    assert list(path.parent.iterdir()) == []
    assert len(warnings(caplog)) == 1


# --- what is compared is what is mapped ---


def test_the_bytes_that_were_compared_are_those_that_are_loaded(home):
    """Between the comparison and the loading another file takes the kernel's place."""
    from tilesmith.dispatch.locations import open_cache

    launch = get_launchable(SMALL)
    values = SMALL.get_sample_args(seed=0)
    expected = launch(*values)
    cache = open_cache()
    held = tuple(cache.find(digest) for digest in launch.plan.artifacts)
    for artifact in held:
        artifact.path.write_bytes(b"\x7fELF and nothing more")
    from tilesmith.runtime.executable import Executable

    executable = Executable(launch.plan, held)
    assert (executable.bind(SMALL)(*values) == expected).all()


@pytest.mark.needs_linux
def test_a_kernel_that_is_cut_while_it_is_loaded_goes_on(home):
    """A mapped file that loses its end kills the process that calls it."""
    script = (
        "import sys, pathlib, tilesmith\n"
        "s = tilesmith.parse_key(sys.argv[1]); values = s.get_sample_args(seed=0)\n"
        "launch = tilesmith.get_launchable(s); before = launch(*values)\n"
        "for path in pathlib.Path(sys.argv[2]).rglob('*.so'): path.write_bytes(b'')\n"
        "print((launch(*values) == before).all())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, SMALL.key(), str(home / "cache")], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "True", (done.returncode, done.stderr)


def test_plans_that_share_a_kernel_share_its_memory(home):
    from tilesmith.dispatch.locations import open_cache
    from tilesmith.runtime.executable import Executable

    launch = get_launchable(SMALL)
    held = tuple(open_cache().find(digest) for digest in launch.plan.artifacts)

    def mapped():
        maps = Path("/proc/self/maps")
        return sum("memfd:tilesmith" in line for line in maps.read_text().splitlines()) if maps.exists() else 0

    before = mapped()
    more = [Executable(launch.plan, held) for _ in range(20)]
    assert mapped() == before
    del more, launch
    forget()


def test_a_thousand_kernels_come_and_go(home):
    """Numbers of descriptors are used again: each time the kernel that was asked for is loaded."""
    from dataclasses import replace

    from tilesmith.dispatch.locations import open_cache
    from tilesmith.runtime.executable import Executable

    other = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC", stride=2)
    pairs = []
    for signature in (SMALL, other):
        launch = get_launchable(signature)
        held = tuple(open_cache().find(digest) for digest in launch.plan.artifacts)
        values = signature.get_sample_args(seed=0)
        pairs.append((signature, launch.plan, held, values, launch(*values)))
    del launch
    forget()
    for number in range(200):
        signature, plan, held, values, expected = pairs[number % 2]
        copies = [Executable(replace(plan), held)]
        assert (copies[0].bind(signature)(*values) == expected).all()
        del copies
