"""The page for users of MIOpenDriver: its log becomes a list, its commands run, its variables exist."""

import re
import shlex
import subprocess

from pages import DOCS, section

from tilesmith import env
from tilesmith.cli.main import run

PAGE = DOCS / "guide" / "miopen.md"
TEXT = PAGE.read_text()


def test_the_log_becomes_a_tuned_list(tmp_path, capsys):
    (name, content) = re.search(r'^```text title="([^"]+)"\n(.*?)^```', TEXT, re.M | re.S).groups()
    (tmp_path / name).write_text(content)
    (script,) = re.findall(r"^```sh\n(.*?)^```", section(PAGE, "From a program's log"), re.M | re.S)
    extract, *commands = script.splitlines()
    subprocess.run(["bash", "-ec", extract], check=True, timeout=60, cwd=tmp_path)
    assert len((tmp_path / "problems.txt").read_text().splitlines()) == 2
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, command
    printed = capsys.readouterr().out
    assert "conv2d_fwd_bf16_x2x16x14x14" in printed
    assert "conv2d_bwd_fp32_x2x16x14x14" in printed
    assert len(commands) == 2


def test_its_first_command_runs(capsys):
    command = re.search(r"^\$ tilesmith (.*)$", TEXT, re.M)[1]
    assert run(shlex.split(command)) == 0
    assert "Verifies OK" in capsys.readouterr().out


def test_its_variables_exist():
    named = set(re.findall(r"\bTILESMITH_[A-Z_]+", TEXT))
    assert named
    assert named <= {variable.name for variable in env.VARIABLES}
