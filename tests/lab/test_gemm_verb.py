"""`tilesmith gemm`: the laboratory, and the driver command of the same name."""

import json
import time

import pytest

from tilesmith.cli.main import run
from tilesmith.lab.results import read_results
from tilesmith.lab.words import Asked, read_line
from tilesmith.problems.gemm import GemmSignature


@pytest.fixture
def tilesmith(place, monkeypatch, capfd):
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")

    def call(text):
        status = run(text.split())
        out, err = capfd.readouterr()
        return status, out, err

    return call


def test_run_keeps_each_product_and_goes_on_where_it_was(tilesmith, tmp_path):
    status, _, err = tilesmith("gemm run MNK=24 nt t=1 s=30 --against none")
    assert status == 0, err
    (result,) = read_results()
    assert (result.signature.m, result.signature.trans_b, result.rivals) == (24, True, {})
    assert result.time_us > 0
    (tmp_path / "list.txt").write_text("MNK=24 nt  # known\n\nM=8 N=16 K=4\n")
    status, out, err = tilesmith(f"gemm tune {tmp_path / 'list.txt'} t=1 s=30 --json")
    assert status == 0, err
    assert "1 of 1 products have a result" in err
    assert [json.loads(row)["words"] for row in out.splitlines()] == ["M=8 N=16 K=4 nn fp32"]
    status, out, _ = tilesmith("gemm perf")
    names = [row.split("  ")[0] for row in out.splitlines() if " fp32" in row and not row.startswith(" ")]
    assert names == ["MNK=24 nt fp32", "M=8 N=16 K=4 nn fp32"]
    status, out, _ = tilesmith(f"gemm perf MNK=24 nt --json - --csv {tmp_path / 'all.csv'}")
    assert [row["words"] for row in json.loads(out)] == ["MNK=24 nt fp32"]
    assert (tmp_path / "all.csv").read_text().count("\n") == 2


def test_driver_commands_name_products_of_a_list(tilesmith, tmp_path):
    command = "gemm --a_h 8 --a_w 4 --b_w 12 --transB 1 --acc_type tf32 -t 1  # of a driver"
    (tmp_path / "list.txt").write_text(f"MNK=4 nt\n{command}\n")
    status, _, err = tilesmith(f"gemm perf {tmp_path / 'list.txt'}")
    assert status == 1, err
    assert read_line(command.partition("#")[0].split(), ["t=3", "O=1"]) == Asked(
        (GemmSignature(8, 12, 4, trans_b=True, acc_dtype="tf32"),), 3, None, 1
    )
    for bad, said in (("bf16", "added to a driver command"), ("M=3", "is not given")):
        status, _, err = tilesmith(f"gemm run {tmp_path / 'list.txt'} {bad}")
        assert (status, err.count("\n")) == (2, 1)
        assert said in err or "twice" in err


def test_a_product_that_fails_is_told_and_the_next_one_runs(tilesmith):
    status, _, err = tilesmith("gemm run M=4 N=1,8 K=70000 fp8e4m3 t=1 s=30 --against none")
    assert status in (0, 1)
    assert len(read_results()) + err.count("tilesmith: M=4") == 2


def test_a_job_in_the_background(tilesmith):
    status, out, _ = tilesmith("gemm tune MNK=8 t=1 s=30 O=2")
    assert status == 0
    assert "job 1 " in out
    end = time.monotonic() + 60
    while "ended (0)" not in (found := tilesmith("gemm jobs")[1]):
        assert time.monotonic() < end, found + tilesmith("gemm log 1")[1]
        time.sleep(0.2)
    assert "MNK=8 nn fp32" in tilesmith("gemm log 1")[1]
    assert len(read_results()) == 1
    assert "does not run" in tilesmith("gemm stop 1")[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gemm run nn", "no size is given"),
        ("gemm tune MNK=8 O=65537", "tilesmith gemm setup tvm"),
        ("gemm run MNK=8 --against tvm", "tilesmith gemm setup tvm"),
        ("gemm run MNK=8 --against nobody", "nobody"),
        ("gemm run MNK=8 fp99", "fp99"),
        ("gemm log 5", "no job 5"),
    ],
)
def test_bad_input_is_one_line(tilesmith, text, said):
    status, _, err = tilesmith(text)
    assert status == 2
    assert said in err
    assert err.count("\n") == 1


def test_nothing_known(tilesmith):
    status, _, err = tilesmith("gemm perf")
    assert status == 1
    assert "no result" in err


def test_driver_commands_keep_their_name(tilesmith):
    status, out, _ = tilesmith("gemm --a_h 4 --a_w 8 --b_w 4 -i 1")
    assert status == 0
    assert "GEMM" in out or "gemm" in out
