"""Other libraries' names for the same thing, which do not exist here, and what to type instead."""

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
    """Says what to type for an activation that another library calls ``name`` (text or a module); may be empty."""
    if name is None:
        return "activation='none'"
    text = (name if isinstance(name, str) else type(name).__name__).strip().lower().rpartition(".")[2]
    return _ACTIVATIONS.get(text) or (f"activation={text!r}" if text in known else "")
