"""The commands of the pages on databases and on deployment run, one after the other, in one folder."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from pages import DOCS

import tilesmith
from tilesmith.cli.main import run

PROBLEM = "gemm -m 8 -n 8 -k 8"
PROGRAM = "import torch\ntorch.ones(8, 8) @ torch.ones(8, 8)\n"
SERVER = "import tilesmith\ntilesmith.get_launchable(tilesmith.GemmSignature(m=8, n=8, k=8))\n"
FIND_DB = "8-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHW-FP32-F=ConvAsm:0.01,0,algo\n"


def console(page):
    """``(variables, words)`` of each command of the page's console blocks."""
    text = "\n".join(re.findall(r"^```console\n(.*?)^```", (DOCS / "guide" / page).read_text(), re.M | re.S))
    for command in re.findall(r"^\$ (.*)$", text, re.M):
        words = shlex.split(command)
        count = next(i for i, word in enumerate(words) if "=" not in word)
        yield dict(word.split("=", 1) for word in words[:count]), words[count:]


def test_databases(monkeypatch, capsys):
    tilesmith.tune(PROBLEM, trials=1, seconds=30)
    with open("gfx90a68.HIP.fdb.txt", "w") as file:
        file.write(FIND_DB)
    ran = 0
    for variables, words in console("databases.md"):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert run(words[1:]) == 0, words
        ran += 1
    assert ran >= 10
    printed = capsys.readouterr().out
    assert "mine.jsonl: " in printed
    assert "0 replaced" in printed


@pytest.mark.needs_torch
def test_deployment(monkeypatch, tmp_path):
    """``serve.py`` runs in mode strict on what ``preload`` made ready. Lines for GPUs, or repeated, are left out."""
    monkeypatch.delenv("TILESMITH_FIND_MODE")  # as users have it
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "serve.py").write_text(SERVER)
    ran = set()
    for variables, words in console("deploying.md"):
        device = words[words.index("--device") + 1] if "--device" in words else "cpu"
        named = (words[1], device)
        if device == "cuda" or named in ran:
            continue
        if words[0] == "python":
            with_variables = {**os.environ, **variables}
            served = subprocess.run([sys.executable, "serve.py"], env=with_variables, timeout=60, check=False)
            assert served.returncode == 0
        else:
            assert run(words[1:]) == 0, words
        ran.add(named)
    assert {word for word, _ in ran} == {"trace", "preload", "serve.py"}
