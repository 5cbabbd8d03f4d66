"""TILESMITH_LOG_CMD: the problems that a program meets become a list that every verb reads."""

import contextlib
import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesmith
from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.dispatch.launchable import log_command
from tilesmith.problems.driver import parse_command, parse_problem, read_commands

sys.path.append(str(Path(__file__).parents[1] / "problems"))
from problem_strategies import conv_signatures, gemm_signatures

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")


@pytest.fixture
def logged(monkeypatch):
    monkeypatch.setenv("TILESMITH_LOG_CMD", "1")


@settings(max_examples=200, deadline=None)
@given(st.one_of(conv_signatures(), gemm_signatures()))
def test_every_line_reads_back_to_its_problem(signature):
    tilesmith.forget()
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        log_command(signature)
    (line,) = text.getvalue().splitlines()
    if isinstance(signature, ConvSignature) and signature.padding_low != signature.padding_high:
        signature = signature.canonical
    ((_, found),) = parse_problem(line).signatures
    assert found == signature


def test_each_problem_once_in_the_order_of_meeting(logged, capfd, tmp_path):
    a = np.ones((4, 6), np.float32)
    for _ in range(3):
        get_launchable(SMALL, mode="fast")
        tilesmith.gemm(a, a, trans_b=True, mode="fast")
    get_launchable(SMALL, mode="fast", only="c_reference")
    out, err = capfd.readouterr()
    assert out == ""
    (tmp_path / "list.txt").write_text(err)
    found = [signature for line in read_commands(tmp_path / "list.txt") for _, signature in line.command.signatures]
    assert found == [SMALL, GemmSignature(4, 4, 6, trans_b=True)]
    assert run(["parse", str(tmp_path / "list.txt")]) == 0
    tilesmith.forget()
    get_launchable(SMALL, mode="fast")
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_a_problem_that_fails_was_met_too(logged, capfd):
    with pytest.raises(tilesmith.TilesmithError):
        get_launchable(SMALL, mode="strict")
    assert capfd.readouterr().err.startswith("conv -n 1 -c 16 ")


def test_lines_of_threads_do_not_mix(logged, capfd):
    signatures = [GemmSignature(4, 4, k) for k in range(1, 33)]
    threads = [threading.Thread(target=log_command, args=(s,)) for s in signatures for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capfd.readouterr().err.splitlines()
    assert sorted(parse_command(line).signatures[0][1].k for line in lines) == list(range(1, 33))


def test_off_is_silent(capfd):
    get_launchable(SMALL, mode="fast")
    assert capfd.readouterr().err == ""
