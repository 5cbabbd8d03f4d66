"""Results are kept for good, whoever adds at the same time, and whatever happens to the file."""

import csv
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilesmith.errors import ArgumentError, DatabaseError
from tilesmith.lab.results import Result, Theirs, add_result, newest, read_results
from tilesmith.lab.tables import csv_text, json_rows, line, missing_lines, plot, text_table
from tilesmith.lab.words import read_words

T = "x86_64-v3:1:generic"


def result(words="MNK=100", time_us=10.0, **more):
    (problem,) = read_words(words.split()).problems
    theirs = {"onednn": Theirs(2 * time_us, "matmul", "oneDNN 3")}
    found = Result(
        problem=problem.canonical.key(), target=T, solver="c_dense", config="tile_h=1", time_us=time_us, spread_us=0.1,
        roofline=0.5, trials=7, seconds=1.5, date="2026-01-01T00:00:00+00:00", generator="abc",
        rivals=theirs,
    )  # fmt: skip
    return replace(found, **more)


def test_the_newest_of_a_product_counts(place):
    first, second, other = result(), result(time_us=5.0), result("MNK=64 nt", target="sm_90a:132:h200")
    for each in (first, other, second):
        add_result(each)
    assert read_results() == [first, other, second]
    assert newest(read_results(), T) == {second.problem: second}


def test_a_torn_or_damaged_line_costs_itself_alone(place, caplog):
    add_result(result())
    file = place / "results.jsonl"
    whole = file.read_bytes()
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] + whole)
        assert read_results()[-1:] == [result()]
    for size in (1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole + whole[:size])
        add_result(result(time_us=3.0))
        assert [each.time_us for each in read_results()] in ([10.0, 3.0], [10.0, 10.0, 3.0])
    assert "damaged" in caplog.text


def test_rivals_without_a_time_say_why():
    without = {"missing": {"tvm": "not tuned", "cutlass": "SIGSEGV in its trial"}}
    several = [result(**without), result("MNK=8", missing={"tvm": "not tuned"}), result("MNK=9")]
    assert missing_lines(several) == [
        "tvm: no time for 2 of 3: not tuned", "cutlass: no time for 1 of 3: SIGSEGV in its trial",
    ]  # fmt: skip
    assert text_table(several).endswith("\n".join(missing_lines(several)))
    assert "; tvm: not tuned; cutlass: SIGSEGV in its trial; c_dense" in line(several[0])


def test_many_processes_lose_nothing(place):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_lab_results import result\n"
        "from tilesmith.lab.results import add_result\n"
        "for i in range(25): add_result(result(time_us=float(sys.argv[2]) + i))"
    )
    folder = str(Path(__file__).parent)
    running = [subprocess.Popen([sys.executable, "-c", code, folder, str(100 * n + 1)]) for n in range(3)]
    assert [each.wait(60) for each in running] == [0, 0, 0]
    assert sorted(each.time_us for each in read_results()) == [100 * n + 1 + i for n in range(3) for i in range(25)]


def test_a_folder_that_cannot_be_written(place, monkeypatch):
    place.parent.mkdir(exist_ok=True)
    place.write_text("a file")
    monkeypatch.setattr("tilesmith.lab.results.results_folder", lambda: place)
    with pytest.raises(DatabaseError, match="lab"):
        add_result(result())


def test_tables():
    results = [result(), result("M=10 N=20 K=30 nt", 1.0), replace(result("MNK=7 nt"), rivals={}, disturbed="busy")]
    text = text_table(results)
    assert "nn fp32: 2.000 times onednn (geometric mean of 1; least 2.000)" in text
    assert "MNK=7 nt fp32*" in text
    assert "0.2" in text.splitlines()[1]  # 2 * 100^3 operations in 10 us
    rows = list(csv.DictReader(io.StringIO(csv_text(results))))
    assert [(row["m"], row["form"], row["onednn_us"]) for row in rows] == [
        ("100", "nn", "20.0"), ("10", "nt", "2.0"), ("7", "nt", "")
    ]  # fmt: skip
    assert float(rows[0]["tflops"]) == pytest.approx(0.2)
    assert [json_rows(results)[1][name] for name in ("words", "tflops")] == ["M=10 N=20 K=30 nt fp32", 0.012]
    assert "onednn 0.1 (2.00x)" in line(results[0])


def test_tables_have_the_times_of_single_calls_too():
    cublas = {"cublas": Theirs(11.0, "lt0", "cuBLAS 13", 15.0)}
    several = [result(single_us=12.0, rivals=cublas), result("MNK=8", rivals=cublas)]
    assert "nn fp32: 1.100 times cublas (geometric mean of 2; least 1.100); single calls 1.250 (least 1.250)" in (
        text_table(several, 200)
    )
    rows = list(csv.DictReader(io.StringIO(csv_text(several))))
    assert [(row["cublas_single_us"], row["cublas_single_ratio"]) for row in rows] == [("15.0", "1.25"), ("15.0", "")]


def test_a_plot_has_a_panel_for_each_form(tmp_path):
    path = tmp_path / "plot.svg"
    plot([result(), result("MNK=200"), result("MNK=50 nt", 1.0)], path)
    assert path.read_text().count('<g id="axes_') == 2
    with pytest.raises(ArgumentError, match="nothing"):
        plot([result()], tmp_path / "plot.nothing")
