"""Runs the solvers of grouped problems and of weight gradients on signatures, against PyTorch's float64 answer."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
from draft_call import call_draft, compile_drafts, logical

import levels
from tilesmith.plan.slots import slots_of
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.solver import Accepted
from torch_answer import torch_answer

ROUNDOFF = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}


TYPES = ("fp32", "bf16", "fp16")


def in_turns(signatures, level):
    """The signatures in the types that a level's defaults are tried with.

    Levels with vectors below 64 bytes take turns, and the others have all signatures. Types go in turns, and where bf16
    has products of its own, all are in bf16.
    """
    first, narrow = levels.HERE.index(level), [each for each in levels.HERE if each.vector_bytes < 64]
    return [
        with_dtype(signature, "bf16" if level.bf16_dot else TYPES[(place + first) % len(TYPES)])
        for place, signature in enumerate(signatures)
        if level not in narrow or level == narrow[place % len(narrow)]
    ]


def with_dtype(signature, name):
    if isinstance(signature, GemmSignature):
        return replace(signature, dtype=name, a_dtype="", b_dtype="", c_dtype="")
    return replace(signature, dtype=name, input_dtype="", kernel_dtype="", output_dtype="")


def on_user_axes(signature, result):
    """The result on the axes of ``torch_answer``."""
    if signature.mode == "bgrad":
        return result
    if signature.mode != "wrw":
        return logical(signature, result)
    layout = parse_layout(signature.canonical.kernel_layout)
    moved = result.transpose([layout.order.index(a) for a in "NCDHW" if a in layout.order])
    return moved if moved.ndim == signature.spatial_dims + 2 else moved[:, :, 0]


def random_config(solver, problem, target, rng):
    """A config of the search space other than the default, or the default where there is none in 200 draws."""
    space, default = solver.search_space(problem, target), solver.default_config(problem, target)
    for _ in range(200):
        config = default.replace(**{name: rng.choice(values) for name, values in space.axes.items()})
        if space.contains(config) and config != default:
            return config
    return default


def draft_all(solver, signatures, target, rng=None):
    """Default drafts, or drafts of random configs; compiled together."""
    drafts = []
    for signature in signatures:
        problem = signature.geometry
        assert solver.applicable(problem, target) == Accepted(), (signature, solver.applicable(problem, target))
        config = random_config(solver, problem, target, rng) if rng else solver.default_config(problem, target)
        assert solver.search_space(problem, target).contains(config), (signature, config)
        assert solver.predict(problem, config, target) > 0
        drafts.append(solver.draft(problem, config, target))
    compile_drafts(drafts, target)
    return drafts


def assert_right(signature, draft, target, seed=1, chunk=0):
    arguments = sample_args(signature, seed)
    got = on_user_axes(signature, call_draft(draft, target, signature, arguments, chunk)).astype(np.float64)
    want = torch_answer(signature, arguments)
    scale = max(1.0, np.abs(want).max())
    bound = ROUNDOFF[slots_of(signature)[-1].dtype] * np.abs(want) * 1.01 + 4e-6 * scale
    bad = ~(np.abs(got - want) <= bound)
    assert not bad.any(), f"{bad.sum()} of {bad.size} wrong: {signature}"


@cache
def planted(signature, place):
    """Arguments with a NaN and an Inf in one of them, and their answer; the same on every level."""
    arguments = sample_args(signature, 4)
    chosen, rng = arguments[place], np.random.default_rng(5 + place)
    for special in (np.nan, np.inf):
        chosen[tuple(rng.integers(0, n) for n in chosen.shape)] = special
    return arguments, torch_answer(signature, arguments)


def assert_specials_spread(signature, draft, target):
    """A NaN and an Inf planted in each operand in turn reach exactly the results whose sums contain it."""
    for place in (0,) if signature.mode == "bgrad" else (0, 1):
        arguments, want = planted(signature, place)
        got = on_user_axes(signature, call_draft(draft, target, signature, arguments)).astype(np.float64)
        assert (np.isnan(got) == np.isnan(want)).all(), signature
        assert (np.isposinf(got) == np.isposinf(want)).all(), signature
        assert (np.isneginf(got) == np.isneginf(want)).all(), signature
        finite = np.isfinite(want)
        assert np.allclose(got[finite], want[finite], rtol=0.02, atol=0.05 * max(1, want[finite].std()))


def assert_defaults_are_right(solver, signatures, level):
    """Numbers, and where NaN and Inf go, of the default kernels, each of which is compiled once."""
    signatures = in_turns(signatures, level)
    for signature, draft in zip(signatures, draft_all(solver, signatures, level), strict=True):
        assert_right(signature, draft, level)
        assert_specials_spread(signature, draft, level)


def sweep_configs(solver, signatures, target, seed):
    """Random configs on some of the signatures; items in reverse order one at a time, and all at once."""
    rng = random.Random(f"{seed} {target.arch}")
    some = rng.sample(signatures, min(6, len(signatures)))
    chosen = [with_dtype(s, rng.choice(["fp32", "fp32", "bf16"])) for s in some]
    for signature, draft in zip(chosen, draft_all(solver, chosen, target, rng), strict=True):
        for chunk in (0, 1):
            assert_right(signature, draft, target, 2, chunk)
