"""Tiles share what they say they share: no ``steady`` value depends on an axis that ``changed`` may change."""

from __future__ import annotations

import contextlib
import sys
from functools import lru_cache
from itertools import chain
from pathlib import Path

import pytest

from tilesmith.problems.features import features_of
from tilesmith.problems.rewrite import rewrites
from tilesmith.solvers.solver import Accepted, Configured, refusal, steady
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.targets.cuda import cuda_target

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

from gpu_cases import list_names, listed  # noqa: E402

TARGET = cuda_target("sm_90a", 132)
SOLVERS = {solver.name: solver for solver in CUDA_SOLVERS if hasattr(solver, "tile")}
PROBLEMS, SIZES = 2, 4  # of a solver and direction, and of a problem


class Seen(dict):
    """A tile's ``value`` that notes which axes are read."""

    def __init__(self, values):
        super().__init__(values)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.read.add(name)
        return super().get(name, default)


@lru_cache(maxsize=1)
def problems():
    """By solver, some problems of the lists that it takes, of each direction."""
    found = {name: {} for name in SOLVERS}
    for name in sorted(list_names()):
        for signature in list(dict.fromkeys(signature.canonical for _, _, signature in listed(name)))[::3]:
            for rewrite in rewrites(signature):
                geometry = rewrite.signature.geometry
                for solver in SOLVERS.values():
                    some = found[solver.name].setdefault(getattr(geometry, "direction", ""), [])
                    asked = len(some) < PROBLEMS and refusal(solver.features, features_of(geometry)) is None
                    if asked and isinstance(solver.applicable(geometry, TARGET), Accepted):
                        some.append(geometry)
    return {name: [*chain.from_iterable(of_directions.values())] for name, of_directions in found.items()}


def sharing(name):
    """Tiles that can be changed: of some configs that are ranked, spread over all; with their problems."""
    solver, found = SOLVERS[name], []
    for geometry in problems()[name]:
        ranked = list(solver.ranked(geometry, TARGET)) or [solver.default_config(geometry, TARGET)]
        for config in ranked[:: max(1, len(ranked) // SIZES)]:
            tile = solver.tile(geometry, config, TARGET)
            if isinstance(tile, Configured) and tile.varied:
                found.append((geometry, tile))
    return found


def test_families_share():
    """The tests below are of more than nothing."""
    assert {"mma_dense", "mma_narrow_groups", "mma_phases", "wgmma_conv", "wgmma_gemm"} <= set(filter(sharing, SOLVERS))


@pytest.mark.parametrize("name", SOLVERS)
def test_steady_values_read_no_varied_axis(name):
    for _, tile in sharing(name):
        assert tile.varied <= set(tile.value)
        fields = {field: getattr(tile, field) for field in type(tile).__dataclass_fields__}
        for value in dir(type(tile)):
            if isinstance(getattr(type(tile), value), steady):
                fresh = type(tile)(**fields)
                fresh.__dict__["value"] = seen = Seen(tile.value)
                with contextlib.suppress(AssertionError, KeyError, ValueError):  # what only other tiles have
                    getattr(fresh, value)
                assert not seen.read & tile.varied, value


@pytest.mark.parametrize("name", SOLVERS)
def test_changed_tiles_are_estimated_as_new_ones(name, monkeypatch):
    solver = SOLVERS[name]
    for geometry, tile in sharing(name):
        axes = solver.search_space(geometry, TARGET).axes
        for changed in [tile.changed(**{axis: value}) for axis in sorted(tile.varied) for value in axes[axis][:4]]:
            new = solver.tile(geometry, changed.config, TARGET)
            assert changed.fits == new.fits, changed.config
            if new.fits:
                seconds = solver.predict(geometry, changed.config, TARGET)
                with monkeypatch.context() as patch:
                    patch.setattr(solver, "tile", lambda *_, changed=changed: changed)
                    assert solver.predict(geometry, changed.config, TARGET) == seconds, changed.config


def test_another_axis_cannot_be_changed():
    _, tile = sharing("mma_dense")[0]
    with pytest.raises(KeyError, match="block_m"):
        tile.changed(block_m=16)
