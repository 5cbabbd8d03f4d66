"""``benchmarks/gpu/probes/sizes_ahead.py`` compiles the kernels with which a search on a device begins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cuda_chain import H200
from test_cuda_searching import GEMM, place, units

from tilesmith.tune.session import AHEAD, tune

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu" / "probes"))
from size_lists import MOST_FIRST, first_of, problems_of
from sizes_ahead import asked_first

__all__ = ["place"]
KEY, COMPILERS = GEMM.canonical.key(), 4
GIVEN = ("mma_dense", "block_m=64 block_n=64 block_k=64 warps_m=2 warps_n=2 stages=3 split_k=1 group_m=1")


def begun(monkeypatch, place, first):
    """The kernels that a search compiles which measures as many as it asks for before it knows a time."""
    seen = []

    def build_unit(sources, target, path, compiler=None, limit_s=600.0):
        seen.extend(source.symbol for source in sources)
        path.write_bytes(sources[0].symbol.encode())
        return ()

    monkeypatch.setattr(units, "build_unit", build_unit)
    tune(GEMM, H200, first=first, max_trials=AHEAD * COMPILERS, max_seconds=None, **place)
    return set(seen)


def test_a_search_begins_with_what_was_compiled_ahead(place, monkeypatch):
    plain, ahead = ({s.symbol for s in asked_first((KEY, given), AHEAD * COMPILERS, H200)} for given in ([], [GIVEN]))
    assert ahead - plain
    found = begun(monkeypatch, place, [GIVEN])
    assert len(found) == AHEAD * COMPILERS
    assert found <= ahead


def test_the_fastest_configs_of_earlier_runs_come_first(tmp_path):
    lines, rows = tmp_path / "a.jsonl", tmp_path / "b.json"
    times = {f"block_m={i} turned=0": 10.0 + i for i in range(MOST_FIRST + 2)}
    lines.write_text(json.dumps({"key": "k", "solver": "s", "all": times}) + "\n")
    rows.write_text(json.dumps([{"problem": "k", "solver": "t", "config": "c=1", "time_us": 11.5}]))
    found = first_of([lines, rows])["k"]
    assert found == [("s", "block_m=0"), ("s", "block_m=1"), ("t", "c=1"), ("s", "block_m=2")]


def test_no_place_is_taken_by_kernels_that_are_no_more_nor_by_later_files(tmp_path):
    """They crowded out the fastest config of the card at hand: faster ones that are gone, a time of another card."""
    here, there = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    gone = {f"block_m={i} turned=1": 1.0 + i for i in range(MOST_FIRST)}
    here.write_text(json.dumps({"key": "k", "solver": "s", "all": gone | {"block_m=1 turned=0": 9.0}}) + "\n")
    there.write_text(json.dumps({"key": "k", "solver": "s", "all": {"block_m=2": 10.0, "block_m=1": 11.0}}) + "\n")
    assert first_of([here, there])["k"] == [("s", "block_m=1"), ("s", "block_m=2")]


def test_the_largest_products_come_last():
    problems = problems_of("gemm_tvm", ["tf32"])
    assert [p.m * p.n * p.k for p in problems] == sorted(p.m * p.n * p.k for p in problems)
    assert (problems[-1].m, len(problems)) == (8192, 26)
