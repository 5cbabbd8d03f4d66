"""The dense kernels against PyTorch's float64 answer: every target this CPU runs, every dtype, tails, halos, phases."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from draft_call import call_draft, compile_drafts, logical
from narrow_cases import in_turns, planted, with_dtype

import levels
from tilesmith.plan.slots import slots_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import rewrites
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.c.common.dense_form import dense_form
from tilesmith.solvers.c.dense.solver import DenseSolver
from tilesmith.solvers.c.dense.tile import DenseTile
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.targets.cpu import CPU_TARGETS
from torch_answer import torch_answer, torch_gemm

SOLVER = DenseSolver()
ROUNDOFF = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}
NHWC = {"shared_layout": "NHWC"}
GELU = Epilogue(bias=True, activation="gelu", residual=True)
HARD = Epilogue(bias=True, activation="hardsigmoid")

SIGNATURES = [
    ConvSignature((2, 9, 11, 5), (19, 3, 3, 5), padding=1, **NHWC),
    ConvSignature((2, 9, 11, 5), (40, 3, 3, 5), padding=(2, 0), stride=(2, 3), dilation=(1, 2), **NHWC),
    ConvSignature((1, 3, 30, 29), (16, 3, 7, 7), stride=2, padding=3, output_layout="NHWC", input_layout="NCHW"),
    ConvSignature((1, 7, 7, 32), (48, 1, 1, 32), stride=3, epilogue=GELU, **NHWC),
    ConvSignature((1, 4, 3, 16), (16, 2, 2, 16), padding=5, **NHWC),  # pads wider than the filter
    ConvSignature((2, 8, 9, 12), (36, 3, 3, 6), groups=2, padding=1, epilogue=Epilogue(activation="silu"), **NHWC),
    ConvSignature((2, 40, 7), (33, 3, 7), padding=2, dilation=2, shared_layout="NWC"),
    ConvSignature((1, 600, 4), (8, 5, 4), padding=2, shared_layout="NWC", epilogue=Epilogue(activation="tanh")),
    ConvSignature((1, 4, 5, 6, 3), (20, 3, 2, 3, 3), padding=1, stride=(1, 2, 1), shared_layout="NDHWC"),
    ConvSignature((2, 6, 7, 5), (5, 3, 3, 24), transposed=True, stride=2, padding=1, output_padding=1, **NHWC),
    ConvSignature((2, 5, 7, 6), (6, 2, 2, 32), transposed=True, stride=2, **NHWC),
    ConvSignature((1, 5, 7, 6), (6, 2, 3, 17), transposed=True, stride=(2, 3), dilation=2, **NHWC),
    ConvSignature((1, 5, 6, 4), (4, 1, 1, 16), transposed=True, stride=3, epilogue=HARD, **NHWC),
    ConvSignature((1, 3, 4, 5, 6), (6, 2, 3, 2, 8), transposed=True, stride=2, padding=1, shared_layout="NDHWC"),
    ConvSignature((2, 9, 8, 20), (24, 3, 3, 20), mode="bwd", padding=1, stride=2, **NHWC),
    ConvSignature((2, 9, 8, 20), (24, 3, 3, 10), mode="bwd", groups=2, padding=1, epilogue=GELU, **NHWC),
    ConvSignature(
        (1, 6, 7, 20), (17, 3, 3, 20), padding=1, input_strides=(1200, 200, 24, 1), output_strides=(900, 140, 19, 1),
        **NHWC,
    ),
    ConvSignature((2, 7, 9, 3), (21, 3, 3, 3), mode="bwd", padding=1, **NHWC),
    ConvSignature((1, 9, 9, 8), (17, 3, 2, 8), mode="bwd", dilation=2, **NHWC),
]  # fmt: skip
GEMMS = [
    GemmSignature(m=37, n=50, k=29, epilogue=Epilogue(activation="sigmoid")),
    GemmSignature(m=16, n=64, k=33, trans_b=True, epilogue=GELU),
    GemmSignature(m=21, n=19, k=40, trans_a=True, trans_b=True, alpha=0.5, beta=0.75),
    GemmSignature(m=5, n=16, k=3, batch=3, lda=8, ldc=20),
    GemmSignature(m=5, n=16, k=8, batch=3, stride_b=0),
    GemmSignature(m=1, n=100, k=7, trans_b=True),
]


def answer(signature, arguments):
    return (torch_gemm if isinstance(signature, GemmSignature) else torch_answer)(signature, arguments)


def initial(signature, arguments):
    """What the result holds before the call."""
    reads = isinstance(signature, GemmSignature) and signature.beta != 0
    return arguments[-1].copy() if reads else None


def assert_close(signature, got, want):
    bound = ROUNDOFF[slots_of(signature)[-1].dtype] * np.abs(want) + 4e-6 * max(
        1.0, np.abs(want[np.isfinite(want)]).max()
    )
    bad = ~(np.abs(got.astype(np.float64) - want) <= bound)
    assert not bad.any(), f"{bad.sum()} of {bad.size} wrong"


def test_defaults_are_right(level):
    """Numbers, and where NaN and Inf go: odd channels, padding, tails and phases."""
    check_defaults(level, in_turns((*SIGNATURES, *GEMMS), level))


def test_fp32_defaults_are_right_where_bf16_has_products():
    """On the highest level alone: random configs are in fp32 on every level."""
    check_defaults(levels.HIGHEST, [with_dtype(s, "fp32") for s in (*SIGNATURES, *GEMMS)])


def check_defaults(target, signatures):
    drafts = []
    for signature in signatures:
        problem = signature.geometry
        assert SOLVER.applicable(problem, target) == Accepted(), signature
        config = SOLVER.default_config(problem, target)
        assert SOLVER.search_space(problem, target).contains(config)
        drafts.append(SOLVER.draft(problem, config, target))
    compile_drafts(drafts, target)
    for signature, draft in zip(signatures, drafts, strict=True):
        arguments = sample_args(signature, 1)
        got = call_draft(draft, target, signature, arguments, result=initial(signature, arguments))
        assert_close(signature, logical(signature, got), answer(signature, arguments))
        if isinstance(signature, ConvSignature) and signature.epilogue.is_identity:
            check_specials(target, signature, draft)


def test_a_result_over_the_residual(level):
    """Bit for bit what it is elsewhere; refused where the result's memory holds partial sums before."""
    signatures = [with_dtype(s, "fp32") for s in (*SIGNATURES, *GEMMS) if s.epilogue.residual]
    signatures.append(ConvSignature((1, 5, 6, 64), (24, 1, 1, 64), epilogue=GELU, **NHWC))
    cases = []
    for signature in signatures:
        problem = signature.geometry
        default = SOLVER.default_config(problem, level)
        space = SOLVER.search_space(problem, level)
        for config in (default.replace(block_c=block) for block in (0, 32)):
            if space.contains(config):
                cases.append((signature, config["block_c"], SOLVER.draft(problem, config, level)))
    assert {block for _, block, _ in cases} == {0, 32}
    compile_drafts([draft for *_, draft in cases], level)
    for signature, block, draft in cases:
        assert draft.in_place == (block == 0)
        arguments = sample_args(signature, 1)
        apart = call_draft(draft, level, signature, arguments, 1)
        over = call_draft(draft, level, signature, arguments, 1, over="z")
        assert np.array_equal(apart, over) == draft.in_place


