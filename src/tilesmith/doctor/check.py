"""The result of one check of a machine."""

from __future__ import annotations

from dataclasses import dataclass

FINE, NOTE, PROBLEM = "fine", "note", "problem"


@dataclass(frozen=True)
class Check:
    """The result of one check. ``status`` is ``fine``, ``note`` (nothing is wrong, but worth knowing) or ``problem``;
    ``advice`` says what to type.
    """

    name: str
    status: str
    detail: str
    advice: str = ""
