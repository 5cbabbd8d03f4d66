"""Input of any length gets its answer at once: what is longer than problems are is refused, and no error repeats it."""

import subprocess
import sys
import time

import pytest

from tilesmith import CachePopulator, ConvSignature, GemmSignature
from tilesmith.cli.main import run
from tilesmith.db.find_text import read_find_line
from tilesmith.dispatch.spec.choice import read_spec
from tilesmith.errors import CommandError, EnvironmentValueError, FileFormatError, TilesmithError
from tilesmith.problems.driver import parse_command, read_commands
from tilesmith.problems.find_key import parse_find_key
from tilesmith.problems.keys import parse_key
from tilesmith.targets.names import parse_target

MB = 1 << 20
SECONDS = 3.0  # of a processor: all of these take milliseconds
MESSAGE = 5000  # characters, whatever it is about
GOOD = "conv -n 1 -c 4 -H 8 -W 8 -k 4 -F 1"

COMMANDS = {
    "one token": "x" * (2 * MB),
    "one value": GOOD + " -n " + "9" * (2 * MB),
    "many flags": "conv" + " -n 1" * (12 * MB // 5),
    "many quotes": "conv " + "'" * (2 * MB) + "x",
    "many blanks": GOOD + " " * (12 * MB),
    "a comment": GOOD + " # " + "x" * (12 * MB),
    "sizes": GOOD + " --in_strides " + "1x" * MB + "1",
    "an epilogue": GOOD + " --epilogue " + "bias+" * MB + "bias",
    # Shorter than the limit, and all the same longer than anyone will read.
    "a long value": GOOD + " --in_layout " + "N" * 60_000,
    "a long epilogue": GOOD + " --epilogue " + "+".join(["bias"] * 10_000),
    "a long comment": "nonsense # " + "'" * 60_000,
    "thousands of unknown flags": "conv" + " --nonesuch 1" * 4_000,
    "a quote that stays open": "conv " + "-n 1 " * 10_000 + "'",
}


@pytest.fixture
def prompt():
    """Fails a test that worked longer than anyone waits."""
    began = time.process_time()
    yield
    assert time.process_time() - began < SECONDS


def said(error):
    text = str(error.value)
    assert len(text) < MESSAGE
    return text


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.usefixtures("prompt")
def test_a_command_of_any_length_is_answered_at_once_and_briefly(text):
    with pytest.raises(CommandError) as error:
        parse_command(text)
    message = said(error)
    if len(text) > MB:
        assert "65536 characters" in message


@pytest.mark.usefixtures("prompt")
def test_a_long_line_of_a_list_costs_itself_alone(tmp_path, capsys):
    path = tmp_path / "list.txt"
    path.write_text("\n".join([GOOD, COMMANDS["many flags"], "y" * (2 * MB), GOOD]))
    assert run(["parse", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert len(captured.err) < 2 * MESSAGE
    assert [line.split(":")[2] for line in captured.err.splitlines()] == ["2", "3"]
    assert len(list(read_commands(path))) == 4
    populator = CachePopulator(commands_file=path, mode="strict", cache_dir=tmp_path / "cache")
    assert [len(populator.signatures), len(populator.bad_lines)] == [1, 2]


@pytest.mark.usefixtures("prompt")
def test_a_list_without_end_is_no_list(capsys):
    assert run(["parse", "/dev/zero"]) == 2
    assert "/dev/zero: cannot be read: it is a device, not a file" in capsys.readouterr().err


def test_a_token_of_two_megabytes_is_not_repeated_on_stderr(tmp_path):
    path = tmp_path / "token.txt"
    path.write_text("x" * (2 * MB))
    code = "from tilesmith.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "parse", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr) < MESSAGE


LONG = {
    "a key": (parse_key, "conv1;fwd;x=fp32,NHWC," + "1x" * MB + "1"),
    "a key's number": (parse_key, f"gemm1;m={'9' * 4000};n=1;k=1;batch=1;a=fp32,n;b=fp32,n;c=fp32;acc=fp32"),
    "many parts": (parse_key, "conv1;" + "a=b;" * MB),
    "no key": (parse_key, "z" * (2 * MB)),
    "a find-db key": (parse_find_key, "-".join(["1"] * MB) + "-F"),
    "a find-db line": (lambda text: read_find_line(text, "gfx90a:104"), "64-56=" + "a:1,0,b;" * (2 * MB)),
    "a target": (parse_target, "x86_64-v4:" + "9" * (2 * MB)),
    "a layout": (lambda text: ConvSignature((1, 2, 3, 4), (1, 2, 1, 1), input_layout=text), "N" * (2 * MB)),
    "a shape": (lambda text: ConvSignature((1,) * MB, (1, 2, 1, 1)), ""),
    "a number": (lambda text: GemmSignature(int("9" * 4000), 1, 1), ""),
    "text for a number": (lambda text: GemmSignature(text, 1, 1), "9" * (2 * MB)),
}


@pytest.mark.parametrize(("read", "text"), LONG.values(), ids=LONG)
@pytest.mark.usefixtures("prompt")
def test_every_text_that_names_a_problem_is_bounded(read, text):
    with pytest.raises(TilesmithError) as error:
        read(text)
    said(error)


@pytest.mark.usefixtures("prompt")
def test_a_line_of_a_tuning_spec_is_found_at_once(tmp_path):
    path = tmp_path / "spec.toml"
    choice = "[[choice]]\nproblem = 'conv*'\nsolver = 'c_dense'\n"
    path.write_text(choice * 3000 + "solver = = 1\n" + choice * 3000)
    with pytest.raises(FileFormatError, match=r"spec.toml:9001: this is no TOML"):
        read_spec(path)
    for length, why in ((4 * MB, "holds more than 4 MiB"), (MB, "at most 65536 characters are read")):
        path.write_text("[[choice]]\nsolver = 'c_dense'\nproblem = 'conv1;" + "*a" * (length // 2) + "'\n")
        with pytest.raises(FileFormatError, match=why) as error:
            read_spec(path)
        said(error)


@pytest.mark.usefixtures("prompt")
def test_a_multi_line_value_of_a_long_spec_hides_no_line(tmp_path):
    path = tmp_path / "spec.toml"
    value = "[[choice]]\nproblem = '''\n" + "\n" * 50 + "conv*'''\nsolver = 'c_dense'\n"
    path.write_text(value * 40 + "solver = = 1\n" + value * 40)
    line = value.count("\n") * 40 + 1
    with pytest.raises(FileFormatError, match=rf"spec.toml:{line}: this is no TOML"):
        read_spec(path)


@pytest.mark.parametrize(
    "words",
    [
        ["x" * 120_000],
        ["parse", "x" * 120_000],
        ["parse", *["-n"] * 600_000],
        ["parse", *["-n"] * 16_000],
        ["bench", GOOD, "--threads", "9" * 120_000],
        ["bench", GOOD, "--against", "x" * 120_000],
        ["tune", GOOD, "--strategy", "x" * 120_000],
        ["generate", GOOD, "--target", "x" * 120_000],
        ["generate", GOOD, "--solver", "x" * 120_000],
        ["generate", GOOD, "--solver", "c_reference", "--config", "x" * 120_000],
        ["conv", "--device", "x" * 120_000],
    ],
    ids=lambda words: " ".join(word[:12] for word in words[:5]),
)
@pytest.mark.usefixtures("prompt")
def test_no_option_of_any_length_is_repeated_whole(words, capsys):
    assert run(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < MESSAGE


def test_a_variable_of_any_length_is_not_repeated_whole(monkeypatch, capsys):
    from tilesmith import env

    monkeypatch.setenv("TILESMITH_FIND_MODE", "x" * 100_000)
    with pytest.raises(EnvironmentValueError) as error:
        env.FIND_MODE.get()
    assert said(error).startswith("TILESMITH_FIND_MODE='xxx")
    assert said(error).endswith("is not one of fast, background, hybrid, normal, trust_verify, strict")


def test_what_is_left_out_of_a_message_is_counted():
    message = str(CommandError("before " + "x" * 10_000 + " after"))
    assert message.startswith("before xxx")
    assert message.endswith("xxx after")
    left = int(message.partition("...(")[2].split()[0])
    assert message.count("x") == 10_000 - left
    many = str(CommandError("a few words " * 10_000 + "and the rule"))
    assert many.startswith("a few words")
    assert many.endswith("and the rule")
    short = "conv: flag --batchsize (-n) 'one' is not an integer"
    assert str(CommandError(short)) == short
