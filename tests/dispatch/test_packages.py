"""Launches from kernel packages: which answer wins, what each mode does, and what a process sees of a new package."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import package_samples
import tilesmith
from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.db.layers import open_layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import FAILED, Record
from tilesmith.db.upkeep import revision_of
from tilesmith.dispatch import packages, resolve
from tilesmith.dispatch.choice import NEAREST_PACKAGE, PACKAGE
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.errors import NoCompilerError, NoSolutionError
from tilesmith.package.build import Rows, assemble_package, pack_problems
from tilesmith.package.files import PackageFile, write
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import Kind
from tilesmith.solvers.solver import Config, parse_config
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target
from tilesmith.targets.names import as_target
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache

GEMM = GemmSignature(m=12, n=24, k=33)
CONV = ConvSignature((1, 9, 8, 16), (24, 3, 3, 16), padding=1, shared_layout="NHWC")
OTHER = GemmSignature(m=3, n=5, k=7)  # which no package holds
TARGET = host_target(1)
LARGER = as_target(f"{TARGET.arch}:3:{TARGET.card}")


@dataclass(frozen=True)
class Made:
    """Two plans of ``GEMM`` and of ``CONV`` for a target, unmeasured; and rows that say how long GEMM's took."""

    path: Path
    measured: Path
    kernels: tuple[tuple[str, str], ...]  # solver and config of GEMM's plans


@pytest.fixture(scope="session")
def build(tmp_path_factory, cache_dir):
    """``build(target)``: packages of the target, made once."""
    made: dict[str, Made] = {}

    def of(target: Target) -> Made:
        if target.name not in made:
            folder = tmp_path_factory.mktemp("made")
            layers, cache = open_layers(()), ArtifactCache(cache_dir)
            packed = pack_problems([GEMM, CONV], target, layers, cache, plans=2)
            kernels = tuple((p.plan.solver, p.plan.config) for p in plans_of(packed[0]))
            write(folder / "test.kdb", assemble_package("test", target, packed, layers, Rows()))
            for place, (solver, config) in enumerate(kernels):
                layers.writable.put_result(row(solver, config, float(3 + place), target.name))
            packed = pack_problems([GEMM, CONV], target, layers, cache, plans=2)
            write(folder / "measured.kdb", assemble_package("test", target, packed, layers, Rows()))
            made[target.name] = Made(folder / "test.kdb", folder / "measured.kdb", kernels)
        return made[target.name]

    return of


@pytest.fixture
def made(build):
    return build(TARGET)


def plans_of(packed):
    from tilesmith.plan.serial import read_head

    return [read_head(each.data) for each in packed.plans]


def row(solver: str, config: str, time_us: float, target: str = TARGET.name, **changes) -> Record:
    return Record(
        GEMM.canonical.key(), target, solver, config, revision=revision_of(solver) or 0, time_us=time_us, spread_us=0.1,
        samples=9, date="2026-01-01T00:00:00Z", **changes,
    )  # fmt: skip


@pytest.fixture
def place(monkeypatch, tmp_path):
    """The folder of packages, beside an empty cache and a database that is not made yet."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    (tmp_path / "packages").mkdir(mode=0o755)
    return tmp_path / "packages"


@pytest.fixture
def no_work(monkeypatch):
    """Nothing may be compiled or measured."""
    monkeypatch.setattr("tilesmith.toolchain.build.build_unit", lambda *args: pytest.fail("compiled"))
    monkeypatch.setattr(resolve, "_measure", lambda *args: pytest.fail("measured"))


def install(path: Path, place: Path, name: str = "") -> Path:
    """As ``tilesmith package install`` does."""
    target = place / (name or path.name)
    (place / ".staged").write_bytes(path.read_bytes())
    os.replace(place / ".staged", target)
    return target


def is_right(launch, signature=GEMM) -> bool:
    """Compared with NumPy's float64, on numbers of both signs."""
    arrays = signature.get_sample_args(seed=7)
    found = np.asarray(launch(*arrays))
    if signature is not CONV:
        right = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    else:
        x, w = (each.astype(np.float64) for each in arrays)
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        right = np.einsum("nhwcyx,kyxc->nhwk", windows, w)
    return found.shape == right.shape and np.allclose(found, right, rtol=1e-5, atol=1e-5) and right.std() > 0.1


