"""The flags of BOO's driver: files of commands (text and TSV), CSV of single calls, one value, GPUs by number."""

import csv

import numpy as np
import pytest

from tilesmith.cli.driver_csv import splat_args
from tilesmith.cli.driver_options import own_flags
from tilesmith.cli.main import run
from tilesmith.problems.driver import parse_command, read_commands
from tilesmith.problems.driver.listing import calls_of

GEMM = "gemm -m 8 -n 8 -k 8"
CONV = "conv -n 1 -c 8 -H 8 -W 8 -k 8 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "list.tsv"
    path.write_text(f"Count\tDriver command\n25\t./bin/MIOpenDriver {CONV}\nconv -n zero\n{GEMM} -V 1\t3\n")
    return path


def test_a_file_of_commands_runs_with_further_flags_and_its_times_go_to_a_csv_file(profile, tmp_path, capsys):
    words = ["--commands-file", str(profile), "--csv", str(tmp_path / "times.csv"), "-t", "1", "-i", "4"]
    assert run([*words, "--reference-backend", "torch"]) == 2  # of the bad line alone
    captured = capsys.readouterr()
    assert captured.out.count("Kernel Time") == 2
    assert f"{profile}:3: conv: flag --batchsize (-n) 'zero'" in captured.err
    rows = list(csv.DictReader((tmp_path / "times.csv").open()))
    assert [row["name"] for row in rows] == [f"{CONV} -t 1 -i 4", f"{GEMM} -V 1 -t 1 -i 4"]
    assert [int(row["flops"]) for row in rows] == [2 * 8 * 8 * 8 * 8 * 9, 2 * 8**3]
    for row in rows:
        for backend in ("tilesmith", "onednn"):
            least, most, mean, stddev, rate = (
                float(row[f"{backend} {name}"]) for name in ("min", "max", "mean", "stddev", "flops")
            )
            assert 0 < least <= mean <= most
            assert stddev <= most - least
            assert rate == pytest.approx(int(row["flops"]) / mean * 1e6, rel=0.01)


def test_without_times_the_csv_says_so(tmp_path, capsys):
    assert run([*GEMM.split(), "-V", "1", "--csv", "-"]) == 0
    captured = capsys.readouterr()
    (row,) = csv.DictReader(captured.out.splitlines())
    assert row["tilesmith mean"] == "untimed"
    assert "--csv holds no times without --time (-t) 1" in captured.err


def test_a_table_is_read_and_its_counts_are_calls(profile):
    lines = list(read_commands(profile))
    assert [(line.number, line.command is None) for line in lines] == [(2, False), (3, True), (4, False)]
    assert [calls_of(line.text) for line in lines] == [25, 1, 3]
    profile.write_text("conv\t-n\t1\t-c\t4\t-H\t8\t-W\t8\t-k\t4\t-F\t1\n")
    (line,) = read_commands(profile)
    assert line.command is not None


def test_operands_of_one_value(capsys):
    assert run([*CONV.split(), "-t", "1", "--splat-input-value", "0.5"]) == 0
    assert "Verifies OK" in capsys.readouterr().out
    signature = parse_command(CONV).signatures[0][1]
    assert all((each == 0.5).all() for each in splat_args(signature, 0.5))
    assert np.isfinite(splat_args(signature, 3e38)[0]).all()
    for text, value in ((f"gemmint8{GEMM[4:]}", "0.5"), (f"gemmfp16{GEMM[4:]}", "1e6"), (GEMM, "nan"), (GEMM, "x")):
        assert run([*text.split(), "--splat-input-value", value]) == 2
        assert "--splat-input-value" in capsys.readouterr().err


def test_gpus_by_number(monkeypatch, capsys):
    gpus = [type("Gpu", (), {"ordinal": number}) for number in range(3)]
    monkeypatch.setattr("tilesmith.cli.driver_options.cuda_devices", lambda: tuple(gpus))
    assert own_flags(["conv", "--gpu-id", "1"])[1].devices == ("cuda:1",)
    every = ("cuda:0", "cuda:1", "cuda:2")
    assert own_flags(["conv", "--gpu-id=-1"])[1].devices == own_flags(["--device", "all"])[1].devices == every
    monkeypatch.setattr("tilesmith.cli.driver_options.cuda_devices", lambda: ())
    for words, said in (
        (["--gpu-id", "-1"], "there is no GPU"), (["--gpu-id", "-2"], "'-2' is not the number"),
        (["--gpu-id"], "--gpu-id has no value"), (["--csv", "/nonexistent/x.csv"], "/nonexistent/x.csv"),
        (["--commands-file", "/nonexistent/list"], "/nonexistent/list"),
        (["--json", "--csv", "-"], "only one of them"),
    ):  # fmt: skip
        assert run([*GEMM.split(), *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
