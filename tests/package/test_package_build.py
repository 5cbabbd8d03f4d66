"""Packages of real problems: built, and run from the package as from the cache."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import tilesmith
from tilesmith.cli.main import run
from tilesmith.db.records import Record
from tilesmith.db.upkeep import revision_of
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile
from tilesmith.package.records import Kind, name_of
from tilesmith.plan.serial import decode
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import parse_command
from tilesmith.problems.keys import parse_key
from tilesmith.problems.spellings import other_spellings
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.package_plans import package_target, plan_for, plans_for
from tilesmith.targets.detect import host_target
from tilesmith.targets.names import parse_target

COMMANDS = (
    "conv -n 1 -c 16 -H 9 -W 8 -k 24 -y 3 -x 3 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC",
    "conv -n 2 -c 8 -H 7 -W 7 -k 8 -y 3 -x 3 -p 1 -q 1 -g 8 -F 1 -I NHWC -f NHWC -O NHWC",
    "conv -n 1 -c 12 -H 6 -W 5 -k 8 -y 2 -x 2 -u 2 -v 2 -m trans -F 1 -I NHWC -f NHWC -O NHWC",
    "gemm -m 20 -n 24 -k 33",
)
SIGNATURES = tuple(parse_command(each).signatures[0][1] for each in COMMANDS)
pytestmark = pytest.mark.needs_compiler


@pytest.fixture
def listed(tmp_path):
    """A list with a key beside the commands."""
    path = tmp_path / "some.txt"
    path.write_text("\n".join([*COMMANDS[:3], SIGNATURES[3].key()]) + "\n")
    return path


def test_a_package_runs_as_the_cache_does(listed, tmp_path, capsys, monkeypatch):
    """Bit for bit, without the cache, the databases and a compiler."""
    assert run(["package", "build", str(listed), "-o", str(tmp_path / "out")]) == 0
    (path,) = (tmp_path / "out").iterdir()
    target = host_target(2)
    assert path.name == f"some-{target.name.replace(':', '-')}.kdb"
    assert f"{path}: 4 problems, 4 plans" in capsys.readouterr().out
    package = PackageFile(path)
    package.verify()
    calls = [[np.asarray(a) for a in signature.get_sample_args(seed=3)] for signature in SIGNATURES]
    expected = [tilesmith.get_launchable(s, mode="fast")(*call) for s, call in zip(SIGNATURES, calls, strict=True)]
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setenv("PATH", "")
    for signature, call, right in zip(SIGNATURES, calls, expected, strict=True):
        held = plan_for(package, signature, target)
        assert held is not None
        assert plans_for(package, signature, target) == 1
        found = Executable(held.serial, held.artifacts).bind(signature)(*call)
        assert np.array_equal(np.asarray(found), np.asarray(right))
        assert np.any(np.asarray(found))


def test_the_same_package_twice(listed, tmp_path):
    """From an empty cache and from a warm one, with one compiler at a time and with two."""
    for number, jobs in enumerate(("2", "1")):
        assert run(["package", "build", str(listed), "-j", jobs, "-o", str(tmp_path / f"out{number}")]) == 0
    first, second = (next((tmp_path / f"out{number}").iterdir()) for number in (0, 1))
    assert first.read_bytes() == second.read_bytes()


def test_a_machine_of_the_same_name_finds_its_plans(listed, tmp_path):
    """Its caches have other sizes; a cache would call the plan stale."""
    assert run(["package", "build", str(listed), "-o", str(tmp_path)]) == 0
    package, here = PackageFile(next(tmp_path.glob("*.kdb"))), host_target(2)
    there = replace(here, l1_bytes=1 << 15, l2_bytes=1 << 19, l3_bytes=1 << 22)
    assert plan_for(package, SIGNATURES[0], there) is not None
    assert plan_for(package, SIGNATURES[0], host_target(1)) is None
    with pytest.raises(PackageError, match="other facts"):
        package_target(replace(here, vector_bytes=8))


def test_measured_problems_bring_their_rows(listed, tmp_path, capsys):
    """The fastest record decides, and the find-db has the rows of the targets that were named."""
    target, problem = host_target(2).name, SIGNATURES[3].canonical.key()
    candidates = tilesmith.get_launchable(SIGNATURES[3], mode="fast").trace
    usable = [line for line in candidates if line.predicted_us is not None]
    rows = [
        Record(problem, target, line.solver, line.config, revision=revision_of(line.solver), time_us=float(9 - place))
        for place, line in enumerate(usable)
    ]
    other = Record(problem, "sm_90a:132:h200", "wgmma_gemm", "", time_us=1.0)
    database = open_databases().writable
    database.put_results([*rows, other])
    database.record_trials(rows)
    words = ["package", "build", str(listed), "--name", "tuned", "--counter", "3", "--date", "1700000000", "--json"]
    assert run([*words, "--rows", target, "--rows", "sm_90a:132", "--trials", "-o", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["counter"], found["date"], found["left_out"]) == (3, 1_700_000_000, 0)
    assert (found["find_rows"], found["perf_rows"]) == (len(rows) + 1, len(rows))
    assert found["targets"] == sorted([target, "sm_90a:132:h200"])
    package = PackageFile(found["file"])
    package.verify()
    assert package.records(Kind.FIND, problem, "sm_90a:132:h200") == (other,)
    assert set(package.records(Kind.FIND, problem, target)) == set(rows)
    best = package.entry(package.find(Kind.PLAN, name_of(problem, target)))
    assert (best.time_us, decode(best.content()).solver) == (rows[-1].time_us, rows[-1].solver)


@pytest.mark.needs_nvrtc
def test_packages_of_other_machines(tmp_path, capsys):
    """Two GPUs that are not here and this CPU in one command; every plan is of its package's target."""
    key = "gemm1;m=256;n=256;k=256;batch=1;a=bf16,n;b=bf16,t;c=bf16;acc=fp32;alpha=1.0;beta=0.0"
    (tmp_path / "one.txt").write_text(parse_key(key).key() + "\n")
    targets = ("sm_90a:132:h200", "sm_80:108", host_target(2).name)
    words = [word for target in targets for word in ("--target", target)]
    assert run(["package", "build", str(tmp_path / "one.txt"), *words, "-o", str(tmp_path), "--json"]) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["target"] for each in made] == [parse_target(target).name for target in targets]
    for each, magic in zip(made, (190, 190, None), strict=True):
        package = PackageFile(each["file"])
        package.verify()
        kernels = [entry.content() for entry in package.entries() if entry.kind == Kind.BINARY]
        assert kernels
        assert magic is None or {int.from_bytes(kernel[18:20], "little") for kernel in kernels} == {magic}
        assert plan_for(package, parse_key(key), parse_target(each["target"])) is not None


