"""``tune_model``: the problems of a model with their calls, where the time goes, interruption and resumption."""

import json
from dataclasses import replace

import pytest
import torch

import tilesmith
from tilesmith import ConvSignature, Epilogue, GemmSignature
from tilesmith.cli.main import run
from tilesmith.compare import own_operator
from tilesmith.compare.own_operator import own_way
from tilesmith.compare.rival import Way
from tilesmith.db.records import Search
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import ArgumentError, LaunchError
from tilesmith.measure.timing import Timing
from tilesmith.ready import model_session
from tilesmith.ready.model_budget import LEAST_S, MEASURE_S, Standing, next_action
from tilesmith.ready.model_records import ModelResult, ModelRow
from tilesmith.targets.detect import host_target
from tilesmith.tune import session

GEMM = GemmSignature(6, 4, 8, trans_b=True, epilogue=Epilogue(bias=True))
X = torch.randn(6, 8)


def model():
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))


# --- where the time goes ----------------------------------------------------------------------------------------------


def standing(k, calls, us=None, state="measured", least_us=1.0, **facts):
    row = ModelRow(GemmSignature(8, 8, k), calls, None, us, us, "c_dense", "", state if us else "unmeasured")
    return Standing(row, 100e-6, least_us * 1e-6, **facts)


def test_time_goes_where_calls_times_gain_are_largest():
    light, heavy, at_roofline = standing(1, 1, 100.0), standing(2, 3, 100.0), standing(3, 100, 100.0, least_us=100.0)
    action = next_action([light, heavy, at_roofline], 100.0)
    assert action.standing is heavy
    assert not action.measures
    assert action.limit_s > LEAST_S
    heavy.last_gain, heavy.searches = (
        0.01,
        2,
    )  # the next search of the heavy one promises less than the light one's first
    assert next_action([light, heavy, at_roofline], 100.0).standing is light


def test_every_problem_is_measured_before_a_search_of_the_same_weight():
    unknown = standing(1, 1)
    assert next_action([unknown, standing(2, 1, 100.0)], 100.0).measures
    assert next_action([unknown, standing(2, 1000, 100.0)], 100.0).standing.row.calls == 1000
    assert next_action([unknown], MEASURE_S / 2) is None


def test_nothing_left_that_is_worth_a_search():
    done = [standing(1, 5, 100.0, "converged"), standing(2, 5, 100.0, "failed")]
    assert next_action(done, 1e6) is None
    faded = standing(3, 5, 100.0, "searched", searches=9, last_gain=0.0)
    assert next_action([*done, faded], 1e6) is None
    assert next_action([*done, standing(4, 5, 100.0)], LEAST_S / 2) is None


def test_a_search_that_came_to_no_answer_gets_twice_the_time_later():
    one, late = standing(1, 1, 100.0), standing(1, 1, 100.0, late=1)
    assert next_action([late], 12.0).limit_s == 2 * next_action([one], 12.0).limit_s


# --- a model ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_searches(monkeypatch):
    """The defaults are measured, and nothing more."""
    monkeypatch.setattr(
        model_session, "next_action",
        lambda standings, left_s: next_action([s for s in standings if s.row.state == "unmeasured"], left_s),
    )  # fmt: skip


def test_rows_sums_and_the_database(no_searches):
    told = []
    result = tilesmith.tune_model(model(), X, seconds=120, threads=1, progress=told.append)
    assert {row.signature: row.calls for row in result.rows} == {GEMM: 1, replace(GEMM, k=4): 1}
    assert [row.state for row in result.rows] == ["measured"] * 2
    times = [[us for us in (row.pytorch_us, row.untuned_us) if us] for row in result.rows]
    assert result.before_us == pytest.approx(sum(before for before, *_ in times))
    known = [min(row.tuned_us, row.pytorch_us or row.tuned_us) for row in result.rows]
    assert result.after_us == pytest.approx(sum(known))
    assert told[-1].measured == told[-1].problems == 2
    assert tilesmith.get_launchable(GEMM, threads=1, mode="strict").choice.basis == "database"
    rows = [words for line in str(result).splitlines() if (words := line.split())[0] == "1"]
    assert [len(words) for words in rows] == [6, 6]  # calls, times, speedup, winner; the problem stands below
    assert f"{result.speedup:.3f}x (2 of 2 problems)" in " ".join(str(result).split())


def test_the_second_run_begins_where_the_first_ended(monkeypatch, no_searches):
    first = tilesmith.tune_model(model(), X, seconds=120, threads=1)
    found = open_databases().writable
    target, done = host_target(1).name, GEMM.canonical.key()
    found.put_search(Search(done, target, "model", 0, 9, 1.0, "converged", "2026-01-01"))
    asked = []

    def tune(signature, target, **options):
        asked.append((signature, options["strategy"]))
        raise LaunchError("not in this test")

    monkeypatch.setattr(session, "tune", tune)
    monkeypatch.setattr(model_session, "next_action", next_action)
    again = tilesmith.tune_model(model(), X, seconds=120, threads=1)
    assert asked in ([(replace(GEMM, k=4), "model")], [])  # nothing is measured again, and what converged not searched
    tuned = {row.signature: (row.tuned_us, row.untuned_us, row.solver) for row in first.rows}
    assert {row.signature: (row.tuned_us, row.untuned_us, row.solver) for row in again.rows} == tuned
    assert [row.state for row in again.rows if row.signature == GEMM] == ["converged"]


