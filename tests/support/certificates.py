"""An authority that signs certificates into a directory, as cert-manager does into a Secret."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOCAL = ("env.test",)


class Authority:
    """Made anew under an old name it has another key, and overwrites what the old one left."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _called(name)
        self.ca_file = directory / f"{name}.pem"
        self.ca_file.write_bytes(_pem(self._sign(self._name, self._key, None)))

    def issue(self, name: str, hosts: Sequence[str] = LOCAL) -> tuple[Path, Path]:
        """A certificate for these hosts and 127.0.0.1, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert_file, key_file = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert_file.write_bytes(_pem(self._sign(_called(name), key, hosts)))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert_file, key_file

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, hosts: Sequence[str] | None
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=hosts is None, path_length=None), critical=True)
        )
        if hosts is not None:
            names = [*map(x509.DNSName, hosts), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
