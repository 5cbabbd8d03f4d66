"""benchmarks/host.py: it names the kernels that it times, and every call has a time in every way that it takes."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHORT = "import sys; sys.path.insert(0, sys.argv.pop(1)); import host; host.TURNS, host.CALLS, host.WARM = 2, 3, 2; "


def test_the_command_times_every_call_and_names_the_kernels(tmp_path):
    out = tmp_path / "host.json"
    words = [sys.executable, "-c", SHORT + "host.main()", str(BENCHMARKS), "--out", str(out)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found = json.loads(out.read_text())
    assert found["kernels"]["conv"].startswith("c_")
    assert f"tilesmith.gemm: {found['kernels']['gemm']}" in said
    assert list(found["us"]) == ["no gradients", "gradients", "with backward", "inference mode"]  # none of a device
    assert all(time > 0 for mode in found["us"].values() for time in mode.values())
    assert {"torch linear", "tilesmith.gemm", "optimized Conv2d"} <= found["us"]["gradients"].keys()