def check_specials(target, signature, draft):
    """A NaN and an Inf reach exactly the results whose sums contain it."""
    for place in (0, 1):  # the operand, the filter
        arguments, want = planted(signature, place)
        got = logical(signature, call_draft(draft, target, signature, arguments)).astype(np.float64)
        assert (np.isnan(got) == np.isnan(want)).all()
        assert (np.isposinf(got) == np.isposinf(want)).all()
        assert (np.isneginf(got) == np.isneginf(want)).all()
        finite = np.isfinite(want)
        assert np.allclose(got[finite], want[finite], rtol=0.02, atol=0.02)


ONE_LINE = [
    (ConvSignature((2, 14, 13, 24), (40, 1, 1, 24), stride=2, epilogue=GELU, **NHWC), True),
    (ConvSignature((2, 9, 7, 32), (48, 1, 1, 16), stride=(3, 1), groups=2, **NHWC), True),
    (ConvSignature((2, 20, 11, 5), (17, 20, 1, 1), input_layout="NCHW", output_layout="NHWC"), True),
    (ConvSignature((1, 3, 9, 6, 12), (20, 1, 1, 1, 12), stride=(1, 2, 1), shared_layout="NDHWC"), True),
    (ConvSignature((2, 9, 5, 20), (16, 20, 1, 1), mode="bwd", input_layout="NHWC", output_layout="NCHW"), True),
    (ConvSignature((2, 9, 5, 20), (16, 1, 1, 20), mode="bwd", stride=2, **NHWC), False),  # phases
    (ConvSignature((1, 9, 6, 16), (24, 1, 1, 16), stride=2, output_strides=(400, 80, 24, 1), **NHWC), False),  # gaps
    (ConvSignature((1, 8, 6, 16), (24, 1, 1, 16), stride=2, padding=1, **NHWC), False),
    (ConvSignature((1, 9, 7, 16), (24, 3, 1, 16), stride=2, **NHWC), False),
]


