"""Suggests names in place of one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 64  # characters of a name: comparing takes their square


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name that is most like ``name``, whatever the case of its letters; empty if none is like it."""
    if not 1 < len(name) <= _LONGEST:
        return ""
    from difflib import get_close_matches

    spelt = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), spelt, n=1, cutoff=0.65)
    return spelt[found[0]] if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about ``name``, such as ``" (did you mean 'tune'?)"``; empty if no known name is like it."""
    found = nearest_name(name, known)
    return f" (did you mean {found!r}?)" if found else ""


def among(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that does not exist: the nearest known name, and all of them."""
    names = list(known)
    return f"{did_you_mean(name, names)}; known: {', '.join(names) or 'none'}"
