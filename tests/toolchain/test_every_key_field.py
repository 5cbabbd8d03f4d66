"""Whatever differs in what is asked, in the machine, in the compiler or in the generator is a miss, field by field.

Each record that a key is made of has a table of its fields here. A new field fails until it is in its table: with
another value, which must be a miss, or with the reason why it decides nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from plan_samples import SMALL
from problem_changes import CONV_CHANGES, GEMM_CHANGES, conv_changes, gemm_changes
from tilesmith.db.files import records_folder
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record, Search
from tilesmith.plan.records import Source
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers import generation
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.cuda import cuda_target
from tilesmith.targets.target import CpuTarget, CudaTarget
from tilesmith.toolchain import cache as cache_module
from tilesmith.toolchain import compilers, nvrtc, plans
from tilesmith.toolchain.cache import ArtifactCache, artifact_key
from tilesmith.toolchain.compilers import Compiler
from tilesmith.toolchain.nvrtc import Nvrtc
from tilesmith.toolchain.plans import find_plan, keep_plan

C_SOURCE = Source("c", "ts_a", "typedef int t;", "t ts_a(void) { return 1; }")
CPU, CUDA = cpu_target("x86_64-v4", 2), cuda_target("sm_90a")
GCC, ZIG, NVRTC = Compiler(("gcc",), "gcc", "1"), Compiler(("zig",), "zig", "1"), Nvrtc("libnvrtc.so", (13, 0))
BASE = {"gcc": (C_SOURCE, CPU, GCC), "zig": (C_SOURCE, CPU, ZIG), "nvrtc": (C_SOURCE, CUDA, NVRTC)}
TEXT_SAYS = "the generated text says it"

# --- artifacts: by record and field, what replaces it and in which calls of the compiler it counts ---

ARTIFACT_FIELDS = {
    Source: {
        "language": ("cuda", BASE), "symbol": ("ts_b", BASE), "prelude": ("typedef long t;", BASE),
        "text": ("t ts_a(void) { return 2; }", BASE),
    },
    CpuTarget: {
        "arch": ("other", ("gcc", "zig")), "flags": (("-march=x86-64-v4", "-O1"), ("gcc", "zig")),
        "zig_target": ("aarch64-linux-gnu", ("zig",)),
        "cores": "every number of threads runs the same kernel",
        "card": "every processor of an arch runs the same kernel", "vector_bytes": TEXT_SAYS,
        "vector_registers": TEXT_SAYS, "bf16_dot": TEXT_SAYS, "fp16_convert": TEXT_SAYS, "fma_per_cycle": TEXT_SAYS,
        "l1_bytes": TEXT_SAYS, "l2_bytes": TEXT_SAYS, "l3_bytes": TEXT_SAYS, "bf16_tiles": "the arch says it",
    },
    CudaTarget: {
        "arch": ("other", ("nvrtc",)), "nvrtc_arch": ("sm_80", ("nvrtc",)),
        **{
            name: TEXT_SAYS
            for name in (
                "cores", "card", "estimated", "shared_bytes_per_block", "shared_bytes_per_sm", "registers_per_sm",
                "threads_per_sm", "blocks_per_sm", "has_bf16", "has_cp_async", "has_fp8", "has_tma", "has_cluster",
                "has_wgmma",
                "has_tcgen05", "fp64_mma", "l2_bytes", "clock_hz", "bytes_per_s", "bf16_flops", "fp8_flops",
                "int8_flops", "tf32_flops", "fp32_flops", "fp64_flops",
            )
        },
        "cc_major": "the arch says it", "cc_minor": "the arch says it",
    },
    Compiler: {
        "kind": ("clang", ("gcc",)), "version": ("2", ("gcc", "zig")),
        "command": (("gcc", "-O3"), ("gcc", "zig")), "resolved": (("/opt/gcc",), ("gcc", "zig")),
        "environment": (("COMPILER_PATH=/opt",), ("gcc", "zig")),
    },
    Nvrtc: {"version": ((12, 8), ("nvrtc",)), "library": ("another.so", ("nvrtc",))},
}  # fmt: skip


@pytest.mark.parametrize("record", list(ARTIFACT_FIELDS), ids=lambda record: record.__name__)
def test_artifacts_by_field(record):
    table = ARTIFACT_FIELDS[record]
    assert {field.name for field in fields(record)} == set(table)
    for name, entry in table.items():
        for toolchain, parts in BASE.items():
            changed = tuple(
                replace(part, **{name: entry[0] if isinstance(entry, tuple) else other(getattr(part, name))})
                if isinstance(part, record)
                else part
                for part in parts
            )
            if changed == parts:
                continue
            if isinstance(entry, str):
                if not name.startswith("cc_"):
                    assert artifact_key(*changed) == artifact_key(*parts), f"{name}: {entry}, and yet it is a miss"
            elif toolchain in entry[1]:
                assert artifact_key(*changed) != artifact_key(*parts), f"{name} is not in the key"


@pytest.mark.parametrize("toolchain", list(BASE))
def test_a_kept_binary_is_found_for_all_that_made_it_alone(toolchain, tmp_path, monkeypatch):
    """Through the files of the cache: the entry is there, and whatever differs does not find it."""
    cache = ArtifactCache(tmp_path / "cache")
    (tmp_path / "kernel").write_bytes(b"binary")
    source, target, compiler = BASE[toolchain]
    kept = cache.keep(source, target, compiler, tmp_path / "kernel", ())
    assert cache.lookup(source, target, compiler) == kept
    for record, table in ARTIFACT_FIELDS.items():
        for name, entry in table.items():
            if isinstance(entry, tuple) and toolchain in entry[1] and name != "language":
                parts = [replace(p, **{name: entry[0]}) if isinstance(p, record) else p for p in BASE[toolchain]]
                assert cache.lookup(*parts) is None, name
    # What is no field of a record: the flags that every kernel gets, and the format of the entries themselves.
    home = nvrtc if toolchain == "nvrtc" else compilers
    for place, name, value in (
        (home, "_COMMON", (*home._COMMON, "-DX")), (home, "_COMMON", home._COMMON[1:]),
        (home, "_COMMON", home._COMMON[::-1]), (cache_module, "_FORMAT", "tilesmith artifact 0"),
    ):  # fmt: skip
        with monkeypatch.context() as changed:
            changed.setattr(place, name, value)
            assert cache.lookup(source, target, compiler) is None, value
    assert cache.lookup(source, target, compiler) == kept


# --- plans ---


@pytest.fixture
def held(tmp_path):
    """Finds a plan that was kept for ``SMALL``'s choice on ``CPU`` or ``CUDA``."""
    cache = ArtifactCache(tmp_path)
    (tmp_path / "kernel.so").write_bytes(b"binary")
    digest = cache.store(tmp_path / "kernel.so").digest

    def keep(target, problem="p"):
        plan = replace(SMALL, problem=problem, target=target.name, artifacts=(digest,))
        keep_plan(cache, plan, 3, target)

    def find(target, problem="p", solver=SMALL.solver, revision=3, config=SMALL.config):
        return find_plan(cache, problem, solver, revision, config, target)

    find.keep = keep
    return find