def test_rows_that_are_one_line_are_walked_as_one(level):
    cases = []
    for signature, one_line in ONE_LINE:
        problem = signature.geometry
        space = SOLVER.search_space(problem, level)
        default = SOLVER.default_config(problem, level)
        for rows in {space.axes["item_rows"][0], space.axes["item_rows"][-1]}:
            wanted = default.replace(
                pack=1, tile_h=1, tile_w=min(5, space.axes["tile_w"][-1]), vectors=1, item_rows=rows, item_columns=0
            )
            assert DenseTile(dense_form(problem), wanted, level).one_line == one_line
            cases.append((signature, SOLVER.draft(problem, wanted, level), wanted))
        assert not one_line or not any(
            space.contains(default.replace(pack=1, tile_h=2, tile_w=w, vectors=1, item_rows=2))
            for w in space.axes["tile_w"]
        )
    compile_drafts([draft for _, draft, _ in cases], level)
    for signature, draft, config in cases:
        arguments = sample_args(signature, 3)
        got = call_draft(draft, level, signature, arguments, 1)
        assert_close(signature, logical(signature, got), answer(signature, arguments)), config


def test_random_configs_are_right(level):
    rng = random.Random(7)
    cases = []
    for plain in rng.sample([*SIGNATURES, *GEMMS], 12):
        signature = with_dtype(plain, rng.choice(["fp32", "fp32", "bf16"]))
        problem = signature.geometry
        space = SOLVER.search_space(problem, level)
        for _ in range(400):
            config = SOLVER.default_config(problem, level).replace(
                **{name: rng.choice(values) for name, values in space.axes.items()}
            )
            if space.contains(config):
                cases.append((signature, SOLVER.draft(problem, config, level), config))
                break
    assert len(cases) >= 8
    compile_drafts([draft for _, draft, _ in cases], level)
    for signature, draft, config in cases:
        arguments = sample_args(signature, 2)
        want = answer(signature, arguments)
        for chunk in (0, 1):  # all items in one call; one at a time, last first
            got = call_draft(draft, level, signature, arguments, chunk, initial(signature, arguments))
            assert_close(signature, logical(signature, got), want), config


def test_every_axis_alone(level):
    """Each axis through some of its values on problems that have a strip, channel blocks and several items."""
    count = 2 if level is levels.HIGHEST else 1
    signatures = [
        ConvSignature((2, 9, 130, 64), (40, 2, 2, 64), padding=1, **NHWC),
        ConvSignature((1, 8, 8, 64), (64, 1, 1, 64), stride=2, **NHWC),
        GemmSignature(m=100, n=130, k=64),
    ]
    cases = []
    for signature in signatures:
        problem = signature.geometry
        space, default = SOLVER.search_space(problem, level), SOLVER.default_config(problem, level)
        for name, values in space.axes.items():
            for value in values[-count:]:
                config = default.replace(**{name: value})
                if name == "groups_outer":
                    config = config.replace(channel_groups=2)
                if space.contains(config):
                    cases.append((signature, SOLVER.draft(problem, config, level)))
    compile_drafts([draft for _, draft in cases], level)
    wants = {signature: answer(signature, sample_args(signature, 3)) for signature in signatures}
    for signature, draft in cases:
        got = call_draft(draft, level, signature, sample_args(signature, 3), chunk=3)
        assert_close(signature, logical(signature, got), wants[signature])


