"""`make demo` measures beside what is installed, and draws a page of what it found."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from report_samples import KEYS, TARGET, make_database

from tilesmith import env
from tilesmith.compare.bench_records import OK, Against, Bench
from tilesmith.problems.keys import parse_key
from tilesmith.report.measured import measured_source
from tilesmith.report.places import peaks_of
from tilesmith.targets.detect import host_target
from tilesmith.targets.names import parse_target


@pytest.fixture
def demo(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("demo", Path(__file__).parents[2] / "benchmarks" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)
    spec.loader.exec_module(module)
    module.REPORT = tmp_path / "build" / "demo-report.html"
    return module


def test_every_library_is_here(demo):
    """`make demo` once asked for the version of a library that was not installed."""
    assert all(rival.version() for rival in demo.beside(host_target(1)))


@pytest.mark.needs_drawing
def test_the_page_has_the_searches_and_the_times(demo, monkeypatch, tmp_path):
    monkeypatch.setenv(env.DB_PATH.name, make_database(tmp_path / "t.db"))
    signature, target = parse_key(KEYS[1]), parse_target(TARGET)
    launch = SimpleNamespace(signature=signature, solver="wgmma_gemm", config="stages=3")
    found = Bench(OK, time_us=8.0, spread_us=0.1, samples=9, roofline=0.5, against={"cublas": Against(12.0, 0.1, "mm")})
    source = measured_source("now", target, peaks_of(TARGET, ""), [(launch, found)], {"cublas": "13.0"})
    told = demo.draw((SimpleNamespace(signature=signature),), target, source)
    assert told == f"report: {os.path.relpath(demo.REPORT)}"
    text = demo.REPORT.read_text()
    data = json.loads(text.split('id="data">', 1)[1].split("</script>", 1)[0])
    (problem,) = data["problems"]
    assert (problem["us"], problem["ratio"], problem["gain"], problem["roof"], problem["tried"]) == (
        8.0,
        1.5,
        4.0,
        0.5,
        11,
    )
