"""The JavaScript that draws a page: Vega and Vega-Lite, which the package vl-convert-python carries."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from tilesmith.errors import ArgumentError


@dataclass(frozen=True)
class Library:
    """A script for a page, and what it is in words."""

    script: str
    name: str


def begin_library() -> None:
    """Begin to make the script in a thread: it takes a second or two, in which inputs can be read.

    Raises ``ArgumentError`` if the package is not installed.
    """
    _making()


def drawing_library() -> Library:
    """The script, made of the package's own copy, once in a process; nothing is fetched.

    Raises ``ArgumentError`` if the package is not installed.
    """
    return _making().result()


@cache
def _making() -> Future[Library]:
    try:
        import vl_convert  # noqa: F401  # tells it now, and to the caller
    except ImportError:
        raise ArgumentError(
            "a report needs the package that draws it; install it: pip install vl-convert-python"
        ) from None
    with_one = ThreadPoolExecutor(1)
    try:
        return with_one.submit(_made)
    finally:
        with_one.shutdown(wait=False)


def _made() -> Library:
    import vl_convert

    version = vl_convert.get_vegalite_versions()[-1]
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    return Library(script, f"Vega {vl_convert.get_vega_version()}, Vega-Lite {version}")
