"""Which addresses something may be fetched from that a model, or a stranger's page, names.

The check belongs where a connection is made: only there is it known what a name has become. `public_socket` is for an
HTTP client's `socket_factory`, which gets every address right before it is connected to, however it was spelled.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias

Resolved: TypeAlias = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
"""An entry of what `socket.getaddrinfo` gives."""

# Beside what `ipaddress` calls private, whose opinion differs from one version of Python to the next.
_REFUSED = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",  # public by its number, but a metadata service inside Azure
            *("192.0.0.0/24", "192.88.99.0/24"),  # IANA IPv4 Special-Purpose Address Registry
            *("2001::/23", "3fff::/20"),  # IANA IPv6 Special-Purpose Address Registry
        ),
    )
)
_UNICAST = IPv6Network("2000::/3")  # RFC 4291, 2.4, and all that has ever been given out
# RFC 6052, and RFC 8215 for the second: the last 32 bits are an IPv4 address that a translator connects to.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


class AddressRefused(OSError):
    """An address is not on the public internet, and only such may be connected to."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} is not a public address, and this program allows only those")


def is_public(address: str) -> bool:
    """Whether an IP address is on the public internet.

    Loopback, private, link-local, shared, multicast and reserved ones are not, nor an IPv6 one that stands for such an
    IPv4 one (mapped, translated, 6to4, Teredo). What is no address is not public either.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return _is_public(found)


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        if (inner := _ipv4_in(address)) is not None:
            return _is_public(inner)
        if address not in _UNICAST:
            return False
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved)
        and not any(address in network for network in _REFUSED)
    )


def _ipv4_in(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a connection to `address` ends at. None: it is none of those."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def public_socket(resolved: Resolved) -> socket.socket:
    """A socket that is about to be connected to this address.

    Raises:
        AddressRefused: It is not public.
    """
    family, kind, protocol, _, where = resolved
    address = str(where[0])
    if family not in (socket.AF_INET, socket.AF_INET6) or not is_public(address.partition("%")[0]):
        raise AddressRefused(address)
    return socket.socket(family, kind, protocol)
