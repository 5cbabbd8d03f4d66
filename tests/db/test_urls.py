"""A URL layer costs a call its deadline and a bounded size, whatever the server does. A kept copy serves then."""

import contextlib
import gzip
import logging
import os
import socket
import sqlite3
import threading
import time
from dataclasses import replace

import pytest

from tilesmith.db import remote
from tilesmith.db.layers import open_layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record

P, T = "conv/1/some-problem", "x86_64-v4:2:zen4"
RECORD = Record(P, T, "dense", "mr=8", time_us=10.0)
WAIT_S, SLACK_S = 0.4, 10.0
OK = b"HTTP/1.1 200 OK\r\n"
MAGIC = b"SQLite format 3\0"


def drip(piece, first=b""):
    """A server that goes on for ever, slowly."""

    def serve(connection, end):
        connection.sendall(first)
        while not end.wait(0.1):
            connection.sendall(piece)

    return serve


def flood(first, piece=b"\0" * 65_536):
    """A server that sends without end, as fast as it can."""

    def serve(connection, end):
        connection.sendall(first)
        while not end.is_set():
            connection.sendall(piece)

    return serve


def once(data):
    def serve(connection, end):
        connection.sendall(data)

    return serve


BOMB = gzip.compress(MAGIC + bytes(1 << 24))
SERVERS = {
    "nothing": lambda connection, end: end.wait(60),
    "a dripping status": drip(b"H"),
    "dripping headers": drip(b"X-A: b\r\n", OK),
    "a dripping body": drip(b"\0", OK + b"Content-Length: 100000\r\n\r\n" + MAGIC),
    "a dripping body of no length": drip(b"\0", OK + b"\r\n" + MAGIC),
    "dripping chunks": drip(b"1\r\n\0\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n"),
    "a dripping length of a chunk": drip(b"0", OK + b"Transfer-Encoding: chunked\r\n\r\n"),
    "a flood": flood(OK + b"\r\n" + MAGIC),
    "a flood of a false length": flood(OK + b"Content-Length: 40\r\n\r\n" + MAGIC),
    "a flood of headers": flood(OK, b"X-A: b\r\n" * 100),
    "a flood of one line": flood(OK, b"x" * 65_536),
    "a flood of chunks": flood(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"\0" * 4096 + b"\r\n"),
    "a length beyond all": once(OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n" + MAGIC),
    "a length above the limit": once(OK + b"Content-Length: 99999999\r\n\r\n" + MAGIC),
    "a short body": once(OK + b"Content-Length: 40000\r\n\r\n" + MAGIC),
    "a bomb": once(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB),
    "a redirect to itself": once(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"),
    "a redirect to a file": once(b"HTTP/1.1 302 Found\r\nLocation: file:///dev/zero\r\nContent-Length: 0\r\n\r\n"),
    "a redirect to ftp": once(b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"),
    "a redirect to no URL": once(b"HTTP/1.1 302 Found\r\nLocation: http://[/\r\nContent-Length: 0\r\n\r\n"),
    "no HTTP": once(b"\0\xff" * 100),
    "a page": once(OK + b"Content-Length: 6\r\n\r\n<html>"),
}  # fmt: skip


@contextlib.contextmanager
def serving(serve):
    """The address of a server of raw bytes."""
    end = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def one(connection):
        with contextlib.suppress(OSError), connection:
            connection.recv(65_536)
            serve(connection, end)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        end.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_TIMEOUT", str(WAIT_S))
    monkeypatch.setattr(remote, "MOST_BYTES", 1 << 20)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def whole(path):
    database = open_database(path)
    database.put_result(RECORD)
    database.close()
    return path.read_bytes()


def asked(url, tmp_path, caplog):
    """What the layers answer, in time and with one warning."""
    caplog.clear()
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING):
        layers = open_layers([url, tmp_path / "user.db"])
        found = layers.answers(P, T)
    assert time.monotonic() - begun < WAIT_S + SLACK_S
    layers.close()
    (line,) = caplog.messages
    assert url in line
    assert "\n" not in line
    return [answer.record for answer in found], line


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_never_ends_costs_the_deadline_and_one_warning(kind, tmp_path, caplog):
    """And a copy that was fetched earlier is used."""
    with serving(SERVERS[kind]) as address:
        url = f"{address}/team.db"
        if kind in ("a dripping body", "a flood"):
            found, line = asked(url, tmp_path, caplog)
            assert found == []
            assert "it counts as empty" in line
        kept = remote.cached_copy(url, fetch=False)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(whole(tmp_path / "whole.db"))
        os.utime(kept, (0, time.time() - 3 * 86_400))
        found, line = asked(url, tmp_path, caplog)
        assert found == [RECORD]
        assert "its copy of 3 days ago is used" in line
        assert list((tmp_path / "cache" / "staging").glob("*")) == []
        deadline = time.monotonic() + SLACK_S  # nothing goes on behind the call
        while any(thread.name == "tilesmith-fetch" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_what_comes_in_time_is_used(tmp_path, monkeypatch, caplog):
    """In pieces, by way of a redirect."""
    monkeypatch.setenv("TILESMITH_DB_TIMEOUT", "60")
    data = whole(tmp_path / "whole.db")

    def serve(connection, end):
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(data))
        for place in range(0, len(data), 4096):
            connection.sendall(data[place : place + 4096])

    with serving(serve) as address:
        moved = once(f"HTTP/1.1 301 Moved\r\nLocation: {address}/x\r\nContent-Length: 0\r\n\r\n".encode())
        with serving(moved) as first:
            layers = open_layers([f"{first}/team.db", tmp_path / "user.db"])
            assert [answer.record for answer in layers.answers(P, T)] == [RECORD]
    assert not caplog.messages


def test_two_dripping_layers_share_the_deadline_of_a_call(tmp_path, monkeypatch, caplog):
    from tilesmith.db.waiting import one_call

    monkeypatch.setenv("TILESMITH_DB_TIMEOUT", "3")
    with serving(SERVERS["a dripping body"]) as address, one_call():
        begun = time.monotonic()
        open_layers([f"{address}/{i}.db" for i in range(4)])
        assert 2.9 < time.monotonic() - begun < 9.0
    assert len(caplog.messages) == 4


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "elsewhere"])
def test_a_file_url_names_a_regular_file_of_a_bounded_size(kind, tmp_path, caplog):
    path = tmp_path / "team.db"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_bytes(MAGIC + bytes(1 << 20))
    found, line = asked(f"file://{'elsewhere.example' if kind == 'elsewhere' else ''}{path}", tmp_path, caplog)
    assert found == []
    assert {"pipe": "is a pipe", "device": "is a device", "folder": "is a folder", "large": "more than 1048576",
            "elsewhere": "is not this machine"}[kind] in line  # fmt: skip


def test_a_hostile_record_of_a_url_is_refused(tmp_path, caplog):
    from tilesmith.db.seal import seal_of, values_of

    data = tmp_path / "whole.db"
    whole(data)
    row = [*values_of(replace(RECORD, solver="other"))]
    row[6] = -1.0
    raw = sqlite3.connect(data, isolation_level=None)
    raw.execute(f"INSERT INTO results VALUES ({', '.join('?' * 21)})", (*row, seal_of(tuple(row))))
    raw.close()
    found, line = asked(f"file://{data}", tmp_path, caplog)
    assert found == [RECORD]
    assert "record with spread_us -1.0" in line