def test_several_plans_of_a_problem(listed, tmp_path):
    """Each by another solver or config, the best first; all of them compute the same product."""
    for count in (1, 4):
        assert run(["package", "build", str(listed), "--plans", str(count), "-o", str(tmp_path / str(count))]) == 0
    one, four = (PackageFile(next((tmp_path / str(count)).iterdir())) for count in (1, 4))
    four.verify()
    signature, target = SIGNATURES[3], host_target(2)
    count = plans_for(four, signature, target)
    assert plans_for(one, signature, target) == 1 < count <= 4
    held = [plan_for(four, signature, target, rank) for rank in range(count)]
    assert held[0].serial == plan_for(one, signature, target).serial
    assert len({(each.plan.solver, each.plan.config) for each in held}) == count
    arrays = [np.asarray(a) for a in signature.get_sample_args(seed=5)]
    right = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    for each in held:
        found = np.asarray(Executable(each.serial, each.artifacts).bind(signature)(*arrays))
        assert np.allclose(found, right, rtol=1e-5, atol=1e-5)


def test_a_problem_is_found_under_its_other_spelling(tmp_path):
    """A tensor with a unit axis has several layouts at once, and a key for each."""
    signature = ConvSignature((4, 1, 1, 16), (8, 1, 1, 16), shared_layout="NHWC")
    other = other_spellings(signature)[0]
    assert other.key() != signature.key()
    (tmp_path / "one.txt").write_text(f"{signature.key()}\n")
    assert run(["package", "build", str(tmp_path / "one.txt"), "-o", str(tmp_path)]) == 0
    package = PackageFile(next(tmp_path.glob("*.kdb")))
    assert package.find(Kind.PLAN, name_of(other.canonical.key(), host_target(2).name)) is None
    assert plan_for(package, other, host_target(2)) == plan_for(package, signature, host_target(2)) is not None


def test_what_cannot_be_built_is_named(tmp_path, capsys):
    (tmp_path / "bad.txt").write_text(f"{COMMANDS[3]}\nno problem\n")
    assert run(["package", "build", str(tmp_path / "bad.txt"), "-o", str(tmp_path / "out")]) == 2
    assert "bad.txt:2" in capsys.readouterr().err
    assert run(["package", "build", str(tmp_path / "bad.txt"), "--target", "sm_90", "-o", str(tmp_path)]) == 2
    (tmp_path / "file").write_text("")
    assert run(["package", "build", str(tmp_path / "bad.txt"), "-o", str(tmp_path / "file" / "x")]) == 2
    assert run(["package", "build", str(tmp_path / "bad.txt"), "--name", "../x", "-o", str(tmp_path)]) == 2
    assert not list(tmp_path.glob("*.kdb"))


def test_a_package_needs_neither_numpy_nor_solvers():
    """Reading one imports no solver: a process that finds all its plans there starts fast."""
    code = "import sys; import tilesmith.package.files; print('tilesmith.solvers.table' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
