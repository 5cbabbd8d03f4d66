"""Axes: words of the field, one sentence each; configs with the names of former days are read for ever."""

from __future__ import annotations

import random

import pytest

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers import reasons
from tilesmith.solvers.old_names import OLD_NAMES, has_old_names, read_config, same_config
from tilesmith.solvers.solver import Accepted, Rejected, parse_config
from tilesmith.solvers.table import candidates
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.cuda import cuda_target
from tilesmith.tune.space import random_point

SOLVERS = {solver.name: solver for solver in (*CPU_SOLVERS, *CUDA_SOLVERS)}
TARGETS = (
    cuda_target("sm_90a", 132),
    cpu_target("x86_64-v3", 1),
    cpu_target("x86_64-v4-bf16", 2),
    cpu_target("x86_64-v4-amx", 2),
)
PROBLEMS = [
    GemmSignature(96, 64, 64, dtype="bf16", groups=3),
    GemmSignature(96, 61, 63, dtype="bf16", groups=3),
    GemmSignature(64, 4096, 4096, dtype="bf16"),
    GemmSignature(100, 200, 300),
    GemmSignature(101, 201, 301, dtype="bf16"),
    GemmSignature(50000, 64, 64, dtype="bf16"),
    GemmSignature(50000, 4, 3, dtype="bf16"),
    *(
        ConvSignature(
            (4, 28, 28, c), (k, 3, 3, c // g), mode=mode, padding=1, groups=g, dtype=dtype, shared_layout="NHWC"
        )
        for mode in ("fwd", "bwd", "wrw")
        for c, k, g in ((64, 128, 1), (64, 64, 64), (64, 64, 8), (3, 64, 1))
        for dtype in ("bf16", "fp32")
    ),
    ConvSignature((4, 28, 28, 64), (64, 3, 3, 64), mode="bwd", padding=1, stride=2, dtype="bf16", shared_layout="NHWC"),
    *(
        ConvSignature(
            (2, 28, 28, 12), (8, 3, 3, 12), mode=mode, padding=1, stride=2, dtype="bf16", shared_layout="NHWC"
        )
        for mode in ("fwd", "bwd", "wrw")
    ),
    ConvSignature((2, 6, 28, 28, 3), (16, 3, 3, 3, 3), mode="bwd", padding=1, stride=(1, 2, 2), dtype="bf16",
                  shared_layout="NDHWC"),
    ConvSignature((4, 32, 32, 3), (64, 7, 7, 3), mode="wrw", padding=3, stride=2, dtype="bf16", shared_layout="NHWC"),
    *(
        ConvSignature((4, 32, 32, 64), (3, 5, 5, 64), mode=mode, padding=2, dtype="bf16", shared_layout="NHWC")
        for mode in ("bwd", "wrw")
    ),
    ConvSignature((4, 28, 28, 64), (64, 3, 3, 64), mode="bgrad", padding=1, shared_layout="NHWC"),
    ConvSignature((4, 28, 28, 64), (64, 3, 3, 1), groups=64, padding=1, shared_layout="NHWC", dtype="int8",
                  output_dtype="int32"),
    ConvSignature((4, 64, 28, 28), (64, 1, 3, 3), groups=64, padding=1, shared_layout="NCHW", dtype="bf16"),
    ConvSignature((4, 64, 8, 8), (64, 64, 1, 1), dtype="bf16"),
]  # fmt: skip
# A config as a version before the words wrote it, and as it is written today.
OLD = {
    "c_dense": (
        "mh=1 mw=14 nv=2 rows=28 cols=0 unroll=2 kg=1 kout=0 cb=0 cpad=0 pack=1 pf=32",
        "tile_h=1 tile_w=14 vectors=2 item_rows=28 item_columns=0 unroll=2 channel_groups=1 groups_outer=0 block_c=0 "
        "strip_pad=0 pack=1 prefetch=32",
    ),
    "wgmma_gemm@gemm": (
        "wgs=2 mi=1 bn=8 bk=64 stages=0 pp=1 split=1 slices=2 group=1 inner=0 swap=1 per_sm=1 mix=0 bufs=2 slab=64 "
        "resident=0 cast=1",
        "warpgroups=2 products_m=1 block_n=8 block_k=64 stages=0 pingpong=1 cluster_k=1 split_k=2 group_m=1 "
        "taps_inner=0 swap_mn=1 blocks_per_sm=1 mix_layers=0 store_buffers=2 slab_n=64 resident=0 cluster_m=1",
    ),
    "mma_dense_nhwc": (
        "bm=256 bn=64 bk=16 wm=4 wn=1 stages=3 split=2 walk=8",
        "block_m=256 block_n=64 block_k=16 warps_m=4 warps_n=1 stages=3 split_k=2 group_m=8",
    ),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_each_axis_has_a_name_and_a_sentence(name):
    axes = SOLVERS[name].axes
    assert len({axis.name for axis in axes}) == len(axes)
    for axis in axes:
        assert axis.name.isidentifier()
        assert len(axis.name) > 1, axis
        assert axis.says[0].isupper() or axis.says[0] == "1", axis
        assert axis.says.endswith("."), axis


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_spaces_and_configs_have_the_axes_of_the_table(target):
    met, lacking = set(), set()
    for signature in PROBLEMS:
        for candidate in candidates(signature.canonical, target):
            if isinstance(candidate.verdict, Rejected) and candidate.verdict.reason == reasons.TARGET:
                lacking.add(candidate.solver.name)
            if isinstance(candidate.verdict, Accepted):
                solver, geometry = candidate.solver, candidate.geometry
                names, values = [axis.name for axis in solver.axes], {axis.name: axis.values for axis in solver.axes}
                space, default = solver.search_space(geometry, target), solver.default_config(geometry, target)
                assert list(space.axes) == [name for name, _ in default.values] == names
                assert not [name for name in names if values[name] and set(space.axes[name]) - set(values[name])]
                met.add(solver.name)
    own = {name for name in SOLVERS if name.startswith("c_") == (target.family == "cpu")}
    assert not met & lacking
    assert own - met - lacking <= {name for name in own if name.endswith("_nhwc")}
    assert target.family == "cuda" or bool(lacking) is not target.bf16_tiles


@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_names_are_renamed_to_axes_and_never_given_again(name):
    axes, renamed = {axis.name for axis in SOLVERS[name].axes}, OLD_NAMES[name]
    assert set(renamed.values()) <= axes
    assert len(set(renamed.values())) == len(renamed)
    assert not set(renamed) & axes


@pytest.mark.parametrize("solver", OLD)
def test_old_configs_are_read(solver):
    old, today = OLD[solver]
    assert read_config(solver, old) == read_config(solver, today) == parse_config(today)
    assert has_old_names(solver, old)
    assert not has_old_names(solver, today)
    assert same_config(solver, old, today)
    assert not same_config(solver, old, old.replace("=1", "=2", 1))
    assert not same_config(solver, old, "rubbish")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_every_config_is_the_same_by_old_names(target):
    rng = random.Random(1)
    for signature in PROBLEMS[::4]:
        for candidate in candidates(signature.canonical, target):
            if isinstance(candidate.verdict, Accepted):
                config = random_point(candidate.solver.search_space(candidate.geometry, target), rng)
                base = candidate.solver.name.removesuffix("_nhwc")
                back = {new: old for old, new in OLD_NAMES.get(base, {}).items()}
                if config is not None:
                    old = " ".join(f"{back.get(name, name)}={value}" for name, value in config.values)
                    assert read_config(candidate.name, old) == config


def test_an_axis_that_does_not_exist_cannot_be_changed():
    with pytest.raises(KeyError, match="mh"):
        parse_config("tile_h=1").replace(mh=2)