def test_one_artifact_serves_every_batch_and_length():
    target = CPU_TARGETS["x86_64-v4-bf16"]
    texts = set()
    for n in (1, 4):
        problem = ConvSignature((n, 14, 14, 32), (64, 3, 3, 32), padding=1, **NHWC).geometry
        config = SOLVER.default_config(
            ConvSignature((1, 14, 14, 32), (64, 3, 3, 32), padding=1, **NHWC).geometry, target
        )
        texts.add(SOLVER.draft(problem, config, target).sources)
    assert len(texts) == 1
    gemms = [GemmSignature(m=m, n=64, k=32).geometry for m in (560, 1680)]
    config = SOLVER.default_config(gemms[0], target).replace(item_columns=112, tile_w=14, vectors=2)
    assert len({SOLVER.draft(g, config, target).sources for g in gemms}) == 1


@pytest.mark.parametrize(
    ("arch", "dtype", "rolled"),
    [("x86_64-v4", "bf16", True), ("x86_64-v4-bf16", "bf16", False), ("x86_64-v4", "fp16", False),
     ("x86_64-v2", "fp16", True), ("aarch64", "bf16", True), ("x86_64-v3", "fp32", False)],
)  # fmt: skip
def test_long_roundings_stand_in_a_tile_once(arch, dtype, rolled):
    """And not once for each register: texts of bf16 had twice the bytes of those of fp32."""
    target = CPU_TARGETS[arch]
    problem = GemmSignature(m=560, n=64, k=32, dtype=dtype).geometry
    config = SOLVER.default_config(problem, target).replace(tile_h=1, tile_w=4, vectors=2)
    body = SOLVER.draft(problem, config, target).sources[0].text.partition("_t1x4(")[2].partition("\n}\n")[0]
    assert body.count(f"ts_store_{dtype}(") == (2 if rolled else 8)


def test_drafts_are_reproducible():
    problem = SIGNATURES[0].geometry
    target = CPU_TARGETS["x86_64-v3"]
    config = SOLVER.default_config(problem, target)
    assert SOLVER.draft(problem, config, target) == SOLVER.draft(problem, config, target)


def test_refusals_have_reasons():
    target = CPU_TARGETS["x86_64-v3"]
    for signature, reason in [
        (ConvSignature((1, 8, 9, 9), (8, 8, 3, 3)), "layout not read"),
        (ConvSignature((1, 9, 9, 8), (8, 3, 3, 8), mode="wrw", **NHWC), "direction not covered"),
        (ConvSignature((1, 9, 9, 8), (8, 3, 3, 8), dtype="fp64", **NHWC), "dtype not covered"),
        (ConvSignature((1, 9, 9, 8), (8, 3, 3, 1), groups=8, **NHWC), "group width not covered"),
    ]:
        verdict = SOLVER.applicable(signature.geometry, target)
        assert isinstance(verdict, Rejected)
        assert verdict.reason == reason


def test_rewritten_forms_are_right(level):
    signature = ConvSignature((2, 6, 7, 24), (40, 1, 1, 24), epilogue=GELU, **NHWC)
    arguments = sample_args(signature, 6)
    want = answer(signature, arguments)
    forms = rewrites(signature)
    assert [form.name for form in forms] == ["", "gemm"]
    for form in forms:
        problem = form.signature.geometry
        draft = SOLVER.draft(problem, SOLVER.default_config(problem, level), level)
        got = call_draft(draft, level, signature, arguments)
        assert_close(signature, logical(signature, got), want)


