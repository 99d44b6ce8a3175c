"""Static pages on a loopback port, held in memory once read."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from aiohttp import web


class StaticSite:
    """Serves the files below one directory; nothing outside it can be reached."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._files: dict[str, tuple[bytes, str]] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listens on a free port."""
        application = web.Application()
        application.router.add_get("/{path:.*}", self._get)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Closes the port."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _get(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        found = self._files.get(path) or self._read(path)
        if found is None:
            raise web.HTTPNotFound
        body, content_type = found
        # Contexts are short-lived, so caching pays only within one; the files never change while this runs.
        return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "max-age=86400"})

    def _read(self, path: str) -> tuple[bytes, str] | None:
        file = (self._root / path).resolve()
        if not file.is_relative_to(self._root) or not file.is_file():
            return None
        guessed = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        content_type = (
            f"{guessed}; charset=utf-8" if guessed.startswith("text/") or "javascript" in guessed else guessed
        )
        self._files[path] = (file.read_bytes(), content_type)
        return self._files[path]
