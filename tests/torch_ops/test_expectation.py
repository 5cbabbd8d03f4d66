"""What is expected of untuned kernels in a compiled graph agrees with what was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tilesmith import GemmSignature
from tilesmith.problems.keys import parse_key
from tilesmith.targets.names import parse_target
from tilesmith.torch_ops.compile.expectation import expectation

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_rows_of_pixels_are_replaced_where_they_were_measured_faster() -> None:
    """``mma_runs*``, as far as one of them is the untuned choice."""
    target, met = parse_target("sm_90a:132:h200"), set()
    for key, (solver, ratio) in untuned_ratios(RESULTS / "gpu_runs_h200.jsonl").items():
        if solver.startswith("mma_runs"):
            ours, reason = expectation(parse_key(key), solver, target)
            assert ratio > 0.95 if ours else ratio < 1.0, f"{key}: {reason}, and ours was {ratio:.2f} times as fast"
            met.add((solver.partition("@")[0], ours))
    assert met == {("mma_runs", True), ("mma_runs_bwd", True), ("mma_runs_wrw", True), ("mma_runs_wrw", False)}


def untuned_ratios(path: Path) -> dict[str, tuple[str, float]]:
    """By problem: the family with the least estimate, and the library's time over the time of that config."""
    choices: dict[str, list[tuple[float, str, float]]] = {}
    library: dict[str, float] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        timed = [(row["estimates"][config], row["solver"], us) for config, us in row["all"].items()]
        choices.setdefault(row["key"], []).extend(timed)
        library[row["key"]] = min(row["theirs"].values(), default=math.nan)
    return {key: (min(c)[1], library[key] / min(c)[2]) for key, c in choices.items() if c}


@pytest.mark.parametrize("name", ["grouped", "deconv", "irregular_random"])
def test_what_is_replaced_on_a_gpu_was_measured_faster(name: str) -> None:
    target = parse_target("sm_90a:132:h200")
    replaced: list[float] = []
    for key, (solver, ratio) in untuned_ratios(RESULTS / f"gpu_{name}_h200.jsonl").items():
        ours, reason = expectation(parse_key(key), solver, target)
        assert ours or ratio < 1.0, f"{key} is left to PyTorch ({reason}), and ours was {ratio:.2f} times as fast"
        if ours:
            replaced.append(ratio)
    assert len(replaced) > 15
    assert min(replaced) > 0.85
    assert math.exp(sum(map(math.log, replaced)) / len(replaced)) > 1.2


def test_fused_products_are_replaced_where_they_were_measured_faster() -> None:
    target, replaced = parse_target("sm_90a:132:h200"), []
    for row in json.loads((RESULTS / "gpu_fused_nvidia_h200.json").read_text())["rows"]:
        signature = parse_key(row["key"])
        epilogue = signature.epilogue
        if row["key"].startswith("gemm") and (epilogue.residual or epilogue.activation != "none"):
            assert expectation(signature, row["fused"]["solver"], target)[0], row["key"]
            replaced += row["fused"]["ratio"].values()
    assert len(replaced) > 5
    assert min(replaced) > 1.2


@pytest.mark.parametrize(("packed", "ratio"), [(True, "ratio"), (False, "ratio_not_packed")])
@pytest.mark.parametrize("name", ["zen3_fp32", "zen3_bf16", "zen4_fp32", "zen4_bf16"])
def test_products_on_a_cpu_are_replaced_where_they_were_measured_faster(name: str, packed: bool, ratio: str) -> None:
    held = json.loads((RESULTS / f"products_{name}.json").read_text())
    dtype = held["dtype"]
    target, replaced = parse_target(held["target"]), []
    for row in held["rows"]:
        product = GemmSignature(row["m"], row["n"], row["k"], dtype=dtype, trans_b=True).canonical
        ours, reason = expectation(product, "c_dense", target, packed)
        assert ours or row[ratio] < 1.0, f"{row['layer']} is left to PyTorch ({reason}): {row[ratio]}"
        if ours:
            replaced.append(row[ratio])
    assert len(replaced) > (20 if packed else 7)
    assert min(replaced) > 0.9
    assert math.exp(sum(map(math.log, replaced)) / len(replaced)) > 1.05


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_convolutions_on_a_cpu_with_matrix_tiles_win_on_the_whole(dtype: str, direction: str) -> None:
    held = json.loads((RESULTS / f"convolutions_emerald-rapids_{dtype}.json").read_text())
    ratios = [row["ratios"]["ours"] for row in held["rows"] if row["direction"] == direction]
    assert len(ratios) > 30
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) > (1.05 if dtype == "bf16" else 0.9)


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        ("fp32", "x86_64-v3:2:generic"),
        ("bf16", "x86_64-v4:2:zen3"),
        ("bf16", "aarch64:2:generic"),
        ("fp16", "x86_64-v3:2:zen3"),
        ("bf16", "x86_64-v4-bf16:2:generic"),
        ("fp32", "x86_64-v4-amx:2:emerald-rapids"),
        ("bf16", "x86_64-v4-amx:2:emerald-rapids"),
    ],
)
def test_products_that_were_not_measured_are_left(dtype: str, target: str) -> None:
    product = GemmSignature(784, 768, 768, dtype=dtype, trans_b=True).canonical
    assert not expectation(product, "c_dense", parse_target(target), True)[0]
