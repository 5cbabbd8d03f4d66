"""The parts of a fleet: the estimate, the lock of a device, messages, the check on a second machine."""

from __future__ import annotations

import itertools
import random
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import tilesmith
from tilesmith.cli.main import run
from tilesmith.db.opening import open_database
from tilesmith.db.records import Search
from tilesmith.dispatch import resolve
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import FleetError, LaunchError
from tilesmith.fleet import estimate
from tilesmith.fleet.checking import check_answer
from tilesmith.fleet.device_lock import device_lock
from tilesmith.fleet.merging import keep, open_parcel
from tilesmith.fleet.outbox import Outbox
from tilesmith.fleet.processes import share_cores
from tilesmith.fleet.tasks import TUNE, Task, encode, read_reply, read_task
from tilesmith.fleet.worker import run_task

GEMM = tilesmith.GemmSignature(m=24, n=32, k=16)


def best_of_all(seconds, workers):
    """The shortest time of every way to give the searches to workers."""
    ways = itertools.product(range(workers), repeat=len(seconds))
    return min(max(sum(s for s, w in zip(seconds, way, strict=True) if w == i) for i in range(workers)) for way in ways)


def test_the_time_of_a_list_lies_within_what_longest_first_may_lose():
    chance = random.Random(7)
    for _ in range(20):
        seconds = [chance.uniform(0.1, 9.0) for _ in range(6)]
        best, told = best_of_all(seconds, 3), estimate.wall_seconds(seconds, 3, 0.0)
        assert best - 1e-9 <= told <= (4 / 3 - 1 / 9) * best + 1e-9  # Graham 1969
    assert estimate.wall_seconds([1.0, 2.0], 64, 0.5) == 2.5


def test_past_searches_decide(tmp_path):
    database = open_database(tmp_path / "past.db")
    for name, seconds, ended in (("a", 4.0, "converged"), ("b", 15.2, "budget"), ("c", 9.0, "converged")):
        database.put_search(Search(name, "t", "model", 0, 9, seconds, ended, ""))
    known = [estimate.past_seconds([database], name, "t", 30.0) for name in "abcd"]
    assert known == [4.0, 30.0, 9.0, None]
    assert estimate.past_seconds([database], "c", "t", 5.0) == 5.0
    made = estimate.plan(known, 2, 30.0)
    assert (made.known, made.work_s, made.longest_s, made.enough) == (3, 52.0, 30.0, 2)
    assert made.wall_s == pytest.approx(30.0, abs=1.0)


def test_fleet_plan_prints_what_its_page_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = Path(__file__).parents[2] / "docs" / "guide"
    page = (guide / "command-line.md").read_text()
    (listing,) = re.findall(r'^```text title="problems.txt"\n(.*?)^```', page, re.M | re.S)
    Path("problems.txt").write_text(listing)
    (block,) = re.findall(
        r"^```console\n\$ tilesmith (fleet plan .*?)^```", (guide / "fleets.md").read_text(), re.M | re.S
    )
    command, expected = block.split("\n", 1)
    assert run(command.split()) == 0
    assert capsys.readouterr().out == expected
    assert run(["fleet", "plan", "problems.txt", "--gpus", "0"]) == 2


def test_a_device_is_held_by_one():
    with device_lock("simulated", 1.0):
        failed = []

        def other():
            try:
                with device_lock("simulated", 0.05):
                    failed.append("held twice")
            except FleetError as error:
                failed.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert failed == ["simulated has been in use by another worker of this machine for 0 s"]
    with device_lock("simulated", 0.05):
        pass


def test_cores_are_divided():
    shares = share_cores(1)
    assert len(shares) == 1
    many = share_cores(1000)
    assert len(set(many)) == 1  # too few cores: everyone has all


@pytest.mark.parametrize("data", [b"", b"{}", b'{"kind":"tune","run":7}', b"\xff", b"[" * 9000])
def test_messages_are_read_strictly(data):
    with pytest.raises(FleetError):
        read_task(data)


def test_an_outbox_has_a_plain_name(fleet_folder):
    for name in ("../x", "", "a/b", "x" * 65):
        with pytest.raises(FleetError):
            Outbox(name)
    Outbox("ab").forget(["../../victim", "ab"])


def test_a_real_search_becomes_a_parcel_and_is_checked(tmp_path, monkeypatch, caplog):
    target = tilesmith.host_target(1).name
    task = Task(TUNE, "ab", GEMM.canonical.key(), target, trials=1, seconds=120.0)
    told = []
    reply = read_reply(run_task("cpu", encode(task), told.append))
    assert reply.error == ""
    assert told
    opened = open_parcel(reply.parcels[0])
    database = open_databases().writable
    keep([opened], [opened], database)
    assert database.best(GEMM.canonical.key(), target) == opened.ranking[0]
    slow = [replace(record, time_us=1e6) for record in opened.ranking if record.ok]
    checked = check_answer(GEMM.canonical.key(), target, slow, "cpu")
    assert checked.agrees
    assert checked.here_us < checked.record_us == 1e6

    def fail(*given):
        raise LaunchError("no time for it here")

    monkeypatch.setattr(resolve, "_measure", fail)
    fast = [replace(record, time_us=1e-3) for record in opened.ranking if record.ok]
    checked = check_answer(GEMM.canonical.key(), target, fast, "cpu")
    assert not checked.agrees
    assert checked.here_us > 1.1 * checked.record_us
    failed = read_reply(run_task("cpu", encode(replace(task, target="sm_90a:132:h200")), told.append))
    assert "does not run on" in failed.error


@pytest.mark.needs_dask
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cluster", "slurm:1"], "cluster 'slurm:1' is not known; write tcp://HOST:PORT"),
        (["--cluster", "local:0"], "write local:N with N workers"),
        (["--cluster", "tcp://127.0.0.1:1", "--device", "all"], "with --cluster write --device cuda"),
        (["--cluster", "tcp://127.0.0.1:1", "--device", "cuda:1"], "CUDA_VISIBLE_DEVICES"),
        (["--cluster", "local:1", "--resume"], "--resume is for one worker"),
    ],
)
def test_options_that_do_not_fit(words, told, capsys):
    assert run(["tune", "gemm", "-m", "8", "-n", "8", "-k", "8", *words]) == 2
    assert told in capsys.readouterr().err


def test_without_dask_one_line_says_what_to_type(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run(["tune", "gemm", "-m", "8", "-n", "8", "-k", "8", "--cluster", "tcp://127.0.0.1:1"]) == 1
    assert "pip install distributed" in capsys.readouterr().err
