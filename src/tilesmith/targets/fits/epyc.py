"""Constants of a server CPU with AVX-512 (an AMD EPYC of which no more is known), from runs of one thread."""

from __future__ import annotations

from tilesmith.targets.fits.cpu_fit import CpuFit, DenseFit, GroupedFit, WrwFit

EPYC = CpuFit(
    card="epyc",
    arch="x86_64-v4-bf16",
    dense=DenseFit(
        clock=3.8e9,
        latency=4.2,
        loads=2.0,
        issued=7.0,
        tile=14.0,
        dots=1.0,
        segment=4.0,
        item=100.0,
        copied=16.0,
        gathered=0.7,
        l2=60.0,
        l3=30.0,
        dram=10.0,
    ),
    grouped=GroupedFit(
        clock=3.8e9,
        latency=4.0,
        loads=1.9,
        issued=5.5,
        tile=14.0,
        dots=1.0,
        strip=40.0,
        ahead=1.3,
        l2=40.0,
        l3=24.0,
        dram=9.0,
    ),
    wrw=WrwFit(
        clock=3.8e9,
        latency=4.0,
        loads=1.9,
        issued=5.5,
        tile=30.0,
        dots=1.0,
        row=8.0,
        copied=16.0,
        l2=40.0,
        l3=24.0,
        dram=9.0,
    ),
)