@pytest.mark.parametrize("target", [CPU, CUDA], ids=["cpu", "cuda"])
def test_plans_by_field_of_the_target(held, target):
    """Another core count, or any fact that a solver may ask for: a plan made for it is made again."""
    held.keep(target)
    assert not held(target).stale
    for field in fields(target):
        changed = replace(target, **{field.name: other(getattr(target, field.name))})
        found = held(changed)
        assert found is None or found.stale, field.name
        if field.name in ("arch", "cores", "vector_bytes", "bf16_dot", "bf16_tiles", "fp16_convert"):
            assert found is None, f"{field.name}: not even a machine without a compiler may launch it"


def test_a_plan_in_anothers_place_is_refused(held, tmp_path, caplog):
    held.keep(CPU, "p")
    held.keep(CPU, "q")
    one, two = sorted((tmp_path / "plans").rglob("*.plan"))
    whole = one.read_bytes()
    one.write_bytes(two.read_bytes())
    found = [held(CPU, problem) for problem in ("p", "q")]
    assert sum(each is None for each in found) == 1
    assert "damaged" in caplog.text
    one.write_bytes(whole)
    one.rename(one.with_name("0123456789abcdef.plan"))  # under the name of another generator
    assert sum(held(CPU, problem) is None for problem in ("p", "q")) == 1


def test_plans_by_choice_and_generator(held, monkeypatch):
    held.keep(CPU)
    assert held(CPU, solver="other") is None
    assert held(CPU, revision=4) is None
    assert held(CPU, config="mr=2") is None
    assert held(CPU, problem="q") is None
    with monkeypatch.context() as changed:
        changed.setattr(plans, "_FORMAT", "tilesmith plan 0")
        assert held(CPU) is None
    assert not held(CPU).stale
    monkeypatch.setattr(plans, "generator_digest", lambda _: "another generator")
    assert held(CPU).stale


def test_every_file_of_the_generator_is_in_its_digest(tmp_path, monkeypatch):
    """A byte of a source or template that plans and kernels are made from, a file more, less, or of another name.

    Of each folder one file, and every sixteenth.
    """
    package = tmp_path / "tilesmith"
    for name in generation._FOLDERS:
        shutil.copytree(
            Path(generation._PACKAGE) / name, package / name,
            ignore=shutil.ignore_patterns("__pycache__", "external", "notes.md"),
        )  # fmt: skip
    monkeypatch.setattr(generation, "_PACKAGE", str(package))

    def digests():
        generation._known.clear()
        return {family: generation.generator_digest(family) for family in generation.FAMILIES}

    def makes(family, path):
        """Whether a file takes part for a family: all do, but those in the folders of another."""
        folder = path.relative_to(package).parts[1]
        return folder not in {own for other, own in generation.FAMILIES.items() if other != family}

    monkeypatch.setattr(generation, "_known", {})  # what the process knew comes back after the test
    whole, stamp = digests(), generation.file_stamp()
    paths = sorted(path for path in package.rglob("*") if path.is_file())
    assert {path.suffix for path in paths} >= {".py", ".cu", ".cuh"}
    of_each_folder = {path.parent: path for path in paths}.values()
    for number, path in enumerate(sorted({*of_each_folder, *paths[::16]})):  # each costs a digest of all
        data = path.read_bytes()
        at = number % max(1, len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else b"#")
        for family, found in digests().items():
            assert (found != whole[family]) == makes(family, path), (family, path)
        assert generation.file_stamp() != stamp, path
        path.write_bytes(data)
    assert digests() == whole
    (package / "solvers" / "c" / "notes.md").write_text("what was learnt")  # makes no plan
    assert digests() == whole
    assert {family for family in whole if not all(makes(family, path) for path in paths)} == set(whole)
    moved = paths[0].rename(paths[0].with_name("moved.py"))
    assert not set(digests().values()) & set(whole.values())
    moved.rename(paths[0])
    (package / "solvers" / "more.py").touch()
    assert not set(digests().values()) & set(whole.values())


