"""Problems that only the plain reference computes on CPUs say so, once in the log and in ``explain``."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tilesmith import ConvSignature, Epilogue, GemmSignature, conv, get_launchable
from tilesmith.cli.main import run
from tilesmith.dispatch import plain
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.problems.dtypes import DTYPES
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.cpu import CPU_TARGETS, cpu_target


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    monkeypatch.setattr(plain, "_told", set())


def signatures(dtype):
    shape = {"shared_layout": "NHWC", "dtype": dtype, "padding": 1}
    yield ConvSignature((2, 8, 8, 16), (16, 3, 3, 16), **shape)
    yield ConvSignature((2, 8, 8, 16), (16, 3, 3, 16), mode="bwd", **shape)
    yield GemmSignature(16, 16, 16, dtype=dtype)
    if dtype != "int8":
        yield ConvSignature((2, 8, 8, 16), (16, 3, 3, 16), mode="wrw", **shape)
        yield ConvSignature((2, 8, 8, 16), (16, 3, 3, 16), mode="bgrad", **shape)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "int32"])
@pytest.mark.parametrize("arch", CPU_TARGETS)
def test_what_is_said_of_an_element_type_is_so(dtype, arch):
    for signature in signatures(dtype):
        found = candidates(signature, cpu_target(arch, 1))
        fast = [each.name for each in found if isinstance(each.verdict, Accepted) and not each.plain]
        said = plain.why_only_plain(signature, cpu_target(arch, 1), "c_reference")
        assert bool(said) == (not fast), (signature, fast)
        assert said == "" or dtype in said


@pytest.mark.parametrize("dtype", ["fp64", "int8", "fp8e4m3", "fp8e5m2"])
def test_one_line_in_the_log(dtype, caplog):
    with caplog.at_level(logging.WARNING, "tilesmith"):
        for m in (4, 5):
            for _ in range(2):
                signature = GemmSignature(m, 4, 4, dtype=dtype)
                get_launchable(signature)(*signature.get_sample_args())
                forget_launchables()
    (line,) = [record.getMessage() for record in caplog.records if "plain reference" in record.getMessage()]
    assert dtype in line
    assert "fp32" in line


def test_nothing_is_said_where_a_fast_kernel_could_run_or_the_reference_was_asked_for(caplog):
    with caplog.at_level(logging.WARNING, "tilesmith"):
        conv(np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32))
        get_launchable(GemmSignature(4, 4, 4), only="c_reference")
        get_launchable(GemmSignature(4, 4, 4, dtype="fp64"), only="c_reference")
        get_launchable(GemmSignature(4, 4, 4, epilogue=Epilogue(activation="gelu")))
    assert "plain reference" not in caplog.text


def test_explain_says_it(capsys):
    assert run(["explain", "convfp64 -n 1 -c 4 -H 5 -W 5 -k 4 -y 3 -x 3 -F 1"]) == 0
    assert "only the plain reference computes fp64 on CPUs" in capsys.readouterr().out
    assert run(["explain", "conv -n 1 -c 4 -H 5 -W 5 -k 4 -y 3 -x 3 -F 1"]) == 0
    assert "only the plain reference" not in capsys.readouterr().out
