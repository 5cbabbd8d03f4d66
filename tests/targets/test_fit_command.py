"""`benchmarks/fit.py`: constants are found again from times that they made, and judged on problems left out."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import axis_effects  # noqa: E402
import fit as command  # noqa: E402
from timings import timings  # noqa: E402

from tilesmith.db.opening import open_database  # noqa: E402
from tilesmith.db.records import Record  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver  # noqa: E402
from tilesmith.solvers.solver import parse_config  # noqa: E402
from tilesmith.targets.cuda import cuda_target  # noqa: E402
from tilesmith.targets.fits import choose  # noqa: E402
from tilesmith.targets.fits.h200 import H200  # noqa: E402
from tilesmith.targets.fits.scaling import scaled  # noqa: E402

TARGET = cuda_target("sm_90a", 132)
SIZES = [(m, n, k) for m in (512, 4096) for n in (512, 2048) for k in (256, 1024, 4096)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Timings of a card whose tensor cores give the portable kernel half of what an H200's do."""
    solver, truth = MmaDenseSolver(exact=False), replace(H200, mma=replace(H200.mma, mma=H200.mma.mma / 2))
    path, lines = tmp_path_factory.mktemp("timings") / "timings.jsonl", []
    for m, n, k in SIZES:
        signature = GemmSignature(m, n, k, dtype="bf16").canonical
        config = solver.default_config(signature.geometry, TARGET)
        for chosen in (config, config.replace(stages=2)):
            lines.append({"key": signature.key(), "solver": solver.name, "config": str(chosen), "time_us": 1.0})
    path.write_text("\n".join(map(json.dumps, lines)))
    return [replace(row, seconds=row.predict(truth)) for row in timings([path], TARGET)]


def test_timings_are_read_with_their_estimates(rows):
    assert len({row.problem for row in rows}) == len(SIZES)
    assert {row.part for row in rows} == {"mma"}


def test_trials_of_a_database_are_timings_by_old_names_too(tmp_path):
    signature = GemmSignature(512, 512, 256, dtype="bf16").canonical
    today = str(MmaDenseSolver(exact=False).default_config(signature.geometry, TARGET))
    old = today.replace("block_m", "bm").replace("split_k", "split").replace("group_m", "walk")
    trials = [
        Record(signature.key(), TARGET.name, "mma_dense", config, 4, time_us, status=status)
        for config, time_us, status in ((old, 20.0, "ok"), ("rubbish=1", 30.0, "ok"), (today, None, "failed"))
    ]
    open_database(tmp_path / "trials.db").record_trials(trials)
    (row,) = timings([tmp_path / "trials.db"], TARGET)
    assert row.solver == "mma_dense"
    assert row.seconds == pytest.approx(20.0e-6)


def test_problems_are_left_out_whole(rows):
    for others, rest in command.folds(rows, 3):
        assert rest
        assert not {row.problem for row in others} & {row.problem for row in rest}
        assert len(others) + len(rest) == len(rows)


def test_a_constant_is_found_again_on_problems_left_out(rows):
    before = command.judged((row, row.predict(H200)) for row in rows)["mma"][3]
    others, rest = next(iter(command.folds(rows, 3)))
    fit = command.fitted(H200, others)
    after = command.judged((row, row.predict(fit)) for row in rest)["mma"][3]
    assert abs(after - 1) < 0.05 < abs(before - 1)
    assert (fit.tile, fit.thin) == (H200.tile, H200.thin)  # which no timing speaks of


def test_the_choice_is_judged_by_its_time(rows):
    first = replace(rows[0], seconds=2.0)
    second = replace(rows[1], problem=first.problem, seconds=1.0)
    assert command.judged([(first, 1.0), (second, 3.0)])["all"] == (1, 2.0, 2.0, 1.75)


def test_the_file_of_a_card_says_what_was_made():
    text = command.text_of(replace(H200, card="h100-pcie"), "timings.jsonl")
    names: dict = {}
    exec(compile(ast.parse(text), "fit", "exec"), names)
    assert names["H100_PCIE"] == replace(H200, card="h100-pcie")


