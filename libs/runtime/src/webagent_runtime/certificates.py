"""Certificates that are renewed while a service runs: files are read again once they have changed.

Servers look before each handshake, so a renewed certificate is shown to the next connection, and those that are open
keep theirs until they age out. Clients look before each call and then connect anew. Where new files cannot be used
(the key was not written yet), the old ones stay in use until the files change again.
"""

from collections.abc import Callable
from typing import cast

import grpc
import structlog

from webagent_runtime.config import ClientTlsConfig, ConfigError, TlsConfig
from webagent_runtime.secret_files import Watched, read

log = structlog.get_logger()


def server_credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """What a server shows, and asks of clients, at each handshake."""
    watched = Watched([tls.cert_file, tls.key_file, tls.client_ca_file])
    asked = tls.client_ca_file is not None

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        if not watched.changed():
            return None
        try:
            configuration = _shown(tls)
        except ConfigError as error:
            log.warning("certificate_not_renewed", error=str(error))
            return None
        log.info("certificate_renewed", file=str(tls.cert_file))
        return configuration

    # None means unchanged, which the type of gRPC's stubs leaves out.
    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)
    return grpc.dynamic_ssl_server_credentials(_shown(tls), fetch, require_client_authentication=asked)


def _shown(tls: TlsConfig) -> grpc.ServerCertificateConfiguration:
    pair = (read("tls.key_file", tls.key_file), read("tls.cert_file", tls.cert_file))
    authority = None if tls.client_ca_file is None else read("tls.client_ca_file", tls.client_ca_file)
    return grpc.ssl_server_certificate_configuration([pair], authority)


def channel_credentials(tls: ClientTlsConfig) -> grpc.ChannelCredentials:
    """What a client trusts and shows, as the files are now."""
    return grpc.ssl_channel_credentials(
        root_certificates=None if tls.ca_file is None else read("tls.ca_file", tls.ca_file),
        private_key=None if tls.key_file is None else read("tls.key_file", tls.key_file),
        certificate_chain=None if tls.cert_file is None else read("tls.cert_file", tls.cert_file),
    )
