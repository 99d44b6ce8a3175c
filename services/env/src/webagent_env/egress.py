"""The way out: a forward proxy, one listening port for each browser context, so that the port says whose request it is.

It resolves a name once, checks every address, and dials that very address: a redirect, a service worker or a name
that changes its address gains nothing, because each connection passes here. Plain requests are sent on one by one;
CONNECT (https, WebSockets) opens a tunnel. What is refused is answered 403 with the reason, and reaches nothing; by
the header `MARK` such an answer is told from a site's.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

import structlog

from webagent_env.policy import Policy

log = structlog.get_logger()

MARK = "x-webagent-egress"
_HEAD_BYTES = 65_536
_CHUNK = 65_536
_DIAL_SECONDS = 10.0
# Neither is the site's business; the connection to it lives as long as the one from the browser.
_HOP_BY_HOP = {b"proxy-connection", b"proxy-authorization", b"keep-alive"}


class _RefusedError(Exception):
    """Not allowed, or not reachable; the message is for the page."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class Egress:
    """The proxy of one browser context."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.refused: list[str] = []
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.address = ""

    async def start(self) -> None:
        """Listens on a free loopback port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_BYTES)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Closes the port and every connection."""
        if self._server is None:
            return
        self._server.close()
        self._stopped = True
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await _Connection(self, reader, writer).serve()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            log.debug("proxy_connection_ended", error=repr(error))
        except asyncio.CancelledError:
            if not self._stopped:  # a cancelled handler is logged as an error of the server's
                raise
        finally:
            self._open.discard(task)
            writer.close()

    async def dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first address behind a name, if all of them are permitted."""
        why = self.policy.refusal(host, port)
        if why:
            raise self._refuse(why)
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
                for address in addresses:
                    why = self.policy.address_refusal(host, port, address)
                    if why:
                        raise self._refuse(why)
                return await self._first(addresses, port)
        except TimeoutError:
            raise _RefusedError("504 Gateway Timeout", f"{host}:{port} does not answer") from None
        except (OSError, UnicodeError) as error:
            raise _RefusedError("502 Bad Gateway", f"{host}:{port} cannot be reached: {error}") from error

    async def _first(self, addresses: list[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failure: OSError = ConnectionError("the name has no address")
        for address in addresses:
            try:
                return await asyncio.open_connection(address, port, limit=_HEAD_BYTES)
            except OSError as error:
                failure = error
        raise failure

    def _refuse(self, why: str) -> _RefusedError:
        log.info("egress_refused", why=why)
        if len(self.refused) < 100:
            self.refused.append(why)
        return _RefusedError("403 Forbidden", why)


class _Connection:
    """One connection of the browser: a tunnel, or requests one after another."""

    def __init__(self, egress: Egress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._egress = egress
        self._reader = reader
        self._writer = writer
        self._site = ("", 0)
        self._out: asyncio.StreamWriter | None = None
        self._back: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        try:
            while (head := await self._head()) is not None:
                method, target, lines = head
                try:
                    if method == b"CONNECT":
                        await self._tunnel(target)
                        return
                    await self._forward(method, target, lines)
                except _RefusedError as error:
                    await self._answer(error)
                    return
        finally:
            await self._hang_up()

    async def _head(self) -> tuple[bytes, str, list[bytes]] | None:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head[:-4].split(b"\r\n")
        method, target, _ = first.split(b" ", 2)
        return method, target.decode("ascii"), lines

    async def _tunnel(self, target: str) -> None:
        parts = urlsplit(f"//{target}")
        reader, writer = await self._egress.dial(parts.hostname or "", parts.port or 443)
        self._out = writer
        self._writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = asyncio.create_task(_pump(reader, self._writer))
        self._back = back
        there = asyncio.create_task(_pump(self._reader, writer))
        try:
            await asyncio.wait([back, there], return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()

    async def _forward(self, method: bytes, target: str, lines: list[bytes]) -> None:
        parts = urlsplit(target)
        if parts.scheme != "http" or not parts.hostname:
            raise _RefusedError("400 Bad Request", "only http:// addresses are forwarded")
        site = (parts.hostname, parts.port or 80)
        if self._out is None or self._site != site or (self._back is not None and self._back.done()):
            await self._hang_up()
            reader, self._out = await self._egress.dial(*site)
            self._site = site
            self._back = asyncio.create_task(self._send_back(reader))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = [(line.partition(b":")[0].strip().lower(), line) for line in lines]
        kept = [line for name, line in headers if name not in _HOP_BY_HOP]
        self._out.write(b"\r\n".join([b"%b %b HTTP/1.1" % (method, path.encode("ascii")), *kept, b"", b""]))
        sizes = [int(line.partition(b":")[2]) for name, line in headers if name == b"content-length"]
        if any(name == b"transfer-encoding" for name, _ in headers):
            await self._chunks(self._out)
        else:
            await self._exactly(self._out, sizes[0] if sizes else 0)
        await self._out.drain()

    async def _exactly(self, out: asyncio.StreamWriter, size: int) -> None:
        while size > 0:
            data = await self._reader.read(min(size, _CHUNK))
            if not data:
                raise ConnectionError("the request ended early")
            size -= len(data)
            out.write(data)
            await out.drain()

    async def _chunks(self, out: asyncio.StreamWriter) -> None:
        while True:
            line = await self._reader.readuntil(b"\r\n")
            out.write(line)
            size = int(line.split(b";")[0], 16)
            await self._exactly(out, size + 2)
            if size == 0:
                return

    async def _send_back(self, reader: asyncio.StreamReader) -> None:
        await _pump(reader, self._writer)
        # Where the site ended the connection, its end is the answer's.
        self._writer.close()

    async def _answer(self, error: _RefusedError) -> None:
        body = f"{error}\n".encode()
        head = f"HTTP/1.1 {error.status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}{MARK}: refused\r\nConnection: close\r\n\r\n".encode() + body)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def _hang_up(self) -> None:
        if self._back is not None:
            self._back.cancel()
            await asyncio.gather(self._back, return_exceptions=True)
            self._back = None
        if self._out is not None:
            self._out.close()
            self._out = None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except ConnectionError as error:
        log.debug("proxy_connection_ended", error=repr(error))