def test_predictions_are_quick_and_positive():
    for target in CPU_TARGETS.values():
        for signature in (*SIGNATURES, *GEMMS):
            problem = signature.geometry
            config = SOLVER.default_config(problem, target)
            assert 0 < SOLVER.predict(problem, config, target) < 0.1


def test_few_registers_do_not_leave_a_narrow_rest():
    """56 columns in tiles of one row and six columns would end with two columns, as slow as four: latency."""
    problem = ConvSignature((1, 56, 56, 64), (64, 3, 3, 64), padding=1, **NHWC).geometry
    target = CPU_TARGETS["x86_64-v3"]
    config = SOLVER.default_config(problem, target)
    assert config["tile_h"] > 1
    one_row = config.replace(tile_h=1, tile_w=6)
    assert SOLVER.predict(problem, config, target) < SOLVER.predict(problem, one_row, target)


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_threads_share_strips_where_there_are_enough(cores):
    """The items of one strip are handed out together, unless threads would find too few."""
    problem = ConvSignature((8, 56, 56, 64), (128, 3, 3, 64), padding=1, **NHWC).geometry
    target = replace(CPU_TARGETS["x86_64-v3"], cores=cores)
    config = SOLVER.default_config(problem, target)
    for rows, kg in ((56, 4), (4, 4), (1, 2)):
        (launch,) = SOLVER.draft(problem, config.replace(item_rows=rows, channel_groups=kg, groups_outer=0), target).run
        items, together = launch.grid[0], launch.block[0]
        assert items == 8 * 56 // rows * kg
        if cores == 1:
            assert together >= items
        elif items >= 8 * cores * kg:
            assert together % kg == 0
        else:
            assert together == 1
        assert cores == 1 or together <= max(kg, items // (32 * cores) + kg)


def test_asking_for_the_next_input_changes_nothing(level):
    """Inputs larger than the last-level cache; here there is none."""
    target = replace(level, l3_bytes=0)
    signatures = [
        ConvSignature((3, 9, 14, 24), (40, 1, 1, 24), **NHWC),
        ConvSignature((2, 11, 7, 8), (70, 3, 2, 8), **NHWC),
        ConvSignature((2, 5, 7, 16), (16, 2, 2, 32), transposed=True, stride=2, **NHWC),
        GemmSignature(m=100, n=130, k=64),
        GemmSignature(m=20, n=40, k=8, batch=3, stride_b=0),
    ]
    cases = []
    for signature in signatures if level is levels.HIGHEST else signatures[levels.HERE.index(level) % 2 :: 2]:
        problem, before = signature.geometry, len(cases)
        space, default = SOLVER.search_space(problem, target), SOLVER.default_config(problem, target).replace(pack=0)
        for changes in (
            {},
            {"item_rows": 2},
            {"channel_groups": 2},
            {"channel_groups": 2, "groups_outer": 1},
            {"tile_h": 1, "tile_w": 3, "vectors": 1, "item_rows": 1},
        ):
            config = default.replace(**changes)
            if space.contains(config):
                draft = SOLVER.draft(problem, config, target)
                assert "ahead += 64" in draft.sources[0].text
                cases.append((signature, draft))
        assert len(cases) >= before + 2
    compile_drafts([draft for _, draft in cases], target)
    for signature, draft in cases:
        arguments = sample_args(signature, 3)
        got = call_draft(draft, target, signature, arguments, 1, initial(signature, arguments))
        assert_close(signature, logical(signature, got), answer(signature, arguments))


def test_inputs_in_the_caches_are_not_asked_for():
    for target in (CPU_TARGETS["x86_64-v3"], CPU_TARGETS["x86_64-v4"]):
        for batch, ahead in ((1, False), (16, True)):
            problem = ConvSignature((batch, 56, 56, 256), (64, 1, 1, 256), **NHWC).geometry
            draft = SOLVER.draft(problem, SOLVER.default_config(problem, target), target)
            assert ("ahead += 64" in draft.sources[0].text) == ahead
