"""Every verb end to end in this process: what it prints, where, and how it exits."""

import json
import re

import pytest

from tilesmith import env
from tilesmith.cli.main import VERBS, WITHOUT_DATA, run
from tilesmith.cli.verbs.bench import DISTURBED_STATUS
from tilesmith.compare.bench_records import Against, Bench
from tilesmith.problems.keys import parse_key
from tilesmith.targets.detect import host_target

SMALL = "-n 1 -c 8 -H 8 -W 8 -k 8 -y 3 -x 3 -p 1 -q 1"
NHWC = "--in_layout NHWC --out_layout NHWC --fil_layout NHWC"


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def listing(tmp_path):
    path = tmp_path / "problems.txt"
    path.write_text(f"# two problems\nconv {SMALL} -F 1\n\nconv {SMALL} -F 4 # weights\n")
    return str(path)


def test_parse_prints_one_object_a_direction(capsys):
    assert run(["parse", f"conv {SMALL} -F 0", "--json"]) == 0
    rows = lines_of(capsys.readouterr().out)
    assert [row["direction"] for row in rows] == ["fwd", "bwd", "wrw"]
    for row in rows:
        assert set(row) == {"command", "key", "direction", "func_name", "flops", "bytes"}
        assert parse_key(row["key"]).key() == row["key"]
        assert row["flops"] == 2 * 8 * 8 * 8 * 8 * 9
        assert row["func_name"].isidentifier()


