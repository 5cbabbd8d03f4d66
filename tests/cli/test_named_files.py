"""A file that is named on the command line is read to a bound, or refused by what it is: no device, no silent pipe."""

import contextlib
import json
import os
import threading
import time
from pathlib import Path

import pytest

from tilesmith import reading
from tilesmith.cli.main import run
from tilesmith.db import exchange
from tilesmith.db.exchange import import_file
from tilesmith.db.lines import line_of
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.errors import FileFormatError
from tilesmith.problems.driver import listing as lists

CONV = "conv -n 1 -c 16 -H 8 -W 8 -k 16 -p 1 -q 1 -F 1"
RECORD = Record("p", "t", "s", "c", time_us=1.0)
KINDS = ("device", "silent pipe", "folder", "socket", "gone")


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """What lies at a path that should be a file, and what is said of it."""
    monkeypatch.setattr(reading, "SILENCE_S", 0.2)

    def lay(kind):
        path = tmp_path / "odd"
        if kind == "device":
            return Path("/dev/zero"), "is a device, not a file"
        if kind == "silent pipe":
            os.mkfifo(path)
            return path, "nothing came through this pipe for 0.2 s"
        if kind == "folder":
            path.mkdir()
            return path, "is a folder, not a file"
        if kind == "socket":
            import socket

            with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(tmp_path):
                made.bind("odd")
            return path, "is a socket, not a file"
        return path, "No such file"

    return lay


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "words",
    [["db", "import", "{}"], ["preload", "--mode", "fast", "{}"], ["explain", "{}"], ["parse", "{}"],
     ["db", "query", "{}"], [*CONV.split(), "--in_data", "{}", "-V", "1"]],
    ids=["import", "preload", "explain", "parse", "query", "in_data"],
)  # fmt: skip
def test_a_name_that_is_no_file_is_refused_by_what_it_is(words, kind, odd, capsys):
    path, why = odd(kind)
    begun = time.monotonic()
    assert run([word.format(path) for word in words]) == 2
    assert time.monotonic() - begun < 20
    said = capsys.readouterr().err
    assert str(path) in said
    assert why in said or (kind == "gone" and "neither a file nor" in said)
    assert "memory" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_tuning_spec_is_a_regular_file(kind, odd, monkeypatch, capsys):
    path, why = odd(kind)
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", str(path))
    assert run(["explain", *CONV.split()]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert ("is a pipe, not a file" if kind == "silent pipe" else why) in said


def written(path, *pieces, endless=False):
    """A thread that writes to a pipe; ``endless``: the last piece again and again, until nobody reads."""

    def write():
        with contextlib.suppress(OSError), open(path, "wb", buffering=0) as pipe:
            for piece in pieces:
                pipe.write(piece)
                time.sleep(0.02)
            while endless:
                pipe.write(piece)

    threading.Thread(target=write, daemon=True).start()


def test_a_pipe_with_a_writer_is_read_to_its_end(tmp_path, capsys):
    """``tilesmith preload <(...)`` and ``tilesmith db import <(...)``."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    line = line_of("results", RECORD).encode() + b"\n"
    written(path, line[:40], line[40:], b"\n" + line_of("trials", RECORD).encode())
    database = open_database(None)
    assert import_file(path, database, "newest").added == 2
    assert database.ranking("p", "t") == (RECORD,)
    written(path, CONV.encode(), b"\n# end\n")
    assert run(["parse", str(path)]) == 0
    assert "conv" in capsys.readouterr().out


def test_a_pipe_without_an_end_is_read_to_a_bound(tmp_path, monkeypatch):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    monkeypatch.setattr(exchange, "MOST_PIPED", 1 << 20)
    line = line_of("results", RECORD).encode() + b"\n"
    written(path, line, endless=True)
    with pytest.raises(FileFormatError, match="holds more than 1 MiB"):
        import_file(path, open_database(None), "newest")
    monkeypatch.setattr(lists, "MAX_FILE", 1 << 16)
    written(path, CONV.encode() + b"\n", endless=True)
    with pytest.raises(FileFormatError, match="holds more than 65536 bytes"):
        list(lists.read_commands(path))


def test_a_line_without_an_end_is_one_bad_line(tmp_path):
    path = tmp_path / "in.jsonl"
    good = line_of("results", RECORD)
    path.write_bytes(b"{" * (3 << 20) + b"\n" + good.encode() + b"\n" + b" " * (2 << 20))
    database = open_database(None)
    taken = import_file(path, database, "newest")
    assert taken.added == 1
    assert [line.partition(": ")[0] for line in taken.bad] == [f"{path}:1", f"{path}:3"]
    assert all("is longer than 1048576 bytes" in line for line in taken.bad)


def test_lines_that_cross_the_pieces_of_a_file_are_whole(tmp_path):
    path = tmp_path / "in"
    lines = [bytes([65 + i % 26]) * (i * 977 % 70_000) for i in range(40)]
    path.write_bytes(b"\n".join(lines))
    assert list(reading.lines_named(path, 1 << 20, 1)) == lines
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert list(reading.lines_named(path, 1 << 20, 1)) == lines
    assert [line is None for line in reading.lines_named(path, 40_000, 1)] == [len(line) > 40_000 for line in lines]


def test_a_file_of_bad_lines_is_not_read_to_its_end(tmp_path, capsys, monkeypatch):
    path = tmp_path / "in.jsonl"
    path.write_text("{}\n" * 5000)
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "t.db"))
    assert run(["db", "import", str(path), "--json"]) == 2
    said = capsys.readouterr()
    assert len(json.loads(said.out)["bad"]) == 1001
    assert "has 1000 bad lines up to here; the rest was not read" in said.err


def test_a_list_above_its_bound_is_refused_before_it_is_read(tmp_path, capsys):
    path = tmp_path / "list.txt"
    with path.open("wb") as opened:
        opened.truncate(1 << 40)  # no blocks are taken
    for words in (["parse", str(path)], ["explain", str(path)]):
        assert run(words) == 2
        assert f"{path}: cannot be read: it holds more than 64 MiB" in capsys.readouterr().err


def test_a_long_spec_with_a_mistake_is_refused_in_time(tmp_path, monkeypatch, capsys):
    """The line of a mistake is looked for in short texts alone: it takes a parse a line."""
    path = tmp_path / "spec.toml"
    path.write_text('[[choice]]\nproblem = "*"\nsolver = "c_reference"\n\n' * 4000 + "= \n")
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", str(path))
    begun = time.monotonic()
    assert run(["explain", *CONV.split()]) == 2
    assert time.monotonic() - begun < 20
    assert "this is no TOML" in capsys.readouterr().err
