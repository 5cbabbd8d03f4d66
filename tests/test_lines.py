"""What ``benchmarks/lines.py`` counts, of a history that this test tells."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import lines

GREP = {
    "old": "old:src/a.py:10\nold:src/moved.py:7\nold:benchmarks/b.py:5\n",
    "HEAD": "HEAD:src/a.py:12\nHEAD:src/room/moved.py:7\nHEAD:src/k.cu:100\nHEAD:src/k.h:20\nHEAD:src/notes.md:900\n"
    "HEAD:benchmarks/b.py:6\nHEAD:benchmarks/results/x.json:5000\n",
}


def test_code_is_counted_by_kind_and_by_when_it_came(monkeypatch, capsys):
    def git(verb: str, *words: str) -> str:
        if verb == "diff":
            return "src/k.cu\nsrc/k.h\n"
        return next(text for revision, text in GREP.items() if revision in words)

    monkeypatch.setattr(lines, "git", git)
    monkeypatch.setattr(sys, "argv", ["lines.py", "old"])
    assert lines.main() == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [
        ["old", "src", "2, 17", "0, 0", "0, 0", "2, 17"],
        ["old", "benchmarks", "1, 5", "0, 0", "0, 0", "1, 5"],
        ["HEAD", "src", "2, 19", "1, 100", "1, 20", "4, 139"],
        ["HEAD", "benchmarks", "1, 6", "0, 0", "0, 0", "1, 6"],
        ["HEAD without what came since old", "src", "2, 19", "0, 0", "0, 0", "2, 19"],
        ["came since old", "src", "0, 0", "1, 100", "1, 20", "2, 120"],
        ["HEAD without what came since old", "benchmarks", "1, 6", "0, 0", "0, 0", "1, 6"],
        ["came since old", "benchmarks", "0, 0", "0, 0", "0, 0", "0, 0"],
    ]
