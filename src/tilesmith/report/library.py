"""The JavaScript that draws a page: Vega and Vega-Lite, which the package vl-convert-python carries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tilesmith.errors import ArgumentError


@dataclass(frozen=True)
class Library:
    """A script for a page, and what it is in words."""

    script: str
    name: str


@cache
def drawing_library() -> Library:
    """The script, made of the package's own copy in a second or two, once in a process; nothing is fetched.

    Raises ``ArgumentError`` if the package is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise ArgumentError(
            "a report needs the package that draws it; install it: pip install vl-convert-python"
        ) from None
    version = vl_convert.get_vegalite_versions()[-1]
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    return Library(script, f"Vega {vl_convert.get_vega_version()}, Vega-Lite {version}")