def test_the_file_of_a_card_with_few_timings_has_its_own_parts_alone():
    made = replace(scaled(H200, 114, 1.6e9, 1.8e12), card="h100-pcie", halo=replace(H200.halo, start=7))
    text = command.text_of(made, "timings.jsonl", ["halo"], "h200")
    names: dict = {}
    exec(compile(ast.parse(text), "fit", "exec"), names)
    assert names["H100_PCIE"] == made
    assert "TileFit" not in text


def test_a_card_is_added_behind_the_others():
    text = (ROOT / "src" / "tilesmith" / "targets" / "fits" / "choose.py").read_text()
    added = command.with_card(text, "a_card", "A_CARD")
    made = added.replace(
        "tilesmith.targets.fits.a_card import A_CARD", "tilesmith.targets.fits.h200 import H200 as A_CARD"
    )
    names: dict = {}
    exec(compile(made, "choose", "exec"), names)
    before = [fit.card for fit in choose.fits()]
    assert [fit.card for fit in names["fits"]()] == [*before, "h200"]
    assert command.with_card(added, "a_card", "A_CARD") == added
    assert len(added.splitlines()) == len(text.splitlines()) + 1


def test_estimates_of_all_kernels_are_seconds_on_one_scale():
    """Of the untuned choices of 175 problems on an H200: estimated over measured, the median of each kernel."""
    table = command.judged(
        (row, row.predict(H200))
        for row in timings([ROOT / "benchmarks" / "results" / "gpu_defaults_h200.jsonl"], TARGET)
    )
    assert set(table) == {"all", "depthwise", "halo", "halo_wrw", "mma", "thin", "tile"}
    assert [name for name, (_, _, _, ratio) in table.items() if not 0.4 < ratio < 1.6] == []
    assert table["all"][1] < 1.05  # chosen by estimate, over the fastest


def test_fits_of_two_days_choose_alike():
    """Of a quarter of the problems of a file that both days measured."""
    results = ROOT / "benchmarks" / "results"
    names = ("gpu_defaults_h200.jsonl", "gpu_defaults_h200_second_day.jsonl")
    first, second = (timings([results / name], TARGET) for name in names)
    some = set(sorted({row.problem for row in first} & {row.problem for row in second})[::4])
    assert len(some) > 10
    assert command.compared(H200, *([row for row in day if row.problem in some] for day in (first, second))) == 0


def test_a_ring_of_two_stages_is_estimated_as_it_was_measured(monkeypatch, capsys):
    """38 pairs of configs on an H200 that differ in this alone; without the term for it, 1.00."""
    files = [str(ROOT / "benchmarks" / "results" / f"gpu_{name}_h200.jsonl") for name in ("few_outputs", "deconv")]
    monkeypatch.setattr(sys, "argv", ["axis_effects.py", *files, "--solver", "mma_phases", "--apart", "0"])
    assert axis_effects.main() == 0
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if line.split()[:4] == "mma_phases stages 2 3".split()
    ]
    pairs, measured, estimated = line.split()[4:7]
    assert int(pairs) > 30
    assert 0.9 < float(measured) < 0.96
    assert abs(float(estimated) - float(measured)) < 0.03


@pytest.mark.parametrize(
    ("second", "found"), [("a=1 b=3", ("b", 2, 3)), ("a=2 b=3", None), ("a=1 b=2", None), ("a=1", None)]
)
def test_pairs_of_configs_differ_in_one_axis(second, found):
    assert axis_effects.differing("a=1 b=2", second) == found


def test_clusters_are_chosen_as_they_were_measured():
    """Of 22 products with and without rows that begin inside sectors, in clusters of 1 to 8 blocks on an H100."""
    h100 = cuda_target("sm_90a", 132, "h100-80gb-hbm3")
    rows = timings([ROOT / "benchmarks" / "results" / "gpu_clusters_h100.jsonl"], h100)
    assert {parse_config(row.config)["cluster_m"] for row in rows} == {1, 2, 4, 24, 41, 42}
    problems, above, worst, _ = command.judged((row, row.estimate) for row in rows)["tile"]
    assert problems == 22
    assert above < 1.03  # chosen by estimate, over the fastest; 1.065 with one factor for all
    assert worst < 1.1  # 1.50
