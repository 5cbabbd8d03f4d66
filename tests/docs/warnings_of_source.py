"""The warnings of the source, as a reader meets them: ``...`` stands for each value."""

import ast
import re
from functools import cache
from pathlib import Path

import tilesmith

SOURCE = Path(tilesmith.__file__).parent
_LOGGED = {"warning": 0, "tell": 0, "log": 1, "_tell_once": 0}  # the method, and which argument is its text
_VALUE = re.compile(r"%(?:\.\d+)?[a-z]")
_LETTERS = 8  # a text with fewer of its own repeats another message


def _text(node: ast.expr) -> str:
    """A literal or an f-string with ``...`` in place of its values; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _VALUE.sub("...", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
    return ""


def _of_call(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGED:
        index = _LOGGED[call.func.attr]
        return _text(call.args[index]) if len(call.args) > index else ""
    if isinstance(call.func, ast.Name) and call.func.id == "complain" and call.args:
        text = _text(call.args[0])
        return text if text.startswith("warning: ") else ""
    return ""


@cache
def found() -> frozenset[str]:
    sources = (path.read_text() for path in SOURCE.rglob("*.py"))
    trees = (ast.parse(text) for text in sources if any(f"{name}(" in text for name in (*_LOGGED, "complain")))
    texts = {_of_call(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(text for text in texts if len(re.sub(r"[^a-z]", "", text.replace("warning: ", ""))) >= _LETTERS)
