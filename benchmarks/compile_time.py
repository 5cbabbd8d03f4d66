"""Seconds from ``torch.compile`` to the first result: Inductor and the backend ``tilesmith``, on small nets.

    python benchmarks/compile_time.py [--nets residual,mobile,unet] [--repeat N]

Each figure is the smallest of N fresh processes, Inductor's and ours in turn. ``first`` begins with empty caches and no
database; ``remembered`` is the same again in another fresh process: nothing is compiled or measured there. ``eager`` is
the first call of the net itself. PyTorch's compiler is imported before the clock starts, since it costs both the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

NETS = ("residual", "mobile", "unet")
CHILD = """
import json, sys, time
import torch
from torch import nn
from torch.nn import functional as F
import torch._dynamo, torch._inductor.compile_fx, torch._inductor.codegen.cpp, torch._inductor.scheduler

def unit(a, b, size=3, groups=1, stride=1, act=nn.ReLU):
    conv = nn.Conv2d(a, b, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(b), *([act()] if act else []))

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = unit(3, 16, 7, stride=2)
        self.blocks = nn.ModuleList(nn.Sequential(unit(16, 16), unit(16, 16, act=None)) for _ in range(3))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for block in self.blocks:
            x = F.relu(block(x) + x)
        return self.head(x.mean((2, 3)))

def mobile():
    act, layers = nn.Hardswish, [unit(3, 8, stride=2, act=nn.Hardswish)]
    for a, b in ((8, 16), (16, 24)):
        layers += [unit(a, 4 * a, 1, act=act), unit(4 * a, 4 * a, 3, 4 * a, 2, act), unit(4 * a, b, 1, act=None)]
    return nn.Sequential(*layers)

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.up, self.out = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, 2, 1)

    def forward(self, x):
        y = F.silu(self.down(x))
        return self.out(torch.cat([self.up(F.silu(self.deep(y))), y], 1))

name, backend, step = sys.argv[1:4]
torch.manual_seed(0)
net = {"residual": Residual, "mobile": mobile, "unet": UNet}[name]().train(step == "train")
x = torch.randn(2, 3, 64, 64)

def run(call):
    begin = time.perf_counter()
    y = call(x)
    if step == "train":
        y.square().mean().backward()
    return time.perf_counter() - begin

with torch.set_grad_enabled(step == "train"):
    eager = run(net) if backend == "eager" else 0.0
    if backend == "eager":
        print(json.dumps(eager))
    else:
        print(json.dumps(run(torch.compile(net, backend=backend))))
"""


def seconds(net: str, backend: str, step: str, home: str) -> float:
    """Seconds of the first result in a fresh process whose caches lie in ``home``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TILESMITH_", "XDG_"))}
    environment = {**kept, "HOME": home, "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor"}
    command = [sys.executable, "-W", "ignore", "-c", CHILD, net, backend, step]
    return float(json.loads(subprocess.check_output(command, env=environment, text=True).splitlines()[-1]))


def both(net: str, step: str) -> tuple[float, ...]:
    """Inductor's first result with empty caches and again, then ours."""
    found = []
    for backend in ("inductor", "tilesmith"):
        with tempfile.TemporaryDirectory() as home:
            found += [seconds(net, backend, step, home) for _ in range(2)]
    return tuple(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--steps", default="eval,train")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    print("net        step     eager  inductor  tilesmith  ratio   remembered: inductor, tilesmith")
    for net in asked.nets.split(","):
        for step in asked.steps.split(","):
            eager = min(seconds(net, "eager", step, "/nonexistent") for _ in range(asked.repeat))
            runs = [both(net, step) for _ in range(asked.repeat)]
            theirs, theirs_again, ours, ours_again = (min(each) for each in zip(*runs, strict=True))
            print(
                f"{net:10} {step:6} {eager:7.2f} {theirs:9.2f} {ours:10.2f} {ours / theirs:6.2f}"
                f"   {theirs_again:.2f}, {ours_again:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
