"""Last layers by kernels of first layers: numbers through the emulator, refusals, choices, and the packed filter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.dispatch.facts import options_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.mirrored.solver import Mirrored
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.solvers.table import candidates
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVERS = {solver.name: solver for solver in CUDA_SOLVERS if isinstance(solver, Mirrored)}


def conv(mode="bwd", c=24, k=3, taps=(5, 5), size=(11, 40), **more):
    more = {"dtype": "bf16", "padding": 2, **more}
    return ConvSignature((2, *size, c), (k, *taps, c), shared_layout="NHWC", mode=mode, **more)


def video(mode):
    return ConvSignature(
        (1, 4, 6, 24, 8), (3, 3, 2, 3, 8), padding=(1, 0, 2), dilation=(2, 1, 1), dtype="bf16", shared_layout="NDHWC",
        mode=mode,
    )  # fmt: skip


TRANSPOSED = ConvSignature(
    (2, 9, 34, 3), (3, 3, 4, 21), dtype="fp16", shared_layout="NHWC", transposed=True, padding=(1, 2),
    epilogue=Epilogue(bias=True, activation="leaky_relu"),
)  # fmt: skip
FORWARD = [
    conv(),
    conv(c=21, k=2, taps=(2, 5), padding=((1, 0), (0, 3)), dtype="fp16"),  # an even filter, unequal padding
    conv(c=16, k=7, taps=(1, 3), padding=(0, 1), input_dtype="fp32"),
    conv(c=40, k=1, taps=(9, 9), padding=4),
    conv(c=9, k=5, taps=(3, 3), padding=0),
    ConvSignature((3, 50, 24), (2, 7, 24), dtype="bf16", shared_layout="NWC", mode="bwd", padding=3),
    video("bwd"),
    TRANSPOSED,
]
WEIGHTS = [
    conv("wrw"),
    conv("wrw", c=136, k=2, taps=(2, 5), padding=((1, 0), (0, 3)), dtype="fp16"),
    conv("wrw", c=16, k=4, taps=(1, 3), padding=(0, 1), kernel_dtype="fp32"),
    conv("wrw", c=40, k=1, taps=(9, 9), padding=4),
    conv("wrw", c=8, k=5, taps=(3, 3), padding=0),
    video("wrw"),
]
DILATED = [conv(mode, taps=(3, 2), dilation=(1, 3), padding=(1, 3)) for mode in ("bwd", "wrw")]


def cases():
    for signature in (*FORWARD, *WEIGHTS, *DILATED):
        canonical = signature.canonical
        for name, solver in SOLVERS.items():
            if canonical.mode in solver.features:
                yield pytest.param(canonical, name, id=f"{name} {canonical.key()[6:70]}")


@pytest.mark.parametrize(("signature", "name"), list(cases()))
def test_numbers(signature, name, emulating):
    geometry, solver = signature.geometry, SOLVERS[name]
    verdict = solver.applicable(geometry, H200)
    if isinstance(verdict, Rejected):
        # By rows: dilation along them, or rows that TMA does not read.
        assert "rows" in name
        assert verdict.reason in (reasons.DILATION, reasons.LAYOUT), verdict
        return
    chosen = solver.default_config(geometry, H200)
    assert solver.search_space(geometry, H200).contains(chosen)
    check_numbers(signature, executable(signature, solver.draft(geometry, chosen, H200), emulating))


def test_other_layouts_are_copied(emulating):
    signature = ConvSignature((2, 24, 9, 32), (3, 24, 5, 5), dtype="bf16", padding=2, mode="bwd").canonical
    found = {each.name: each for each in candidates(signature, H200) if each.verdict == Accepted()}
    one = found["first_layer_mirrored_nhwc"]
    config = one.solver.default_config(one.geometry, H200)
    check_numbers(signature, executable(signature, one.solver.draft(one.geometry, config, H200), emulating))


def test_what_has_no_mirror_image_is_refused():
    verdicts = [
        SOLVERS["first_rows_mirrored"].applicable(each.canonical.geometry, H200)
        for each in (conv(padding=5), conv(k=8), conv(), conv(padding=((0, 4), (4, 0))))
    ]
    assert [getattr(verdict, "reason", "") for verdict in verdicts] == [reasons.FILTER, reasons.CHANNELS, "", ""]
    for strided in (conv(stride=2), conv("wrw", stride=2), conv(c=24, k=6, taps=(3, 3), groups=1, mode="fwd")):
        found = candidates(strided.canonical, H200, set(SOLVERS))
        assert {each.verdict.reason for each in found} == {reasons.FEATURE}


def test_the_mirror_image_of_the_mirror_image_is_the_problem():
    for signature in (FORWARD[1], video("wrw")):
        g = signature.canonical.geometry
        mirrored = SOLVERS["first_layer_mirrored"].changed(g)
        twice = SOLVERS["first_layer_mirrored"].changed(mirrored)
        assert replace(twice, direction=g.direction) == g
        assert (mirrored.input, mirrored.output, mirrored.c, mirrored.k) == (g.output, g.input, g.k, g.c)


@pytest.mark.parametrize(
    ("signature", "most"),
    [
        (conv("bwd", c=96, k=1, taps=(9, 9), size=(320, 320), padding=4), 0.2),
        (conv("wrw", c=112, k=3, taps=(9, 9), size=(192, 256), padding=4), 0.2),
        (conv("bwd", c=320, k=4, taps=(3, 3), size=(64, 64), padding=1), 0.9),
    ],
)
def test_large_last_layers_are_chosen(signature, most):
    options = [each for each in options_of(signature.canonical, H200) if each.predicted_s]
    best = {
        mirrored: min(each.predicted_s for each in options if ("_mirrored" in each.candidate.name) == mirrored)
        for mirrored in (True, False)
    }
    assert best[True] < most * best[False]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_texts_compile_without_spills(arch, tmp_path):
    target, sources = CUDA_TARGETS[arch], {}
    for signature in (conv(), conv("wrw"), TRANSPOSED):
        geometry = signature.canonical.geometry
        for solver in SOLVERS.values():
            if geometry.direction in solver.features and solver.applicable(geometry, target) == Accepted():
                draft = solver.draft(geometry, solver.default_config(geometry, target), target)
                sources |= {source.symbol: source for source in draft.sources}
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert len(found) > 4
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []


def test_configs_are_those_of_the_other_direction():
    geometry = conv().canonical.geometry
    solver = SOLVERS["first_rows_mirrored"]
    assert (solver.axes, solver.revision) == (solver.inner.axes, solver.inner.revision)
    assert isinstance(solver.ranked(geometry, H200)[0], Config)
