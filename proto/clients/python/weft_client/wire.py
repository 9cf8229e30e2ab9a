"""Datagrams: header, handshake body, CRC32C (SPEC: Header, Checks, Handshake).

A datagram that does not parse is a `Malformed` with the first check that refuses it; nothing else
is raised, whatever the bytes are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag

ROW_KEYS = 0x9000
TABLES_MAX = 0x1000
HEADER_LEN = 32
HELLO_LEN = 72
BITMAP_BITS_MAX = 8192
VERSION = 1
EXPONENT_MIN, EXPONENT_MAX = -126, 126

_HEADER = struct.Struct(">BBHIIIBbHIQ")
_HELLO = struct.Struct(">BBHIQQQIIHHHBBIIIHbBQ")
assert _HEADER.size == HEADER_LEN and _HELLO.size == HELLO_LEN


class Kind(IntEnum):
    CONTRIB = 1
    ANSWER = 2
    ACK = 3
    STATE = 4
    PULL = 5
    HELLO = 6
    STATUS = 7


class Flags(IntFlag):
    RETRANSMIT = 0x80
    DIRECT = 0x40
    REPLICA = 0x20
    CLAMPED = 0x10
    CONGESTION = 0x08


class Outcome(IntEnum):
    NONE = 0
    STAGED = 1
    COMMITTED = 2
    VOID = 3
    DROPPED = 4
    HAVE = 5
    STALE = 6
    WAIT = 7
    # In a CONTRIB, and in a JOIN or WELCOME; in an allreduce's STATE (SPEC#lengths).
    LAST = 1
    LEFT = 3
    MISMATCH = 4


class ElementType(IntEnum):
    NONE = 0
    I32 = 1
    F32 = 2
    BF16 = 3

    @property
    def size_bytes(self) -> int:
        """Bytes of an element."""
        return (0, 4, 4, 2)[self]


class Operation(IntEnum):
    NONE = 0
    SUM = 1
    MAX = 2


class Phase(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    JOIN = 3
    WELCOME = 4
    WAITING = 5
    REFUSED = 6
    CLOSE = 7
    CLOSED = 8
    LISTEN = 9
    DEAF = 10


class Reason(IntEnum):
    NONE = 0
    UNKNOWN_GROUP = 1
    MEMBER_LOST = 2
    OTHER_SESSION = 3
    OTHER_ELEMENTS = 4


class Integrity(IntEnum):
    NONE = 0
    CRC32C = 1
    CHECKSUM16 = 2


class Malformed(Exception):
    """A datagram that is refused; its argument names the check."""


@dataclass(frozen=True)
class Header:
    """The 32 bytes that every datagram begins with."""

    kind: Kind
    job: int
    group: int
    chunk: int
    flags: Flags = Flags(0)
    outcome: Outcome = Outcome.NONE
    cookie: int = 0
    element_type: ElementType = ElementType.NONE
    operation: Operation = Operation.NONE
    exponent: int = 0
    count: int = 0
    members: int = 0

    @property
    def row(self) -> int:
        """The row that `group` is a generation of."""
        return self.group >> 16


@dataclass(frozen=True)
class Hello:
    """The body of a handshake datagram."""

    phase: Phase
    life: int
    reason: Reason = Reason.NONE
    probe_len: int = 0
    epoch: int = 0
    token: int = 0
    session: int = 0
    cookie_up: int = 0
    cookie_down: int = 0
    window: int = 0
    shards: int = 0
    elements: int = 0
    integrity: Integrity = Integrity.NONE
    overflow: int = 0
    fan_in: int = 0
    step_count: int = 0
    low_step: int = 0
    step_bits: int = 0
    exponent: int = 0
    exponent_mode: int = 0
    mask: int = 0
    bitmap: bytes = b""

    def steps(self) -> list[int]:
        """The steps that the bitmap names."""
        return [
            self.low_step + j
            for j in range(self.step_bits)
            if self.bitmap[j // 8] & (0x80 >> j % 8)
        ]

    @staticmethod
    def bits(low_step: int, steps: set[int]) -> tuple[int, bytes]:
        """`step_bits` and the bitmap of `steps`, which are not below `low_step`."""
        if not steps:
            return 0, b""
        step_bits = max(steps) - low_step + 1
        bitmap = bytearray((step_bits + 7) // 8)
        for step in steps:
            j = step - low_step
            bitmap[j // 8] |= 0x80 >> j % 8
        return step_bits, bytes(bitmap)


@dataclass(frozen=True)
class Datagram:
    """A datagram that parsed. `crc` is the field as it came."""

    header: Header
    payload: bytes = b""
    hello: Hello | None = None
    crc: int = 0
    raw: bytes = field(default=b"", repr=False, compare=False)

    def crc_is_good(self) -> bool:
        """Whether the CRC is present and right."""
        return self.crc != 0 and self.crc == datagram_crc(self.raw)


def encode(header: Header, payload: bytes = b"", *, crc: bool = True) -> bytes:
    """The datagram of a header and what follows it."""
    h = header
    data = _HEADER.pack(
        VERSION << 4 | h.kind,
        h.flags | h.outcome,
        h.job,
        h.cookie,
        h.group,
        h.chunk,
        h.element_type << 4 | h.operation,
        h.exponent,
        h.count,
        0,
        h.members,
    ) + payload
    if not crc:
        return data
    return data[:20] + struct.pack(">I", datagram_crc(data)) + data[24:]


def encode_hello(header: Header, hello: Hello) -> bytes:
    """The handshake datagram, padded to `probe_len`."""
    b = hello
    body = _HELLO.pack(
        b.phase,
        b.reason,
        b.probe_len,
        b.epoch,
        b.life,
        b.token,
        b.session,
        b.cookie_up,
        b.cookie_down,
        b.window,
        b.shards,
        b.elements,
        b.integrity,
        b.overflow,
        b.fan_in,
        b.step_count,
        b.low_step,
        b.step_bits,
        b.exponent,
        b.exponent_mode,
        b.mask,
    )
    body += b.bitmap
    return encode(header, body.ljust(max(0, b.probe_len - HEADER_LEN), b"\0"))


def parse(data: bytes) -> Datagram:
    """The datagram in `data`, whose integrity is still to be checked."""
    if len(data) < HEADER_LEN:
        raise Malformed("header/length")
    first, second, job, cookie, group, chunk, types, exponent, count, crc, members = (
        _HEADER.unpack_from(data)
    )
    if first >> 4 != VERSION:
        raise Malformed("header/version")
    try:
        header = Header(
            kind=Kind(first & 0xF),
            flags=Flags(second & 0xF8),
            outcome=Outcome(second & 7),
            job=job,
            cookie=cookie,
            group=group,
            chunk=chunk,
            element_type=ElementType(types >> 4),
            operation=Operation(types & 0xF),
            exponent=exponent,
            count=count,
            members=members,
        )
    except ValueError:
        raise Malformed("header/kind") from None
    payload = data[HEADER_LEN:]
    hello = None
    if header.kind == Kind.HELLO:
        if len(payload) < HELLO_LEN:
            raise Malformed("header/length")
    elif header.kind != Kind.PULL or _is_of_keys(header):  # one may be padded to its sum's length
        carries = header.kind in (Kind.CONTRIB, Kind.ANSWER) or _is_of_keys(header)
        need = count * header.element_type.size_bytes if carries else 0
        may_pad = header.kind == Kind.CONTRIB and header.outcome == Outcome.LAST
        is_padded = may_pad and not _is_of_keys(header) and len(payload) > need
        if len(payload) != need and not is_padded:
            raise Malformed("header/length")
    if not EXPONENT_MIN <= exponent <= EXPONENT_MAX:
        raise Malformed("header/exponent")
    if header.kind == Kind.HELLO:
        hello = _parse_hello(payload)
    return Datagram(header, payload, hello, crc, data)


def _is_of_keys(header: Header) -> bool:
    """Rows of tables of keys: their datagrams have a body, whatever their kind (SPEC#keys)."""
    return ROW_KEYS <= header.group >> 16 < ROW_KEYS + TABLES_MAX


def _parse_hello(body: bytes) -> Hello:
    fields = _HELLO.unpack_from(body)
    try:
        hello = Hello(
            phase=Phase(fields[0]),
            reason=Reason(fields[1]),
            probe_len=fields[2],
            epoch=fields[3],
            life=fields[4],
            token=fields[5],
            session=fields[6],
            cookie_up=fields[7],
            cookie_down=fields[8],
            window=fields[9],
            shards=fields[10],
            elements=fields[11],
            integrity=Integrity(fields[12]),
            overflow=fields[13],
            fan_in=fields[14],
            step_count=fields[15],
            low_step=fields[16],
            step_bits=fields[17],
            exponent=fields[18],
            exponent_mode=fields[19],
            mask=fields[20],
        )
    except ValueError:
        raise Malformed("hello") from None
    bitmap_len = (hello.step_bits + 7) // 8
    if (
        hello.overflow > 1
        or hello.exponent_mode > 1
        or not EXPONENT_MIN <= hello.exponent <= EXPONENT_MAX
        or hello.step_bits > BITMAP_BITS_MAX
        or len(body) < HELLO_LEN + bitmap_len
    ):
        raise Malformed("hello")
    return replace(hello, bitmap=body[HELLO_LEN : HELLO_LEN + bitmap_len])


def datagram_crc(data: bytes) -> int:
    """What the CRC field of `data` must be: computed with it 0, and 0 sent as all ones."""
    return crc32c(data[24:], crc32c(b"\0\0\0\0", crc32c(data[:20]))) or 0xFFFF_FFFF


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC32C (Castagnoli) of `data` behind what gave `crc`."""
    crc ^= 0xFFFF_FFFF
    even = len(data) & ~1
    for (word,) in struct.iter_unpack("<H", data[:even]):
        crc = crc >> 16 ^ _PAIRS[(crc ^ word) & 0xFFFF]
    if even != len(data):
        crc = crc >> 8 ^ _BYTES[(crc ^ data[-1]) & 0xFF]
    return crc ^ 0xFFFF_FFFF


def _byte_entry(index: int) -> int:
    for _ in range(8):
        index = index >> 1 ^ (0x82F6_3B78 if index & 1 else 0)
    return index


# Tables for one byte and, as Python's loop is what costs, for two.
_BYTES = [_byte_entry(index) for index in range(256)]
_PAIRS = [
    _BYTES[low_crc & 0xFF] ^ low_crc >> 8
    for low_crc in (_BYTES[index & 0xFF] ^ index >> 8 for index in range(65536))
]
