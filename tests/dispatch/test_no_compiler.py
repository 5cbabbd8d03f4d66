"""What was tuned or run once launches later with nothing compiled: no compiler, another generator, lost kernels."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tilesmith import ConvSignature, get_launchable
from tilesmith.db.opening import open_database
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.dispatch.locations import open_cache, open_databases, target_of
from tilesmith.errors import NoCompilerError, NoSolutionError
from tilesmith.solvers.table import candidates
from tilesmith.tune.session import tune

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
CHILD = (
    "import json, sys, tilesmith\n"
    "s = tilesmith.parse_key(sys.argv[1])\n"
    "l = tilesmith.get_launchable(s, mode=sys.argv[2]); y = l(*s.get_sample_args(seed=0))\n"
    "print(json.dumps([l.choice.basis, l.remembered, l.solver, l.config, y.tobytes().hex()]))"
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    return open_cache()


def launch_elsewhere(tmp_path, mode):
    """In a second process that has no compiler, ziglang's included."""
    (tmp_path / "hide").mkdir(exist_ok=True)
    (tmp_path / "hide" / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'ziglang' else find(name, package)\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path / "hide"), os.environ.get("PYTHONPATH", ""))))
    environment = {name: value for name, value in os.environ.items() if name != "CC"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, SMALL.key(), mode], capture_output=True, text=True, timeout=60, check=False,
        env=environment | {"PATH": str(tmp_path), "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def files(folder, mode="strict"):
    """What lies there; that a hit is kept for the next process is for ``strict`` mode alone to be told."""
    found = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    return found if mode == "strict" else {path: when for path, when in found.items() if path.suffix != ".hit"}


def test_a_second_process_compiles_and_measures_nothing(tmp_path, cache):
    first = get_launchable(SMALL, mode="hybrid")
    want = first(*SMALL.get_sample_args(seed=0))
    before = files(cache.directory)
    assert before
    for mode in ("strict", "hybrid", "fast"):
        basis, remembered, solver, config, numbers = launch_elsewhere(tmp_path, mode)
        assert (basis, remembered) == ("database", True)
        assert (solver, config) == (first.solver, first.config)
        assert numbers == want.tobytes().hex()
        assert files(cache.directory, mode) == before


def test_a_tuned_problem_launches_without_a_compiler(tmp_path, cache):
    result = tune(
        SMALL, target_of(None, None), database=open_databases().writable, cache=cache, max_trials=6, max_seconds=60
    )
    before = files(cache.directory)
    for mode in ("strict", "hybrid"):
        basis, remembered, _, _, _ = launch_elsewhere(tmp_path, mode)
        assert (basis, remembered) == ("database", True)
        assert files(cache.directory, mode) == before
    launch = get_launchable(SMALL, mode="strict")
    assert (launch.solver, launch.config) == (result.record.solver, result.record.config)
    assert launch.plan == result.plan


def test_another_generator_does_not_orphan_a_plan(cache, monkeypatch):
    first = get_launchable(SMALL, mode="hybrid")
    x, w = SMALL.get_sample_args(seed=0)
    want = first(x, w)
    monkeypatch.setattr("tilesmith.toolchain.plans.generator_digest", lambda _: "0123456789abcdef")
    for mode in ("strict", "hybrid"):
        forget_launchables()
        with monkeypatch.context() as patch:
            patch.setattr("tilesmith.toolchain.toolchains.find_toolchain", _refuse)
            again = get_launchable(SMALL, mode=mode)
        assert again.remembered
        assert again.plan == first.plan
        assert np.array_equal(again(x, w), want)
    # Where there is a compiler, today's generator makes it anew, once.
    forget_launchables()
    assert not get_launchable(SMALL, mode="hybrid").remembered
    forget_launchables()
    assert get_launchable(SMALL, mode="hybrid").remembered


def _refuse(*args):
    raise NoCompilerError("no C compiler: install one")


def test_another_answer_serves_when_the_best_has_lost_its_kernel(cache, tmp_path, monkeypatch, caplog):
    get_launchable(SMALL, only="c_reference")
    best = get_launchable(SMALL, mode="hybrid")
    held = open_databases().writable.ranking(SMALL.key(), best.target.name)
    other = open_database(tmp_path / "other.db")
    other.put_result(next(record for record in held if record.solver == best.solver))
    plain = next(c for c in candidates(SMALL, best.target) if c.name == "c_reference")
    other.put_result(
        replace(
            held[0], solver="c_reference", revision=plain.solver.revision, time_us=1e6,
            config=get_launchable(SMALL, only="c_reference").config,
        )
    )  # fmt: skip
    for artifact in best.plan.artifacts:
        (cache.directory / "objects" / f"{artifact}.so").unlink()
    forget_launchables()
    with caplog.at_level("WARNING", "tilesmith"):
        launch = get_launchable(SMALL, mode="strict", database=other)
    assert launch.solver == "c_reference"
    assert "c_reference" in caplog.text
    assert [line.solver for line in launch.trace if line.chosen] == ["c_reference"]
    other.close()


def test_nothing_at_hand_says_so(cache, tmp_path):
    get_launchable(SMALL, mode="hybrid")
    with pytest.raises(NoSolutionError, match="does not hold the kernel"):
        get_launchable(SMALL, mode="strict", cache=tmp_path / "empty")
