"""Draws the way from a problem to a kernel (``images/way.svg``) when the documentation is built."""

from __future__ import annotations

from html import escape

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_WIDTH, _HEIGHT = 172, 58
# A box: its column, its row, its title, and what it is about.
_BOXES = {
    "problem": (0, 0, "problem", "a signature, or a driver command"),
    "request": (1, 0, "request", "problem, target, mode, databases"),
    "hit": (2, 0, "kept answer?", "of an earlier process"),
    "facts": (0, 1, "facts", "each solver on each rewrite: accepted, or why not"),
    "choice": (1, 1, "choice", "database, else cost model; with its trace"),
    "draft": (2, 1, "draft", "sources and launches, by the solver"),
    "artifact": (3, 1, "artifact", "compiled, cached, verified"),
    "plan": (3, 0, "plan", "what to launch, in which order"),
    "launchable": (4, 0, "launchable", "bound in C: checks tensors, launches"),
    "search": (1, 2, "search", "configs checked and timed by a worker process"),
    "databases": (0, 2, "find-db, perf-db", "system < team < user"),
}
_ARROWS = (
    ("problem", "request", ""), ("request", "hit", ""), ("hit", "plan", "yes"), ("plan", "launchable", ""),
    ("hit", "facts", "no"), ("facts", "choice", ""), ("choice", "draft", ""), ("draft", "artifact", ""),
    ("artifact", "plan", ""), ("choice", "search", "if the mode measures"), ("search", "databases", ""),
    ("databases", "facts", ""),
)  # fmt: skip


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The hook that MkDocs calls."""
    files.append(File.generated(config, "images/way.svg", content=drawing()))
    return files


def drawing() -> str:
    parts = [_arrow(*arrow) for arrow in _ARROWS] + [_box(*box) for box in _BOXES.values()]
    style = (
        "text{font:13px sans-serif;text-anchor:middle;fill:#222}.t{font-weight:bold}.s{font-size:10.5px}"
        "rect{fill:#eef3fb;stroke:#4a6fa5}path{stroke:#4a6fa5;fill:none;marker-end:url(#e)}"
    )
    end = '<marker id="e" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    end += '<polygon points="0,0 8,4 0,8" fill="#4a6fa5"/></marker>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1080 330"><style>{style}</style><defs>{end}</defs>'
        f'<rect width="1080" height="330" style="fill:#fff;stroke:none"/>{"".join(parts)}</svg>'
    )


def _corner(column: int, row: int) -> tuple[int, int]:
    return 10 + column * 220, 15 + row * 120


def _box(column: int, row: int, title: str, text: str) -> str:
    x, y = _corner(column, row)
    lines = _wrapped(text)
    middle = x + _WIDTH // 2
    said = "".join(
        f'<text class="s" x="{middle}" y="{y + 35 + 13 * i}">{escape(t)}</text>' for i, t in enumerate(lines)
    )
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<text class="t" x="{middle}" y="{y + 19}">{escape(title)}</text>{said}'
    )


def _wrapped(text: str) -> list[str]:
    """Two lines of about one length."""
    if len(text) < 30:
        return [text]
    cut = min((i for i, letter in enumerate(text) if letter == " "), key=lambda i: abs(i - len(text) / 2))
    return [text[:cut], text[cut + 1 :]]


def _arrow(begin: str, end: str, label: str) -> str:
    (x, y), (u, v) = (_corner(*_BOXES[name][:2]) for name in (begin, end))
    if y == v:  # sideways
        side = 1 if u > x else -1
        points = (x + (_WIDTH if side > 0 else 0), y + _HEIGHT // 2, u + (0 if side > 0 else _WIDTH), v + _HEIGHT // 2)
    else:
        down = v > y
        points = (x + _WIDTH // 2, y + (_HEIGHT if down else 0), u + _WIDTH // 2, v + (0 if down else _HEIGHT))
    a, b, c, d = points
    middle = (a + c) / 2 + (62 if x == u else 0)
    said = f'<text class="s" x="{middle}" y="{(b + d) / 2 - 5}">{escape(label)}</text>'
    return f'<path d="M{a},{b} L{c},{d}"/>{said if label else ""}'
