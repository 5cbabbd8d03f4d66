"""wgmma of TF32, fp8 and int8: what is covered, maps in bytes, plans on copies, and machine code without spills."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tilesmith.codegen.cuda.hopper import product_text, product_widths
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Space, TensorMap
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import acc_dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.cuda.halo.solver import HaloSm90Solver
from tilesmith.solvers.cuda.wgmma.copied import CopiedGemmSolver, copies_of
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver, GemmSm90Solver
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import cuda_target
from tilesmith.toolchain.build import build_unit

H200 = cuda_target("sm_90a", 132)
GEMM, COPIED, CONV = GemmSm90Solver(), CopiedGemmSolver(), ConvSm90Solver()
TYPES = ({"dtype": "fp32", "acc_dtype": "tf32"}, {"dtype": "fp8e4m3", "c_dtype": "bf16"}, {"dtype": "int8"})
SCALED = Epilogue(bias=True, scale="channel", activation="relu")


def conv(mode="fwd", c=64, k=72, **more):
    return ConvSignature((2, 9, 8, c), (k, 3, 3, c), mode=mode, padding=1, shared_layout="NHWC", **more)


def drafted(solver, signature, **values):
    geometry = signature.canonical.geometry
    assert solver.applicable(geometry, H200) == Accepted()
    config = solver.default_config(geometry, H200).replace(**values)
    assert solver.search_space(geometry, H200).contains(config)
    return solver.draft(geometry, config, H200)


@pytest.mark.parametrize("types", TYPES, ids=lambda types: types["dtype"])
def test_every_point_makes_a_plan_that_reads_128_bytes_of_k(types):
    rng = random.Random(0)
    for trans_b in (False, True):
        signature = GemmSignature(300, 320, 640, trans_b=trans_b, **types).canonical
        geometry = signature.geometry
        solver = GEMM if trans_b or types["dtype"] == "fp32" else COPIED
        space = solver.search_space(geometry, H200)
        points = [solver.default_config(geometry, H200), *solver.ranked(geometry, H200)[:8]]
        drawn = (type(points[0])(tuple((n, rng.choice(v)) for n, v in space.axes.items())) for _ in range(50))
        points += [point for point in drawn if space.allowed(point)]
        for config in points:
            assert 0 < solver.predict(geometry, config, H200) < 1
            draft = solver.draft(geometry, config, H200)
            assemble(draft, signature, solver.name, str(config), H200, ["0" * 64] * len(draft.sources))
            kernel = next(step for step in draft.run if "wgmma" in step.symbol)
            for held in kernel.parameters[:2]:
                assert isinstance(held, TensorMap)
                assert held.box[0] * acc_dtype(held.dtype).nbytes == held.swizzle == 128


def test_what_is_covered():
    odd = (3, 7, 64, 77)
    for types, (ta, tb), m, n, k in product(TYPES, product((False, True), repeat=2), odd, odd, odd):
        geometry = GemmSignature(m, n, k, trans_a=ta, trans_b=tb, **types).canonical.geometry
        assert Accepted() in (GEMM.applicable(geometry, H200), COPIED.applicable(geometry, H200))
    for types in TYPES:
        more = {"output_dtype": "bf16"} if types["dtype"] == "fp8e4m3" else {}
        kinds = {name: value for name, value in types.items() if name != "c_dtype"}
        assert CONV.applicable(conv(**kinds, **more).canonical.geometry, H200) == Accepted()
        assert isinstance(HaloSm90Solver().applicable(conv(**kinds, **more).canonical.geometry, H200), Rejected)
        if types["dtype"] != "int8":
            assert isinstance(CONV.applicable(conv("bwd", **kinds).canonical.geometry, H200), Rejected)


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (GemmSignature(64, 64, 64, trans_b=True), "dtype"),
        (GemmSignature(64, 64, 64, a_dtype="fp8e4m3", b_dtype="bf16", c_dtype="bf16", trans_b=True), "dtype"),
        (GemmSignature(64, 64, 64, dtype="int8", beta=2, trans_b=True), "epilogue"),
        (GemmSignature(64, 64, 64, dtype="int8"), "k is not"),
        (GemmSignature(64, 64, 64, trans_a=True, acc_dtype="tf32"), "k is not"),
        (GemmSignature(64, 64, 72, dtype="fp8e4m3", trans_b=True), "16 bytes"),
    ],
)
def test_refusals_name_their_reason(signature, word):
    verdict = GEMM.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict)


def test_instructions_have_the_columns_that_the_type_has():
    assert 40 in product_widths("fp8e5m2")
    assert 40 not in product_widths("int8")
    assert "m64n24k32.s32.s8.s8" in product_text("p", 24, "int8", False, False)
    assert "m64n40k32.f32.e4m3.e5m2" in product_text("p", 40, "fp8e4m3", False, False, "fp8e5m2")
    for refused in (("int8", 40, False), ("fp8e4m3", 64, True)):
        with pytest.raises(ValueError, match=refused[0]):
            product_text("p", refused[1], refused[0], refused[2], False)


def test_operands_are_copied_as_their_types_are_read():
    """Bytes by k both, of TF32 the smaller one, 16 bits in their own order."""
    wanted = {"fp32": [True, False], "fp8e4m3": [True, True], "int8": [True, True], "bf16": [False, False]}
    for types in (*TYPES, {"dtype": "bf16"}):
        found = copies_of(GemmSignature(33, 47, 64, trans_a=True, **types).canonical.geometry)
        assert [copy.turned for copy in found] == wanted[types["dtype"]]
    (copy,) = copies_of(GemmSignature(48, 32, 64, trans_a=True, acc_dtype="tf32").canonical.geometry)
    assert (copy.slot, copy.turned, copy.copied_strides) == (1, True, (0, 64, 1))
    few = GemmSignature(333, 77, 203, dtype="bf16").canonical.geometry
    assert "77 columns" in str(COPIED.applicable(few, H200))
    draft = drafted(COPIED, GemmSignature(333, 77, 403, dtype="bf16", batch=2))
    copying, kernel = draft.run[:2]
    assert "padrows" in copying.symbol
    maps = [held for held in kernel.parameters[:2] if isinstance(held, TensorMap)]
    assert {held.pointer.space for held in maps} == {Space.WORKSPACE}
    assert sorted(held.strides[0] for held in maps) == [160, 832]  # of whole sectors
    assert draft.workspace_bytes >= 2 * (333 * 816 + 403 * 160)


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        (GemmSignature(4096, 4096, 4096, dtype="fp8e4m3", c_dtype="bf16", trans_b=True), "wgmma_gemm"),
        (GemmSignature(4096, 4096, 4096, dtype="int8"), "wgmma_gemm_copied"),
        (GemmSignature(2503, 1999, 3001, dtype="bf16"), "wgmma_gemm_copied"),
        (GemmSignature(4096, 4096, 4096, acc_dtype="tf32"), "wgmma_gemm"),
    ],
)
def test_estimates_choose_them(signature, name):
    found = {
        c.name: c.solver.predict(c.geometry, c.solver.default_config(c.geometry, H200), H200)
        for c in candidates(signature.canonical, H200)
        if isinstance(c.verdict, Accepted)
    }
    assert min(found, key=found.__getitem__) == name


def test_kernels_compile_without_spills(tmp_path):
    big = {"m": 4096, "n": 4096, "k": 4096}
    drafts = [
        drafted(GEMM, GemmSignature(**big, dtype="fp8e4m3", c_dtype="bf16", trans_b=True)),
        drafted(GEMM, GemmSignature(**big, acc_dtype="tf32")),
        drafted(GEMM, GemmSignature(**big, dtype="int8", trans_b=True, epilogue=SCALED)),
        drafted(GEMM, GemmSignature(2503, 1999, 3008, dtype="bf16", trans_b=True), swap_mn=0),
    ]
    sources = {source.symbol: source for draft in drafts for source in draft.sources}
    found = build_unit(list(sources.values()), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []
    assert [r.warnings for r in found if any("C75" in w for w in r.warnings)] == []


@pytest.mark.parametrize(
    ("mode", "epilogue"),
    [("fwd", Epilogue(bias=True, residual=True)), ("bwd", Epilogue(bias=True, activation="gelu"))],
    ids=["fwd", "bwd"],
)
def test_sums_of_fp32_results_stay_in_their_registers(mode, epilogue, tmp_path):
    """The compiler carried them through the loop as words, and half of the results were wrong; it is refused now."""
    types = {"dtype": "fp32", "acc_dtype": "tf32", "epilogue": epilogue}
    signature = ConvSignature((1, 64, 64, 256), (256, 1, 1, 256), mode=mode, shared_layout="NHWC", **types).canonical
    gemm = next(c for c in candidates(signature, H200) if c.name == "wgmma_gemm@gemm")
    config = gemm.solver.default_config(gemm.geometry, H200)
    for products_m, block_n in ((2, 128), (2, 64), (1, 144)):
        config = config.replace(
            warpgroups=2, products_m=products_m, block_n=block_n, block_k=32, stages=0, pingpong=1, cluster_k=1,
            split_k=1, swap_mn=1,
        )  # fmt: skip
        draft = gemm.solver.draft(gemm.geometry, config, H200)
        build_unit(list(draft.sources), H200, tmp_path / "unit.cubin")