# --- what runs, and what it leaves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "hybrid", "strict", "background"])
@pytest.mark.parametrize("signature", [GEMM, CONV], ids=["gemm", "conv"])
def test_a_package_runs_without_a_compiler_a_cache_or_a_database(made, place, no_work, mode, signature):
    path = install(made.path, place)
    launch = get_launchable(signature, mode=mode)
    assert (launch.choice.basis, launch.choice.layer, launch.choice.role) == (PACKAGE, str(path), "package")
    assert launch.remembered
    assert [line.layer for line in launch.trace if line.chosen] == [str(path)]
    assert is_right(launch, signature)
    assert sorted(each.name for each in place.parent.iterdir()) == ["packages"]


@pytest.mark.parametrize("has_database", [False, True])
def test_a_process_of_packages_loads_no_solvers(made, place, tmp_path, has_database):
    """And no database where there is none; one without an answer is all that is asked."""
    install(made.path, place)
    if has_database:
        database(tmp_path, replace(row("c_reference", "", 1.0), problem=OTHER.canonical.key()))
    code = (
        "import sys, numpy, tilesmith; s = tilesmith.GemmSignature(m=12, n=24, k=33)\n"
        "print(tilesmith.get_launchable(s).choice.basis, 'sqlite3' in sys.modules,"
        " 'tilesmith.solvers.table' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["package", str(has_database), "False"]


@pytest.mark.needs_linux
@pytest.mark.needs_strace
def test_strict_mode_writes_and_starts_nothing(made, place, tmp_path):
    """The system calls of a process whose home cannot be written, from its first call on."""
    install(made.path, place)
    place.parent.chmod(0o555)
    code = (
        "import os, numpy, tilesmith; s = tilesmith.GemmSignature(m=12, n=24, k=33); a = s.get_sample_args(seed=7)\n"
        "os.getppid(); y = tilesmith.get_launchable(s)(*a); z = tilesmith.gemm(*a); os.getppid()\n"
        "print(abs(y - a[0].astype('f8') @ a[1]).max() < 1e-4, (y == z).all())"
    )
    log = tmp_path.parent / f"{tmp_path.name}.strace"
    words = ["strace", "-f", "-qq", "-o", str(log), "-e", "trace=%file,%process,memfd_create,getppid"]
    environment = {**os.environ, "TILESMITH_FIND_MODE": "strict", "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    try:
        done = subprocess.run(
            [*words, sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True,
            env=environment,
        )  # fmt: skip
    finally:
        place.parent.chmod(0o755)
    assert done.stdout.split() == ["True", "True"]
    assert "kernel" not in done.stderr
    calls = log.read_text().split("getppid()")[1].splitlines()
    assert any("test.kdb" in line and "openat" in line for line in calls)
    assert any("memfd_create" in line for line in calls)  # what was compared is what is loaded
    forbidden = ("execve", "O_WRONLY", "O_RDWR", "O_CREAT", "mkdir", "rename", "unlink", "fork", "chmod", "link(")
    assert [line for line in calls if any(word in line for word in forbidden)] == []


def test_conv_and_gemm_run_from_a_package(made, place, no_work):
    install(made.path, place)
    x, w = CONV.get_sample_args(seed=7)
    found = tilesmith.conv(x, w, padding=1, shared_layout="NHWC")
    assert np.array_equal(found, get_launchable(CONV)(x, w))
    assert get_launchable(CONV).choice.basis == PACKAGE


# --- which answer wins -----------------------------------------------------------------------------------------------


def database(tmp_path, *rows: Record, name="test.db") -> None:
    opened = open_database(tmp_path / name)
    opened.put_results(rows)
    opened.close()


def test_a_users_row_wins_and_takes_the_plan_of_the_package(made, place, tmp_path, no_work):
    """The row names the package's second plan: it is not compiled, and neither is the kept answer later."""
    install(made.path, place)
    database(tmp_path, row(*made.kernels[1], 1.0))
    for _ in range(3):  # the third finds what the second has kept
        forget_launchables()
        launch = get_launchable(GEMM)
        assert (launch.choice.basis, launch.choice.role) == ("database", "user")
        assert (launch.solver, launch.config) == made.kernels[1]
        assert is_right(launch)
    assert list((tmp_path / "cache" / "hits").iterdir())
    assert get_launchable(CONV).choice.basis == PACKAGE  # which has no row


def test_a_kept_answer_does_not_hide_a_package(made, place, tmp_path, monkeypatch):
    """It is asked again when a package comes, changes or goes."""
    database(tmp_path, row("c_reference", "", 1.0), name="system.db")
    monkeypatch.setenv("TILESMITH_SYSTEM_DB_PATH", str(tmp_path))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "none" / "user.db"))
    bases = []
    for change in (None, None, None, lambda: install(made.path, place), lambda: (place / "test.kdb").unlink()):
        if change:
            change()
        forget_launchables()
        bases.append(get_launchable(GEMM).choice.basis)
    assert bases == ["database", "database", "database", PACKAGE, "database"]


def test_a_users_row_whose_kernel_nobody_has(made, place, tmp_path, monkeypatch, caplog):
    """With a compiler the row's kernel is built; without one the package's plan runs, and says so."""
    install(made.path, place)
    solver, config = made.kernels[0]
    (candidate,) = candidates(GEMM, TARGET, (solver,))
    space = candidate.solver.search_space(candidate.geometry, TARGET)
    axes = dict(parse_config(config).values)
    changed = (Config(tuple((axes | {name: v}).items())) for name, values in space.axes.items() for v in values)
    other = next(str(c) for c in changed if space.contains(c) and (solver, str(c)) not in made.kernels)
    database(tmp_path, row(solver, other, 1.0))
    launch = get_launchable(GEMM, mode="strict")
    assert (launch.choice.basis, launch.config) == (PACKAGE, config)
    assert "strict mode compiles nothing" in caplog.text
    launch = get_launchable(GEMM, mode="hybrid")
    assert (launch.choice.basis, launch.config, launch.remembered) == ("database", other, False)
    assert is_right(launch)


def test_a_kernel_that_failed_here_is_not_run(made, place, tmp_path, no_work):
    install(made.path, place)
    solver, config = made.kernels[0]
    database(tmp_path, replace(row(solver, config, 1.0), status=FAILED, reason="wrong numbers"))
    launch = get_launchable(GEMM)
    assert (launch.choice.basis, launch.solver, launch.config) == (PACKAGE, *made.kernels[1])


def test_the_named_solver_and_the_first_package(made, place, monkeypatch, no_work):
    first, second = install(made.path, place, "a.kdb"), install(made.path, place, "b.kdb")
    solver, config = made.kernels[1]
    assert get_launchable(GEMM).choice.layer == str(first)
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", f"{second}{os.pathsep}{place}")
    assert get_launchable(GEMM).choice.layer == str(second)
    if solver != made.kernels[0][0]:
        launch = get_launchable(GEMM, only=solver)
        assert (launch.choice.basis, launch.config) == (PACKAGE, config)


# --- modes -----------------------------------------------------------------------------------------------------------


def test_normal_mode_measures_beside_a_package(made, place, monkeypatch):
    """And takes the package where nothing can be measured or compiled."""
    install(made.path, place)
    asked = []

    def measure(request, strategy, first=()):
        asked.append(request.problem)
        raise NoCompilerError("no compiler")

    monkeypatch.setattr(resolve, "_measure", measure)
    monkeypatch.setattr("tilesmith.dispatch.planning._make", lambda *args: measure(args[0], ""))
    launch = get_launchable(GEMM, mode="normal")
    assert asked
    assert launch.choice.basis == PACKAGE


def test_trust_verify_measures_a_package_once(made, place, tmp_path, monkeypatch):
    """A row of 3 us is not confirmed where the kernel takes longer; one of a year is. Then the user's row answers."""
    install(made.measured, place)
    searched = []
    monkeypatch.setattr(resolve, "_measure", lambda request, *args: searched.append(request.problem))
    timing = resolve._timed

    def slow(request, shipped):
        return replace(timing(request, shipped), median_us=2.0)

    monkeypatch.setattr(resolve, "_timed", slow)
    launch = get_launchable(GEMM, mode="trust_verify")
    assert (launch.choice.basis, launch.choice.time_us, searched) == (PACKAGE, 3.0, [])
    forget_launchables()
    again = get_launchable(GEMM, mode="trust_verify")
    assert (again.choice.basis, again.choice.role, again.choice.time_us) == ("database", "user", 2.0)
    assert again.choice.record.origin == "verify"
    assert (again.solver, again.config) == (launch.solver, launch.config)
    assert again.remembered


def test_trust_verify_does_not_trust_what_was_never_measured(made, place, monkeypatch):
    install(made.path, place)
    searched = []
    monkeypatch.setattr(resolve, "_measure", lambda request, *args: searched.append(request.problem))
    get_launchable(GEMM, mode="trust_verify")
    assert searched == [GEMM.canonical.key()]


# --- misses ----------------------------------------------------------------------------------------------------------


def test_a_miss_of_strict_mode_names_what_to_install(made, place, build):
    with pytest.raises(NoSolutionError, match=rf"no kernel package in {place} holds it.*package install PATH"):
        get_launchable(OTHER, mode="strict")
    install(made.path, place)
    with pytest.raises(NoSolutionError, match=f"package install PATH.URL` of a package for {TARGET.name}"):
        get_launchable(OTHER, mode="strict")


def test_a_package_for_another_machine_is_refused_unless_the_nearest_is_wanted(build, place, monkeypatch, caplog):
    path = install(build(LARGER).path, place)
    with pytest.raises(NoSolutionError, match=f"holds it for {LARGER.name}.*TILESMITH_PACKAGE_NEAREST=1"):
        get_launchable(GEMM, mode="strict")
    assert get_launchable(GEMM, mode="fast").choice.basis == "prediction"
    monkeypatch.setenv("TILESMITH_PACKAGE_NEAREST", "1")
    for signature in (GEMM, CONV):
        launch = get_launchable(signature, mode="strict")
        assert (launch.choice.basis, launch.choice.layer) == (NEAREST_PACKAGE, str(path))
        assert (launch.plan.target, launch.plan.threads) == (LARGER.name, 3)
        assert is_right(launch, signature)
    told = [each.getMessage() for each in caplog.records if "kernel package" in each.getMessage()]
    assert len(told) == 1
    assert f"no kernel package is for {TARGET.name}: plans for {LARGER.name}" in told[0]


def test_a_lower_level_serves_where_the_nearest_is_wanted(build, place, monkeypatch):
    lower = as_target("x86_64-v2:1:generic")
    install(build(lower).path, place)
    with pytest.raises(NoSolutionError, match=f"holds it for {lower.name}.*TILESMITH_PACKAGE_NEAREST=1"):
        get_launchable(GEMM, mode="strict")
    monkeypatch.setenv("TILESMITH_PACKAGE_NEAREST", "1")
    launch = get_launchable(GEMM, mode="strict")
    assert (launch.choice.basis, launch.plan.target) == (NEAREST_PACKAGE, lower.name)
    assert is_right(launch, GEMM)
    install(build(LARGER).path, place)  # of this arch, for more threads
    assert get_launchable(GEMM, mode="strict").plan.target == LARGER.name


def test_what_was_installed_with_nearest_needs_no_variable(build, place):
    """The consent is for the package that was installed, and goes with it."""
    source = build(LARGER).path
    assert run(["package", "install", "--nearest", str(source)]) == 0
    assert get_launchable(GEMM, mode="strict").choice.basis == NEAREST_PACKAGE
    (consent,) = place.glob("*.nearest")
    right, path = consent.read_bytes(), consent.with_suffix("")

    def refused():
        with pytest.raises(NoSolutionError, match=f"package install --nearest {path}"):
            get_launchable(GEMM, mode="strict")

    for at in range(len(right)):
        consent.write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
        refused()
    consent.write_bytes(right)
    consent.chmod(0o666)  # any user may have written it
    refused()
    consent.chmod(0o644)
    assert get_launchable(GEMM, mode="strict").choice.basis == NEAREST_PACKAGE
    path.write_bytes(build(LARGER).measured.read_bytes())  # another package under the same name
    refused()
    assert run(["package", "install", "--nearest", "--replace", str(source)]) == 0
    assert get_launchable(GEMM, mode="strict").choice.basis == NEAREST_PACKAGE
    assert run(["package", "uninstall", "test"]) == 0
    assert not list(place.glob("*.*"))


@pytest.mark.needs_nvrtc
def test_what_cannot_run_here_is_never_the_nearest(build, place, monkeypatch):
    install(build(as_target("sm_90a:132:h200")).path, place)
    monkeypatch.setenv("TILESMITH_PACKAGE_NEAREST", "1")
    with pytest.raises(NoSolutionError, match="holds it for sm_90a:132:h200, which is another machine") as caught:
        get_launchable(GEMM, mode="strict")
    assert "TILESMITH_PACKAGE_NEAREST" not in str(caught.value)


def test_strict_mode_needs_no_cache(made, place, monkeypatch, no_work):
    monkeypatch.setenv("TILESMITH_CACHE_ON", "0")
    with pytest.raises(NoSolutionError, match="no package is here"):
        get_launchable(GEMM, mode="strict")
    install(made.path, place)
    assert is_right(get_launchable(GEMM, mode="strict"))
    with pytest.raises(NoSolutionError, match="package install"):
        get_launchable(OTHER, mode="strict")


# --- changes while a process runs ------------------------------------------------------------------------------------


def test_a_new_package_is_met_by_the_next_question(made, place, monkeypatch):
    """``gemm`` keeps its kernel until this process asks for any launchable; then all of its calls ask again."""
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    a, b = GEMM.get_sample_args(seed=7)
    first = tilesmith.gemm(a, b)
    before = get_launchable(GEMM)
    assert before.choice.basis != PACKAGE
    path = install(made.path, place)
    tilesmith.gemm(a, b)
    assert get_launchable(OTHER).choice.basis != PACKAGE  # the look
    assert np.allclose(tilesmith.gemm(a, b), first, rtol=1e-5, atol=1e-5)
    assert get_launchable(GEMM).choice.layer == str(path)
    install(made.measured, place, "test.kdb")
    assert get_launchable(GEMM).choice.time_us == 3.0
    path.unlink()
    assert get_launchable(GEMM).choice.basis != PACKAGE
    assert is_right(before)


def test_a_call_takes_the_new_package_after_the_look(made, place, monkeypatch):
    """Its plan was removed from the cache, so that only the package can have it."""
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    a, b = GEMM.get_sample_args(seed=7)
    tilesmith.gemm(a, b)
    install(made.path, place)
    get_launchable(OTHER)
    asked = []
    real = packages.Packages.readers.fget
    monkeypatch.setattr(packages.Packages, "readers", property(lambda self: asked.append(self) or real(self)))
    tilesmith.gemm(a, b)
    assert asked
    asked.clear()
    tilesmith.gemm(a, b)
    assert not asked


def test_what_is_deterministic_keeps_its_kernel(made, place):
    signature = replace(GEMM, deterministic=True)
    before = get_launchable(signature, mode="fast")
    install(made.path, place)
    assert get_launchable(signature, mode="fast") is before


# --- damage ----------------------------------------------------------------------------------------------------------


def warnings(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if "kernel package" in each.getMessage()]


@pytest.mark.parametrize("part", ["header", "index", "plan", "binary", "end"])
def test_a_damaged_package_is_skipped_with_one_warning(made, place, caplog, part):
    path = install(made.path, place)
    data = bytearray(path.read_bytes())
    package = PackageFile(made.path)
    stored = {
        kind: next(each.stored for each in package.entries() if each.kind == kind) for kind in (Kind.PLAN, Kind.BINARY)
    }
    at = {
        "header": 20, "index": 700, "plan": data.find(stored[Kind.PLAN]) + 9, "binary": -20, "end": -1
    }[part]  # fmt: skip
    if part == "end":
        del data[-1:]
    elif part == "binary":  # every one of them
        for entry in package.entries():
            if entry.kind == Kind.BINARY:
                data[data.find(entry.stored) + len(entry.stored) // 2] ^= 1
    else:
        data[at] ^= 1
    path.write_bytes(data)
    whole = install(made.path, place, "whole.kdb")
    for signature in (GEMM, CONV, GEMM):
        launch = get_launchable(signature, mode="strict")
        assert launch.choice.layer in (str(whole), str(path))
        assert is_right(launch, signature)
    assert get_launchable(GEMM, mode="fast").choice.layer in (str(whole), str(path))
    assert len(warnings(caplog)) == 1
    assert f"kernel package {path} is not used" in warnings(caplog)[0]


def test_a_package_whose_kernel_cannot_be_loaded_is_skipped(made, place, caplog):
    """Its digests hold: whoever made it sealed bytes that are no shared object, or no plan."""
    problem, kernel = GEMM.canonical.key(), package_samples.binary(1)
    manifest = replace(package_samples.MANIFEST, target=TARGET.name)
    plans = [PackedPlan(package_samples.plan(problem, kernel, target=TARGET.name))]
    write(place / "bad.kdb", make_package(manifest, plans, {package_samples.digest(kernel): kernel}))
    whole = install(made.path, place, "whole.kdb")
    launch = get_launchable(GEMM, mode="strict")
    assert launch.choice.layer == str(whole)
    assert is_right(launch)
    assert len(warnings(caplog)) == 1
    whole.unlink()
    with pytest.raises(NoSolutionError, match="package install"):
        get_launchable(GEMM, mode="strict")


@pytest.mark.needs_users
def test_a_package_that_others_can_write_is_not_used(made, place, caplog, monkeypatch):
    path = install(made.path, place)
    path.chmod(0o666)
    assert get_launchable(GEMM, mode="fast").choice.basis != PACKAGE
    assert get_launchable(CONV, mode="fast").choice.basis != PACKAGE
    assert len(warnings(caplog)) == 1
    assert "every user can write to it" in warnings(caplog)[0]
    monkeypatch.setenv("TILESMITH_TRUST_FOLDER", str(place))
    tilesmith.forget()
    assert get_launchable(GEMM, mode="fast").choice.basis == PACKAGE


def test_a_folder_that_is_missing_or_odd(made, place, monkeypatch, tmp_path):
    path = install(made.path, place)
    (place / "folder.kdb").mkdir()
    os.mkfifo(place / "pipe.kdb")
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", os.pathsep.join([str(tmp_path / "none"), str(place)]))
    assert get_launchable(GEMM).choice.layer == str(path)


# --- commands --------------------------------------------------------------------------------------------------------


def test_explain_and_doctor_name_the_package(made, place, build, capsys):
    path = install(made.measured, place)
    assert run(["explain", "--threads", "1", GEMM.canonical.key()]) == 0
    told = capsys.readouterr().out
    assert f"measured, plan of package {path}" in told
    assert "record  3 us" in told
    install(build(LARGER).path, place, "larger.kdb")
    (place / "bad.kdb").write_bytes(b"nothing")
    run(["doctor"])
    told = [line for line in capsys.readouterr().out.splitlines() if "  package  " in line]
    assert len(told) == 3
    assert any(str(path) in line and TARGET.name in line and "2 problems" in line for line in told)
    assert any("larger.kdb" in line and LARGER.name in line for line in told)
    assert any("bad.kdb" in line and "problem" in line for line in told)


def test_preload_compiles_nothing_that_a_package_has(made, place, no_work, capsys):
    install(made.path, place)
    assert run(["preload", "--threads", "1", GEMM.canonical.key()]) == 0
    assert "by package" in capsys.readouterr().err
