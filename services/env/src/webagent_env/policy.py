"""Which hosts a session may reach: names with their ports, and the addresses that stand behind them.

An entry is "host" (ports 80 and 443), "host:port", "*.domain" or "*". A name is checked before it is resolved, and
every address it resolves to afterwards: what an entry names by itself may be private, what a wildcard covers must be
public. Addresses of cloud metadata are refused unless the operator's own configuration names that very address: a name
of the operator's that leads to one is refused.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

_WEB_PORTS = frozenset({80, 443})
_METADATA = (
    ipaddress.ip_network("169.254.0.0/16"),
    ipaddress.ip_network("fd00:ec2::254/128"),
    ipaddress.ip_network("100.100.100.200/32"),
    ipaddress.ip_network("192.0.0.192/32"),
    ipaddress.ip_network("168.63.129.16/32"),
)
# IPv4 addresses in the last four bytes: of NAT64, compatible, mapped, translated.
_EMBEDDING = tuple(ipaddress.ip_network(net) for net in ("64:ff9b::/96", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96"))
# NAT64 of a network's own, which puts them where it likes.
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an allow-list. `host` is in lower case; "*" and "*.domain" are wildcards."""

    host: str
    ports: frozenset[int]

    @property
    def wildcard(self) -> bool:
        """Whether it covers names that it does not spell out."""
        return self.host.startswith("*")

    def covers(self, host: str, port: int) -> bool:
        """Whether the name and port are of this entry."""
        if port not in self.ports:
            return False
        if self.host == "*":
            return True
        return host.endswith(self.host[1:]) if self.wildcard else host == self.host


def entry(text: str) -> Entry:
    """Reads an entry; a ValueError says what is wrong with it."""
    parts = urlsplit(f"//{text.strip()}")
    host = (parts.hostname or "").rstrip(".")
    wild = host.removeprefix("*.") if host != "*" else "x"
    if not host or not wild or "*" in wild or parts.path or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{text!r} is no host; write host, host:port, *.domain or *")
    return Entry(host, frozenset({parts.port}) if parts.port else _WEB_PORTS)


def plain_address(text: str) -> Address | None:
    """The address that a host is written as, or None if it is a name; an IPv4 address within an IPv6 one counts."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return _embedded(address) if isinstance(address, ipaddress.IPv6Address) else address


def _embedded(address: ipaddress.IPv6Address) -> Address:
    """The IPv4 address that a gateway, a tunnel or the system itself would make of it, else the address."""
    last = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    own = address.is_unspecified or address.is_loopback
    if not own and any(address in net for net in _EMBEDDING):
        return last
    return address.sixtofour or address


@dataclass(frozen=True, slots=True)
class Policy:
    """What one session may reach. `own` comes from the operator, `asked` from the session's caller."""

    own: tuple[Entry, ...]
    asked: tuple[Entry, ...] = ()
    asked_private: bool = False

    def refusal(self, host: str, port: int) -> str:
        """Why a name and port may not be reached, or nothing."""
        host = host.lower().rstrip(".")
        if not any(each.covers(host, port) for each in (*self.own, *self.asked)):
            return f"{host}:{port} is not among the hosts that this session may reach"
        address = plain_address(host)
        return "" if address is None else self.address_refusal(host, port, str(address))

    def address_refusal(self, host: str, port: int, resolved: str) -> str:
        """Why an address behind a permitted name may not be dialled, or nothing."""
        address = plain_address(resolved)
        host = host.lower().rstrip(".")
        if address is None:
            return f"{resolved} is no address"
        if any(address.version == net.version and address in net for net in _METADATA):
            named = any(port in each.ports and plain_address(each.host) == address for each in self.own)
            return "" if named else f"{host} is the metadata address {address}"
        if any(not each.wildcard and each.covers(host, port) for each in self.own):
            return ""
        local = address.version == 6 and address in _LOCAL_NAT64
        if address.is_global and not address.is_multicast and not local:
            return ""
        if self.asked_private and any(not each.wildcard and each.covers(host, port) for each in self.asked):
            return ""
        return f"{host} is the private address {address}"

    def url_refusal(self, url: str) -> str:
        """Why an address of the web may not be opened, or nothing."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme in {"https", "wss"} else 80)
        return self.refusal(parts.hostname or "", port)
