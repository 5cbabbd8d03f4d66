"""What a hit in a fresh process does: counted, for counts do not depend on how busy the machine is."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tilesmith.env import CPU_LEVEL

CHILD = """
import json, sys
from tilesmith import ConvSignature, get_launchable

signature = ConvSignature((1, 14, 14, 8), (8, 3, 3, 8), shared_layout="NHWC", padding=1)
modules, events, calls = set(sys.modules), [], [0]
counting = [True]

def audit(event, arguments):
    if counting[0] and event.split(".")[0] in ("open", "subprocess", "os", "sqlite3", "socket"):
        events.append(f"{event} {arguments[0]}" if arguments else event)

def called(frame, event, argument):
    calls[0] += event == "call"

sys.addaudithook(audit)
sys.setprofile(called)
launch = get_launchable(signature, threads=1)
sys.setprofile(None)
counting[0] = False
print(json.dumps({
    "hit": launch.remembered and launch.choice.basis == "database", "modules": sorted(set(sys.modules) - modules),
    "own": sorted(name for name in modules if name.split(".")[0] == "tilesmith"), "sqlite": "sqlite3" in modules,
    "events": events, "calls": calls[0],
}))
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The variables of the processes, which share a database and a cache."""
    folder = tmp_path_factory.mktemp("hit")
    places = {"CACHE_DIR": "cache", "DB_PATH": "test.db", "PACKAGE_PATH": "packages"}
    return {f"TILESMITH_{name}": str(folder / file) for name, file in places.items()} | {
        "TILESMITH_FIND_MODE": "hybrid", "TILESMITH_NUM_THREADS": "1",
    }  # fmt: skip


@pytest.fixture(scope="module")
def third(names):
    """What a third process does: the first one has decided, and the second found it and kept what it found."""
    environment = {
        name: value for name, value in os.environ.items() if name == CPU_LEVEL.name or not name.startswith("TILESMITH_")
    }
    for _ in range(3):
        out = subprocess.check_output([sys.executable, "-c", CHILD], text=True, env=environment | names)
    done = json.loads(out)
    assert done["hit"]
    return done


@pytest.fixture
def hit(third, names, monkeypatch):
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    return third


def test_a_hit_does_little(hit):
    """Under a millisecond (``make hit``) leaves no room for more than this."""
    assert hit["modules"] == []
    assert not hit["sqlite"]
    kinds = Counter(event.split(" ")[0] for event in hit["events"])
    opened = [event for event in hit["events"] if event.startswith("open ")]
    # The hit and its kernels (one for the filter, one for the product); what CPU this is came with the import.
    assert len([name for name in opened if "cache" in name]) == 3, opened
    assert len([name for name in opened if name.endswith(".db")]) == 1, opened
    assert len(opened) <= 5, opened  # and the share of the CPU
    assert not any(kind.startswith(("subprocess", "socket")) for kind in kinds)
    # 20 of them check the fields of the kept record, about as many whose files these are, and 9 look for packages.
    assert hit["calls"] < 310


def test_a_hit_needs_few_modules(hit):
    """Each costs about 0.2 ms of the import: one that only other calls need is imported by those."""
    others = "solvers.table dispatch.resolve dispatch.packaged runtime.packages runtime.package_plans problems.outline"
    others += " toolchain.build toolchain.compilers toolchain.nvrtc plan.withdrawn"
    assert {f"tilesmith.{name}" for name in others.split()}.isdisjoint(hit["own"])
    assert len(hit["own"]) <= 75, hit["own"]


LATER = """
import os
from tilesmith import ConvSignature, get_launchable

signature = ConvSignature((1, 14, 14, 8), (8, 3, 3, 8), shared_layout="NHWC", padding=1)
os.environ.update({changes!r})
try:
    launch = get_launchable(signature, threads=1)
    print(launch.remembered and launch.choice.basis == "database", launch.target.cores)
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""


def said(changes: dict[str, str]) -> str:
    """What the call says in a process that changes its environment after the import."""
    return subprocess.check_output([sys.executable, "-c", LATER.format(changes=changes)], text=True).strip()


def test_what_was_read_with_the_import_decides_nothing(hit, names, monkeypatch, tmp_path):
    assert said({}) == "True 1"
    other = str(tmp_path / "other")
    assert said({"TILESMITH_CACHE_DIR": other}) == "False 1"
    assert list((tmp_path / "other" / "objects").iterdir())
    (tmp_path / "file").write_text("")
    broken = "EnvironmentValueError: TILESMITH_CACHE_DIR="
    assert said({"TILESMITH_CACHE_DIR": str(tmp_path / "file")}).startswith(broken)
    # Nor does it stop the import.
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "file"))
    assert said({}).startswith(broken)
    assert said({"TILESMITH_CACHE_DIR": other}) == "True 1"
    monkeypatch.setenv("TILESMITH_CACHE_ON", "perhaps")
    assert said({}).startswith("EnvironmentValueError: TILESMITH_CACHE_ON=")
    cache = Path(names["TILESMITH_CACHE_DIR"])
    kept = list((cache / "machine").iterdir())
    assert kept
    for damaged in kept:
        damaged.write_bytes(b"{}")
    monkeypatch.setenv("TILESMITH_CACHE_ON", "1")
    assert said({"TILESMITH_CACHE_DIR": str(cache)}) == "True 1"


@pytest.mark.parametrize("collects", [True, False])
def test_an_import_sets_off_no_collection(collects):
    """After ``import torch`` a collection takes longer than the imports."""
    code = (
        f"import gc; gc.{'enable' if collects else 'disable'}(); gc.set_threshold(50); import tilesmith; runs = []; "
        "gc.callbacks.append(lambda phase, facts: runs.append(phase)); gc.collect(0); runs.clear(); "
        "tilesmith.get_launchable; found = len(runs); print(found <= 2, gc.isenabled())"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.split() == ["True", str(collects)]  # one may follow as soon as collections go on


@pytest.mark.parametrize("frozen", [False, True])
def test_what_an_import_made_is_old_at_once(frozen):
    """Else the next allocation sets off a collection of it. What a program has frozen stays frozen."""
    code = (
        f"import gc; {frozen} and gc.freeze(); from tilesmith import get_launchable; "
        "print(gc.get_count()[0] < 700, gc.get_freeze_count() > 0)"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.split() == [str(not frozen), str(frozen)]
