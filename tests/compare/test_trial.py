"""A rival that is tried first: one whose process crashes, hangs or fails is measured without, the others as always."""

import os
import time

import pytest

from tilesmith import GemmSignature
from tilesmith.compare.trial import untried
from tilesmith.targets.detect import host_target

HERE = host_target(1)
PROBLEM = GemmSignature(8, 8, 8)
# A package with one entry point, whose rival does what the variable says.
MODULE = """
import os, time

class Odd:
    name, families = "odd", ("cpu",)
    def is_here(self): return True
    def version(self): return "Odd 1"
    def needs_trial(self, signature, target): return True
    def trial(self, setting, stream, tell):
        tell(f"trying {setting.signature.m}")
        match os.environ["ODD"]:
            case "crash": os.abort()
            case "hang": time.sleep(600)
            case "fail": raise ValueError("no such kernel")

RIVAL = Odd()
"""


@pytest.fixture
def odd(tmp_path, monkeypatch):
    (tmp_path / "odd_rival.py").write_text(MODULE)
    described = tmp_path / "odd_rival-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-rival\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[tilesmith.rivals]\nodd = odd_rival:RIVAL\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(tmp_path))
    from odd_rival import RIVAL

    return RIVAL


@pytest.mark.parametrize(
    ("does", "said"), [("work", None), ("crash", "SIGABRT in its trial"), ("fail", "ValueError: no such kernel")]
)
def test_it_costs_itself_alone(odd, monkeypatch, does, said):
    monkeypatch.setenv("ODD", does)
    told = []
    found = untried([odd], PROBLEM, HERE, 0, told.append)
    assert told == ["trying 8"]
    assert list(found) == ([] if said is None else ["odd"])
    assert said is None or said in found["odd"]


def test_one_that_hangs_is_ended(odd, monkeypatch):
    monkeypatch.setenv("ODD", "hang")
    monkeypatch.setenv("TILESMITH_RIVAL_SECONDS", "0.5")
    begun = time.monotonic()
    assert "more than 0 s" in untried([odd], PROBLEM, HERE, 0, lambda line: None)["odd"]
    assert time.monotonic() - begun < 60
