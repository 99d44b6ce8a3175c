"""JetStream's object store as an fsspec filesystem: jetstream://HOST:PORT/BUCKET/NAME.

A whole object is there under its name or it is not, as in any object store, and its sha256 is checked as it is read.
Buckets are made when something is first put into them. `FSSPEC_JETSTREAM_CREDENTIALS` may name a NATS .creds file.
"""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import nats
import nats.errors
import nats.js.errors
from fsspec.asyn import AsyncFileSystem
from nats.js.object_store import ObjectStore

CONNECT_SECONDS = 10.0
# Bound on moving one object.
MOVE_SECONDS = 600.0
PROTOCOL = "jetstream"


class JetStreamFiles(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The buckets of one NATS server."""

    protocol = PROTOCOL

    def __init__(self, server: str = "127.0.0.1:4222", credentials: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._server = server
        self._credentials = credentials

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return urlsplit(path).path.strip("/") if path.startswith(f"{PROTOCOL}://") else path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        server = urlsplit(path).netloc
        return {"server": server} if server else {}

    def unstrip_protocol(self, name: str) -> str:
        """The path with its server, so that it means the same elsewhere."""
        return f"{PROTOCOL}://{self._server}/{self._strip_protocol(name)}"

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        content = io.BytesIO()
        await self._read(path, content)
        return content.getvalue()[start:end]

    async def _get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        with Path(lpath).open("wb") as file:  # noqa: ASYNC230 - fsspec's loop is a thread of its own
            await self._read(rpath, file)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and await self._exists(path):
            raise FileExistsError(path)
        async with self._bucket(path, create=True) as (store, name):
            await store.put(name, value)

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", **_: Any) -> None:
        await self._pipe_file(rpath, await asyncio.to_thread(Path(lpath).read_bytes), mode)

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        async with self._bucket(path) as (store, name):
            found = await store.get_info(name)
            return {"name": self._strip_protocol(path), "size": found.size or 0, "type": "file"}

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        bucket = self._strip_protocol(path).partition("/")[0]
        prefix = self._strip_protocol(path) + "/"
        try:
            async with self._bucket(path) as (store, _name):
                objects = await store.list(ignore_deletes=True)
        except FileNotFoundError:
            objects = []
        files = [{"name": f"{bucket}/{each.name}", "size": each.size or 0, "type": "file"} for each in objects]
        below = [file for file in files if str(file["name"]).startswith(prefix)]
        return below if detail else [file["name"] for file in below]

    async def _rm_file(self, path: str, **_: Any) -> None:
        async with self._bucket(path) as (store, name):
            await store.delete(name)

    async def _read(self, path: str, into: IO[bytes]) -> None:
        async with self._bucket(path) as (store, name):
            # Without a place to write to the library would join the chunks one by one, which takes minutes for a model.
            await store.get(name, writeinto=into)

    @asynccontextmanager
    async def _bucket(self, path: str, *, create: bool = False) -> AsyncIterator[tuple[ObjectStore, str]]:
        """The path's bucket and name there; what goes wrong is an OSError."""
        bucket, _, name = self._strip_protocol(path).partition("/")
        try:
            async with asyncio.timeout(MOVE_SECONDS), self._connection() as connection:
                stream = connection.jetstream()
                try:
                    store = await stream.object_store(bucket)
                except nats.js.errors.NotFoundError:
                    if not create:
                        raise
                    store = await stream.create_object_store(bucket)
                yield store, name
        except (nats.js.errors.NotFoundError, nats.js.errors.ObjectNotFoundError, nats.js.errors.ObjectDeletedError):
            raise FileNotFoundError(path) from None
        except TimeoutError:
            raise OSError(f"{self._server}: {path} was not moved in time") from None
        except nats.errors.Error as error:
            raise OSError(f"{self._server}: {path}: {error}") from error

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[nats.NATS]:
        """A connection of its own for each use: uses are few and large, and it belongs to the loop that made it."""
        options: dict[str, Any] = {"user_credentials": self._credentials} if self._credentials else {}
        try:
            # The library's own bound is on one attempt, of which it makes sixty.
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await nats.connect(f"nats://{self._server}", allow_reconnect=False, **options)
        except (OSError, nats.errors.Error) as error:
            cause = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
            raise OSError(f"NATS at {self._server} cannot be reached: {cause}") from error
        try:
            yield connection
        finally:
            await connection.close()
