"""Slices along one axis: numbers through the emulator, refusals, and text without spills."""

from __future__ import annotations

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.features import features_of
from tilesmith.solvers.cuda.slices.solver import SlicesSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected, refusal
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVER = SlicesSolver()
NAMES = [axis.name for axis in SOLVER.axes]
BIASED = Epilogue(bias=True, activation="relu")
FUSED = Epilogue(bias=True, residual=True, activation="relu")


def deconv(c=16, k=3, size=(3, 5, 6), taps=(3, 3, 3), n=1, **more):
    """``c`` channels of a transposed convolution's input, ``k`` of its results."""
    more = {"dtype": "bf16", **more}
    return ConvSignature((n, *size, c), (c, *taps, k), transposed=True, shared_layout="NDHWC", **more)


def conv(c=16, k=3, size=(3, 5, 6), taps=(3, 3, 3), n=1, **more):
    more = {"dtype": "bf16", **more}
    return ConvSignature((n, *size, c), (k, *taps, c), shared_layout="NDHWC", **more)


def video(c=3, k=32, size=(4, 10, 12), **more):
    """Backward data of the first layer of a video network."""
    more = {"stride": (1, 2, 2), "padding": (1, 3, 3), **more}
    return conv(c, k, size, (3, 7, 7), mode="bwd", **more)


CASES = [
    # two blocks of channels, lines of two warpgroups that differ, two strips; phases begin where the image does
    (video(size=(4, 10, 112)), (0, 3, 2, 16, 2, 3, 1)),
    # along the height; several lines of a unit; half of the channels empty; unequal padding
    (video(k=8, padding=((1, 0), (3, 2), (2, 4)), dtype="fp16"), (1, 1, 1, 16, 1, 2, 1)),
    # odd channels; a stride along the axis of the slices; not all taps exist; one tap along the other axis
    (deconv(21, 5, (4, 3, 23), (5, 1, 4), stride=(2, 1, 3), padding=(1, 0, 2)), (0, 2, 2, 32, 3, 2, 1)),
    (deconv(20, 3, (3, 5, 21), (2, 3, 3), stride=2, padding=1, epilogue=FUSED), (0, 2, 1, 32, 1, 2, 1)),
    # slices that no strip's position sees; results beyond the last input
    (
        deconv(16, 2, (3, 2, 4), (3, 1, 3), stride=(4, 1, 4), output_padding=(2, 0, 2), dtype="fp16"),
        (0, 1, 1, 16, 2, 2, 2),
    ),
    # a line has several tiles, of one result of a position; four stages; images
    (deconv(16, 1, (3, 1, 70), (3, 1, 3), n=2, stride=(2, 1, 2), epilogue=BIASED), (0, 1, 1, 16, 2, 4, 1)),
    # several lines of a unit, and several units that see a line; more units than there are lines
    (deconv(16, 2, (2, 9, 3), (2, 5, 3), padding=((0, 1), (2, 1), (0, 2))), (0, 1, 1, 16, 2, 2, 1)),
    (deconv(16, 2, (2, 9, 24), (2, 5, 3), padding=(1, 2, 2)), (0, 4, 2, 16, 1, 2, 1)),
    # forward: zeros beyond the image meet weights that are no numbers; results in fp32
    (conv(33, 3, (5, 2, 40), (3, 1, 3), padding=((2, 0), 0, (1, 1)), epilogue=FUSED), (0, 2, 1, 16, 1, 3, 1)),
    (conv(18, 5, (4, 4, 5), (3, 2, 3), padding=1, output_dtype="fp32"), (0, 1, 1, 32, 2, 2, 1)),
    (conv(16, 2, (6, 2, 7), (3, 1, 3), padding=(4, 0, 4)), (0, 1, 1, 16, 2, 2, 1)),
]


def config(values) -> Config:
    return Config(tuple(zip(NAMES, values, strict=True)))


def named(value):
    return value.get_func_name()[:60] if hasattr(value, "get_func_name") else "x".join(map(str, value))


@pytest.mark.parametrize(("signature", "values"), CASES, ids=named)
def test_numbers(signature, values, emulating):
    signature = signature.canonical
    geometry, chosen = signature.geometry, config(values)
    assert SOLVER.applicable(geometry, H200) == Accepted()
    assert SOLVER.tile(geometry, chosen, H200).fits
    check_numbers(signature, executable(signature, SOLVER.draft(geometry, chosen, H200), emulating))


def test_positions_begin_where_the_image_does():
    tile = SOLVER.tile(video(size=(16, 112, 112)).canonical.geometry, config((0, 7, 2, 16, 2, 3, 1)), H200)
    assert tile.form.base == (16, 56, 56)
    assert (tile.lead, tile.tile_w, tile.lines, tile.slices) == ((0, 1, 1), 56, 1, 9)


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv(padding=2, dilation=2), "dilation"),
        (conv(stride=2), "stride"),
        (deconv(64, 100, stride=2), "window"),
        (deconv(taps=(1, 3, 3), stride=2), "one tap along the depth"),
        (deconv(8, 3, dtype="fp32"), "dtype"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_refusals_name_their_reason(signature, word):
    problem = signature.canonical.geometry
    verdict = refusal(SOLVER.features, features_of(problem)) or SOLVER.applicable(problem, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict), verdict


def test_warpgroups_need_their_instructions():
    problem = deconv(24, 3, stride=2).canonical.geometry
    assert SOLVER.applicable(problem, H200) == Accepted()
    assert isinstance(SOLVER.applicable(problem, CUDA_TARGETS["sm_80"]), Rejected)


@pytest.mark.parametrize(
    "signature",
    [
        video(k=64, size=(16, 112, 112)),
        deconv(56, 1, (20, 40, 60), (5, 9, 9), stride=3, padding=(2, 4, 4)),
        conv(32, 32, (30, 60, 60), padding=1),
    ],
    ids=named,
)
def test_untuned_kernels_compile_without_spills(signature, tmp_path):
    geometry = signature.canonical.geometry
    chosen = SOLVER.default_config(geometry, H200)
    assert SOLVER.search_space(geometry, H200).contains(chosen)
    found = build_unit(list(SOLVER.draft(geometry, chosen, H200).sources), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
