"""The pure decision: which solver answers, and the trace that says why."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tilesmith.db.records import Record
from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import Answer, Option, Unknown, choose, recorded
from tilesmith.errors import NoSolutionError
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.solvers.table import Candidate
from tilesmith.solvers.table_cuda import CUDA_SOLVERS


@dataclass(frozen=True)
class Fake:
    name: str
    revision: int = 3


def option(name, *, form="", predicted=1e-3, verdict=None, config="a=1"):
    candidate = Candidate(Fake(name), form, None, verdict or Accepted())
    return Option(candidate) if verdict else Option(candidate, config, predicted)


def answer(solver, time_us, *, layer="user", spread=0.1, revision=3, config="a=2"):
    record = Record("p", "t", solver, config, revision, time_us=time_us, spread_us=spread, samples=9)
    return Answer(record, layer)


def dated(given, date):
    return replace(given, record=replace(given.record, date=date))


def failed(solver, layer="user"):
    return Answer(Record("p", "t", solver, "a=1", 3).failed("wrong numbers"), layer)


OPTIONS = (
    option("dense", predicted=5e-4),
    option("depthwise", verdict=Rejected("group width not covered", "8")),
    option("small", predicted=2e-4),
    option("reference", predicted=9.0),
)


@pytest.mark.parametrize("mode", ["fast", "hybrid", "trust_verify", "strict"])
def test_the_fastest_record_answers(mode):
    choice = choose(OPTIONS, [answer("dense", 90.0), answer("small", 70.0, config="a=7")], mode=mode)
    assert (choice.solver, choice.config, choice.basis, choice.layer) == ("small", "a=7", "database", "user")
    assert choice.time_us == 70.0
    assert [line.solver for line in choice.trace] == ["dense", "depthwise", "small", "reference"]
    assert [line.chosen for line in choice.trace] == [False, False, True, False]
    assert choice.trace[1].reason == "group width not covered (8)"
    assert choice.trace[0].time_us == 90.0
    assert choice.trace[3].predicted_us == 9e6


def test_the_plain_reference_is_predicted_last_but_may_be_measured_first():
    plain = Option(Candidate(CUDA_SOLVERS[-1], "", None, Accepted()), "a=1", 1e-6)
    assert choose((*OPTIONS, plain), [], mode="fast").solver == "small"
    assert choose((plain,), [], mode="fast").solver == "cuda_reference"
    record = answer("cuda_reference", 5.0, revision=CUDA_SOLVERS[-1].revision)
    assert choose((*OPTIONS, plain), [answer("small", 70.0), record], mode="fast").solver == "cuda_reference"


def test_ties_go_to_the_table_order():
    answers = [answer("small", 70.0, spread=2.0), answer("dense", 71.5)]
    assert choose(OPTIONS, answers, mode="fast").solver == "dense"
    assert choose(OPTIONS, list(reversed(answers)), mode="fast").solver == "dense"
    assert choose(OPTIONS, [answer("small", 70.0), answer("dense", 71.5)], mode="fast").solver == "small"


def test_a_kernel_of_another_library_must_save_a_microsecond():
    """Its call takes the host longer than a launch: short kernels of ours are not given up for less."""
    theirs = option("torch_cudnn")
    for us, chosen in ((3.0, "torch_cudnn"), (3.5, "dense"), (4.2, "dense")):
        answers = [answer("dense", 4.2), answer("torch_cudnn", us)]
        choice = choose((*OPTIONS, theirs), answers, mode="hybrid")
        assert (choice.solver, choice.time_us) == (chosen, us if chosen == "torch_cudnn" else 4.2)
    assert choose((theirs, *OPTIONS), [answer("torch_cudnn", 3.0)], mode="hybrid").solver == "torch_cudnn"


def test_packing_counts_where_each_call_packs_the_filter():
    packed = answer("dense", 2.4)
    packed = replace(packed, record=replace(packed.record, prepare_us=2.4))
    answers = [packed, answer("small", 2.9)]
    revisions = {"dense": 3, "small": 3}
    for frozen, chosen in ((True, "dense"), (False, "small")):
        assert choose(OPTIONS, answers, mode="hybrid", frozen=frozen).solver == chosen
        assert choose(OPTIONS, answers, mode="normal", measured=True, frozen=frozen).solver == chosen
        assert recorded(answers, revisions, frozen=frozen).solver == chosen
    long = [replace(each, record=replace(each.record, time_us=each.record.time_us * 10)) for each in answers]
    assert choose(OPTIONS, long, mode="hybrid", frozen=False).solver == "dense"


def test_the_highest_layer_wins_though_a_lower_one_is_faster():
    answers = [answer("dense", 90.0, layer="user"), answer("small", 10.0, layer="system")]
    assert choose(OPTIONS, answers, mode="strict").solver == "dense"


def test_records_of_another_revision_or_of_failures_do_not_answer():
    stale = [answer("dense", 1.0, revision=2), failed("small"), answer("reference", 500.0, layer="system")]
    choice = choose(OPTIONS, stale, mode="strict")
    assert (choice.solver, choice.layer) == ("reference", "system")
    assert "revision 2" in choice.trace[0].reason
    assert choice.trace[2].reason == "failed: wrong numbers"
    assert isinstance(choose(OPTIONS, stale[:2], mode="hybrid"), Unknown)


def test_what_lost_against_a_solver_that_was_revised_since_is_no_answer():
    beaten = [answer("dense", 1.0, revision=2), answer("reference", 500.0)]
    assert choose(OPTIONS, beaten, mode="fast").solver == "small"  # as predicted
    for mode in ("hybrid", "trust_verify"):
        assert isinstance(choose(OPTIONS, beaten, mode=mode), Unknown)
        assert choose(OPTIONS, beaten, mode=mode, measured=True).solver == "reference"
    assert choose(OPTIONS, beaten, mode="strict").solver == "reference"  # where no other can be had
    elsewhere = [answer("dense", 1.0, revision=2, layer="system"), answer("reference", 500.0)]
    for answers in (
        [answer("dense", 900.0, revision=2), answer("reference", 500.0)],  # it won
        [answer("dense", 1.0, revision=4), answer("reference", 500.0)],  # of a newer Tilesmith
        [answer("gone", 1.0, revision=2), answer("reference", 500.0)],
        elsewhere,
        [answer("dense", 1.0, revision=2), dated(answer("reference", 500.0), "2026-01-02")],  # it won later
    ):
        assert choose(OPTIONS, answers, mode="hybrid").solver == "reference"


def test_a_record_of_a_refused_or_unknown_solver_does_not_answer():
    answers = [answer("depthwise", 1.0), answer("gone", 1.0)]
    assert isinstance(choose(OPTIONS, answers, mode="strict"), Unknown)


def test_a_miss_by_mode():
    fast = choose(OPTIONS, [], mode="fast")
    assert isinstance(fast, Choice)
    assert (fast.solver, fast.basis, fast.time_us) == ("small", "prediction", None)
    for mode in ("hybrid", "normal", "trust_verify", "strict"):
        assert isinstance(choose(OPTIONS, [], mode=mode), Unknown)


def test_normal_measures_even_what_is_known():
    answers = [answer("dense", 90.0)]
    assert isinstance(choose(OPTIONS, answers, mode="normal"), Unknown)
    choice = choose(OPTIONS, answers, mode="normal", measured=True)
    assert (choice.solver, choice.basis) == ("dense", "measurement")


def test_what_failed_its_check_is_not_predicted_after_a_measurement():
    choice = choose(OPTIONS, [failed("small"), failed("dense")], mode="hybrid", measured=True)
    assert choice.solver == "reference"
    with pytest.raises(NoSolutionError, match="failed its check"):
        choose(OPTIONS, [failed(name) for name in ("small", "dense", "reference")], mode="hybrid", measured=True)


def test_what_failed_its_check_is_not_predicted_without_a_measurement_either():
    assert choose(OPTIONS, [failed("small")], mode="fast").solver == "dense"
    outdated = Answer(replace(failed("small").record, revision=2), "user")
    assert choose(OPTIONS, [outdated], mode="fast").solver == "small"


def test_only_solver():
    assert choose(OPTIONS, [answer("small", 1.0)], mode="fast", only="reference").solver == "reference"
    with pytest.raises(NoSolutionError, match=r"'nonesuch'.*known: dense, depthwise, small, reference"):
        choose(OPTIONS, [], mode="fast", only="nonesuch")
    with pytest.raises(NoSolutionError, match="group width not covered"):
        choose(OPTIONS, [], mode="fast", only="depthwise")
    forms = (option("dense"), replace(option("dense", form="gemm", predicted=1e-6)), option("reference"))
    assert choose(forms, [], mode="fast", only="dense").solver == "dense@gemm"
    assert choose(forms, [], mode="fast", only="dense@gemm").solver == "dense@gemm"


def test_nothing_fits_prints_every_reason():
    refused = tuple(option(name, verdict=Rejected("dtype not covered")) for name in ("dense", "small"))
    with pytest.raises(NoSolutionError, match=r"dense: dtype not covered; small: dtype not covered"):
        choose(refused, [], mode="fast")


def test_fresh_processes_choose_the_same_kernel():
    """The benchmark of a thousand processes, in small."""
    script = Path(__file__).parents[2] / "benchmarks" / "same_choice.py"
    done = subprocess.run([sys.executable, str(script), "-n", "4"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    chosen = json.loads(done.stdout)["chosen"]
    assert [list(choices.values()) for choices in chosen.values()] == [[4]] * 4
