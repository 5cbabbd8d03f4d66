"""A problem's tensors on the device, its reference answer, and PyTorch's own way to compute it."""

import math

import torch
import torch.nn.functional as F

from tilesmith.plan.slots import slots_of
from tilesmith.problems.geometry import ConvGeometry

TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
GUARD = 256  # elements before and after a tensor


def _activation(e, r):
    return {
        "none": lambda: r, "relu": lambda: torch.relu(r), "leaky_relu": lambda: F.leaky_relu(r, e.slope),
        "silu": lambda: F.silu(r), "gelu": lambda: F.gelu(r), "clamp": lambda: torch.clamp(r, e.low, e.high),
    }[e.activation]()  # fmt: skip


class Problem:
    def __init__(self, signature, seed=0, exact=None):
        self.signature = signature.canonical
        self.g = self.signature.geometry
        g = torch.Generator(device="cuda")
        g.manual_seed(seed)
        self.buffers, self.slots, self.specs = [], [], slots_of(self.signature)
        for spec in self.specs:
            span = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=False))
            whole = torch.randn(span + 2 * GUARD, device="cuda", generator=g, dtype=torch.float32)
            whole = whole.to(TORCH[spec.dtype])
            self.buffers.append(whole)
            self.slots.append(whole[GUARD : GUARD + span])
        self.initial = self.slots[-1].clone()
        small = self.signature_flops() < 3e9
        self.wide = torch.float64 if (small if exact is None else exact) else torch.float32
        self.ref = None

    def signature_flops(self):
        from tilesmith.problems.work import flops

        return flops(self.signature)

    @property
    def conv(self):
        return isinstance(self.g, ConvGeometry)

    def views(self):
        """Slots as logical tensors: (N, C, D, H, W) each, or (batch, rows, columns)."""
        g = self.g
        names = (
            {"fwd": (g.x, g.w, g.y), "bwd": (g.y, g.w, g.x), "wrw": (g.y, g.x, g.w)}[g.direction]
            if self.conv
            else (g.a, g.b, g.c)
        )
        index = [0, 1, len(self.slots) - 1]
        out = []
        for view, i in zip(names, index, strict=False):
            shape = view.shape if self.conv else (view.batch, view.rows, view.columns)
            out.append(self.slots[i].as_strided(shape, view.strides))
        return out

    def result(self):
        return self.views()[2]

    def _conv(self, a, b, direction):
        g = self.g
        flat = max(g.input[0], g.filter[0], g.output[0]) == 1 and g.padding[0] == 0
        cut = (lambda t: t.squeeze(2)) if flat else (lambda t: t)
        s, p, d = (list(t[1:] if flat else t) for t in (g.stride, g.padding, g.dilation))
        zeros = [0] * len(s)
        if direction == "fwd":
            r = torch.ops.aten.convolution(cut(a), cut(b), None, s, p, d, False, zeros, g.groups)
        else:
            x_shape = (g.n, g.c, *(g.input[1:] if flat else g.input))
            w_shape = (g.k, g.c // g.groups, *(g.filter[1:] if flat else g.filter))
            # The tensor that is not read still tells cuDNN the layout of the result.
            like = self.views()[2]
            shape = w_shape if direction == "wrw" else x_shape
            if like.dtype != a.dtype or like.device != a.device or list(cut(like).shape) != list(shape):
                like = torch.empty(like.shape, dtype=a.dtype, device=a.device)
            x = cut(b) if direction == "wrw" else cut(like)
            w = cut(b) if direction == "bwd" else cut(like)
            mask = [direction == "bwd", direction == "wrw", False]
            found = torch.ops.aten.convolution_backward(cut(a), x, w, None, s, p, d, False, zeros, g.groups, mask)
            r = found[0 if direction == "bwd" else 1]
        return r.unsqueeze(2) if flat else r

    def _accumulated(self, a, b, extra, initial):
        g = self.g
        if self.conv:
            r = self._conv(a, b, g.direction)
        else:
            r = g.alpha * (a @ b)
            if g.beta:
                r = r + g.beta * initial
        e = g.epilogue
        at = 0
        if e.bias:
            bias = extra[at]
            at += 1
            r = r + (bias.view(1, -1, 1, 1, 1) if self.conv else bias)
        if e.residual:
            r = r + extra[at]
        return _activation(e, r)

    def reference(self, device="cuda"):
        """The definition in ``self.wide``, on the CPU when NaN and Inf count."""
        if self.ref is not None and device == "cuda":
            return self.ref
        a, b, out = (v.to(device).to(self.wide) for v in self.views())
        initial = self.initial.as_strided(out.shape, self.views()[2].stride()).to(device).to(self.wide)
        extra = []
        e = self.g.epilogue
        if e.bias:
            extra.append(self.slots[2].to(device).to(self.wide))
        if e.residual:
            v = self.views()[2]
            extra.append(self.slots[2 + e.bias].as_strided(v.shape, v.stride()).to(device).to(self.wide))
        torch.backends.cudnn.benchmark = False
        if self.conv and a.numel() > 2**28 and self.g.direction == "fwd":
            parts = [self._accumulated(a[i : i + 1], b, extra, initial) for i in range(a.shape[0])]
            r = torch.cat(parts)
        else:
            r = self._accumulated(a, b, extra, initial)
        torch.backends.cudnn.benchmark = True
        self.ref = r
        return r

    def length(self):
        return self.g.reduction_length if self.conv else self.g.k

    def poison(self):
        whole = self.buffers[-1]
        whole.fill_(float("nan"))
        whole[:GUARD] = 7.0
        whole[-GUARD:] = 7.0
        if not self.conv and self.g.beta:
            self.slots[-1].copy_(self.initial)

    def error(self):
        """(relative error, worst excess over the bound), or a text that says what is wrong."""
        out, ref = self.result().to(self.wide), self.reference()
        whole = self.buffers[-1]
        if not (bool((whole[:GUARD] == 7.0).all()) and bool((whole[-GUARD:] == 7.0).all())):
            return "guard overwritten"
        if bool(out.isnan().any()):
            bad = out.isnan()
            return f"NaN in {bad.float().mean().item():.3%}, first at {[int(i[0]) for i in bad.nonzero(as_tuple=True)]}"
        d = (out - ref).abs()
        unit = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-20}[self.specs[-1].dtype]
        slack = 1 if self.wide == torch.float64 else 3  # the reference rounds as well
        bound = 1.01 * unit * ref.abs() + slack * (2.0**-18 * math.sqrt(self.length()) * 4 + 2.0**-22 * self.length())
        worst = (d / bound).max().item()
        rel = (d.norm() / ref.norm().clamp_min(1e-30)).item()
        if worst > 1.0:
            bad = d > bound
            first = [int(i[0]) for i in bad.nonzero(as_tuple=True)]
            return f"{bad.float().mean().item():.3%} wrong, worst {worst:.1f}x, rel {rel:.2e}, first {first}"
        return (rel, worst)

    def rival(self):
        """PyTorch on the same memory."""
        a, b, out = self.views()
        if self.conv:
            direction = self.g.direction
            return lambda: self._conv(a, b, direction)
        return (lambda: torch.matmul(a[0], b[0])) if a.shape[0] == 1 else (lambda: torch.matmul(a, b))
