"""Bad input gets one line that names the value and the rule, exit status 2, and never a traceback."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tilesmith.cli.main import run

GOOD = "-n 1 -c 4 -H 8 -W 8 -k 4 -y 3 -x 3"
LAUNCH = [sys.executable, "-c", "from tilesmith.cli.main import main; main()"]

COMMANDS = [
    ("conv -n 1 --nonesuch 3", "--nonesuch"),
    ("conv -G", "-G"),
    ("conv -n", "no value"),
    ("conv -n one", "'one'"),
    ("conv -n 1.5", "'1.5'"),
    ("conv -n 0", "0"),
    ("conv -n -1", "-1"),
    ("conv -n 2147483648", "2147483648"),
    ("conv -n 99999999999999999999999", "99999999999999999999999"),
    ("conv -c 0", "0"),
    ("conv -H 0", "0"),
    ("conv -u 0", "0"),
    ("conv -l 0", "0"),
    ("conv -p -1", "-1"),
    ("conv -c 6 -k 8 -g 4", "4"),
    ("conv -H 2 -W 2 -y 5 -x 5", "5"),
    ("conv -H 4 -W 4 -y 3 -x 3 -l 3 -j 3", "below 1"),
    ("conv -m trans -H 1 -W 1 -y 1 -x 1 -p 3 -q 3", "below 1|outside 1|output size"),
    ("conv -m trans -Y 2 -X 2 -u 2 -v 2", "output_padding|trans_output_pad"),
    ("conv -m both", "both"),
    ("conv --in_layout NHCX", "NHCX"),
    ("conv --spatial_dim 4", "4"),
    ("conv --in_layout NCHWc" + "9" * 5000, "does not exist"),
    ("conv --in_strides " + "9" * 5000 + "x1x1x1", "no list of integers"),
    ("conv -F 99", "99"),
    ("conv --in_cast_type fp9", "fp9"),
    ("convfp9 -n 1", "convfp9"),
    ("gemm -m 0", "0"),
    ("gemm --alpha x", "'x'"),
    ("gemm --alpha inf", "inf"),
    ("gemm --transA 2", "2"),
    ("conv -z full", "full"),
    ("conv extra -n 1", "extra"),
    ("conv -S nonesuch " + GOOD + " -F 1", "nonesuch"),
    ("conv " + GOOD + " -F 1 --in_data /nonexistent/x.bin", "/nonexistent/x.bin"),
]


def refused(words, capsys, status=2):
    assert run(words) == status, words
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1, lines
    assert "Traceback" not in captured.err
    return lines[0]


@pytest.mark.parametrize(("text", "said"), COMMANDS, ids=[text[:60] for text, _ in COMMANDS])
def test_commands_are_refused(text, said, capsys):
    import re

    line = refused(text.split(), capsys)
    assert re.search(said, line), line
    if "-S" not in text and "--in_data" not in text:
        assert re.search(said, refused(["parse", text], capsys))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonesuch"], "nonesuch"),
        (["parse"], "FILE|COMMAND"),
        (["parse", "/nonexistent/list.txt"], "/nonexistent/list.txt"),
        (["parse", "/"], "/"),
        (["parse", __file__, "--nonesuch"], "--nonesuch"),
        (["bench", f"conv {GOOD}", "--against", "nonesuch"], "nonesuch"),
        (["bench", f"conv {GOOD}", "--threads", "0"], "0"),
        (["bench", f"conv {GOOD}", "--threads", "two"], "two"),
        (["bench", f"conv {GOOD}", "--dtype", "fp9"], "fp9"),
        (["bench", f"conv {GOOD}", "--seconds", "-1"], "-1"),
        (["bench", f"conv {GOOD}", "--json", "/nonexistent/out.json"], "/nonexistent"),
        (["bench", f"conv {GOOD}", "--json", "/"], "/"),
        (["bench", f"conv {GOOD}", "--json", ""], "''"),
        (["bench", f"conv {GOOD}", "--json", "/proc/nonesuch.json"], "/proc/nonesuch.json"),
        (["bench", f"conv {GOOD}", "--seconds", "nan"], "nan"),
        (["bench", f"conv {GOOD}", "--seconds", "inf"], "inf"),
        (["tune", f"conv {GOOD}", "--seconds", "nan"], "nan"),
        (["verify", f"conv {GOOD}", "--max-gflop", "nan"], "nan"),
        (["parse", ""], "''"),
        (["tune", f"conv {GOOD}", "--strategy", "luck"], "luck"),
        (["tune", f"conv {GOOD}", "--trials", "0"], "0"),
        (["verify", f"conv {GOOD}", "--max-gflop", "x"], "'x'"),
        (["verify", f"conv {GOOD}", "--mode", "quick"], "quick"),
        (["generate", f"conv {GOOD} -F 1", "--target", "vax:2"], "vax"),
        (["generate", f"conv {GOOD} -F 1", "--target", "x86_64-v4:none"], "none"),
        (["generate", f"conv {GOOD} -F 1", "--target", "x86_64-v4:" + "9" * 5000], "number of cores"),
        (["generate", f"conv {GOOD} -F 1", "--solver", "c_none"], "c_none"),
        (["generate", f"conv {GOOD} -F 1", "--solver", "c_reference", "--config", "a=b"], "a=b"),
        (["generate", f"conv {GOOD} -F 1", "--solver", "c_reference", "--config", "a=1"], "a=1"),
        (["generate", f"conv {GOOD} -F 1", "--out", "/proc/nonexistent/x"], "/proc/nonexistent"),
        (["explain", f"conv {GOOD} -F 1", "--mode", "strict"], "tilesmith preload"),
        ([], "--help"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
def test_verbs_refuse(words, said, capsys):
    assert said.split("|")[0] in refused(words, capsys)


def test_a_problem_that_does_not_exist_with_an_element_type_is_reported_and_the_rest_runs(capsys):
    assert run(["verify", f"conv {GOOD} -F 0", "--dtype", "int8"]) == 2
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()] == ["ok", "ok"]
    assert "(wrw) as int8: without a scale integers come as" in captured.err
    assert "1 bad lines" in captured.err


def test_a_command_in_quotes_may_be_longer_than_a_file_name(capsys):
    assert run(["parse", f"conv {GOOD} -F 1 " + "--batchsize 1 " * 30]) == 0
    assert "fwd 1x4x8x8 k4 3x3 fp32" in capsys.readouterr().out


def test_a_result_that_cannot_be_written(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump_fwd_out_cpu.bin").mkdir()
    assert run(["conv", *GOOD.split(), "-F", "1", "--dump_output", "1"]) == 2
    assert "dump_fwd_out_cpu.bin: cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [("FIND_MODE", "quick"), ("NUM_THREADS", "0"), ("LOG", "loud"), ("CACHE_ON", "2"), ("ONLY_SOLVER", "c d")],
)
def test_environment_values_are_refused(name, value, capsys, monkeypatch):
    monkeypatch.setenv(f"TILESMITH_{name}", value)
    line = refused(["verify", f"conv {GOOD} -F 1"], capsys)
    assert f"TILESMITH_{name}" in line
    assert value in line


def test_a_compiler_that_cannot_be_split_into_words(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "cc 'x")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    assert "does not run" in refused(["verify", f"conv {GOOD} -F 1"], capsys)


def test_a_library_that_is_not_installed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tilesmith.compare.onednn", None)
    line = refused(["bench", f"conv {GOOD} -F 1", "--against", "onednn"], capsys)
    assert "pip install torch" in line


def test_an_unknown_solver_in_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "c_nonesuch")
    assert "c_nonesuch" in refused(["explain", f"conv {GOOD} -F 1"], capsys)


def test_a_misspelt_variable_is_a_warning(capsys, monkeypatch):
    monkeypatch.setenv("TILESMITH_FINDMODE", "fast")
    assert run(["parse", f"conv {GOOD} -F 1"]) == 0
    assert "TILESMITH_FINDMODE" in capsys.readouterr().err


def test_a_file_that_is_no_text(tmp_path, capsys):
    path = tmp_path / "binary.txt"
    path.write_bytes(b"conv -n 1\n\xff\xfe\x00\x01\n")
    line = refused(["parse", str(path)], capsys)
    assert f"{path}:2:" in line
    path.chmod(0)
    if not os.access(path, os.R_OK):
        assert str(path) in refused(["parse", str(path)], capsys)


def test_an_empty_file_is_no_error(tmp_path, capsys):
    path = tmp_path / "empty.txt"
    path.write_text("# nothing\n")
    assert run(["parse", str(path)]) == 0
    assert capsys.readouterr().out == ""


def environment(tmp_path, **changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")}
    own = {"TILESMITH_CACHE_DIR": str(tmp_path / "cache"), "TILESMITH_DB_PATH": str(tmp_path / "x.db")}
    return kept | own | {"TILESMITH_NUM_THREADS": "1", "TILESMITH_FIND_MODE": "fast"} | changes


def test_no_compiler_says_what_to_install(tmp_path):
    # ziglang stands in for a compiler where it is installed, so it is hidden too.
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'ziglang' else find(name, package)\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path / "hide"), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [*LAUNCH, "conv", *GOOD.split(), "-F", "1"], capture_output=True, text=True, timeout=60, check=False,
        env=environment(tmp_path, PATH=str(tmp_path), PYTHONPATH=path),
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "no C compiler" in line
    assert "install" in line


def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path):
    words = ["tune", f"conv {GOOD} -F 1", "--seconds", "60", "--strategy", "random"]
    process = subprocess.Popen(
        [*LAUNCH, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    # The database appears when the search records its first batch.
    deadline = time.monotonic() + 30
    while not (tmp_path / "x.db").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("words", [["tune", f"conv {GOOD} -F 1", "--seconds", "60"], ["trace", "script.py"]])
def test_ctrl_c_while_pytorch_is_imported(tmp_path, words):
    # Stands in for PyTorch, whose C++ code calls Python while it is imported, and which ends the process on an error.
    (tmp_path / "torch.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(0.05)\n"
        "except KeyboardInterrupt:\n    os.abort()\nprint('imported')\n"
    )
    (tmp_path / "script.py").write_text("import torch\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [*LAUNCH, *words], capture_output=True, text=True, env=environment(tmp_path, PYTHONPATH=path), cwd=tmp_path,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[0]) == (130, "imported"), done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_the_command_line_is_loaded(tmp_path):
    stop = "import builtins\ndef stop(*_, **__): raise KeyboardInterrupt\n"
    code = f"{stop}from tilesmith.__main__ import main\nbuiltins.__import__ = stop\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(tmp_path), check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("words", ["env --json", f"generate 'conv {GOOD}'", "--help", f"parse 'conv {GOOD}' --json"])
def test_a_reader_that_goes_away_is_no_failure(tmp_path, words):
    command = f"set -o pipefail; {LAUNCH[0]} -c '{LAUNCH[2]}' {words} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=environment(tmp_path)
    )
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.needs_dev_full
def test_output_that_cannot_be_written(tmp_path):
    for words in ("env", f"parse 'conv {GOOD}'"):
        command = f"{LAUNCH[0]} -c '{LAUNCH[2]}' {words} > /dev/full"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, env=environment(tmp_path)
        )
        (line,) = done.stderr.splitlines()
        assert line.startswith("tilesmith: stdout cannot be written: No space")
        assert done.returncode == 1


def test_a_file_that_fails_is_named(monkeypatch, capsys):
    from tilesmith.cli import main as cli_main

    def fail(arguments, began=None):
        raise OSError(28, "No space left on device", "/tmp/somewhere")

    monkeypatch.setattr(cli_main, "run", fail)
    monkeypatch.setattr(cli_main, "_forget_output", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli_main.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "tilesmith: /tmp/somewhere: No space left on device\n"


def test_output_that_is_closed(tmp_path):
    for redirection in (">&-", "2>&-", "<&-"):
        command = f"{LAUNCH[0]} -c '{LAUNCH[2]}' parse 'conv {GOOD}' {redirection}"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, env=environment(tmp_path)
        )
        assert (done.returncode, done.stderr) == (0, "")