# --- problems: plans and the databases ---

PAIRS = {**conv_changes(), **{f"gemm {name}": pair for name, pair in gemm_changes().items()}}


def test_plans_and_records_by_field_of_the_problem(held):
    """dtype, layout, pitches, epilogue, determinism: all that a signature says."""
    assert set(CONV_CHANGES) == {field.name for field in fields(ConvSignature)}
    assert {*GEMM_CHANGES, "dtype"} == {field.name for field in fields(GemmSignature)}
    database = open_database(None)
    for before in dict.fromkeys(before.key() for before, _ in PAIRS.values()):
        held.keep(CPU, before)
        database.put_result(Record(before, CPU.name, "s", "", time_us=1.0))
    kept = {before.key() for before, _ in PAIRS.values()}
    for name, (before, after) in PAIRS.items():
        assert held(CPU, before.key()) is not None
        assert database.ranking(before.key(), CPU.name)
        if after.key() not in kept:
            assert held(CPU, after.key()) is None, name
            assert database.ranking(after.key(), CPU.name) == (), name
        assert after.key() != before.key(), name


def test_every_part_of_an_epilogue_is_in_the_key():
    changes = {
        "bias": (Epilogue(), Epilogue(bias=True)),
        "activation": (Epilogue(), Epilogue(activation="relu")),
        "residual": (Epilogue(), Epilogue(residual=True)),
        "slope": (Epilogue(activation="leaky_relu"), Epilogue(activation="leaky_relu", slope=0.2)),
        "low": (Epilogue(activation="clamp"), Epilogue(activation="clamp", low=-1.0)),
        "high": (Epilogue(activation="clamp"), Epilogue(activation="clamp", high=7.0)),
        "scale": (Epilogue(), Epilogue(scale="channel")),
    }
    assert set(changes) == {field.name for field in fields(Epilogue)}
    for name, (one, two) in changes.items():
        keys = {ConvSignature((1, 4, 6, 6), (4, 4, 3, 3), dtype="fp8e4m3", epilogue=e).key() for e in (one, two)}
        assert len(keys) == 2, name
        keys = {GemmSignature(4, 5, 6, dtype="fp8e4m3", epilogue=e).key() for e in (one, two)}
        assert len(keys) == 2, name


# --- the databases ---


@pytest.mark.parametrize("kind", ["memory", "sqlite", "files"])
def test_records_by_target_solver_and_config(kind, tmp_path):
    path = tmp_path / "test.db"
    if kind == "files":
        records_folder(path).mkdir()
    database = open_database(None if kind == "memory" else path)
    record = Record("p", "x86_64-v4:2:zen4", "s", "mr=1", time_us=1.0)
    database.put_result(record)
    database.record_trials([record])
    for target in ("x86_64-v4:2:zen5", "x86_64-v4:3:zen4", "x86_64-v3:2:zen4", "sm_90a:2:zen4"):
        assert database.ranking("p", target) == ()
        assert database.trials("p", target) == ()
    assert database.ranking("q", record.target) == ()
    assert database.trials("p", record.target, "t") == ()
    for name in ("problem", "target", "solver", "config"):
        changed = replace(record, **{name: "another:1" if name == "target" else "another"})
        database.record_trials([changed])
        assert changed in database.trials(changed.problem, changed.target), name
        assert record in database.trials("p", record.target), f"{name} alone differs, and one replaced the other"
        if name != "config":
            database.put_result(changed)
            assert changed in database.ranking(changed.problem, changed.target), name
            assert record in database.ranking("p", record.target), f"{name} alone differs, and one replaced the other"
    search = Search("p", record.target, "model", 0, 9, 1.5, "converged", "2026-01-01T00:00:00Z")
    database.put_search(search)
    for changed in (replace(search, problem="q"), replace(search, target="x86_64-v4:3")):
        assert database.search(changed.problem, changed.target) is None
        database.put_search(changed)
        assert database.search("p", record.target) == search
    database.close()


def other(value):
    """Any other value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, tuple):
        return (*value, *value)[: len(value)] if value and isinstance(value[0], int) else (*value, "x")
    return value + 1
