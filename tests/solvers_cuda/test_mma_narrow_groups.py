"""The kernels of narrow groups without a device: bundles, spaces, plans, refusals, spills."""

from __future__ import annotations

import pytest

from tilesmith.plan.assemble import assemble
from tilesmith.problems.conv import ConvSignature
from tilesmith.solvers.cuda.narrow_groups.solver import NarrowGroupsSolver
from tilesmith.solvers.cuda.narrow_groups.tile import narrow_form
from tilesmith.solvers.solver import Rejected
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit

H200 = cuda_target("sm_90a", 132)
SOLVER = NarrowGroupsSolver()


def conv(mode, groups, c, k, size=28, n=32, layout="NHWC", dtype="bf16", **more):
    more = {"padding": 1} | more
    return ConvSignature((n, size, size, groups * c), (groups * k, 3, 3, c), mode=mode, groups=groups, dtype=dtype,
                         shared_layout=layout, **more)  # fmt: skip


PROBLEMS = [
    *(conv(mode, 32, 8, 8, n=64) for mode in ("fwd", "bwd", "wrw")),
    conv("bwd", 10, 24, 24, 56, stride=2),
    conv("wrw", 6, 24, 24),
    conv("fwd", 32, 4, 4, 56, dtype="fp16"),
]


@pytest.mark.parametrize(
    ("mode", "c", "k", "bundle", "pieces", "columns"),
    [("fwd", 8, 12, 1, 1, 12), ("fwd", 4, 8, 2, 1, 16), ("bwd", 6, 20, 2, 5, 12), ("wrw", 8, 4, 2, 2, 8),
     ("fwd", 3, 5, 8, 3, 40)],
)  # fmt: skip
def test_a_bundle_has_whole_pieces_of_eight_channels(mode, c, k, bundle, pieces, columns):
    form = narrow_form(conv(mode, 8, c, k).canonical.geometry)
    assert (form.bundle, form.pieces, form.columns) == (bundle, pieces, columns)


@pytest.mark.parametrize("signature", PROBLEMS, ids=lambda s: s.key()[:70])
def test_choices_lie_in_the_space_and_make_plans(signature):
    geometry = signature.canonical.geometry
    space, ranked = SOLVER.search_space(geometry, H200), SOLVER.ranked(geometry, H200)
    assert len(ranked) > 20
    for config in ranked[:3]:
        assert space.contains(config)
        assert 0 < SOLVER.predict(geometry, config, H200) < 1e-3
        draft = SOLVER.draft(geometry, config, H200)
        assert max(step.shared_bytes for step in draft.run) <= H200.shared_bytes_per_block
        assemble(draft, signature.canonical, SOLVER.name, str(config), H200, ["0" * 64] * len(draft.sources))


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv("fwd", 1, 64, 64), "one group"),
        (conv("fwd", 4, 5, 8), "16 bytes"),
        (conv("wrw", 3, 8, 5), "4 bytes"),
        (conv("wrw", 1, 16, 16), "dense kernels"),
        (conv("fwd", 4, 72, 8), "groups of 72 and 8 channels"),
        (conv("wrw", 32, 8, 8, dtype="fp32"), "dtype"),
        (ConvSignature((2, 16, 8, 8), (16, 4, 3, 3), groups=4, shared_layout="NCHW", dtype="bf16"), "channels"),
        (
            ConvSignature(
                (2, 4, 8, 8, 16),
                (16, 3, 3, 3, 4),
                groups=4,
                shared_layout="NDHWC",
                dtype="bf16",
                kernel_strides=(200, 60, 12, 4, 1),
            ),
            "gaps",
        ),
    ],
    ids=str,
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVER.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict)


def test_untuned_kernels_compile_without_spills(tmp_path):
    for arch, problems in (("sm_90a", PROBLEMS[2:5]), ("sm_80", PROBLEMS[:1])):
        target, sources = CUDA_TARGETS[arch], {}
        for signature in problems:
            geometry = signature.canonical.geometry
            draft = SOLVER.draft(geometry, SOLVER.default_config(geometry, target), target)
            sources |= {source.symbol: source for source in draft.sources}
        found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
        assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []
