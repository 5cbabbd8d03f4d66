"""Which kernels a selection takes: from the records and the cost model, under tiles, stages, solvers and a size."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import replace

import pytest

from package_samples import binary
from plan_samples import SMALL
from tilesmith.cli import packing
from tilesmith.cli.main import run
from tilesmith.db.records import Record
from tilesmith.db.upkeep import revision_of
from tilesmith.dispatch.choice import DATABASE, Choice
from tilesmith.dispatch.locations import open_cache, open_databases
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.errors import NoSolutionError
from tilesmith.package.build import PackedProblem
from tilesmith.package.files import PackageFile
from tilesmith.package.making import PackedPlan
from tilesmith.package.records import Kind
from tilesmith.package.selection.choice import best_config, decide_selected
from tilesmith.package.selection.reading import read_selection
from tilesmith.package.selection.size import Costs, fit_size, plain_us
from tilesmith.package.selection.terms import Shapes, parse_arch_stages, parse_tile
from tilesmith.plan.serial import decode, encode
from tilesmith.problems.driver import parse_command
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Config
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target
from tilesmith.targets.names import parse_target
from tilesmith.toolchain.cache import Artifact

NHWC = "-I NHWC -f NHWC -O NHWC"
LAYERS = (
    f"convbfp16 -n 32 -c 128 -H 28 -W 28 -k 128 -y 3 -x 3 -p 1 -q 1 -F 1 {NHWC}",
    f"convfp16 -n 8 -c 256 -H 14 -W 14 -k 96 -y 1 -x 1 -F 2 {NHWC}",
    f"convbfp16 -n 16 -c 64 -H 28 -W 28 -k 64 -y 3 -x 3 -p 1 -q 1 -F 4 {NHWC}",
    f"convfp16 -n 4 -c 64 -H 16 -W 16 -k 64 -y 4 -x 4 -p 1 -q 1 -u 2 -v 2 -m trans -F 1 {NHWC}",
    "gemmfp16 -m 1024 -n 768 -k 512", "gemm -m 512 -n 512 -k 512",
)  # fmt: skip
MATMULS = 'solvers = ["wgmma_conv*", "wgmma_gemm", "mma_dense*", "ffma_gemm"]\n'
SIGNATURES = tuple(parse_command(each).signatures[0][1] for each in LAYERS)


@pytest.fixture
def selection(tmp_path):
    def read(text):
        (tmp_path / "some.toml").write_text(text)
        return read_selection(tmp_path / "some.toml")

    return read


def request(signature, target):
    return Request(signature, parse_target(target), "fast", open_databases(), open_cache())


def symbol_of(signature, target, choice):
    """The tile and stages that the generated main kernel says it has: m, n, k and stages."""
    (candidate,) = candidates(signature, parse_target(target), (choice.solver,))
    config = read_config(choice.solver, choice.config)
    draft = candidate.solver.draft(candidate.geometry, config, parse_target(target))
    symbols = " ".join(source.symbol for source in draft.sources)
    found = re.search(r"ts_wgmma(?:conv|gemm|wrw)\w*_m(\d+)n(\d+)k(\d+)s(\d+)", symbols)
    if found is None:
        found = re.search(r"ts_(?:mma|ffma)[a-z]+_[a-z0-9]+_(\d+)x(\d+)x(\d+)x\d+x\d+(?:x\d+)?x(\d+)_", symbols)
    assert found, symbols
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("target", ["sm_90a:132:h200", "sm_80:108"])
@pytest.mark.parametrize("signature", SIGNATURES, ids=range(len(SIGNATURES)))
def test_tiles_and_stages_hold_in_the_generated_kernel(selection, signature, target):
    """What was chosen is measured by the name of its generated kernel, which the families write themselves."""
    found = selection('tiles = ["128x64", "64x64x*"]\narch_stages = ["sm80_3", "sm90_4"]\n' + MATMULS)
    choice = decide_selected(found, request(signature, target))
    m, n, _, stages = symbol_of(signature, target, choice)
    assert (m, n) in ((128, 64), (64, 64))
    assert stages in ((3,) if target.startswith("sm_80") else (3, 4))
    if stages == 3:
        assert target.startswith("sm_80") or not choice.solver.startswith("wgmma")


@pytest.mark.parametrize("signature", SIGNATURES[:3:2], ids=["fwd", "wrw"])
def test_the_best_config_of_a_tile(signature):
    """Every config of mma_dense with the tile and the stages is tried: none is estimated much faster."""
    target = parse_target("sm_80:108")
    (candidate,) = candidates(signature, target, ("mma_dense",))
    solver, geometry = candidate.solver, candidate.geometry
    space = solver.search_space(geometry, target)
    only = {"block_m": (64,), "block_n": (64,), "block_k": (32,), "stages": (3,)}
    axes = {name: only.get(name, values) for name, values in space.axes.items()}
    every = [Config(tuple(zip(axes, point, strict=True))) for point in itertools.product(*axes.values())]
    seconds = [solver.predict(geometry, config, target) for config in every if space.allowed(config)]
    shapes = Shapes((parse_tile("64x64x32"),), (parse_arch_stages("sm80_3"),))
    found = best_config(candidate, shapes, target)
    assert {found[name] for name in only} == {64, 32, 3}
    assert min(seconds) <= solver.predict(geometry, found, target) <= 1.05 * min(seconds)
    none = Shapes((parse_tile("48x48"),))
    assert best_config(candidate, none, target) is None


def test_nothing_limits_what_has_no_tile(selection):
    """Depthwise kernels have no tile of a product, and no stages; CPU kernels have neither."""
    found = selection('tiles = ["64x64"]\narch_stages = ["sm80_3"]\n')
    depthwise = parse_command(f"convfp16 -n 32 -c 256 -H 28 -W 28 -k 256 -g 256 -y 3 -x 3 -p 1 -q 1 -F 1 {NHWC}")
    signature = depthwise.signatures[0][1]
    assert decide_selected(found, request(signature, "sm_80:108")).solver == "cuda_depthwise"
    assert decide_selected(found, request(signature, "x86_64-v3:2")).solver == "c_depthwise"


def test_solvers_limit_the_families_that_they_name(selection):
    found = selection('solvers = ["mma_dense"]\n')
    signature = SIGNATURES[0]
    assert decide_selected(found, request(signature, "sm_90a:132:h200")).solver == "mma_dense"
    free = request(signature, "x86_64-v3:2")
    assert decide_selected(found, free).solver == decide(free).solver


def test_the_plain_reference_is_in_unless_it_is_refused(selection):
    """fp32 sums on an H200 have one family; where it is out, the reference computes, or nothing does."""
    one = request(SIGNATURES[5], "sm_90a:132:h200")
    text = 'solvers = ["wgmma_*"]\n'
    assert decide_selected(selection(text), one).solver == "cuda_reference"
    with pytest.raises(NoSolutionError, match=r"ffma_gemm: solver ffma_gemm is not selected \(wgmma_\*\)"):
        decide_selected(selection(text + "reference = false\n"), one)
    assert selection("reference = false\n").decide(SIGNATURES[5], "cuda_reference", "", one.target)


def test_the_best_record_that_is_let_in_decides(selection):
    """Three records: the fastest is of a refused solver, the next has a refused tile, the last one is in."""
    target, signature = "sm_90a:132:h200", SIGNATURES[4]
    mma = "block_m={} block_n=128 block_k=32 warps_m=2 warps_n=2 stages=3 split_k=1 group_m=1"
    wide = decide(request(signature, target))
    assert wide.solver == "wgmma_gemm"
    rows = [
        Record(signature.canonical.key(), target, solver, config, revision_of(solver), float(time_us))
        for solver, config, time_us in (
            (wide.solver, wide.config, 5), ("mma_dense", mma.format(64), 6), ("mma_dense", mma.format(128), 7)
        )
    ]  # fmt: skip
    one = request(signature, target)
    one.layers.writable.put_results(rows[:2])
    one.layers.writable.record_trials(rows)
    held = decide_selected(selection('solvers = ["mma_*"]\n'), one)
    assert (held.basis, held.time_us, held.config) == (DATABASE, 6.0, mma.format(64))
    tiled = decide_selected(selection('solvers = ["mma_*"]\ntiles = ["128x128"]\n'), one)
    assert tiled.solver == "mma_dense"
    assert tiled.config.startswith("block_m=128 block_n=128")
    assert tiled.basis != DATABASE  # the find-db has one row of a solver, the refused one
    assert [found.takes_row(row) for found in (selection('tiles = ["64x128"]\n'),) for row in rows] == [
        False, True, False,
    ]  # fmt: skip


# --- size -------------------------------------------------------------------------------------------------------------


def packed(number, won_us, *binaries):
    """A problem whose one plan is ``won_us`` faster than the plain reference, with binaries of these bytes."""
    signature, target = GemmSignature(64 + number, 64, 64), parse_target("x86_64-v3:2")
    digests = tuple(hashlib.sha256(each).hexdigest() for each in binaries)
    plan = replace(SMALL, problem=signature.canonical.key(), target=target.name, artifacts=digests)
    time_us = plain_us(signature, target) - won_us
    assert time_us > 0
    choice = Choice("c_dense", "", DATABASE, "", time_us, ())
    artifacts = tuple(Artifact(digest, "", data) for digest, data in zip(digests, binaries, strict=True))
    return PackedProblem(signature, (choice,), (PackedPlan(encode(plan), 1, time_us),), artifacts)


def test_the_least_time_won_for_its_bytes_leaves_first():
    """By hand, with plans of 10 bytes: the order of leaving is 2 (0.01 us a byte), 0 and 1 together, 3.

    With 604 bytes the binary that 0 and 1 share has room again, and one of their plans.
    """
    shared, small, large = binary(1, 480), binary(2, 90), binary(3, 990)
    problems = [packed(0, 12, shared), packed(1, 8, shared), packed(2, 10, large), packed(3, 9, small)]
    target = parse_target("x86_64-v3:2")
    costs = Costs(lambda plan: 10, lambda artifact: len(artifact.data), fixed=5)
    whole = 5 + 500 + 1000 + 100
    for most, left in (
        (whole, [0, 1, 2, 3]), (whole - 1, [0, 1, 3]), (605, [0, 1, 3]), (604, [0, 3]), (594, [3]),
        (105, [3]), (104, []),
    ):  # fmt: skip
        kept = fit_size(problems, target, most, costs)
        assert [number for number, each in enumerate(kept) if each.plans] == left
        assert all(each.refused and "wins" in each.reason for each in kept if not each.plans)


@pytest.mark.needs_nvrtc
def test_a_kernel_that_stays_serves_the_problems_of_one_that_leaves(tmp_path, capsys, monkeypatch):
    """Batches of a layer have several kernels; under a size all batches stay, on fewer of them.

    One byte too many does not make a package for each byte of its index.
    """
    made = []
    assemble = packing.assemble_package
    monkeypatch.setattr(packing, "assemble_package", lambda *parts: made.append(1) or assemble(*parts))
    (tmp_path / "some.toml").write_text(f'problems = ["convfp16 -n 1,4,16,64 {LAYERS[0].partition("-n 32 ")[2]}"]\n')
    words = ["package", "select", str(tmp_path / "some.toml"), "--target", "sm_80:108", "--explain", "--json"]
    kernels = []
    size = None
    while len(kernels) < 2:
        if size is not None:
            (tmp_path / "some.toml").write_text((tmp_path / "some.toml").read_text() + f"size = {size}\n")
        assert run(words) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        held = {line["digest"] for line in lines if line["what"] == "kernel"}
        plans = [line for line in lines if line["what"] == "plan"]
        assert len(plans) == 4
        assert {digest for line in plans for digest in line["kernels"]} == held
        assert size is None or lines[-1]["bytes"] <= size
        kernels.append(held)
        size = lines[-1]["bytes"] - 1
    assert kernels[1] < kernels[0]
    assert len(made) <= 1 + 3


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.mark.needs_compiler
def test_a_selected_package(tmp_path, capsys):
    """Modes, types, size, rows: what explain says is what build writes, and a budget is kept."""
    (tmp_path / "layers.txt").write_text(
        "conv -n 1,2 -c 16 -H 6 -W 6 -k 16 -y 3 -x 3 -p 1 -q 1 -F 3 -I NHWC -f NHWC -O NHWC\n"
    )
    (tmp_path / "few.toml").write_text(
        'lists = ["layers.txt"]\nproblems = ["gemm -m 20 -n 24 -k 33"]\nmodes = ["fwd", "gemm", "deconv"]\n'
    )
    target, problem = host_target(2), parse_command("gemm -m 20 -n 24 -k 33").signatures[0][1].canonical.key()
    other = "sm_90a:132:h200"
    rows = [Record(problem, name, solver, "", revision_of(solver), 1.0) for name, solver in
            ((target.name, "c_reference"), (other, "ffma_gemm"))]  # fmt: skip
    open_databases().writable.put_results(rows)
    words = ["--select", str(tmp_path / "few.toml"), "--rows", target.name, "--rows", other, "-o", str(tmp_path)]
    assert run(["package", "build", *words]) == 0
    assert "problems, 3 plans" in capsys.readouterr().out
    package = PackageFile(tmp_path / f"few-{target.name.replace(':', '-')}.kdb")
    held = [decode(entry.content()) for entry in package.entries() if entry.kind == Kind.PLAN]
    assert {each.problem.partition(";x=")[0][:10] for each in held} == {"conv1;fwd", "gemm1;m=20"}
    assert [package.records(Kind.FIND, problem, row.target) for row in rows] == [(row,) for row in rows]
    assert run(["package", "select", str(tmp_path / "few.toml"), "--explain", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_what = {what: [line for line in lines if line["what"] == what] for what in ("plan", "out", "kernel", "total")}
    assert sorted(line["key"] for line in by_what["plan"]) == sorted(each.problem for each in held)
    assert [line["reason"] for line in by_what["out"]] == ["mode bwd is not selected (fwd, gemm, deconv)"] * 2
    stored = {entry.name: len(entry.stored) for entry in package.entries() if entry.kind == Kind.BINARY}
    assert {line["digest"] for line in by_what["kernel"]} == stored.keys()
    assert all(0 < line["stored"] - stored[line["digest"]] < 200 for line in by_what["kernel"])
    (total,) = by_what["total"]
    assert (total["problems"], total["out"], total["kernels"]) == (3, 2, len(stored))

    (tmp_path / "less.toml").write_text((tmp_path / "few.toml").read_text() + f"size = {total['bytes'] - 1}\n")
    assert run(["package", "build", "--select", str(tmp_path / "less.toml"), "-o", str(tmp_path / "less")]) == 0
    assert "less.toml:4: " in capsys.readouterr().err
    (small,) = (tmp_path / "less").iterdir()
    assert small.stat().st_size < total["bytes"]
    PackageFile(small).verify()
    (tmp_path / "none.toml").write_text((tmp_path / "few.toml").read_text() + "size = 600\n")
    assert run(["package", "build", "--select", str(tmp_path / "none.toml"), "-o", str(tmp_path / "none")]) == 2
    assert "none.toml:4: " in capsys.readouterr().err
