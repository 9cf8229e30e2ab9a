"""What the switch must do, one function a scenario: frames in, frames out byte for byte, and the
counters."""

from __future__ import annotations

from collections.abc import Callable

from frames import *
from rig import Rig

ALL: dict[str, Callable[[int], Rig]] = {}
SIZES: dict[str, list[int]] = {}


def scenario(*sizes: int):
    """Registers a scenario for programs of these sizes."""

    def enter(build):
        name = build.__name__

        def made(elements: int) -> Rig:
            rig = Rig(elements=elements).base()
            build(rig)
            return rig

        ALL[name] = made
        SIZES[name] = list(sizes) or [32]
        return build

    return enter


@scenario(32, 64, 128, 256)
def sum_to_all(r: Rig) -> None:
    """Two members, one step: the sum goes to both, a repeat gets the kept answer."""
    r.scope()
    r.windowed()
    r.contrib(0, 0, 5)
    r.contrib(1, 0, 7)
    r.happened("claim", "add", "complete_root")
    values = [a + b for a, b in zip(r.values(5), r.values(7))]
    r.expect_answer(0, values)
    r.contrib(0, 0, 5, flags=RETRANSMIT)
    r.happened("repeat_answered")
    r.dropped("duplicate")
    r.expect_answer(0, values, to=[0])


def total(r: Rig, *firsts: int) -> list[int]:
    """The sum of contributions that begin with these."""
    return [sum(values) for values in zip(*(r.values(first) for first in firsts))]


# Windowed leases: the cells of `root`.


@scenario(32)
def windows_and_banks(r: Rig) -> None:
    """Steps take turns in two banks of two slots; a step waits for the one before it."""
    r.scope()
    r.windowed(base=8)
    for chunk in range(10):
        if chunk + 2 < 10:
            # The slot's bank is free, but the step before is not complete.
            r.contrib(1, chunk + 2, 9)
            r.happened("refuse_foreign")
            r.dropped("stale_step")
            r.expect_stale(1, chunk + 2)
        r.contrib(0, chunk, 10 * chunk)
        r.contrib(1, chunk, 1000)
        r.happened("claim", "add", "complete_root")
        r.expect_answer(chunk, total(r, 10 * chunk, 1000))
    # Step 5 has been answered and replaced by 9; 6 and 7 are still kept; 4 is long gone.
    r.contrib(0, 5, 50)
    r.expect_stale(0, 5)
    r.status(0, 4)
    r.expect_stale(0, 4)
    r.happened("refuse_foreign", "refuse_foreign")
    r.dropped("stale_step", 2)
    r.contrib(0, 6, 60)
    r.expect_answer(6, total(r, 60, 1000), to=[0])
    r.happened("repeat_answered")
    r.dropped("duplicate")
    # A question about the next step: whoever is in the bank is of an older one.
    r.status(1, 10)
    r.expect_have(1, 10, 0)
    r.happened("status_unclaimed")
    # Two windows ahead: the bank holds an older step, the other not the one before.
    r.contrib(0, 12, 1)
    r.expect_stale(0, 12)
    r.happened("refuse_foreign")
    r.dropped("stale_step")


@scenario(32)
def an_old_step_cannot_take_a_newer_bank(r: Rig) -> None:
    """The bank's own tag has to be older, whatever the other bank holds."""
    r.scope()
    r.windowed(window=1)
    # Bank 1 holds step 3, bank 0 step 0: step 1 comes late, after a hand-over.
    r.op(SEED, index=0, lease_epoch=0x1001, step=0, state=VIRTUAL, members=3)
    r.op(SEED, index=1, lease_epoch=0x1001, step=3, state=VIRTUAL, members=3)
    r.contrib(0, 1, 4)
    r.expect_stale(0, 1)
    r.dropped("stale_step")
    r.happened("refuse_foreign")


@scenario(32)
def the_first_window_comes_once(r: Rig) -> None:
    """A step without predecessor claims only while nothing of its slot has a tag."""
    r.scope()
    r.windowed(window=1)
    r.op(SEED, index=1, lease_epoch=0x1001, step=3, state=VIRTUAL, members=3)
    r.contrib(0, 0, 4)
    r.expect_stale(0, 0)
    r.dropped("stale_step")
    r.happened("refuse_foreign")


@scenario(32)
def haves(r: Rig) -> None:
    """A repeat finds its contribution, a question changes nothing."""
    r.members = 3
    r.scope()
    r.windowed()
    r.status(1, 0)
    r.expect_have(1, 0, 0)
    r.happened("status_unclaimed")
    r.contrib(0, 0, 5)
    r.happened("claim")
    r.contrib(0, 0, 6, flags=RETRANSMIT)
    r.expect_have(0, 0, 1)
    r.dropped("duplicate")
    r.status(0, 0, flags=RETRANSMIT)
    r.expect_have(0, 0, 1)
    r.happened("repeat_collecting", "repeat_collecting")
    r.status(1, 0)
    r.expect_have(1, 0, 1)
    r.contrib(1, 0, 7)
    r.contrib(2, 0, 8)
    r.happened("add", "add", "complete_root")
    r.expect_answer(0, total(r, 5, 7, 8))
    r.status(2, 0, type_=0, op=0, count=0)
    r.happened("repeat_answered")
    r.expect_answer(0, total(r, 5, 7, 8), to=[2])
    # The next step of the slot: a question, then a claim over an answered bank.
    r.status(2, 2)
    r.expect_have(2, 2, 0)
    r.happened("status_unclaimed")
    r.contrib(2, 2, 1)
    r.happened("claim")
    r.status(0, 4)
    r.expect_stale(0, 4)
    r.happened("refuse_foreign")
    r.dropped("stale_step")


