"""What a hit in a fresh process does: counted, for counts do not depend on how busy the machine is."""

import json
import subprocess
import sys
from collections import Counter

import pytest

CHILD = """
import json, sys
from tilesmith import ConvSignature, get_launchable

signature = ConvSignature((1, 14, 14, 8), (8, 3, 3, 8), shared_layout="NHWC", padding=1)
modules, events, calls = set(sys.modules), [], [0]
counting = [True]

def heard(event, arguments):
    if counting[0] and event.split(".")[0] in ("open", "subprocess", "os", "sqlite3", "socket"):
        events.append(f"{event} {arguments[0]}" if arguments else event)

def called(frame, event, argument):
    calls[0] += event == "call"

sys.addaudithook(heard)
sys.setprofile(called)
launch = get_launchable(signature, threads=1)
sys.setprofile(None)
counting[0] = False
print(json.dumps({
    "hit": launch.remembered and launch.choice.basis == "database", "modules": sorted(set(sys.modules) - modules),
    "deciding": sorted(modules & {"tilesmith.solvers.table", "tilesmith.dispatch.resolve", "sqlite3"}),
    "events": events, "calls": calls[0],
}))
"""


@pytest.fixture
def hit(monkeypatch, tmp_path):
    """What a third process does: the first one has decided, and the second found it and kept what it found."""
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(3):
        done = json.loads(subprocess.check_output([sys.executable, "-c", CHILD], text=True))
    assert done["hit"]
    return done


def test_a_hit_does_little(hit):
    """Under a millisecond (``make hit``) leaves no room for more than this."""
    assert hit["modules"] == []
    assert hit["deciding"] == []
    kinds = Counter(event.split(" ")[0] for event in hit["events"])
    opened = [event for event in hit["events"] if event.startswith("open ")]
    # What CPU this is and who made the plan, the hit, and its kernels (one for the filter, one for the product).
    assert len([name for name in opened if "cache" in name]) == 4, opened
    assert len([name for name in opened if name.endswith(".db")]) == 1, opened
    assert len(opened) <= 7, opened  # and the names of the boot and of the share of the CPU
    assert not any(kind.startswith(("subprocess", "socket")) for kind in kinds)
    assert hit["calls"] < 300
