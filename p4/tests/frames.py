"""Frames of the tests: what members, servers and the agent send, and what the box answers, byte for
byte (proto/SPEC.md: Header, Encapsulation)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

CONTRIB, ANSWER, ACK, STATE, PULL, HELLO, STATUS = range(1, 8)
RETRANSMIT, DIRECT, REPLICA, CLAMPED, CONGESTION = 0x80, 0x40, 0x20, 0x10, 0x08
HAVE, STALE = 5, 6
I32, F32, BF16 = 1, 2, 3
SUM, MAX = 1, 2
SET_LIFE, ASK_LIFE, SEED, ECHO = 1, 2, 3, 0x80
EMPTY, COLLECTING, SENT, ANSWERED, VIRTUAL = range(5)
CPU_PORT = 255
BOX_PORT = 0x5745
EPOCH = 7


def mac(number: int) -> bytes:
    """The Ethernet address of a host."""
    return bytes([2, 0, 0, 0, 0, number])


def ip(number: int) -> bytes:
    """The IPv4 address of a host."""
    return bytes([10, 0, 0, number])


@dataclass(frozen=True)
class Host:
    """An end of a path: where it is, and the cookies of its channel with the box."""

    number: int
    switch_port: int
    port: int
    cookie_up: int = 0
    cookie_down: int = 0


BOX = Host(1, CPU_PORT, BOX_PORT)
SERVER = Host(64, 8, BOX_PORT, 0x07000640, 0x07000641)
REPLICA_HOST = Host(65, 9, BOX_PORT, 0x07000650, 0x07000651)
MEMBERS = [
    Host(10 + r, r, 0x6000 + r, EPOCH << 24 | 0x100 + r, EPOCH << 24 | 0x200 + r) for r in range(4)
]


def words_sum(data: bytes) -> int:
    """The inverted ones-complement sum of 16-bit words."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def header(
    kind: int,
    *,
    job: int = 1,
    row: int = 0,
    generation: int = 1,
    chunk: int = 0,
    cookie: int = 0,
    flags: int = 0,
    outcome: int = 0,
    type_: int = 0,
    op: int = 0,
    exponent: int = 0,
    count: int = 0,
    crc: int = 0,
    members: int = 0,
    version: int = 1,
) -> bytes:
    """The 32 bytes of a datagram."""
    return struct.pack(
        ">BBHIHHIBBHIQ",
        version << 4 | kind,
        flags | outcome,
        job,
        cookie,
        row,
        generation,
        chunk,
        type_ << 4 | op,
        exponent & 0xFF,
        count,
        crc,
        members,
    )


def vector(values) -> bytes:
    """Elements, modulo 2^32."""
    return b"".join(struct.pack(">I", value & 0xFFFFFFFF) for value in values)


def frame(
    source: Host,
    target: Host,
    datagram: bytes,
    *,
    tos: int = 2,
    checksum: int | None = None,
    ihl: int = 5,
    fragment: int = 0x4000,
    protocol: int = 17,
    ip_checksum: int | None = None,
    ip_len: int | None = None,
    udp_len: int | None = None,
    source_port: int | None = None,
    source_ip: bytes | None = None,
    source_mac: bytes | None = None,
    target_port: int | None = None,
) -> bytes:
    """The Ethernet frame around a datagram; what is named differs from what is right."""
    if udp_len is None:
        udp_len = 8 + len(datagram)
    if ip_len is None:
        ip_len = 20 + 8 + len(datagram)
    source_ip = source_ip or ip(source.number)
    ports = (
        source.port if source_port is None else source_port,
        target.port if target_port is None else target_port,
    )
    head = struct.pack(
        ">BBHHHBBH", 0x40 | ihl, tos, ip_len, 0, fragment, 64, protocol, 0
    ) + source_ip + ip(target.number)
    head = head[:10] + struct.pack(
        ">H", words_sum(head) if ip_checksum is None else ip_checksum
    ) + head[12:]
    if checksum is None:
        pseudo = source_ip + ip(target.number) + struct.pack(">HH", 17, udp_len)
        checksum = words_sum(pseudo + struct.pack(">HHHH", *ports, udp_len, 0) + datagram)
        checksum = checksum or 0xFFFF
    udp = struct.pack(">HHHH", *ports, udp_len, checksum)
    ethernet = mac(target.number) + (source_mac or mac(source.number)) + b"\x08\x00"
    return ethernet + head + udp + datagram


def op_frame(
    op: int,
    *,
    state: int = 0,
    exponent: int = 0,
    count: int = 0,
    nonce: int = 0,
    index: int = 0,
    lease_epoch: int = 0,
    step: int = 0,
    members: int = 0,
    life: int = 0,
    payload: bytes = b"",
    ether_type: int = 0x88B5,
) -> bytes:
    """What the agent tells its switch, and its echo."""
    return mac(255) + mac(1) + struct.pack(
        ">HBBBBHHIIIIQQ",
        ether_type,
        op,
        state,
        exponent & 0xFF,
        0,
        count,
        0,
        nonce,
        index,
        lease_epoch,
        step,
        members,
        life,
    ) + payload


def show(data: bytes) -> str:
    """One line for people: what differs is seen sooner in fields than in bytes."""
    if data[12:14] == b"\x88\xb5":
        return "OP " + data[14:].hex()
    if data[12:14] != b"\x08\x00" or len(data) < 74:
        return f"{len(data)} bytes {data.hex()}"
    (vk, fo, job, cookie, row, generation, chunk, type_op, exponent, count, crc, members) = (
        struct.unpack(">BBHIHHIBbHIQ", data[42:74])
    )
    names = ["?", "CONTRIB", "ANSWER", "ACK", "STATE", "PULL", "HELLO", "STATUS"]
    udp = struct.unpack(">HHHH", data[34:42])
    values = struct.unpack(f">{(len(data) - 74) // 4}i", data[74 : 74 + (len(data) - 74) // 4 * 4])
    return (
        f"{names[vk & 7]} len {len(data)} {'.'.join(map(str, data[26:30]))}:{udp[0]:#x} -> "
        f"{'.'.join(map(str, data[30:34]))}:{udp[1]:#x} sum {udp[3]:#06x} flags {fo & 0xF8:#x} "
        f"outcome {fo & 7} job {job} cookie {cookie:#x} group {row}.{generation} chunk {chunk} "
        f"type_op {type_op:#x} exponent {exponent} count {count} crc {crc} members {members:#x} "
        f"{list(values[:4])}"
    )
