"""`benchmarks/same_plans.py`: which rows it makes plans of."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import same_plans

from tilesmith.problems.gemm import GemmSignature


def test_rows_of_every_form_of_results(tmp_path, monkeypatch):
    """Measurements of a probe, and names of lists, have no rows; lines with a config and cases of lists have."""
    import gpu_cases

    key = GemmSignature(512, 512, 256, dtype="bf16").canonical.key()
    (tmp_path / "gpu_gemm_sizes_h100.json").write_text(json.dumps([{"m": 512, "us": 5.0}]))
    (tmp_path / "gpu_budgets_h100.json").write_text(json.dumps({"lists": ["resnet50"]}))
    (tmp_path / "gpu_defaults_h200.jsonl").write_text(json.dumps({"key": key, "config": "a=1", "solver": "mma_dense"}))
    (tmp_path / "gpu_gemm_configs_h200.jsonl").write_text("")
    monkeypatch.setattr(same_plans, "RESULTS", tmp_path)
    for name in ("list_cases", "kernel_cases"):
        monkeypatch.setattr(gpu_cases, name, lambda *_: ())
    ((name, signature, _, solver, config),) = same_plans.rows()
    assert (name, signature.key(), solver, config) == (f"gpu_defaults_h200.jsonl {key}", key, "mma_dense", "a=1")


def test_a_plan_has_one_digest():
    signature, target = GemmSignature(64, 64, 64, dtype="bf16").canonical, same_plans.gpu_target()
    one, other = (same_plans._digest(signature, target, "", "", None) for _ in range(2))
    assert one == other
    assert one[0]
    assert one != same_plans._digest(GemmSignature(64, 64, 96, dtype="bf16").canonical, target, "", "", None)
