"""Which addresses may be connected to."""

from __future__ import annotations

import socket

import pytest

from toolnexus.sources.builtin.addresses import AddressRefused, is_public, public_socket

REFUSED = [
    *(
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "0.1.2.3",
        "10.1.1.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
    ),
    *(
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.5",
        "224.0.0.1",
    ),
    *("233.252.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *(
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:7f00:1",
        "::ffff:0:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
    ),
    *(
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "2001:20::1",
        "2001:db8::1",
        "fe80::1",
        "fec0::1",
        "fc00::1",
    ),
    *(
        "fd00:ec2::254",
        "ff02::1",
        "ff0e::1",
        "100::1",
        "3fff::1",
        "5f00::1",
        "4000::1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "127.1",
    ),
]
PUBLIC = [
    *(
        "1.1.1.1",
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "2a00:1450::1",
        "64:ff9b::808:808",
        "::ffff:8.8.8.8",
    ),
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_on_the_public_internet_is_refused(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_not(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("where", [("127.0.0.1", 80), ("::1", 80, 0, 0), ("fe80::1%lo", 80, 0, 1)])
def test_no_socket_is_made_for_a_refused_address(where: tuple[str, ...]) -> None:
    family = socket.AF_INET if "." in where[0] else socket.AF_INET6
    with pytest.raises(AddressRefused, match="not a public address"):
        public_socket((family, socket.SOCK_STREAM, 6, "", where))


def test_a_socket_is_made_for_a_public_one() -> None:
    with public_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("1.1.1.1", 80))) as made:
        assert made.family == socket.AF_INET
