"""TVM tunes in an environment of its own: what it is asked, what is kept, and what happens if it fails."""

import sys

import pytest
from tvm_stand_in import asked, stand_in

from tilesmith import GemmSignature
from tilesmith.compare.tvm import environment, tuning
from tilesmith.compare.tvm.rival import RIVAL
from tilesmith.errors import ArgumentError, CompileError, OutOfTimeError
from tilesmith.lab.foreign import tune_by_tvm
from tilesmith.lab.results import Result, add_result
from tilesmith.lab.session import Place, Session
from tilesmith.solvers.generation import generator_digest
from tilesmith.targets.cuda import cuda_target
from tilesmith.targets.detect import host_target

HERE = host_target(1)
PROBLEM = GemmSignature(8, 16, 4, trans_b=True)


@pytest.fixture
def tvm(place):
    stand_in()


def test_what_it_is_asked_and_what_is_kept(tvm):
    told = []
    assert tuning.tune(PROBLEM, HERE, 5, 30.0, told.append) == {"trials": 5, "best_us": 12.5}
    assert told == ["TVM: 5 of 5 trials, best 12.5 us"]
    assert tuning.found(PROBLEM, HERE) == {"trials": 5, "best_us": 12.5}
    (one,) = asked()
    expected = {"m": 8, "n": 16, "k": 4, "trans_a": False, "trans_b": True, "dtype": "float32", "arch": "", "trials": 5}
    assert {name: one[name] for name in expected} == expected
    gpu = cuda_target("sm_90a", 132)
    assert tuning.found(PROBLEM, gpu) is None
    assert tuning.tune(PROBLEM, gpu, 2, 30.0, told.append)["trials"] == 2
    assert sorted(each["arch"] for each in asked()) == ["", "sm_90a"]


def test_searches_on_one_gpu_measure_in_turns(tvm, monkeypatch):
    gpu, other = cuda_target("sm_90a", 132), GemmSignature(16, 16, 4)
    for problem, card in ((PROBLEM, "0"), (other, "0"), (GemmSignature(32, 16, 4), "MIG-GPU-5/1/0")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", card)
        tuning.tune(problem, gpu, 2, 30.0, lambda line: None)
    turns = {each["m"]: each["turns"] for each in asked()}
    assert turns[8] == turns[16] != turns[32]


def test_a_result_without_its_time_is_measured_again_once_it_is_tuned(tvm):
    session = Session(Place(HERE, "cpu", (RIVAL,), (("tvm", RIVAL.version()),)))
    known = Result(
        PROBLEM.canonical.key(), HERE.name, "c_dense", "", 1.0, 0.0, 1.0, 1, 1.0, "2026-01-01T00:00:00+00:00",
        generator_digest("cpu"), missing={"tvm": "not tuned"},
    )  # fmt: skip
    add_result(known)
    assert session.left([PROBLEM]) == []
    tuning.tune(PROBLEM, HERE, 5, 30.0, lambda line: None)
    assert session.left([PROBLEM]) == [PROBLEM]


def test_one_that_fails_costs_itself_alone(tvm, monkeypatch):
    refused = GemmSignature(8, 8, 8, dtype="int8", c_dtype="int32")
    first, second = tune_by_tvm([refused, PROBLEM], HERE, None, None, lambda line: None)
    assert "plain products" in first.line
    assert (second.trials, second.reason) == (tuning.TRIALS, "")
    monkeypatch.setenv("TVM_DOES", "crash")
    (crashed,) = tune_by_tvm([PROBLEM], HERE, 7, None, lambda line: None)
    assert "TVM fails (-6)" in crashed.reason
    assert tuning.found(PROBLEM, HERE)["trials"] == tuning.TRIALS


def test_one_that_hangs_is_ended(tvm, monkeypatch):
    monkeypatch.setenv("TVM_DOES", "hang")
    monkeypatch.setattr(tuning, "_GRACE_S", 0.2)
    with pytest.raises(OutOfTimeError, match="trials are kept"):
        tuning.tune(PROBLEM, HERE, 5, 0.1, lambda line: None)


def test_an_interpreter_that_is_gone(tvm):
    environment.python().unlink()
    with pytest.raises(CompileError, match="cannot be begun"):
        tuning.tune(PROBLEM, HERE, 5, 1.0, lambda line: None)


def test_problems_that_it_is_not_asked_for():
    assert tuning.computes(PROBLEM)
    for more in ({"acc_dtype": "tf32"}, {"alpha": 2.0}, {"lda": 9}, {"dtype": "bf16"}):
        assert not tuning.computes(GemmSignature(8, 16, 4, **more))


def test_without_a_network_the_setup_says_so(place, monkeypatch, tmp_path):
    """The environment's interpreter is this one; pip looks into an empty folder."""

    def follow(command, seconds, heard, **more):
        if "venv" in command:
            environment.python().parent.mkdir(parents=True)
            environment.python().symlink_to(sys.executable)
            return 0
        heard("ERROR: No matching distribution found for apache-tvm")
        assert command[0] == str(environment.python())
        assert "--index-url=none" in command
        return 1

    monkeypatch.setattr(environment, "follow", follow)
    with pytest.raises(ArgumentError, match="is there a network.*No matching distribution"):
        environment.set_up(60.0, lambda line: None, ["--index-url=none"])
    assert not environment.is_set_up()
    with pytest.raises(ArgumentError, match="gemm setup tvm"):
        environment.version()
