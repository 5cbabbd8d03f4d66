"""``tilesmith cache``: what lies there, what is damaged, and what may go."""

import fcntl
import json
import os
import time

import pytest

import tilesmith
from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.cli.verbs.cache import read_size
from tilesmith.toolchain.inventory import FOREIGN, KERNEL, KEY, MACHINE, PLAN, clear, inventory, prune

CONV = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
GEMM = GemmSignature(16, 16, 16)
DAY = 86_400


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(path))
    for signature in (CONV, GEMM):
        get_launchable(signature, mode="fast", only="c_reference")
    tilesmith.forget()
    return path


def kinds(entries):
    """All but what is noted of the machine and the generator, once for all problems."""
    return sorted(entry.kind for entry in entries if entry.kind != MACHINE)


def age(path, days):
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def plan_of(folder, signature):
    (found,) = [e for e in inventory(folder) if e.kind == PLAN and signature.canonical.key() in e.what]
    return found


def test_ls(folder, capsys):
    assert kinds(inventory(folder)) == sorted([KERNEL, KEY, PLAN] * 2)
    assert run(["cache", "ls"]) == 0
    out, err = capsys.readouterr()
    held = inventory(folder)
    assert len([line for line in out.splitlines() if not line.startswith(" ")]) == 1 + len(held)
    assert "c_reference" in out
    assert CONV.key() in "".join(out.split())
    assert f"{len(held)} files" in err
    assert run(["cache", "ls", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["kind"] for row in rows} == {entry.kind for entry in held}
    assert all(row["bytes"] > 0 and 0 <= row["age_s"] < 600 and not row["damage"] for row in rows)


def test_an_empty_cache(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "nothing"))
    for words in (["ls"], ["verify"], ["prune", "--max-bytes", "0"], ["clear"]):
        assert run(["cache", *words]) == 0
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("kind", [KERNEL, KEY, PLAN])
def test_verify_names_every_flipped_byte(folder, kind, capsys):
    entry = next(e for e in inventory(folder) if e.kind == kind)
    data = entry.path.read_bytes()
    for place in (0, len(data) // 2, len(data) - 1):
        entry.path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        damaged = [e for e in inventory(folder, verify=True) if e.damage]
        assert entry.path in [e.path for e in damaged]
        # A kernel takes the key and the plan that count it along.
        assert kinds(damaged) == (sorted([KERNEL, KEY, PLAN]) if kind == KERNEL else [kind])
    entry.path.write_bytes(data[: len(data) // 2])
    assert run(["cache", "verify"]) == 1
    err = capsys.readouterr().err
    assert str(entry.path) in err
    assert "tilesmith cache verify --repair" in err
    assert run(["cache", "verify", "--repair"]) == 0
    assert not entry.path.exists()
    capsys.readouterr()
    assert run(["cache", "verify"]) == 0
    assert get_launchable(CONV, mode="fast", only="c_reference").solver == "c_reference"


def test_an_exchanged_entry_is_damaged(folder):
    one, other = (e.path for e in inventory(folder) if e.kind == PLAN)
    other.write_bytes(one.read_bytes())
    assert [e.path for e in inventory(folder, verify=True) if e.damage] == [other]


def test_a_whole_cache_is_whole(folder, capsys):
    assert run(["cache", "verify"]) == 0
    assert "0 damaged" in capsys.readouterr().err


def test_prune_by_age_takes_the_kernels_along(folder):
    plan = plan_of(folder, CONV)
    (key,) = [e for e in inventory(folder) if e.kind == KEY and e.refers == plan.refers]
    age(plan.path, 10)
    assert prune(folder, older_than_s=20 * DAY) == ()
    assert [e.path for e in prune(folder, older_than_s=5 * DAY)] == [plan.path]  # the key still counts the kernel
    age(key.path, 10)
    gone = prune(folder, older_than_s=5 * DAY)
    assert kinds(gone) == [KERNEL, KEY]
    assert kinds(inventory(folder)) == [KERNEL, KEY, PLAN]
    assert inventory(folder, verify=True) == tuple(e for e in inventory(folder, verify=True) if not e.damage)


def test_prune_to_a_size_takes_the_oldest(folder, capsys):
    old = plan_of(folder, CONV)
    for entry in inventory(folder):
        if entry.refers == old.refers:
            age(entry.path, 3)
    total = sum(e.nbytes for e in inventory(folder))
    assert run(["cache", "prune", "--max-bytes", str(total)]) == 0
    assert "0 files" in capsys.readouterr().err
    assert run(["cache", "prune", "--max-bytes", str(total - 1), "--dry-run"]) == 0
    assert "would go" in capsys.readouterr().err
    assert sum(e.nbytes for e in inventory(folder)) == total
    prune(folder, max_bytes=total - 1)
    assert not old.path.exists() or not [e for e in inventory(folder) if e.kind == KEY and e.refers == old.refers]
    prune(folder, max_bytes=0)
    assert inventory(folder) == ()


def test_kernels_that_nothing_counts_go_when_they_are_old(folder):
    plan = plan_of(folder, GEMM)
    for entry in inventory(folder):
        if entry.refers == plan.refers:
            entry.path.unlink()
    assert prune(folder, older_than_s=DAY) == ()  # it may just have been published
    kernel = next(e for e in inventory(folder) if e.digest in plan.refers)
    age(kernel.path, 0.5)
    assert [e.path for e in prune(folder, older_than_s=DAY)] == [kernel.path]


def test_clear_leaves_what_is_not_the_caches(folder, capsys):
    (folder / "notes.txt").write_text("mine")
    assert run(["cache", "clear"]) == 2
    assert "type --yes" in capsys.readouterr().err
    assert len(kinds(inventory(folder))) == 7
    assert run(["cache", "clear", "--yes"]) == 0
    assert kinds(inventory(folder)) == [FOREIGN]
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["notes.txt"]
    assert clear(folder) == ()


def test_clear_leaves_no_empty_folders(folder):
    clear(folder)
    assert list(folder.iterdir()) == []
    (folder / "plans" / "of another version").mkdir(parents=True)
    prune(folder, max_bytes=0)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("remove", [clear, lambda folder: prune(folder, max_bytes=0)])
def test_what_another_process_is_making_stays(folder, remove):
    staged = folder / "staging" / "half"
    with open(staged, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        age(staged, 1)
        remove(folder)
        assert staged.exists()
    remove(folder)
    assert not staged.exists()


def test_a_process_that_runs_a_kernel_goes_on(folder):
    launch = get_launchable(CONV, mode="fast", only="c_reference")
    x, w = CONV.get_sample_args(seed=0)
    before = launch(x, w)
    clear(folder)
    assert (launch(x, w) == before).all()


@pytest.mark.parametrize("words", [["prune"], ["prune", "--max-bytes", "much"], ["prune", "--older-than", "-1"]])
def test_bad_words(folder, words, capsys):
    assert run(["cache", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert len(kinds(inventory(folder))) == 6


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("2K", 2048), ("3mb", 3 << 20), ("1GiB", 1 << 30)])
def test_sizes(text, size):
    assert read_size(None, None, text) == size
