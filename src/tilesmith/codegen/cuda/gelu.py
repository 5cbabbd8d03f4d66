"""CUDA text of exact GELU, ``gelu(v) = v * phi(v)`` with the normal distribution's ``phi``.

``phi(-t) = 2 ** P(t)``: working with the tail keeps the relative error small for negative ``v``, where ``1 + erf(v)``
cancels. ``P`` is a weighted minimax fit of ``log2 phi(-t)``; beyond the fit it falls faster than the logarithm does,
and its leading coefficient is negative, so that the tail of Inf is 0. ``|step - tail|`` is ``phi(v)`` where ``step`` is
1 of positive ``v`` and 0 of others: GELU of -Inf is NaN, as in PyTorch, because ``phi`` is 0 there.

A polynomial of degree ``n`` makes ``n + 4`` instructions: ``|v|`` is none. A type of few bits hides more, and has a
lower degree: the check of a kernel's results allows an epilogue eight roundings (2^-24) of the argument and 2^-10 of
the result's own, of which these fits take two thirds. Of the result itself bf16's errs by 3e-4 for ``v`` above -9 and
fp16's by 1e-4 above -6, a fifth of half a step at most; beyond, an fp16 result is 0. In fp32 the error of ``phi`` is at
most 1.6e-7, and at most 6e-5 of ``phi`` itself above -9 (``tests/cuda/test_activation_numbers.py``).
"""

from __future__ import annotations

# Of P, highest power first. benchmarks/gelu_tail.py fits those of few bits.
_FP32 = (-5.0383399674558405e-09, 2.10906534903188e-07, -3.6313444979896303e-06, 3.185109017067589e-05,
         -0.00012233524466864765, -0.0003261167148593813, 0.007334748283028603, -0.05269014462828636,
         -0.4591446816921234, -1.151112675666809, -0.9999998807907104)  # fmt: skip
FEW_BITS = {
    "fp8": (-0.0003649149730335921, 0.006297777872532606, -0.04987770691514015, -0.4618940055370331,
            -1.1501920223236084, -1.000049114227295),
    "fp16": (-8.349950348929269e-07, 4.362090112408623e-05, -0.0008084003929980099, 0.008117249235510826,
             -0.05335869640111923, -0.4588770568370819, -1.151151418685913, -0.9999989867210388),
    "bf16": (-1.350195475424698e-06, 5.151697405381128e-05, -0.0008521327981725335, 0.008224979974329472,
             -0.05347520858049393, -0.4588339924812317, -1.1511491537094116, -1.0000005960464478),
}  # fmt: skip


def gelu_body(result: str) -> str:
    """The statements of ``activate(v)`` for results of this type; they call ``exp2_of``."""
    first, *others = FEW_BITS.get("fp8" if result.startswith("fp8") else result, _FP32)
    steps = "".join(f"  log2_tail = fmaf(log2_tail, t, {coefficient!r}f);\n" for coefficient in others)
    return f"""  const float t = fabsf(v), step = __saturatef(v * 1.70141183e38f);
  float log2_tail = {first!r}f;
{steps}  return v * fabsf(step - exp2_of(log2_tail));
"""
