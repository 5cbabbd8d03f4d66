"""Constants of an Intel Xeon of the fifth generation, from a virtual machine whose speed other machines changed.

Kernels without matrix tiles have the EPYC's cycles. Two things differ: the clock, and products of pairs of bf16, which
are slower than fp32 (13 layers of ResNet-50 and MobileNetV3, one thread: ``c_dense`` took 4.3 to 8.3 times what the
EPYC's constants say in bf16, and 1.8 to 2.5 times in fp32; command not kept, 2026-11-29).
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.targets.fits.cpu_fit import CpuFit, TilesFit
from tilesmith.targets.fits.epyc import EPYC

_CLOCK, _DOTS = 2.7e9, 0.33
EMERALD_RAPIDS = CpuFit(
    card="emerald-rapids",
    arch="x86_64-v4-amx",
    dense=replace(EPYC.dense, clock=_CLOCK, dots=_DOTS),
    tiles=TilesFit(
        clock=_CLOCK,
        loaded=9.0,
        tile=60.0,
        out=5.0,
        long=25.0,
        item=300.0,
        copied=12.0,
        pixel=4.0,
        l2=40.0,
        l3=8.0,
        dram=4.0,
    ),
    grouped=replace(EPYC.grouped, clock=_CLOCK, dots=_DOTS),
    wrw=replace(EPYC.wrw, clock=_CLOCK, dots=_DOTS),
)