def test_parse_takes_a_command_with_and_without_quotes(capsys):
    assert run(["parse", "--json", *f"conv {SMALL} -F 1".split()]) == 0
    bare = capsys.readouterr().out
    assert run(["parse", f"MIOpenDriver conv {SMALL} -F 1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == json.loads(bare)["key"]


def test_a_bad_line_is_reported_with_its_number_and_the_rest_runs(tmp_path, capsys):
    path = tmp_path / "list.txt"
    path.write_text(f"conv {SMALL} -F 1\nconv -n zero\nnonsense\nconv {SMALL} -F 2\n")
    assert run(["parse", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert [row["direction"] for row in lines_of(captured.out)] == ["fwd", "bwd"]
    first, second = captured.err.splitlines()
    assert f"{path}:2:" in first
    assert "'zero'" in first
    assert f"{path}:3:" in second


def test_verify(listing, capsys):
    assert run(["verify", listing, "--json"]) == 0
    captured = capsys.readouterr()
    rows = lines_of(captured.out)
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert all(row["error"] <= row["bound"] for row in rows)
    assert "2 verified, 0 failed, 0 left out" in captured.err
    assert run(["verify", listing, "--max-gflop", "1e-9", "--specials"]) == 0
    assert "0 verified, 0 failed, 2 left out" in capsys.readouterr().err
    assert run(["verify", listing, "--specials"]) == 0


def test_verify_fails_with_wrong_numbers(listing, capsys, monkeypatch):
    from tilesmith.measure.accuracy import Accuracy

    wrong = Accuracy(False, 3.0, 1.0, (0, 0), "1 of 9 elements wrong")
    monkeypatch.setattr("tilesmith.cli.verbs.verify.check_launchable", lambda launch, seed: wrong)
    assert run(["verify", listing]) == 1
    assert "1 of 9 elements wrong" in capsys.readouterr().err


def test_verify_measures_nothing_and_says_what_did_not_run(listing, capsys, monkeypatch):
    from tilesmith.errors import CompileError

    monkeypatch.delenv("TILESMITH_FIND_MODE")

    def refuse(*args, **kwargs):
        raise AssertionError("a search began")

    monkeypatch.setattr("tilesmith.dispatch.resolve._measure", refuse)
    assert run(["verify", listing]) == 0
    capsys.readouterr()

    def fail(*args, **kwargs):
        raise CompileError("cc refused it")

    monkeypatch.setattr("tilesmith.cli.verbs.verify.get_launchable", fail)
    assert run(["verify", listing]) == 1
    captured = capsys.readouterr()
    assert all("not run" in line and "nan" not in line for line in captured.out.splitlines())
    assert "cc refused it" in captured.err
    assert run(["verify", listing, "--json"]) == 1
    assert [row["error"] for row in lines_of(capsys.readouterr().out)] == [None, None]


def test_room_lets_no_more_in_than_there_is():
    import threading
    import time

    from tilesmith.cli.verbs.verify import MemoryBudget

    budget, lock, now, most = MemoryBudget(10), threading.Lock(), 0, 0

    def work(size):
        nonlocal now, most
        with budget.taken(size):
            with lock:
                now += min(size, 10)
                most = max(most, now)
            time.sleep(0.01)
            with lock:
                now -= min(size, 10)

    threads = [threading.Thread(target=work, args=(size,)) for size in (3, 4, 5, 99, 6, 2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 10
    assert now == 0


def test_explain_names_every_candidate_and_measures_nothing(capsys):
    assert run(["explain", f"conv {SMALL} -F 1 {NHWC}", "--json", "--mode", "hybrid"]) == 0
    (row,) = lines_of(capsys.readouterr().out)
    assert row["basis"] == "prediction"
    chosen = [line for line in row["candidates"] if line["chosen"]]
    assert [line["solver"] for line in chosen] == [row["solver"]]
    assert all(line["reason"] or line["predicted_us"] is not None for line in row["candidates"])
    assert row["candidates"][-1]["solver"] == "c_reference"
    assert run(["explain", f"conv {SMALL} -F 1 {NHWC}"]) == 0
    assert "nothing was measured" in capsys.readouterr().out


def test_generate_writes_sources_that_its_command_compiles(tmp_path, capsys):
    import subprocess

    assert run(["generate", f"conv {SMALL} -F 1 {NHWC}", "--out", str(tmp_path / "src"), "--json"]) == 0
    rows = lines_of(capsys.readouterr().out)
    assert rows
    for row in rows:
        done = subprocess.run(row["compile"], shell=True, cwd=tmp_path / "src", capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "src" / f"{row['symbol']}.so").is_file()


def test_explain_names_the_tuning_spec(tmp_path, capsys, monkeypatch):
    command = f"conv {SMALL} -F 1 {NHWC}"
    assert run(["parse", command, "--json"]) == 0
    key = json.loads(capsys.readouterr().out)["key"]
    spec = tmp_path / "spec.toml"
    spec.write_text(f"[[choice]]\nproblem = '{key}'\nsolver = 'c_reference'\n")
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", str(spec))
    assert run(["explain", command]) == 0
    head = " ".join(capsys.readouterr().out.partition("predicted_us")[0].split())
    assert f"by the tuning spec {spec}:1; nothing was measured" in head
    assert "measured, in" not in head


def fake_tool(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_generate_names_a_compiler_that_reaches_the_target(tmp_path, capsys, monkeypatch):
    words = ["generate", f"conv {SMALL} -F 1 {NHWC}", "--target", "aarch64:4", "--json"]
    monkeypatch.setattr("tilesmith.toolchain.compilers.importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_tool(tmp_path / "cc", 'test "$1" = -dumpmachine && echo x86_64-linux-gnu || echo cc 12')
    assert run(words) == 0
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert "no compiler here makes aarch64 binaries" in line
    assert "gcc-aarch64-linux-gnu" in line
    assert all(row["compile"] is None and row["source"] for row in lines_of(captured.out))
    fake_tool(tmp_path / "aarch64-linux-gnu-gcc", "echo gcc 12")
    assert run(words) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for row in lines_of(captured.out):
        assert row["compile"].startswith(f"{tmp_path}/aarch64-linux-gnu-gcc ")
        assert "-march=armv8-a" in row["compile"]


def test_tune_needs_a_database_that_lasts(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path))
    assert run(["tune", f"conv {SMALL} -F 1"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert str(tmp_path) in last
    assert "TILESMITH_DB_PATH" in last


def test_generate_is_reproducible_and_reaches_other_targets(capsys):
    words = ["generate", f"conv {SMALL} -F 1 {NHWC}", "--target", "aarch64:4"]
    assert run(words) == 0
    first = capsys.readouterr().out
    assert run(words) == 0
    assert capsys.readouterr().out == first
    assert "aarch64" in first
    assert run([*words, "--solver", "c_reference"]) == 0
    assert "c_reference" in capsys.readouterr().out


def test_env_prints_every_variable(capsys, monkeypatch):
    assert run(["env", "--json"]) == 0
    rows = {row["name"]: row for row in lines_of(capsys.readouterr().out)}
    assert set(rows) == {variable.name for variable in env.VARIABLES}
    assert rows["TILESMITH_FIND_MODE"]["value"] == "fast"
    assert run(["env"]) == 0
    assert "TILESMITH_ONLY_SOLVER" in capsys.readouterr().out


def test_tune_remembers(capsys):
    command = f"conv {SMALL} -F 1 {NHWC}"
    assert run(["tune", command, "--trials", "3", "--seconds", "60", "--json"]) == 0
    captured = capsys.readouterr()
    (row,) = lines_of(captured.out)
    assert row["time_us"] > 0
    assert row["new_trials"] <= 3
    assert "1 problem tuned" in captured.err
    assert run(["explain", command, "--json"]) == 0
    (explained,) = lines_of(capsys.readouterr().out)
    assert (explained["basis"], explained["solver"], explained["config"]) == ("database", row["solver"], row["config"])


def test_bench_writes_the_documented_json(listing, tmp_path, capsys):
    out = tmp_path / "out.json"
    words = ["bench", listing, "--against", "onednn", "--threads", "1", "--seconds", "0.1", "--json", str(out)]
    assert run(words) == 0
    result = json.loads(out.read_text())
    assert set(result) == {"target", "host", "results", "summary"}
    assert result["target"] == host_target(1).name
    assert [row["direction"] for row in result["results"]] == ["fwd", "wrw"]
    for row in result["results"]:
        assert set(row) == {
            "command", "key", "direction", "solver", "config", "time_us", "spread_us", "samples", "disturbed",
            "discarded", "prepare_us", "gflops", "roofline", "error", "bound", "status", "reason", "against", "ratio",
            "single_us", "single_ratio", "launches",
        }  # fmt: skip
        assert (row["status"], row["launches"]) == ("ok", [])
        theirs = row["against"]["onednn"]
        assert set(theirs) == {"time_us", "spread_us", "single_us", "mode", "given_us", "given_single_us"}
        assert row["ratio"]["onednn"] == pytest.approx(theirs["time_us"] / row["time_us"])
    ratios = [row["ratio"]["onednn"] for row in result["results"]]
    assert result["summary"]["min"]["onednn"] == min(ratios)
    assert result["summary"]["geomean"]["onednn"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    mean = result["summary"]["geomean"]["onednn"]
    faster = sum(ratio > 1 for ratio in ratios)
    said = f"faster than onednn in {faster} of 2 problems: geomean {mean:.3f}x, least {min(ratios):.3f}x"
    assert said in capsys.readouterr().out


def test_bench_gives_problems_another_type(listing, capsys):
    assert run(["bench", listing, "--dtype", "bf16", "--seconds", "0.1", "--json", "-", "--against", "none"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert all("x=bf16" in row["key"] and "y=bf16" in row["key"] for row in result["results"])
    assert result["results"][0]["command"].startswith("convbfp16")
    assert result["summary"] == {"problems": 2, "disturbed": 0, "failed": 0, "geomean": {}, "min": {}}


def test_bench_beside_nothing_prints_no_empty_summary(listing, capsys):
    assert run(["bench", listing, "--against", "none", "--seconds", "0.05"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("3x3 p1" in line for line in lines) == 2  # the rows
    assert len(lines) in (3, 6)  # with the head of the table, in one line or two
    assert all("{" not in line and "summary" not in line for line in lines)


@pytest.fixture
def benched(monkeypatch):
    """The rows that ``bench`` finds, in their order: their status, and theirs over ours."""
    todo = []

    def bench(launch, machine, against, **options):
        status, ratio = todo.pop(0)
        reason = {"ok": "", "failed": "wrong numbers: all of them"}.get(status, "these times say little")
        if status == "failed":
            return Bench(status, reason)
        beside = {"onednn": Against(10.0 * ratio, 0.1, "a mode")}
        return Bench(status, reason, 10.0, 0.1, 21, 5 * bool(reason), 3, 0.0, 1.0, 0.5, 0.0, 1.0, "m", beside)

    monkeypatch.setattr("tilesmith.cli.verbs.bench.bench", bench)
    return todo


def test_rows_that_are_disturbed_are_marked_counted_and_in_no_summary(listing, capsys, tmp_path, benched):
    benched += [("disturbed", 429.0), ("ok", 2.0)]
    out = tmp_path / "out.json"
    words = ["bench", listing, "--against", "onednn", "--json", str(out)]
    assert run(words) == DISTURBED_STATUS == 3
    captured = capsys.readouterr()
    *lines, mean, left_out = captured.out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("    c_")] == ["disturbed", "ok"]
    assert mean == "faster than onednn in 1 of 1 problems: geomean 2.000x, least 2.000x"
    assert left_out.startswith("1 of 2 left out: disturbed by other processes")
    assert "warning: conv" in captured.err
    assert "[1/2] disturbed fwd" in captured.err
    result = json.loads(out.read_text())
    assert [(row["status"], row["disturbed"], row["discarded"]) for row in result["results"]] == [
        ("disturbed", 5, 3), ("ok", 0, 3)
    ]  # fmt: skip
    assert result["summary"] == {
        "problems": 2, "disturbed": 1, "failed": 0, "geomean": {"onednn": pytest.approx(2.0)}, "min": {"onednn": 2.0}
    }  # fmt: skip
    benched += [("ok", 1.5)]
    assert run([*words, "--resume"]) == 0  # what was disturbed is measured again, and nothing else
    assert not benched
    assert json.loads(out.read_text())["summary"]["min"] == {"onednn": 1.5}


def test_a_failure_counts_for_more_than_a_disturbance(listing, capsys, benched):
    benched += [("disturbed", 0.5), ("failed", 0.0)]
    assert run(["bench", listing, "--against", "onednn"]) == 1
    out = capsys.readouterr().out
    assert "geomean" not in out
    assert "1 of 2 left out: failed" in out
    assert "1 of 2 left out: disturbed" in out


def test_bench_reports_failures_and_goes_on(listing, capsys, monkeypatch):
    from tilesmith.measure.accuracy import Accuracy

    wrong = Accuracy(False, 3.0, 1.0, (0, 0), "1 of 9 elements wrong")
    monkeypatch.setattr("tilesmith.compare.benchmark.check_launchable", lambda *args: wrong)
    assert run(["bench", listing, "--json", "-", "--seconds", "0.1"]) == 1
    captured = capsys.readouterr()
    rows = json.loads(captured.out)["results"]
    assert [(row["status"], row["time_us"], row["ratio"]) for row in rows] == [("failed", None, {})] * 2
    assert "1 of 9 elements wrong" in rows[0]["reason"]


@pytest.mark.parametrize("prefix", ["MIOpenDriver", "/opt/bin/MIOpenDriver"])
def test_a_driver_command_may_begin_with_the_name_of_its_program(prefix, capsys):
    assert run([prefix, "conv", *SMALL.split(), "-F", "1", "-V", "0"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == f"MIOpenDriver conv {SMALL} -F 1 -V 0"
    assert captured.err == ""


def test_a_driver_command_prints_its_lines(capsys):
    assert run(["conv", *SMALL.split(), "-F", "0", "-t", "1", "-w", "1", "-i", "2", "-V", "1"]) == 0
    captured = capsys.readouterr()
    printed = captured.out.splitlines()
    assert printed[0] == f"MIOpenDriver conv {SMALL} -F 0 -t 1 -w 1 -i 2 -V 1"
    for title in ("Forward Conv.", "Backward Data Conv.", "Backward Weights Conv."):
        (algorithm,) = [line for line in printed if line.startswith(f"MIOpen {title} Algorithm")]
        assert re.match(r"^MIOpen .* Algorithm: (\d+), Solution: (\d+)/(\w+)$", algorithm)
        (elapsed,) = [line for line in printed if line.startswith(f"CPU Kernel Time {title}")]
        assert re.match(r"^CPU Kernel Time .* Elapsed: (\d+\.\d+) ms \(average\)$", elapsed)
    assert sum(line.startswith("Wall-clock Time") for line in printed) == 3
    assert sum("Verifies OK on CPU reference" in line for line in printed) == 3
    assert sum(line.startswith("stats: ") for line in printed) == 6
    assert captured.err == ""


def test_a_driver_command_that_is_wrong_exits_1(capsys, monkeypatch):
    from tilesmith.measure.accuracy import Accuracy

    wrong = Accuracy(False, 3.0, 1.0, (0, 0), "1 of 9 elements wrong")
    monkeypatch.setattr("tilesmith.cli.verbs.driver.check_launchable", lambda *args: wrong)
    assert run(["conv", *SMALL.split(), "-F", "1"]) == 1
    assert "Forward Convolution FAILED: 3 > 1" in capsys.readouterr().out


def test_driver_flags_choose_solver_verification_and_data(capsys, tmp_path, monkeypatch):
    import numpy as np

    assert run(["conv", *SMALL.split(), "-F", "1", "-V", "0", "-t", "1", "-S", "c_reference"]) == 0
    out = capsys.readouterr().out
    assert "/c_reference" in out
    assert "Verifies" not in out
    number = re.search(r"Solution: (\d+)/", out)[1]
    assert run(["conv", *SMALL.split(), "-F", "1", "-t", "1", "-S", number]) == 0
    assert f"Solution: {number}/c_reference" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    np.zeros((1, 8, 8, 8), np.float32).tofile("x.bin")
    assert run(["conv", *SMALL.split(), "-F", "1", "--in_data", "x.bin", "--dump_output", "1"]) == 0
    assert not np.fromfile("dump_fwd_out_cpu.bin", np.float32).any()


def test_gemm_and_bias_commands(capsys):
    assert run(["gemm", "-m", "8", "-k", "8", "-n", "8", "-t", "1", "-V", "1"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^CPU Kernel Time Gemm Elapsed: \d+\.\d+ ms$", out, re.M)
    assert "Forward GEMM Verifies OK" in out
    assert run(["conv", *SMALL.split(), "-F", "0", "-b", "1", "-t", "1"]) == 0
    assert "Backward Convolution Bias Verifies OK" in capsys.readouterr().out
    assert run(["conv", *SMALL.split(), "-F", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True


def test_help_names_every_verb(capsys):
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for verb in VERBS:
        assert re.search(rf"^\s+{verb}\s", out, re.M)
        assert run([verb, "--help"]) == 0
        text = capsys.readouterr().out
        # Actions have options of their own.
        action = {"cache": "ls", "db": "query", "fleet": "plan", "gemm": "perf", "package": "info"}.get(verb)
        if action:
            assert run([verb, action, "--help"]) == 0
            text = capsys.readouterr().out
        assert "--json" in text or verb in WITHOUT_DATA


def test_version(capsys):
    import tilesmith

    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == tilesmith.__version__
