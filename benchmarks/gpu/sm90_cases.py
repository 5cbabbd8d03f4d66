"""Small and odd problems that between them reach every branch of the sm_90a kernel."""

import random

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.solver import Accepted


def _gemm(m, n, k, ta=False, tb=False, dtype="bf16", out=None, **more):
    return GemmSignature(
        m=m, n=n, k=k, trans_a=ta, trans_b=tb, a_dtype=dtype, b_dtype=dtype, c_dtype=out or dtype, **more
    )


def _conv(x, w, mode="fwd", layout="NHWC", dtype="bf16", **more):
    return ConvSignature(input_shape=x, kernel_shape=w, mode=mode, shared_layout=layout, dtype=dtype, **more)


FULL = Epilogue(bias=True, activation="gelu", residual=True)


def problems():
    """``(signature, NaN planted too)``."""
    g = _gemm
    yield g(256, 192, 320), True
    yield g(256, 192, 320, tb=True), True
    yield g(200, 136, 328, ta=True), True
    yield g(200, 136, 328, ta=True, tb=True), True
    yield g(333, 1000, 72, dtype="fp16"), True
    yield g(1, 512, 1024), True
    yield g(16, 1032, 2048, tb=True), False
    yield g(5, 264, 4096, tb=True, epilogue=FULL), False
    yield g(96, 256, 512, epilogue=FULL, dtype="fp16"), False
    yield g(300, 328, 200, alpha=0.5, beta=-1.5), False
    yield g(300, 327, 200, tb=True, alpha=2.0, beta=1.0), False
    yield g(130, 201, 136, tb=True, out="fp32", epilogue=Epilogue(bias=True, activation="silu")), False
    yield g(128, 72, 136, batch=5, tb=True), False
    yield g(72, 200, 104, batch=3, ta=True), False
    yield g(520, 264, 328), True
    yield g(328, 200, 2048, dtype="fp16", epilogue=Epilogue(bias=True, activation="relu")), False
    yield g(400, 136, 1032, batch=2, epilogue=FULL), False
    yield g(37, 1096, 2056, alpha=0.5, beta=0.25), True
    yield g(1, 4096, 4096), False
    yield g(3000, 264, 200, tb=True), True
    yield g(1111, 512, 256), False
    yield g(20040, 136, 200, epilogue=Epilogue(bias=True, activation="relu")), False
    yield g(17000, 264, 72, tb=True, dtype="fp16"), True
    yield g(384, 2048, 1024, lda=1032, ldb=2056, ldc=2056, epilogue=Epilogue(bias=True, activation="relu")), False
    c = _conv
    both = [("fwd", True), ("bwd", True), ("wrw", True)]
    for mode, nan in both:
        yield c((3, 13, 11, 72), (40, 3, 3, 72), mode, padding=1), nan
        yield c((2, 17, 14, 64), (96, 3, 3, 64), mode, padding=1, stride=2), nan
        yield c((2, 18, 20, 24), (200, 5, 3, 24), mode, padding=(2, 0), stride=(2, 3)), nan
        yield c((4, 15, 16, 128), (128, 3, 3, 128), mode, padding=2, dilation=2, dtype="fp16"), nan
        yield c((2, 16, 16, 96), (64, 1, 1, 96), mode, stride=2), False
        yield c((8, 14, 14, 256), (256, 3, 3, 256), mode, padding=1), False
        yield c((2, 6, 9, 10, 40), (48, 3, 3, 3, 40), mode, "NDHWC", padding=1), nan
        yield c((1, 7, 8, 12, 16), (32, 2, 3, 2, 16), mode, "NDHWC", padding=(0, 1, 1), stride=(2, 1, 2)), False
        yield c((3, 50, 64), (72, 5, 64), mode, "NWC", padding=3, dilation=2, stride=2), False
        yield c((2, 12, 12, 64), (64, 4, 4, 64), mode, padding=1, stride=2), False
    yield c((2, 9, 37, 24), (72, 3, 3, 24), "wrw"), True
    yield c((2, 20, 19, 64), (136, 5, 7, 64), "wrw", padding=(2, 3)), True
    yield c((3, 21, 12, 40), (16, 7, 1, 40), "wrw", padding=(3, 0), dilation=(2, 1)), True
    yield c((2, 5, 9, 13, 32), (32, 3, 3, 3, 32), "wrw", "NDHWC", padding=(2, 1, 1), dilation=(2, 1, 1)), True
    yield c((1, 6, 300, 64), (64, 3, 3, 64), "wrw", padding=1), True
    yield c((4, 50, 64), (72, 5, 64), "wrw", "NWC", padding=2), True
    yield c((2, 14, 14, 64), (3, 3, 3, 64), padding=1), True
    yield c((40, 40, 40, 64), (72, 1, 1, 64), stride=2), True  # columns stay
    yield c((16, 28, 28, 32), (40, 3, 3, 32), padding=1), True
    yield c((2, 14, 14, 64), (72, 3, 3, 64), padding=1, epilogue=FULL), False
    yield c((2, 14, 14, 64), (72, 3, 3, 64), "bwd", padding=1, stride=2, epilogue=FULL), False
    yield c((2, 14, 14, 64), (72, 3, 3, 64), "bwd", padding=1, epilogue=Epilogue(activation="clamp")), False


