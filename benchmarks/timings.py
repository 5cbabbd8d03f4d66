"""Timings of configs on a GPU card, each with the estimate of its time as a function of a fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tilesmith.problems.epilogue import IDENTITY
from tilesmith.problems.keys import parse_key
from tilesmith.solvers.cuda.depthwise.cost import depthwise_seconds
from tilesmith.solvers.cuda.depthwise_mma.cost import depthwise_mma_seconds
from tilesmith.solvers.cuda.depthwise_planes.cost import planes_seconds
from tilesmith.solvers.cuda.ffma.cost import predicted_seconds as ffma_seconds
from tilesmith.solvers.cuda.first.cost import first_seconds, weights_seconds
from tilesmith.solvers.cuda.first_rows.cost import rows_seconds, rows_weights_seconds, wide_weights_seconds
from tilesmith.solvers.cuda.halo.cost import halo_seconds
from tilesmith.solvers.cuda.halo_wrw.cost import halo_wrw_seconds
from tilesmith.solvers.cuda.mirrored.solver import Mirrored
from tilesmith.solvers.cuda.mma.cost import predicted_seconds as mma_seconds
from tilesmith.solvers.cuda.narrow_groups.cost import narrow_seconds
from tilesmith.solvers.cuda.phases.cost import phases_seconds
from tilesmith.solvers.cuda.slices.cost import slices_seconds
from tilesmith.solvers.cuda.thin.cost import thin_seconds
from tilesmith.solvers.cuda.thin.few import FewTile
from tilesmith.solvers.cuda.thin.wide import WideTile
from tilesmith.solvers.cuda.wgmma.cost import predicted_seconds as tile_seconds
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.relayout import Relayout
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.fits.fit import Fit

# The part of a fit that a solver's estimate takes, and the estimate.
ESTIMATES = {
    "wgmma_gemm": ("tile", tile_seconds), "wgmma_conv": ("tile", tile_seconds), "wgmma_halo": ("halo", halo_seconds),
    "wgmma_halo_wrw": ("halo_wrw", halo_wrw_seconds), "mma_dense": ("mma", mma_seconds),
    "ffma_dense": ("mma", mma_seconds), "ffma_gemm": ("ffma", ffma_seconds), "mma_thin": ("thin", thin_seconds),
    "wgmma_thin": ("wide_thin", WideTile.seconds), "ffma_thin": ("few", FewTile.seconds),
    "mma_phases": ("phases", phases_seconds), "wgmma_phases": ("wide_phases", phases_seconds),
    "cuda_depthwise": ("depthwise", depthwise_seconds),
    "mma_depthwise": ("depthwise_mma", depthwise_mma_seconds), "cuda_depthwise_planes": ("depthwise", planes_seconds),
    "mma_narrow_groups": ("narrow", narrow_seconds), "first_layer": ("first", first_seconds),
    "first_layer_wrw": ("first", weights_seconds), "first_rows": ("first_rows", rows_seconds),
    "first_rows_wrw": ("first_rows_wrw", rows_weights_seconds),
    "wgmma_first_rows_wrw": ("wide_rows_wrw", wide_weights_seconds), "wgmma_slices": ("slices", slices_seconds),
}  # fmt: skip
# Axes that configs of ``gpu/probes/variants.py`` do not name, of products of 16-bit types.
_USUAL = {
    "block_k": "64", "stages": "0", "pingpong": "0", "cluster_k": "1", "split_k": "1", "taps_inner": "0",
    "swap_mn": "0", "blocks_per_sm": "1", "mix_layers": "0", "store_buffers": "2", "slab_n": "64", "resident": "0",
    "cluster_m": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """``seconds`` of a config. ``part`` of a fit is what its estimate takes; empty where that is not fitted.

    ``estimate`` is that of today's constants, in seconds.
    """

    problem: str
    solver: str
    config: str
    estimate: float
    seconds: float
    part: str
    predict: Callable[[Fit], float]


def timings(paths: list[Path], target) -> list[Timing]:
    """Of every config in the files that the solvers still have for its problem; the least where there are several."""
    least: dict[tuple[str, str, str], float] = {}
    for path in paths:
        for key, solver, config, us in _rows(path, target.name):
            held = least.get((key, solver, config), us)
            least[key, solver, config] = min(held, us)
    by_problem: dict[str, list[tuple[str, str, float]]] = {}
    for (key, solver, config), us in least.items():
        by_problem.setdefault(key, []).append((solver, config, us))
    found = []
    for key, rows in by_problem.items():
        names = {name for solver, _, _ in rows for name in (solver, f"{solver}@gemm")}
        found_here = candidates(parse_key(key).canonical, target, names)
        asked = {c.name: c for c in found_here if isinstance(c.verdict, Accepted)}
        for solver, config, us in rows:
            candidate = asked.get(solver) or asked.get(f"{solver}@gemm")
            if candidate is not None:
                timing = _timing(key, candidate, config, us * 1e-6, target)
                if timing is not None:
                    found.append(timing)
    return found


def _timing(key: str, candidate, config: str, seconds: float, target) -> Timing | None:
    solver, geometry, point, copies = candidate.solver, candidate.geometry, read_config(candidate.name, config), 0.0
    try:
        if not solver.search_space(geometry, target).contains(point):
            return None
        whole = solver.predict(geometry, point, target)
        if isinstance(solver, Relayout):
            geometry = solver.changed(geometry)
            copies = whole - solver.inner.predict(geometry, point, target)
            solver = solver.inner
        if isinstance(solver, Mirrored):
            geometry, solver = solver.changed(geometry), solver.inner
        part, estimate = ESTIMATES.get(solver.name, ("", None))
        if estimate is None:
            return Timing(key, candidate.name, str(point), whole, seconds, "", lambda fit: whole)
        tile = solver.tile(geometry, point, target)
    except (ValueError, KeyError):  # of a version whose configs had other axes
        return None
    return Timing(
        key, candidate.name, str(point), whole, seconds, part, lambda fit: estimate(tile, getattr(fit, part)) + copies
    )


def _rows(path: Path, target: str) -> Iterator[tuple[str, str, str, float]]:
    """``(problem, solver, config, us)`` of a database, a file of lines, or what a benchmark writes."""
    if path.suffix == ".db":
        yield from _of_database(path, target)
    elif path.suffix == ".jsonl":
        for row in map(json.loads, path.read_text().splitlines()):
            if "all" in row:
                timed = ((c, us) for c, us in row["all"].items() if "=" in c)
                yield from ((row["key"], row["solver"], config, us) for config, us in timed)
            elif "config" in row and "time_us" in row:
                yield row["key"], row["solver"], row["config"], row["time_us"]
            elif isinstance(row.get("rows"), dict):  # of gpu/probes/variants.py
                for name, us in row["rows"].items():
                    _, variant, words = name.partition("|")
                    if variant:
                        values = _USUAL | dict(word.split("=") for word in words.split())
                        yield row["key"], "wgmma_gemm", " ".join(f"{k}={v}" for k, v in values.items()), us
    else:
        held = json.loads(path.read_text())
        held = held if isinstance(held, dict) else {}
        for row in held.get("rows", ()):  # of gpu/probes/over_plain.py
            if isinstance(row, dict) and isinstance(row.get("fused"), dict) and "allowed_us" not in row["fused"]:
                plain = replace(parse_key(row["key"]), epilogue=IDENTITY).key()
                for key, timed in ((row["key"], row["fused"]), (plain, row["plain"])):
                    yield from ((key, *name.split(" ", 1), us) for name, us in timed.items())
        for row in (row for rows in held.get("lists", {}).values() for row in rows):
            if "config" in row.get("bench", {}):
                key = _key(row["command"], row["direction"])
                yield key, row["bench"]["solver"], row["bench"]["config"], row["bench"]["time_us"]


def _of_database(path: Path, target: str) -> Iterator[tuple[str, str, str, float]]:
    from tilesmith.db.opening import open_database

    database = open_database(path, readonly=True)
    for record in database.records("trials"):
        if record.target == target and record.status == "ok" and record.time_us:
            yield record.problem, record.solver, record.config, record.time_us


def _key(command: str, direction: str) -> str:
    from tilesmith.problems.driver import parse_problem

    return next(s.canonical.key() for name, s in parse_problem(command).signatures if name == direction)
