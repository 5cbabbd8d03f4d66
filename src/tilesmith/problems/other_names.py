"""What other libraries call the same: names that do not exist here, and what to type instead."""

from __future__ import annotations

from collections.abc import Sequence

_ACTIVATIONS = {
    "relu6": "activation='clamp', low=0.0, high=6.0",
    "hardtanh": "activation='clamp', low=-1.0, high=1.0",
    "clip": "activation='clamp'",
    "swish": "activation='silu'",
    "leakyrelu": "activation='leaky_relu'",
    "lrelu": "activation='leaky_relu'",
    "linear": "activation='none'",
    "identity": "activation='none'",
    "": "activation='none'",
}


def activation_to_type(name: object, known: Sequence[str]) -> str:
    """What to type for an activation that another library calls ``name`` (text or a module), or nothing."""
    if name is None:
        return "activation='none'"
    text = (name if isinstance(name, str) else type(name).__name__).strip().lower().rpartition(".")[2]
    return _ACTIVATIONS.get(text) or (f"activation={text!r}" if text in known else "")


def padding_text(padding: str, filter_: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> str:
    """What is wrong with a padding that is given as text."""
    text = padding.strip()
    rule = f"padding {padding!r} is text; it is an integer, or one for each of {len(filter_)} spatial axes"
    if text.isascii() and text.isdecimal():
        return f"{rule}; type padding={text}"
    if text.lower() == "valid":
        return f"{rule}; type padding=0"
    if text.lower() != "same":
        return rule
    reach = [d * (f - 1) for d, f in zip(dilation, filter_, strict=True)]
    if max(stride) > 1:
        return f"{rule}; 'same' exists for a stride 1 alone, got {tuple(stride)}"
    if any(r % 2 for r in reach):
        return f"{rule}; for a filter of even size 'same' pads one side more than the other, which np.pad(x, ...) does"
    sides = ", ".join(str(r // 2) for r in reach)
    return f"{rule}; type padding=({sides}{',' * (len(reach) == 1)})"