WANTED = (
    {"pingpong": 1}, {"cluster_k": 2}, {"cluster_k": 3}, {"cluster_k": 4, "blocks_per_sm": 2}, {"cluster_k": 5},
    {"cluster_k": 8}, {"swap_mn": 1}, {"swap_mn": 1, "cluster_k": 2}, {"swap_mn": 1, "pingpong": 1},
    {"swap_mn": 1, "split_k": 3}, {"split_k": 3}, {"cluster_k": 2, "split_k": 2}, {"warpgroups": 3},
    {"products_m": 2}, {"blocks_per_sm": 2}, {"block_k": 16}, {"resident": 1}, {"resident": 1, "pingpong": 1},
    {"resident": 1, "swap_mn": 1}, {"slab_n": 32}, {"cluster_m": 2}, {"cluster_m": 2, "pingpong": 1},
    {"cluster_m": 2, "swap_mn": 1}, {"cluster_m": 2, "products_m": 2},
)  # fmt: skip


def check_cases(pick="", count=7):
    from sm90 import SOLVERS, TARGET

    found = []
    rng = random.Random(1)
    for problem, nan in problems():
        signature = problem.canonical
        key, g = signature.key(), signature.geometry
        if pick and not any(p in key for p in pick.split(",")):
            continue
        accepted = [s for s in SOLVERS.values() if isinstance(s.applicable(g, TARGET), Accepted)]
        if not accepted:
            verdicts = [str(s.applicable(g, TARGET)) for s in SOLVERS.values()]
            raise SystemExit(f"no solver takes {key}: {verdicts}")
        for solver in accepted:
            found += _of_solver(solver, key, g, nan, rng, count)
    return found


def _of_solver(solver, key, g, nan, rng, count):
    from sm90 import TARGET, Case

    space = solver.search_space(g, TARGET)
    configs = {solver.default_config(g, TARGET): None}
    for want in rng.sample(WANTED, len(WANTED)):
        if len(configs) > count:
            break
        if any(v not in space.axes.get(n, ()) for n, v in want.items()):
            continue
        for _ in range(400):
            values = {n: rng.choice(v) for n, v in space.axes.items()} | want
            config = type(next(iter(configs)))(tuple(values.items()))
            if space.allowed(config):
                configs[config] = None
                break
    chosen = list(configs)
    found = [Case(key, key, solver.name, str(config)) for config in chosen]
    if nan:
        found += [Case(key, key, solver.name, str(config), special="nan") for config in chosen[:4]]
    return found
