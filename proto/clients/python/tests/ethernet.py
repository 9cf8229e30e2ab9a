"""Reads the frames of proto/vectors down to the UDP payload (SPEC: Encapsulation)."""

from __future__ import annotations

import struct

from weft_client.wire import Malformed


def udp_of(frame: bytes) -> tuple[bytes, bool, bool]:
    """UDP payload, whether a router marked it CE, and whether the UDP checksum is good."""
    (ether_type,) = struct.unpack_from(">H", frame, 12)
    if ether_type in (0x8100, 0x88A8):
        raise Malformed("frame/vlan")
    if ether_type not in (0x0800, 0x86DD):
        raise Malformed("frame/not_ip")
    read = _ipv4 if ether_type == 0x0800 else _ipv6
    datagram, pseudo, congestion = read(frame[14:])
    (udp_len,) = struct.unpack_from(">H", datagram, 4)
    if udp_len > len(datagram):
        raise Malformed("frame/truncated")
    datagram = datagram[:udp_len]
    present = datagram[6:8] != b"\0\0"
    good = not present or _ones_sum(pseudo + struct.pack(">H", udp_len) + datagram) == 0xFFFF
    return datagram[8:], congestion, good


def _ipv4(packet: bytes) -> tuple[bytes, bytes, bool]:
    (total_len,) = struct.unpack_from(">H", packet, 2)
    if packet[0] != 0x45:
        raise Malformed("frame/ip_header")
    if total_len > len(packet):
        raise Malformed("frame/truncated")
    if _ones_sum(packet[:20]) != 0xFFFF:
        raise Malformed("frame/ip_checksum")
    if struct.unpack_from(">H", packet, 6)[0] & 0x3FFF:
        raise Malformed("frame/fragment")
    if packet[9] != 17:
        raise Malformed("frame/not_udp")
    return packet[20:total_len], packet[12:20] + b"\0\x11", packet[1] & 3 == 3


def _ipv6(packet: bytes) -> tuple[bytes, bytes, bool]:
    (payload_len,) = struct.unpack_from(">H", packet, 4)
    if 40 + payload_len > len(packet):
        raise Malformed("frame/truncated")
    if packet[6] == 44:
        raise Malformed("frame/fragment")
    if packet[6] != 17:
        raise Malformed("frame/not_udp")
    congestion = packet[1] >> 4 & 3 == 3
    return packet[40 : 40 + payload_len], packet[8:40] + b"\0\x11", congestion


def _ones_sum(data: bytes) -> int:
    total = sum(word for (word,) in struct.iter_unpack(">H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