@scenario(128)
def status_grows_by_512(r: Rig) -> None:
    """128 elements are the most that a header-only frame may become."""
    r.scope()
    r.windowed()
    r.contrib(0, 0, 5)
    r.contrib(1, 0, 7)
    r.expect_answer(0, total(r, 5, 7))
    r.happened("claim", "add", "complete_root", "repeat_answered")
    r.status(0, 0)
    r.expect_answer(0, total(r, 5, 7), to=[0])


@scenario(256)
def status_must_not_grow(r: Rig) -> None:
    """Above that the asker is told to contribute again, and gets the kept answer then."""
    r.scope()
    r.windowed()
    r.contrib(0, 0, 5)
    r.contrib(1, 0, 7)
    r.expect_answer(0, total(r, 5, 7))
    r.happened("claim", "add", "complete_root", "repeat_answered", "repeat_answered")
    r.status(0, 0)
    r.expect_have(0, 0, 2)
    r.contrib(0, 0, 5, flags=RETRANSMIT)
    r.expect_answer(0, total(r, 5, 7), to=[0])
    r.dropped("duplicate")


@scenario(32)
def group_of_one(r: Rig) -> None:
    """The first contribution is the last."""
    r.members = 1
    r.scope()
    r.windowed()
    for chunk in range(5):
        r.contrib(0, chunk, chunk)
        r.expect_answer(chunk, total(r, chunk))
        r.happened("claim", "complete_root")


