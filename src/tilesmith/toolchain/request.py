"""One HTTP request that ends by its deadlines and reads no more than it may: redirects, headers and body together."""

from __future__ import annotations

import http.client
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit

from tilesmith.toolchain.arriving import Patience, arriving

MOST_REDIRECTS = 5
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Reply:
    """The answer of a server: its status, and its headers with names in lower case, of two equal ones the last."""

    status: int
    headers: Mapping[str, str]


class BrokenOffError(OSError):
    """The connection ended before all had come."""


def ask(
    url: str, most: int, patience: Patience, headers: Mapping[str, str] | None = None
) -> tuple[Reply, Iterator[bytes]]:
    """Ask for ``url`` (http or https); the reply, and its body as it comes.

    A redirect is followed within both schemes, but never from https to http. The proxies are those of the environment.

    Args:
        url: The address.
        most: Bytes that the body may have.
        patience: How long to wait; its total counts up to the end of the body.
        headers: Those of the request.

    Raises:
        OSError: The server cannot be reached, refuses (``HTTPError``), is too slow (``TimeoutError``), breaks off
            (``BrokenOffError``), or speaks another language. Reading the body raises it too.
        ValueError: The address is none, or the body has more than ``most`` bytes.
    """
    request = _Request(url, most, patience, headers or {})
    pieces = arriving(request.pieces, patience, request.give_up)
    reply = cast(Reply, next(pieces))
    return reply, cast(Iterator[bytes], pieces)


class _Request:
    def __init__(self, url: str, most: int, patience: Patience, headers: Mapping[str, str]) -> None:
        self._url, self._most, self._patience, self._headers = url, most, patience, headers
        self._sockets: list[socket.socket] = []
        self._given_up = False

    def give_up(self) -> None:
        self._given_up = True
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def connected(self, to: socket.socket) -> None:
        """A connection that this request has opened, the first or one that it was sent on to."""
        with suppress(OSError):
            to.settimeout(self._patience.silence_s + 1.0)  # after ``arriving``, whose message is better
        self._sockets.append(to)
        if self._given_up:
            self.give_up()

    def pieces(self) -> Iterator[Reply | bytes]:
        """The reply, then its body."""
        try:
            yield from self._read()
        except (OSError, ValueError):
            raise
        except http.client.IncompleteRead as error:
            raise BrokenOffError(f"it broke off after {len(error.partial)} bytes of a piece") from None
        except Exception as error:  # what a server sends makes http.client fail in many ways
            raise OSError(f"{type(error).__name__}: {error}") from None

    def _read(self) -> Iterator[Reply | bytes]:
        size = 0
        asked = urllib.request.Request(self._url, headers=dict(self._headers))
        with _opener(self).open(asked, timeout=self._patience.connect_s) as reply:
            coding = reply.headers.get("Content-Encoding", "identity")
            if coding.lower() != "identity":
                raise ValueError(f"it comes as {coding[:30]!r}, which was not asked for")
            length = reply.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdecimal()):
                length = ""
            if length and (len(length) > 18 or int(length) > self._most):
                raise ValueError(f"it holds {length[:30]} bytes, more than {self._most}")
            yield Reply(reply.status, {name.lower(): value for name, value in reply.headers.items()})
            while chunk := reply.read1(_CHUNK):
                size += len(chunk)
                if size > self._most:
                    raise ValueError(f"it holds more than {self._most} bytes")
                yield chunk
        if length and size < int(length):
            raise BrokenOffError(f"it broke off after {size} of {length} bytes")


class _Redirect(urllib.request.HTTPRedirectHandler):
    max_redirections = MOST_REDIRECTS
    max_repeats = 2

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        there, here = urlsplit(newurl).scheme.lower(), urlsplit(req.full_url).scheme.lower()
        if here == "https" and there != "https":
            raise HTTPError(req.full_url, code, f"it redirects from https to {there or 'nowhere'}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(request: _Request) -> urllib.request.OpenerDirector:
    """For http and https alone, wherever a redirect leads; the proxies are those of the environment."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), urllib.request.UnknownHandler(), urllib.request.HTTPDefaultErrorHandler(),
        _Redirect(), urllib.request.HTTPErrorProcessor(), _Http(request), _Https(request),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


class _Http(urllib.request.HTTPHandler):
    def __init__(self, request: _Request) -> None:
        super().__init__()
        self._request = request

    def http_open(self, req: urllib.request.Request) -> Any:
        owner = self._request

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                owner.connected(self.sock)

        return self.do_open(Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, request: _Request) -> None:
        super().__init__()
        self._request = request

    def https_open(self, req: urllib.request.Request) -> Any:
        owner = self._request

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                owner.connected(self.sock)

        return self.do_open(Connection, req)