def test_an_interruption_keeps_what_was_measured():
    def stop(state):
        if state.measured == 1 and state.doing.startswith("measuring"):
            raise KeyboardInterrupt

    result = tilesmith.tune_model(model(), X, seconds=120, threads=1, progress=stop)
    assert result.ended == "interrupted"
    assert sorted(row.state for row in result.rows) == ["measured", "unmeasured"]
    assert "(1 of 2 problems)" in " ".join(str(result).split())  # wherever the line breaks


def test_a_model_without_problems_says_so():
    result = tilesmith.tune_model(torch.nn.ReLU(), X, seconds=120, threads=1)
    assert (str(result), result.ended) == ("no convolution and no product was met", "converged")


def test_a_compiled_model_is_met_uncompiled(no_searches):
    compiled = torch.compile(torch.nn.Linear(8, 4), backend="eager")
    with torch.no_grad():
        compiled(X)
        result = tilesmith.tune_model(compiled, X, seconds=120, threads=1)
    assert [row.signature for row in result.rows] == [GEMM]


def test_a_problem_that_fails_is_a_row(monkeypatch):
    def tune(signature, target, **options):
        raise LaunchError("too large for the memory")

    monkeypatch.setattr(session, "tune", tune)
    result = tilesmith.tune_model(torch.nn.Linear(8, 4), X, seconds=120, threads=1)
    assert [(row.state, row.reason, row.speedup) for row in result.rows] == [
        ("failed", "too large for the memory", None)
    ]
    assert result.ended == "converged"


def test_backward_meets_the_gradients_and_leaves_grad_alone():
    seen = []

    def note(calls, place, **options):
        seen.append(dict(calls))
        return ModelResult("here", (), (), 0.0, "converged")

    layers = model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilesmith.torch_ops.model_tuning.tune_problems", note)
        tilesmith.tune_model(layers, X, backward=True)
    met = sorted((s.m, s.n, s.k) for s, count in seen[0].items() for _ in range(count))
    assert met == [(4, 4, 6), (4, 8, 6), (6, 4, 4), (6, 4, 4), (6, 4, 8)]
    assert all(p.grad is None for p in layers.parameters())


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: tilesmith.tune_model(3), "int cannot be called"),
        (lambda: tilesmith.tune_model(len, seconds=2), "seconds 2 is not a number from 5"),
        (lambda: tilesmith.tune_model(torch.mm, X, X.T, backward=True), "needs a torch.nn.Module"),
        (lambda: tilesmith.tune_model(torch.nn.Flatten(), X, backward=True), "no result requires a gradient"),
    ],
)
def test_bad_arguments(call, rule):
    with pytest.raises(ArgumentError, match=rule):
        call()


def test_pytorchs_own_way_lies_as_the_problem_does():
    ways = [Way(name, (), None) for name in ("contiguous", "channels_last", "prepacked", "backward channels_last")]
    nhwc = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), shared_layout="NHWC")
    assert own_way(nhwc, ways).name == "channels_last"
    assert own_way(replace(nhwc, mode="bwd"), ways).name == "backward channels_last"
    assert own_way(ConvSignature((1, 16, 8, 8), (16, 16, 3, 3)), ways).name == "contiguous"
    assert own_way(GEMM, [Way("mm", (), None), Way("linear", (), None)]).name == "linear"
    assert own_way(GEMM, []) is None


def test_a_time_of_pytorch_that_was_disturbed_all_the_time_is_none(monkeypatch):
    timing = Timing(50.0, 1.0, 10, "wall-time median")
    disturbed = replace(timing, median_us=9000.0, disturbed=10)
    series = iter([disturbed, timing, disturbed, disturbed, disturbed])
    monkeypatch.setattr(own_operator, "interleave", lambda calls, **options: dict.fromkeys(calls, next(series)))
    assert own_operator.time_own_operator(GEMM, host_target(1), None) == timing
    assert own_operator.time_own_operator(GEMM, host_target(1), None) is None


# --- the verb ---------------------------------------------------------------------------------------------------------


def test_the_verb(tmp_path, capsys, no_searches):
    script = tmp_path / "serve.py"
    script.write_text("import torch\nfor _ in range(3):\n    torch.ones(6, 8) @ torch.ones(8, 4)\nprint('served')\n")
    assert run(["tune-model", "--seconds", "120", "--threads", "1", "--json", str(script)]) == 0
    out, err = capsys.readouterr()
    row, total = map(json.loads, out.splitlines())
    assert (row["command"], row["calls"]) == ("gemm --a_h 6 --a_w 8 --b_w 4 --transA 0 --transB 0", 3)
    assert total["after_us"] == pytest.approx(3 * row["after_us"])
    assert "served" in err


def test_a_script_that_fails_is_not_tuned(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(model_session, "tune_problems", None)
    script = tmp_path / "broken.py"
    script.write_text("import torch\ntorch.ones(2, 2) @ torch.ones(2, 2)\nraise SystemExit(7)\n")
    assert run(["tune-model", str(script)]) == 7
    assert "nothing is tuned" in capsys.readouterr().err
