"""The OpenAI-compatible face over TLS: a renewed certificate is shown to the next connection."""

import asyncio
import ssl
from pathlib import Path

from certificates import Authority
from webagent_inference.face.server import _tls
from webagent_runtime.config import TlsConfig


async def shown(port: int, authority: Authority) -> bytes | None:
    """The certificate that a client who trusts this authority is shown."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="env.test")
    certificate: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    cert_file, key_file = authority.issue("face")
    context = _tls(TlsConfig(cert_file=cert_file, key_file=key_file))
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        first = await shown(port, authority)
        assert await shown(port, authority) == first
        renewed = Authority(tmp_path, "authority")
        renewed.issue("face")
        assert await shown(port, renewed) not in {None, first}