@scenario(32, 256)
def maximum(r: Rig) -> None:
    """MAX is signed and stores what comes first."""
    r.scope()
    r.windowed(op=MAX)
    first = [-5, 7, -(2**31), 2**31 - 1] * (r.elements // 4)
    second = [-6, 8, 2**31 - 1, -(2**31)] * (r.elements // 4)
    for chunk in range(3):
        r.contrib(0, chunk, first, op=MAX)
        r.contrib(1, chunk, second, op=MAX)
        r.expect_answer(chunk, [max(a, b) for a, b in zip(first, second)], op=MAX)
        r.happened("claim", "add", "complete_root")
    # A repeat brings nothing in, however great its elements are.
    r.contrib(1, 1, [2**31 - 1] * r.elements, op=MAX, flags=RETRANSMIT)
    r.expect_answer(1, [max(a, b) for a, b in zip(first, second)], op=MAX, to=[1])
    r.happened("repeat_answered")
    r.dropped("duplicate")


@scenario(32, 256)
def sums_wrap(r: Rig) -> None:
    """Sums are modulo 2^32, in any order."""
    r.members = 3
    r.scope()
    r.windowed()
    parts = [[2**31 - 1, -(2**31), -1, 0x01234567], [1, -1, 1, 2**30], [2**31 - 1, 3, 0, 2**30]]
    parts = [part * (r.elements // 4) for part in parts]
    for rank, part in enumerate(parts):
        r.contrib(rank, 0, part)
    r.expect_answer(0, [sum(values) for values in zip(*parts)])
    r.happened("claim", "add", "add", "complete_root")


@scenario(32)
def exponents(r: Rig) -> None:
    """A bank keeps the exponent of its claim; a row may fix it."""
    r.scope()
    r.windowed(exponent_fixed=0)
    r.windowed(row=1, base=8, exponent=-7, lease_epoch=0x1002)
    r.contrib(0, 0, 5, exponent=-126)
    r.contrib(1, 0, 7, exponent=-125)
    r.dropped("exponent")
    r.contrib(1, 0, 7, exponent=-126)
    r.expect_answer(0, total(r, 5, 7), exponent=-126)
    r.status(0, 0, exponent=3)
    r.expect_answer(0, total(r, 5, 7), exponent=-126, to=[0])
    r.happened("claim", "add", "complete_root", "repeat_answered")
    for exponent in (127, -127, -128):
        r.contrib(0, 1, 5, exponent=exponent)
        r.status(0, 1, exponent=exponent)
    r.dropped("exponent", 6)
    r.contrib(0, 1, 1, exponent=126)
    r.contrib(1, 1, 1, exponent=126)
    r.expect_answer(1, total(r, 1, 1), exponent=126)
    r.happened("claim", "add", "complete_root")
    r.contrib(0, 0, 5, row=1)
    r.dropped("exponent")
    r.contrib(0, 0, 5, row=1, exponent=-7)
    r.contrib(1, 0, 6, row=1, exponent=-7)
    r.expect_answer(0, total(r, 5, 6), row=1, exponent=-7)
    r.happened("claim", "add", "complete_root")


@scenario(32)
def flags_of_a_sum(r: Rig) -> None:
    """CLAMPED and CONGESTION of any contribution, CE included; nothing else, nothing of before."""
    r.scope()
    r.windowed(window=1)
    r.contrib(0, 0, 5, flags=CLAMPED | RETRANSMIT | DIRECT)
    r.contrib(1, 0, 7, around={"tos": 3})
    r.expect_answer(0, total(r, 5, 7), flags=CLAMPED | CONGESTION)
    r.contrib(0, 1, 5, flags=CONGESTION)
    r.contrib(1, 1, 7, around={"tos": 1})
    r.expect_answer(1, total(r, 5, 7), flags=CONGESTION)
    r.contrib(0, 2, 5)
    r.contrib(1, 2, 7)
    r.expect_answer(2, total(r, 5, 7))
    for _ in range(3):
        r.happened("claim", "add", "complete_root")


@scenario(32)
def leases_apart(r: Rig) -> None:
    """Two rows of two jobs touch only their own banks; a bank of an earlier lease is EMPTY."""
    r.scope()
    r.scope(1)
    r.windowed(base=0)
    r.windowed(job=2, row=7, scope=1, base=4, lease_epoch=0x1002)
    # The banks of row 0 again, installed anew.
    r.windowed(row=1, base=0, lease_epoch=0x1003)
    r.contrib(0, 0, 5)
    r.contrib(0, 0, 50, job=2, row=7)
    r.contrib(1, 0, 70, job=2, row=7)
    r.expect_answer(0, total(r, 50, 70), job=2, row=7)
    r.contrib(1, 0, 7)
    r.expect_answer(0, total(r, 5, 7))
    for scope in (0, 1):
        r.happened("claim", "add", "complete_root", scope=scope)
    r.contrib(0, 2, 1, row=1)
    r.expect_stale(0, 2, row=1)
    r.happened("refuse_foreign")
    r.dropped("stale_step")
    r.contrib(1, 0, 1, row=1)
    r.contrib(0, 0, 2, row=1)
    r.expect_answer(0, total(r, 1, 2), row=1)
    r.happened("claim", "add", "complete_root")


@scenario(32)
def the_arena_ends(r: Rig) -> None:
    """The last banks serve; a row beyond them reads and writes nothing."""
    r.scope()
    r.windowed(base=2046, window=1)
    r.windowed(row=1, base=2047, window=1, lease_epoch=0x1002)
    r.windowed(row=2, base=0xFFFFFFFE, window=2, lease_epoch=0x1003)
    for chunk in (0, 1):
        r.contrib(0, chunk, 5)
        r.contrib(1, chunk, 7)
        r.expect_answer(chunk, total(r, 5, 7))
        r.happened("claim", "add", "complete_root")
    r.contrib(0, 0, 5, row=1)
    r.contrib(0, 1, 5, row=1)
    r.contrib(0, 0, 5, row=2)
    r.dropped("length", 3)
    r.contrib(0, 1, 5)
    r.expect_answer(1, total(r, 5, 7), to=[0])
    r.happened("repeat_answered")
    r.dropped("duplicate")


# Refusals, in the order of SPEC#checks. Each frame would be a good one but for what is named.


@scenario(32)
def refused_by_form(r: Rig) -> None:
    """Version, kind, element codes, exponent, lengths."""
    r.scope()
    r.windowed()
    for version in (0, 2):
        r.contrib(0, 0, 5, version=version)
        r.dropped("version")
    for kind in (0, 8, 15):
        r.send(0, frame(MEMBERS[0], BOX, header(kind, cookie=MEMBERS[0].cookie_up, members=1)))
        r.dropped("kind")
    r.contrib(0, 0, 5, type_=4)
    r.contrib(0, 0, 5, op=3)
    r.status(0, 0, type_=15)
    r.status(0, 0, op=15)
    r.dropped("kind", 4)
    good = r.contribution(0, 0, 5)
    # Elements that are not there, too many, an odd byte.
    r.contrib(0, 0, 5, payload=b"")
    r.contrib(0, 0, 5, payload=bytes(4 * r.elements + 4))
    r.contrib(0, 0, 5, payload=bytes(4 * r.elements + 1))
    r.contrib(0, 0, 5, count=r.elements + 1)
    r.contrib(0, 0, 5, type_=BF16)
    r.contrib(0, 0, 5, type_=0)
    r.dropped("length", 6)
    # A question with something behind it; a datagram that ends in its header.
    status = header(STATUS, cookie=MEMBERS[0].cookie_up, members=1)
    r.send(0, frame(MEMBERS[0], BOX, status + b"x"))
    r.send(0, frame(MEMBERS[0], BOX, status[:31]))
    r.send(0, frame(MEMBERS[0], BOX, b""))
    r.dropped("length", 3)
    # Longer by the IP header or the UDP header than the frame; a UDP length beyond the packet.
    for around in (
        {"ip_len": len(good) - 14 + 1},
        {"udp_len": len(good) - 34 + 1, "ip_len": len(good) - 14},
        {"udp_len": 7},
        {"ip_len": 27},
        {"ip_len": 100, "udp_len": 40 + 4 * r.elements},
    ):
        r.contrib(0, 0, 5, around=around)
        r.dropped("length")
    r.status(0, 0, around={"ip_len": 100})
    r.dropped("length")
    # A frame that ends before its length says, wherever: at last within the elements.
    for cut in (42, 60, 73, 74, 75, len(good) - 4, len(good) - 1):
        r.contrib(0, 0, 5, cut=cut)
        r.dropped("length")
    # IP itself.
    r.contrib(0, 0, 5, around={"ihl": 6})
    r.dropped("ip_header")
    r.contrib(0, 0, 5, around={"ip_checksum": 0x1234})
    r.dropped("ip_checksum")
    for fragment in (0x2000, 0x0001, 0x1FFF):
        r.contrib(0, 0, 5, around={"fragment": fragment})
        r.dropped("fragment")
    # Nothing of it has changed anything.
    r.status(0, 0)
    r.expect_have(0, 0, 0)
    r.happened("status_unclaimed")


@scenario(32)
def refused_by_name(r: Rig) -> None:
    """Job, row, member, cookie, generation, source: who is told STALE, and who nothing."""
    r.scope()
    r.windowed()
    r.add("jobs", "other_job", [1], [])
    r.windowed(job=2, row=3, base=8, scope=1, mask=1, lease_epoch=0x1002)
    r.scope(1)
    up = [host.cookie_up for host in MEMBERS]
    r.contrib(0, 0, 5, job=9)
    r.status(0, 0, job=9)
    r.dropped("unknown_job", 2)
    r.contrib(0, 0, 5, row=9)
    r.contrib(0, 0, 5, row=3)
    r.dropped("unknown_group", 2)
    for members in (0, 3, 4, 1 << 63, 2**64 - 1):
        r.contrib(0, 0, 5, members=members)
        r.dropped("bad_members")
    # A member of the scope who is not in the row's mask.
    r.contrib(1, 0, 5, job=2, row=3)
    r.dropped("bad_members")
    # Another's cookie, an older epoch's; from elsewhere the same is not answered.
    for cookie, reason in ((up[1], "bad_cookie"), (up[0] ^ 1 << 24, "stale_epoch"),
                           (0, "stale_epoch")):
        r.contrib(0, 0, 5, cookie=cookie)
        r.expect_stale(0, 0, cookie=cookie)
        r.status(0, 3, cookie=cookie, count=5, exponent=9)
        r.expect_stale(0, 3, cookie=cookie, count=5, exponent=9)
        r.contrib(0, 0, 5, cookie=cookie, around={"source_port": 99})
        r.contrib(0, 0, 5, cookie=cookie, around={"source_ip": ip(11)})
        r.dropped(reason, 4)
    r.contrib(0, 0, 5, generation=2)
    r.expect_stale(0, 0, cookie=up[0], generation=2)
    r.contrib(0, 0, 5, generation=2, around={"source_port": 99})
    r.dropped("stale_group", 2)
    r.contrib(0, 0, 5, around={"source_port": 99})
    r.contrib(0, 0, 5, around={"source_ip": ip(11)})
    r.status(0, 0, around={"source_ip": ip(99)})
    r.dropped("wrong_source", 3)
    # An answer goes to the address of the table, whatever Ethernet says.
    r.status(0, 0, around={"source_mac": mac(99)})
    r.expect_have(0, 0, 0)
    r.happened("status_unclaimed")


@scenario(32)
def refused_by_content(r: Rig) -> None:
    """Chunk, count, type, operation, exponent, integrity, in this order."""
    r.scope()
    r.windowed(chunks=1000, exponent=3)
    for chunk in (1000, 2**32 - 1):
        r.contrib(0, chunk, 5, type_=F32, exponent=3)
        r.status(0, chunk)
        r.dropped("chunk_out_of_range", 2)
    r.contrib(0, 0, 5, count=2 * r.elements, type_=BF16, op=MAX)
    r.contrib(0, 0, 5, count=8, payload=bytes(32), op=MAX)
    r.contrib(0, 0, 5, count=0, payload=b"", op=MAX)
    r.dropped("element_count", 3)
    r.contrib(0, 0, 5, type_=F32, op=MAX)
    r.dropped("element_type")
    r.contrib(0, 0, 5, op=MAX)
    r.contrib(0, 0, 5, op=0)
    r.dropped("operation", 2)
    r.contrib(0, 0, 5, exponent=2, around={"checksum": 0})
    r.dropped("exponent")
    for checksum in (0, 1, 0xFFFE):
        r.contrib(0, 0, 5, exponent=3, around={"checksum": checksum})
        r.status(0, 0, around={"checksum": checksum})
        r.dropped("integrity", 2)
    # A byte of an element on the way.
    good = bytearray(r.contribution(0, 0, 5, exponent=3))
    good[-1] ^= 1
    r.send(0, bytes(good))
    r.dropped("integrity")
    r.status(0, 0, exponent=77)
    r.expect_have(0, 0, 0, exponent=77)
    r.happened("status_unclaimed")


def with_sum_of_zero(make, elements: int) -> tuple[list[int], bytes]:
    """Elements with which the frame that `make` builds has a checksum of 0, sent as 0xffff."""
    values = [0] * elements
    plain = make(values)
    values[-1] = int.from_bytes(plain[40:42], "big")
    data = make(values)
    assert data[40:42] == b"\xff\xff", data[40:42]
    return values, data


@scenario(32, 256)
def checksum_that_is_0(r: Rig) -> None:
    """A sum of 0 leaves as 0xffff and is right when it comes so; 0 is no checksum."""
    r.scope()
    r.windowed(window=4)
    host = MEMBERS[0]
    values, data = with_sum_of_zero(lambda v: r.contribution(0, 0, v), r.elements)
    r.send(0, data)
    r.contrib(1, 0, [0] * r.elements)
    r.expect_answer(0, values)
    # The answer to member 0 sums to 0, and so does what is kept of it.
    answer = {"cookie": host.cookie_down, "type_": I32, "op": SUM, "count": r.elements,
              "members": 3, "chunk": 1}
    values, _ = with_sum_of_zero(
        lambda v: frame(BOX, host, header(ANSWER, **answer) + vector(v)), r.elements
    )
    r.contrib(0, 1, values)
    r.contrib(1, 1, [0] * r.elements)
    r.expect_answer(1, values)
    r.contrib(0, 1, values)
    r.expect_answer(1, values, to=[0])
    r.dropped("duplicate")
    r.happened("claim", "add", "complete_root", "claim", "add", "complete_root",
               "repeat_answered")


@scenario(32, 256)
def truncated_vector(r: Rig) -> None:
    """The elements of the frame before lie where those of a cut one should be."""
    r.scope()
    r.windowed()
    r.contrib(0, 0, 1000)
    whole = len(r.contribution(1, 0, 1))
    # The switch takes its memory from a pool: many frames, so that any of it is met again.
    for _ in range(20):
        r.contrib(0, 0, 3000)
        r.expect_have(0, 0, 1)
        r.dropped("duplicate")
        r.happened("repeat_collecting")
        r.contrib(1, 0, 1, cut=whole - 3)
        # And one whose lengths are as short as the frame, but whose count is not.
        r.contrib(1, 0, 1, payload=vector(range(r.elements))[:-1])
        r.dropped("length", 2)
    r.contrib(1, 0, 1)
    r.expect_answer(0, total(r, 1000, 1))
    r.happened("claim", "add", "complete_root")


@scenario(32)
def padding(r: Rig) -> None:
    """What Ethernet adds behind a datagram is not looked at and does not come back."""
    r.scope()
    r.windowed()
    r.send(0, r.contribution(0, 0, 5) + bytes(range(1, 30)))
    status = header(STATUS, cookie=MEMBERS[1].cookie_up, members=2, count=3)
    r.send(1, frame(MEMBERS[1], BOX, status) + b"x" * 200)
    r.expect_state(1, 0, HAVE, 1, type_=0, op=0, count=3)
    r.send(1, r.contribution(1, 0, 7) + b"y" * 5)
    r.expect_answer(0, total(r, 5, 7))
    r.send(1, frame(MEMBERS[1], BOX, status) + b"x" * 200)
    r.expect_answer(0, total(r, 5, 7), to=[1])
    r.happened("claim", "add", "complete_root", "repeat_answered")


@scenario(32)
def lost_by_order(r: Rig) -> None:
    """Faults: the frames that the tables name are lost, once going up, once coming down."""
    r.scope()
    r.windowed()
    r.add("faults", "lose", [CONTRIB, 1, 0, 0], [])
    r.add("faults", "lose", [CONTRIB, 2, 1, 1], [])
    r.add("faults_out", "lose_copy", [ANSWER, 1, 0, 0], [])
    r.contrib(0, 0, 5)
    r.status(0, 0)
    r.expect_have(0, 0, 0)
    r.happened("status_unclaimed")
    r.contrib(0, 0, 5, flags=RETRANSMIT)
    r.contrib(1, 0, 7)
    r.expect_answer(0, total(r, 5, 7), to=[0])
    r.happened("claim", "add", "complete_root")
    r.contrib(1, 1, 7, flags=RETRANSMIT)
    r.contrib(1, 1, 7)
    r.happened("claim")


# Seeds and the life.


@scenario(32, 256)
def seeds(r: Rig) -> None:
    """What the agent says a bank begins with: a virtual step, a sum that was handed over."""
    r.scope()
    r.windowed(lease_epoch=0x1001, window=1)
    r.op(SET_LIFE, life=0xA11CE, nonce=1)
    r.op(ASK_LIFE, nonce=2, life=7, knows=0xA11CE)
    # Step 4 is what not every member holds: step 3 is virtual in bank 1.
    seed = {"lease_epoch": 0x1001, "members": 3}
    r.op(SEED, index=1, step=3, state=VIRTUAL, nonce=3, knows=0xA11CE, **seed)
    r.status(0, 3)
    r.expect_stale(0, 3)
    r.contrib(1, 3, 3)
    r.expect_stale(1, 3)
    r.dropped("stale_step", 2)
    r.contrib(0, 4, 5)
    r.happened("claim")
    # The agent was told the sum of step 4 in the meantime: it takes the place of what collects.
    payload = vector(r.values(400))
    r.op(SEED, index=0, step=4, state=ANSWERED, nonce=4, knows=0xA11CE, exponent=-3,
         count=r.elements, payload=payload, **seed)
    r.contrib(1, 4, 7)
    r.expect_answer(4, r.values(400), to=[1], exponent=-3)
    r.dropped("duplicate")
    r.happened("repeat_answered")
    # A late copy of either changes nothing, but is echoed.
    r.op(SEED, index=0, step=4, state=ANSWERED, nonce=4, knows=0xA11CE, exponent=5,
         count=r.elements, payload=vector(r.values(9)), **seed)
    r.op(SEED, index=1, step=5, state=VIRTUAL, nonce=5, knows=0xA11CE, **seed)
    r.contrib(0, 5, 1)
    r.happened("claim")
    r.op(SEED, index=1, step=3, state=VIRTUAL, nonce=3, knows=0xA11CE, **seed)
    r.contrib(1, 5, 2)
    r.expect_answer(5, total(r, 1, 2))
    r.happened("add", "complete_root")
    r.contrib(0, 4, 5)
    r.expect_answer(4, r.values(400), to=[0], exponent=-3)
    r.dropped("duplicate")
    r.happened("repeat_answered")


@scenario(32)
def ops_refused(r: Rig) -> None:
    """Beyond the arena, cut short, without a meaning: no echo; from another port: just a frame."""
    r.scope()
    r.windowed()
    r.op(SET_LIFE, life=5, nonce=1)
    # First of those refused: what it lacks is that of an op that was done, or nothing's.
    r.send(CPU_PORT, op_frame(SET_LIFE, life=5)[:-1])
    r.dropped("length")
    for index in (2048, 2049, 2**32 - 1):
        r.op(SEED, echoed=False, index=index, lease_epoch=0x1001, state=VIRTUAL)
        r.dropped("length")
    r.send(CPU_PORT, op_frame(SEED, count=r.elements, payload=bytes(4 * r.elements - 1)))
    r.send(CPU_PORT, op_frame(SEED, count=1, payload=bytes(4)))
    r.dropped("length", 2)
    r.send(CPU_PORT, op_frame(4))
    r.send(CPU_PORT, op_frame(0))
    r.send(CPU_PORT, op_frame(SEED | ECHO))
    r.dropped("kind", 3)
    r.op(SEED, index=2047, lease_epoch=0x1001, state=VIRTUAL, knows=5)
    # Member 2's port floods it like any frame to an unknown address.
    data = op_frame(SET_LIFE, life=6)
    r.send(2, data)
    for port in (0, 1, 3, 8, 9, CPU_PORT):
        r.expect(port, data)
    r.op(ASK_LIFE, nonce=9, knows=5)


# Frames of others, and the agent's.


def ethernet(target: bytes, source: bytes, ether_type: int, rest: bytes) -> bytes:
    """A frame of whatever kind."""
    return target + source + ether_type.to_bytes(2, "big") + rest


@scenario(32)
def bridge(r: Rig) -> None:
    """Hosts reach each other and the agent; a flood spares the port that it came from."""
    r.scope()
    r.windowed()
    everyone = [0, 1, 2, 3, 8, 9, CPU_PORT]

    def flood(port: int, data: bytes) -> None:
        r.send(port, data)
        for other in everyone:
            if other != port:
                r.expect(other, data)

    def forward(port: int, to: int, data: bytes) -> None:
        r.send(port, data)
        r.expect(to, data)

    anybody = b"\xff" * 6
    arp = bytes.fromhex("0001080006040001") + mac(10) + ip(10) + bytes(6)
    flood(0, ethernet(anybody, mac(10), 0x0806, arp + ip(11)))
    forward(0, CPU_PORT, ethernet(anybody, mac(10), 0x0806, arp + ip(1)))
    flood(CPU_PORT, ethernet(anybody, mac(1), 0x0806, arp + ip(1)))
    forward(0, 1, ethernet(mac(11), mac(10), 0x86DD, b"six" * 30))
    forward(0, 1, ethernet(mac(11), mac(10), 0x8100, b"tagged"))
    forward(0, 1, ethernet(mac(11), mac(10), 0x0800, b""))
    forward(0, 1, ethernet(mac(11), mac(10), 0x0800, b"\x45" * 19))
    flood(3, ethernet(mac(99), mac(13), 0x1234, b""))
    # From the port of its own address: it is there already.
    r.send(1, ethernet(mac(11), mac(10), 0x1234, b"x"))
    # Weft between others, short, long and broken, is theirs.
    data = r.contribution(0, 0, 5)
    server = frame(MEMBERS[0], SERVER, data[42:])
    forward(0, 8, server)
    forward(8, 0, frame(SERVER, MEMBERS[0], data[42:100], checksum=0))
    forward(0, 8, server[:90])
    forward(0, 8, server + b"padding")
    forward(0, 8, frame(MEMBERS[0], SERVER, b"x" * 3))
    forward(0, 8, frame(MEMBERS[0], SERVER, b"x" * 3, ihl=7, fragment=0x2001))
    # The agent's answers.
    forward(CPU_PORT, 0, frame(BOX, MEMBERS[0], header(HELLO) + bytes(72)))
    # What a box answers otherwise than with a slot goes to the agent as it came.
    for kind in (HELLO, ANSWER, ACK, STATE):
        forward(0, CPU_PORT, frame(MEMBERS[0], BOX, header(kind, count=32) + bytes(128)))
    forward(0, CPU_PORT, frame(MEMBERS[0], BOX, b"ping", protocol=1))
    forward(0, CPU_PORT, frame(MEMBERS[0], BOX, b"other", target_port=53))
    forward(8, CPU_PORT, frame(SERVER, BOX, header(PULL, job=5)))
    forward(8, CPU_PORT, frame(SERVER, BOX, header(PULL, row=5) + bytes(4 * r.elements)))
    r.send(0, b"short")
    r.send(0, b"")
    r.dropped("length", 2)


@scenario(32)
def quotas(r: Rig) -> None:
    """A job without tokens is refused; strangers without tokens are not heard."""
    r.scope()
    r.scope(1)
    r.windowed()
    r.windowed(row=1, base=8, scope=1, lease_epoch=0x1002)
    # Bursts of 300 bytes that come back at a byte in 10^12 microseconds.
    r.entries.append("meter_set_rates job_meter 0 0.000000000001:300 0.000000000001:300")
    r.entries.append("meter_set_rates cpu_meter 0 0.000000000001:200 0.000000000001:200")
    r.contrib(0, 0, 5)
    r.happened("claim")
    r.contrib(1, 0, 5)
    r.contrib(1, 0, 5, flags=RETRANSMIT)
    r.contrib(0, 0, 5, generation=9)
    r.dropped("over_quota", 3)
    # The other scope has its own.
    r.contrib(0, 0, 5, row=1)
    r.contrib(1, 0, 7, row=1)
    r.expect_answer(0, total(r, 5, 7), row=1)
    r.happened("claim", "add", "complete_root", scope=1)
    hello = frame(MEMBERS[0], BOX, header(HELLO) + bytes(72))
    r.send(0, hello)
    r.expect(CPU_PORT, hello)
    r.send(0, hello)
    r.contrib(0, 0, 5, cookie=1)
    r.dropped("strangers_quota", 2)


# Whole leases: the cells of `whole`.


def push(r: Rig, members: int = 2, **row) -> None:
    """A push job with a group."""
    r.members = members
    r.push_job()
    r.scope(is_push=True)
    r.whole(**row)


def enter(r: Rig, rank: int, chunk: int, values, members: int, *, first: bool = False,
          **fields) -> None:
    """A contribution that is entered and acknowledged."""
    r.contrib(rank, chunk, values, **fields)
    named = {key: fields[key] for key in ("row", "generation") if key in fields}
    r.expect_plain(MEMBERS[rank], chunk, HAVE, members, **named)
    r.happened("whole_store" if first else "whole_add")


@scenario(32, 64, 128)
def push_with_late_credit(r: Rig) -> None:
    """Contributions are acknowledged; the credit of the full sum releases it, the next repeats."""
    push(r)
    r.progress = {0: 1, 1: 1}
    enter(r, 0, 0, 5, 1, first=True)
    r.contrib(0, 0, 9, flags=RETRANSMIT)
    r.expect_plain(MEMBERS[0], 0, HAVE, 1)
    r.happened("whole_repeat_collecting")
    r.dropped("duplicate")
    enter(r, 1, 0, 7, 3)
    r.contrib(1, 0, 7)
    r.expect_plain(MEMBERS[1], 0, HAVE, 3)
    r.happened("whole_repeat_collecting")
    r.dropped("duplicate")
    r.pull(0)
    r.expect_sum(0, total(r, 5, 7))
    r.happened("whole_send_on_credit")
    r.contrib(1, 0, 7, flags=RETRANSMIT)
    r.expect_plain(MEMBERS[1], 0, HAVE, 3)
    r.happened("whole_repeat_sent")
    r.dropped("duplicate")
    r.pull(0, flags=RETRANSMIT)
    r.expect_sum(0, total(r, 5, 7), flags=RETRANSMIT, copy=False)
    r.pull(0, padded=True)
    r.expect_sum(0, total(r, 5, 7), flags=RETRANSMIT, copy=False)
    r.happened("whole_send_again", "whole_send_again")


@scenario(32, 256)
def push_with_early_credit(r: Rig) -> None:
    """The contribution that fills a slot with a credit releases the sum; it is acknowledged."""
    push(r, exponent=-9)
    r.pull(2)
    r.expect_plain(SERVER, 2, HAVE, 0)
    r.happened("whole_credit_empty")
    enter(r, 1, 2, 5, 2, first=True, exponent=-9, flags=CLAMPED)
    r.pull(2)
    r.expect_plain(SERVER, 2, HAVE, 2)
    r.happened("whole_credit_collecting")
    enter(r, 0, 2, 7, 3, exponent=-9)
    r.expect_sum(2, total(r, 5, 7), exponent=-9, flags=CLAMPED)
    r.happened("whole_send_on_contribution")
    # Another chunk has no credit.
    enter(r, 0, 3, 1, 1, first=True, exponent=-9)
    enter(r, 1, 3, 1, 3, exponent=-9)


@scenario(32)
def push_group_of_one(r: Rig) -> None:
    """Without a replica there is no copy; alone in the mask the first is the last."""
    push(r, members=1, replicate=0)
    r.pull(0)
    r.expect_plain(SERVER, 0, HAVE, 0)
    r.happened("whole_credit_empty")
    enter(r, 0, 0, 5, 1, first=True)
    r.expect_sum(0, total(r, 5), copy=False)
    r.happened("whole_send_on_contribution")
    enter(r, 0, 1, 6, 1, first=True)
    r.pull(1)
    r.expect_sum(1, total(r, 6), copy=False)
    r.happened("whole_send_on_credit")


@scenario(256)
def credit_must_not_grow(r: Rig) -> None:
    """A sum that does not fit the credit's frame stays until a padded one comes."""
    push(r)
    enter(r, 0, 0, 5, 1, first=True)
    enter(r, 1, 0, 7, 3)
    r.pull(0)
    r.expect_plain(SERVER, 0, HAVE, 3)
    r.happened("whole_credit_collecting")
    r.pull(0, padded=True)
    r.expect_sum(0, total(r, 5, 7))
    r.happened("whole_send_on_credit")
    r.pull(0)
    r.expect_plain(SERVER, 0, HAVE, 3)
    r.happened("whole_credit_collecting")
    r.pull(0, padded=True)
    r.expect_sum(0, total(r, 5, 7), flags=RETRANSMIT, copy=False)
    r.happened("whole_send_again")


@scenario(32)
def narrowing(r: Rig) -> None:
    """A credit's smaller mask holds for the whole row and never grows again."""
    push(r, members=3)
    for rank, members in ((0, 1), (1, 3)):
        enter(r, rank, 0, rank, members, first=rank == 0)
    enter(r, 2, 1, 9, 4, first=True)
    enter(r, 0, 2, 4, 1, first=True)
    # Member 2 is gone: chunk 0 is full, chunk 1 holds it, chunk 2 goes on without it.
    r.pull(0, 3)
    r.expect_sum(0, total(r, 0, 1), members=3)
    r.happened("whole_narrow", "whole_send_on_credit")
    r.pull(1, 3)
    r.expect_plain(SERVER, 1, STALE, 4)
    r.happened("whole_credit_stale")
    r.contrib(2, 3, 9)
    r.expect_plain(MEMBERS[2], 3, STALE)
    r.happened("whole_refuse_stale")
    r.dropped("bad_members")
    r.pull(2, 7)
    r.expect_plain(SERVER, 2, HAVE, 1)
    r.happened("whole_credit_collecting")
    enter(r, 1, 2, 5, 3)
    r.expect_sum(2, total(r, 4, 5), members=3)
    r.happened("whole_send_on_contribution")
    # What was sent holds a member that is left out later.
    r.pull(0, 2)
    r.expect_plain(SERVER, 0, STALE, 3)
    r.happened("whole_narrow", "whole_credit_stale")
    # A mask without anybody changes nothing.
    for mask in (0, 4):
        r.pull(3, mask)
        r.expect_plain(SERVER, 3, STALE, 0)
        r.happened("whole_credit_stale")
    r.pull(3, 7)
    r.expect_plain(SERVER, 3, HAVE, 0)
    r.happened("whole_credit_empty")
    enter(r, 1, 3, 8, 2, first=True)
    r.expect_sum(3, total(r, 8), members=2)
    r.happened("whole_send_on_contribution")


@scenario(32)
def narrowing_of_an_earlier_group(r: Rig) -> None:
    """A later installation of the same row begins with its own mask, and with empty slots."""
    push(r)
    r.whole(row=1, lease_epoch=0x2002, replicate=0)
    enter(r, 0, 0, 5, 1, first=True)
    r.pull(0, 1)
    r.expect_sum(0, total(r, 5), members=1)
    r.happened("whole_narrow", "whole_send_on_credit")
    enter(r, 1, 0, 7, 2, first=True, row=1)
    r.pull(0, row=1)
    r.expect_plain(SERVER, 0, HAVE, 2, row=1)
    r.happened("whole_credit_collecting")
    enter(r, 0, 0, 8, 3, row=1)
    r.expect_sum(0, total(r, 7, 8), row=1, copy=False)
    r.happened("whole_send_on_contribution")
    # A credit of the earlier installation is not remembered either.
    r.pull(1)
    r.expect_plain(SERVER, 1, HAVE, 0)
    r.happened("whole_credit_empty")
    enter(r, 0, 1, 1, 1, first=True, row=1)
    enter(r, 1, 1, 1, 3, row=1)


@scenario(32)
def push_refusals(r: Rig) -> None:
    """STALE in all its forms, to members and to the server, and what is not answered at all."""
    push(r, generation=5, exponent=2)
    r.windowed(job=2, row=9, base=512, scope=1, lease_epoch=0x1009)
    good = {"generation": 5, "exponent": 2}
    up, down = MEMBERS[0].cookie_up, SERVER.cookie_down
    # No group, another group: with the box's own cookie, which speaks of the group.
    for fields, reason in (({"row": 3}, "unknown_group"), ({"generation": 6}, "stale_group")):
        r.contrib(0, 0, 5, **(good | fields))
        r.expect_plain(MEMBERS[0], 0, STALE, **({"generation": 5} | fields))
        r.happened("whole_refuse_stale")
        r.dropped(reason)
    # The wrong cookie comes back.
    for cookie, reason in ((up ^ 1, "bad_cookie"), (up ^ 1 << 31, "stale_epoch")):
        r.contrib(0, 0, 5, **good, cookie=cookie)
        r.expect_plain(MEMBERS[0], 0, STALE, cookie=cookie, generation=5)
        r.contrib(0, 0, 5, **good, cookie=cookie, around={"source_port": 5})
        r.dropped(reason, 2)
    r.contrib(0, 0, 5, **good, around={"source_port": 5})
    r.dropped("wrong_source")
    r.contrib(0, 0, 5, **good, members=3)
    r.dropped("bad_members")
    r.status(0, 0, generation=5)
    r.status(0, 0, row=3)
    r.dropped("kind", 2)
    r.contrib(0, 4, 5, **good)
    r.dropped("chunk_out_of_range")
    r.contrib(0, 0, 5, generation=5)
    r.dropped("exponent")
    r.contrib(0, 0, 5, **good, op=MAX)
    r.dropped("operation")
    r.contrib(0, 0, 5, **good, around={"checksum": 0})
    r.dropped("integrity")
    # Credits: another group, no such chunk; strangers, old cookies, a broken frame.
    r.pull(0, generation=6)
    r.expect_plain(SERVER, 0, STALE, generation=6)
    r.pull(4, generation=5, padded=True)
    r.expect_plain(SERVER, 4, STALE, generation=5)
    r.happened("whole_credit_stale", "whole_credit_stale")
    r.pull(0, generation=5, source=MEMBERS[0])
    r.pull(0, generation=5, around={"source_port": 5})
    r.pull(0, job=2, row=9)
    r.dropped("kind", 3)
    r.pull(0, generation=5, cookie=down ^ 1)
    r.dropped("bad_cookie")
    r.pull(0, generation=5, cookie=down ^ 1 << 24)
    r.dropped("stale_epoch")
    for padded in (False, True):
        r.pull(0, generation=5, padded=padded, around={"checksum": 0})
        r.pull(0, generation=5, padded=padded, around={"checksum": 77})
        r.dropped("integrity", 2)
    r.pull(0, generation=5, around={"udp_len": 39})
    r.dropped("length")
    # Nothing of it has changed anything.
    r.pull(0, generation=5)
    r.expect_plain(SERVER, 0, HAVE, 0, generation=5)
    r.happened("whole_credit_empty")


@scenario(32)
def whole_arena_ends(r: Rig) -> None:
    """A chunk beyond the arena touches nothing."""
    push(r, base=2046)
    enter(r, 0, 1, 5, 1, first=True)
    r.contrib(0, 2, 5)
    r.pull(3)
    r.dropped("length", 2)


@scenario(32)
def the_highest_numbers(r: Rig) -> None:
    """Rank 63, row 1023 and scope 63 count where they should; those above are refused."""
    bit, host = 1 << 63, MEMBERS[1]
    for scope in (63, 64):
        r.push_job(job=scope, scope=scope)
        r.add("members", "member", [scope, hex(bit)],
              [63, hex(host.cookie_up), hex(int.from_bytes(ip(host.number), "big")), host.port])
        r.copy(scope, 63, host, host.cookie_down, bit, 0)
        r.group(2 + scope, [(63, host.switch_port)])
    r.whole(job=63, scope=63, row=0x7FFF, row_index=1023, mask=bit)
    r.whole(job=63, scope=63, row=1, row_index=1024, mask=bit)
    r.whole(job=64, scope=64, row=1, row_index=1, mask=bit)
    r.progress = {1023 * 64 + 63: 1}
    r.contrib(1, 0, 5, job=63, row=0x7FFF, members=bit)
    r.expect_plain(host, 0, HAVE, bit, job=63, row=0x7FFF)
    r.happened("whole_store", scope=63)
    r.contrib(1, 0, 5, job=63, row=1, members=bit)
    r.contrib(1, 0, 5, job=64, row=1, members=bit)
    r.contrib(1, 0, 5, job=64, row=2, members=bit)
    r.dropped("unknown_group", 3)
