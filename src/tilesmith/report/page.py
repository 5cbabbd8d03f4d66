"""One HTML file: the data, the code that draws it, and nothing from a network."""

from __future__ import annotations

import base64
import html
import json
import zlib
from importlib.resources import files
from pathlib import Path

from tilesmith.errors import FileFormatError
from tilesmith.report.library import drawing_library
from tilesmith.report.payload import Payload
from tilesmith.toolchain.files import replace

_SCRIPTS = ("values.js", "tables.js", "figure.js", "overview.js", "trials.js", "problem.js", "compare.js", "start.js")


def page(title: str, data: Payload, trials: Payload | None = None) -> str:
    """The text of the file. Text of the data never becomes markup: it is JSON in which ``<`` is written as an escape,
    and the page's code shows it as text.

    ``trials`` are compressed: a page inflates them after it has drawn the rest.
    """
    library = drawing_library()
    folder = files("tilesmith.report") / "page"
    text = {name: (folder / name).read_text("utf-8") for name in ("page.html", "style.css", "licences.txt", *_SCRIPTS)}
    packed = base64.b64encode(zlib.compress(_json(trials or {}).encode(), 9)).decode()
    parts = {
        "{{title}}": html.escape(title), "{{style}}": text["style.css"], "{{library name}}": html.escape(library.name),
        "{{licences}}": html.escape(text["licences.txt"]), "{{data}}": _json({"title": title, **data}),
        "{{trials}}": packed, "{{library}}": _script(library.script),
        "{{code}}": _script("\n".join(text[name] for name in _SCRIPTS)),
    }  # fmt: skip
    whole = text["page.html"]
    pieces = []
    for mark, value in sorted(parts.items(), key=lambda item: whole.index(item[0])):
        before, whole = whole.split(mark, 1)
        pieces += [before, value]
    return "".join([*pieces, whole])


def write_page(path: str, text: str) -> int:
    """Write the file in one step; returns its bytes. Raises ``FileFormatError`` if it cannot be written."""
    data = text.encode()
    place = Path(path)
    if place.is_dir():
        raise FileFormatError(f"{path}: is a folder; name a file, such as {place / 'report.html'}")
    try:
        replace(place, data)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None
    return len(data)


def _json(value: Payload) -> str:
    """JSON that may stand in a script element, whatever text is in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _script(text: str) -> str:
    """Code that may stand in a script element: neither its end nor a comment of HTML is in it."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
