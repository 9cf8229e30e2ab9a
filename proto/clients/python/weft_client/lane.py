"""One member's side of one lease (SPEC: Handshake, Resync, Member, Closing).

Sans-IO: `handle_datagram` and `handle_timeout` are told what happened, `poll_transmit`,
`poll_timeout` and `poll_sum` say what to do next.

Invariant: the sum of a step is taken once, and only from the box that named `cookie_down`.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from weft_client import wire
from weft_client.steps import Contribution, Steps, Sum
from weft_client.timers import Repeater, Timers
from weft_client.wire import Flags, Header, Hello, Integrity, Kind, Outcome, Phase, Reason

JOINS_UNANSWERED_MAX = 3
CLOSES_UNANSWERED_MAX = 3
PADDED_UNANSWERED_MAX = 20
SHORT_ANSWERED_MIN = 20


class LaneError(Exception):
    """The end of a session; the message says what was attempted and what is missing."""


@dataclass(frozen=True)
class LaneConfig:
    """What a lane is told, for the wire does not say it."""

    job: int
    row: int
    lane: int
    rank: int
    element_type: wire.ElementType
    operation: wire.Operation
    probe_len: int = 1472
    timers: Timers = field(default_factory=Timers)


class State(Enum):
    """Where the lane is."""

    HELLO = auto()
    JOIN = auto()
    OPEN = auto()
    CLOSE = auto()
    CLOSED = auto()


class Lane:
    """A member in one lane of one row."""

    def __init__(self, config: LaneConfig, rng: random.Random, now_ns: int) -> None:
        self.config = config
        self._rng = rng
        self._out: deque[bytes] = deque()
        self._repeater = Repeater(config.timers)
        self.steps = Steps(config.timers)
        self.lease: Hello | None = None
        self.group = config.row << 16
        self.shards: int | None = None
        self.error: LaneError | None = None
        self.restarts = 0
        self._closing = self._renewing = False
        self._heard = False
        self._path_ok = False
        self._padded_unanswered = self._short_answered = 0
        self._padded_next = True
        self._unanswered = 0
        self._closes_silent = 0
        self._missing = 0
        self._compares_lengths = False
        self._close_until_ns: int | None = None
        self._progress_ns = now_ns
        self._asked_ns = now_ns
        self._begin_life(now_ns)

    def submit(self, now_ns: int, contribution: Contribution) -> None:
        """The contribution to the lane's next step."""
        if self.steps.is_idle():
            self._progress_ns = now_ns
        self.steps.queue.append(contribution)
        self._advance(now_ns)

    def renew(self, now_ns: int) -> None:
        """The lease has too few steps left: close it, form it anew, and begin with step 0."""
        self._renewing = True
        self._advance(now_ns)

    def close(self, now_ns: int) -> None:
        """All sums that are needed are held: leave."""
        self._closing = True
        self._advance(now_ns)

    def ask(self, now_ns: int) -> None:
        """Asks the box who it is, when nothing else would: another lane saw it begin anew."""
        if self.state == State.OPEN and self.steps.is_idle():
            self._start(State.HELLO, now_ns)

    def poll_transmit(self) -> bytes | None:
        """The next datagram to send, until there is none."""
        return self._out.popleft() if self._out else None

    def poll_sum(self) -> Sum | None:
        """The next sum that came, in the order of arrival."""
        return self.steps.arrived.popleft() if self.steps.arrived else None

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due; ask again after every other call."""
        if self.state == State.CLOSED or self.error:
            return None
        due = [self._repeater.due_ns, self._close_until_ns]
        if self.state == State.OPEN:
            due.append(self.steps.due_ns())
            if self.steps.is_idle():
                due.append(self._asked_ns + self.config.timers.member_timeout_ns // 8)
        if not self.steps.is_idle() or self.state in (State.HELLO, State.JOIN):
            due.append(self._patience_ends_ns())
        return min((moment for moment in due if moment is not None), default=None)

    def handle_timeout(self, now_ns: int) -> None:
        """Does what is due."""
        if self.state == State.CLOSED or self.error:
            return
        if self._close_until_ns is not None and self._close_until_ns <= now_ns:
            self._end_close(now_ns)
        waits = not self.steps.is_idle() or self.state in (State.HELLO, State.JOIN)
        if waits and self._close_until_ns is None and self._patience_ends_ns() <= now_ns:
            self._give_up()
            return
        if self._repeater.due_ns is not None and self._repeater.due_ns <= now_ns:
            self._send_handshake(now_ns)
        if self.state != State.OPEN:
            return
        for step, is_question in self.steps.overdue(now_ns):
            self._send_step(step, Kind.STATUS if is_question else Kind.CONTRIB)
        for step in self.steps.hand_overs_due(now_ns):
            self._send_hand_over(step)
        if self.steps.is_silent():
            self._start(State.HELLO, now_ns)
        elif self.steps.is_idle():
            if self._asked_ns + self.config.timers.member_timeout_ns // 8 <= now_ns:
                self._start(State.HELLO, now_ns)
        self._advance(now_ns)

    def handle_datagram(self, now_ns: int, data: bytes) -> None:
        """A datagram from the box. What is not for this lane changes nothing."""
        try:
            datagram = wire.parse(data)
        except wire.Malformed:
            return
        header = datagram.header
        if self.error or header.job != self.config.job or header.row != self.config.row:
            return
        if datagram.hello:
            of_lane = header.chunk == self.config.lane and datagram.hello.life == self._life
            if of_lane and datagram.crc_is_good():
                self._heard = True
                self._handle_hello(now_ns, header, datagram.hello)
        elif self.lease and header.group == self.group:
            checked = self.lease.integrity == Integrity.CRC32C
            step, lane = divmod(header.chunk, self.lease.shards)
            if lane == self.config.lane and (datagram.crc_is_good() or not checked):
                self._handle_frame(now_ns, step, datagram)

    # The handshake.

    def _begin_life(self, now_ns: int) -> None:
        self._life = self._rng.getrandbits(64) or 1
        self._session = self._token = 0
        self.lease = None
        self._start(State.HELLO, now_ns)

    def _start(self, state: State, now_ns: int) -> None:
        self.state = state
        self._asked_ns = now_ns
        self._unanswered = 0
        self._repeater.start(now_ns)
        self._send_handshake(now_ns)

    def _send_handshake(self, now_ns: int) -> None:
        if self.state == State.JOIN and self._unanswered == JOINS_UNANSWERED_MAX:
            self._start(State.HELLO, now_ns)
            return
        self._unanswered += 1
        match self.state:
            case State.HELLO:
                self._send_hello()
            case State.JOIN:
                self._send_join()
            case State.CLOSE:
                self._closes_silent += 1
                if self._closes_silent > CLOSES_UNANSWERED_MAX and self._closes_silent % 2:
                    self._send_hello()
                else:
                    assert self.lease
                    epoch, cookie_up = self.lease.epoch, self.lease.cookie_up
                    self._emit_hello(Phase.CLOSE, epoch=epoch, cookie_up=cookie_up)
        self._repeater.sent(now_ns)

    def _send_hello(self) -> None:
        padded = not self._path_ok and self._padded_next
        if padded:
            # The one before it is not answered, or the path would be known to be good.
            self._padded_unanswered += 1
        self._padded_next = not self._padded_next
        self._emit_hello(Phase.HELLO, probe_len=self.config.probe_len if padded else 0)
        if (
            self._padded_unanswered > PADDED_UNANSWERED_MAX
            and self._short_answered >= SHORT_ANSWERED_MIN
        ):
            self.error = LaneError(
                f"probing the path: {self.config.probe_len} bytes do not pass; raise the MTU of "
                "the path, or lower the client's"
            )

    def _send_join(self) -> None:
        if not self._session:
            self._emit_hello(Phase.JOIN, token=self._token)
            return
        low_step, above = self.steps.held()
        step_bits, bitmap = Hello.bits(low_step, above)
        self._emit_hello(
            Phase.JOIN,
            token=self._token,
            session=self._session,
            low_step=low_step,
            step_bits=step_bits,
            bitmap=bitmap,
        )

    def _emit_hello(self, phase: Phase, **fields: object) -> None:
        config = self.config
        header = Header(
            Kind.HELLO, config.job, config.row << 16, config.lane, members=1 << config.rank
        )
        if phase == Phase.JOIN:
            header = replace(
                header,
                outcome=Outcome.LAST,
                element_type=config.element_type,
                operation=config.operation,
            )
        self._out.append(wire.encode_hello(header, Hello(phase, self._life, **fields)))

    def _handle_hello(self, now_ns: int, header: Header, hello: Hello) -> None:
        if hello.shards:
            self.shards = hello.shards
        shaking = self.state in (State.HELLO, State.JOIN)
        match hello.phase:
            case Phase.CHALLENGE if self.state in (State.HELLO, State.CLOSE):
                self._handle_challenge(now_ns, hello)
            case Phase.WAITING if self.state == State.JOIN and hello.token == self._token:
                self._unanswered = 0
                self._missing = hello.mask & ~header.members
            case Phase.WELCOME if self.state == State.JOIN and hello.token == self._token:
                self._handle_welcome(now_ns, header, hello)
            case Phase.REFUSED if shaking:
                self._handle_refused(now_ns, header, hello)
            case Phase.CLOSED if self.state == State.CLOSE and self.lease:
                self._closes_silent = 0
                if not self.lease.mask & ~header.members:
                    self._end_close(now_ns)

    def _handle_challenge(self, now_ns: int, hello: Hello) -> None:
        if hello.probe_len == self.config.probe_len:
            self._path_ok = True
            self._padded_unanswered = 0
        elif not self._path_ok:
            self._short_answered += 1
        if self._path_ok:
            self._token = hello.token
            self._start(State.JOIN, now_ns)

    def _handle_welcome(self, now_ns: int, header: Header, hello: Hello) -> None:
        if self._session and hello.session != self._session:
            return
        refused = self._why_not(hello)
        if refused:
            self.error = LaneError(f"joining row {self.config.row}: {refused}")
            return
        is_new = self.lease is None or self.lease.epoch != hello.epoch
        if is_new:
            self.restarts += self.lease is not None
            self._progress_ns = now_ns
        self._session, self.lease, self.group = hello.session, hello, header.group
        self._compares_lengths = header.outcome == Outcome.LAST
        self._repeater.stop()
        self.state = State.OPEN
        self._asked_ns = now_ns
        for step in self.steps.open(now_ns, hello, is_new=is_new):
            self._send_step(step, Kind.CONTRIB)
        for step in self.steps.hand_overs_due(now_ns):
            self._send_hand_over(step)
        self._advance(now_ns)

    def _why_not(self, hello: Hello) -> str | None:
        if not hello.mask >> self.config.rank & 1:
            return f"rank {self.config.rank} is no member (members {hello.mask:#x})"
        if not hello.elements or not hello.window or hello.window & (hello.window - 1):
            return f"a lease of {hello.window} slots and {hello.elements} elements makes no sense"
        if hello.shards <= self.config.lane or not hello.fan_in or not hello.step_count:
            return "lanes, fan-in and steps of the lease make no sense"
        payload = hello.elements * self.config.element_type.size_bytes
        need = max(wire.HEADER_LEN + payload, 104 + (hello.window + 1) // 2)
        if need > self.config.probe_len:
            return f"its datagrams take {need} bytes, the probe had {self.config.probe_len}"
        return None

    def _handle_refused(self, now_ns: int, header: Header, hello: Hello) -> None:
        if self._closing or self._close_until_ns is not None:
            self._end_close(now_ns)
        elif hello.reason == Reason.MEMBER_LOST and not self.steps.holds_any():
            self.steps.restart()
            self._begin_life(now_ns)
        else:
            why = {
                Reason.UNKNOWN_GROUP: "the box does not know it; compare with the box's rows",
                Reason.MEMBER_LOST: f"ranks {ranks(header.members)} began anew",
                Reason.OTHER_ELEMENTS: f"it sums {header.element_type.name} by "
                f"{header.operation.name}",
                Reason.OTHER_SESSION: f"ranks {ranks(header.members)} resume another session",
            }.get(hello.reason, "no reason given")
            self.error = LaneError(f"joining row {self.config.row}: {why}")

    # Steps.

    def _handle_frame(self, now_ns: int, step: int, datagram: wire.Datagram) -> None:
        header, lease = datagram.header, self.lease
        assert lease
        if header.kind == Kind.STATE and header.cookie == lease.cookie_up:
            # Our own cookie comes back: the box does not know it.
            if header.outcome == Outcome.STALE and self.state == State.OPEN:
                self._heard = True
                self._start(State.HELLO, now_ns)
            return
        if header.cookie != lease.cookie_down:
            return
        self._heard = True
        self.steps.heard()
        if header.kind == Kind.STATE and header.outcome == Outcome.HAVE:
            self._missing = lease.mask & ~header.members
            if self.steps.handle_have(now_ns, step, header.members >> self.config.rank & 1):
                self._send_step(step, Kind.CONTRIB)
        elif header.kind == Kind.STATE and header.outcome in (Outcome.LEFT, Outcome.MISMATCH):
            if step in self.steps.flight:
                named = ranks(header.members)
                why = f"ranks {named} have closed"
                if header.outcome == Outcome.MISMATCH:
                    why = f"vectors differ in length: ranks {named} agree, of others {header.count}"
                self.error = LaneError(f"row {self.config.row}, step {step}: {why}")
        elif header.kind == Kind.ANSWER:
            if (
                header.count == lease.elements
                and header.element_type == self.config.element_type
                and header.operation == self.config.operation
            ):
                flags = header.flags & (Flags.CLAMPED | Flags.CONGESTION)
                if self.steps.handle_answer(
                    now_ns, step, datagram.payload, header.exponent, flags
                ):
                    self._progress_ns = now_ns
                self._advance(now_ns)

    def _advance(self, now_ns: int) -> None:
        """Sends what may be sent, or leaves when nobody waits for anything."""
        if self.state != State.OPEN:
            return
        leaving = self._closing or self._renewing
        if not leaving:
            for step in self.steps.sendable(now_ns):
                self._send_step(step, Kind.CONTRIB)
        elif self.steps.all_held():
            if self._close_until_ns is None:
                self._close_until_ns = now_ns + self.config.timers.close_linger_ns
            self._closes_silent = 0
            self._start(State.CLOSE, now_ns)

    def _end_close(self, now_ns: int) -> None:
        self._close_until_ns = None
        self._repeater.stop()
        if self._closing:
            self.state = State.CLOSED
        else:
            self._renewing = False
            self._progress_ns = now_ns
            self.steps.renew()
            self._begin_life(now_ns)

    def _send_step(self, step: int, kind: Kind) -> None:
        flight = self.steps.flight[step]
        payload = flight.contribution.payload if kind == Kind.CONTRIB else b""
        flags = Flags.CLAMPED if flight.contribution.clamped and payload else Flags(0)
        if flight.repeats and payload:
            flags |= Flags.RETRANSMIT
        last = flight.contribution.last if payload and self._compares_lengths else None
        self._emit(kind, step, flags, flight.contribution.exponent, payload, last)

    def _send_hand_over(self, step: int) -> None:
        kept = self.steps.kept[step]
        self._emit(Kind.ANSWER, step, kept.flags, kept.exponent, kept.payload)

    def _emit(
        self,
        kind: Kind,
        step: int,
        flags: Flags,
        exponent: int,
        payload: bytes,
        last: int | None = None,
    ) -> None:
        config, lease = self.config, self.lease
        assert lease
        header = Header(
            kind=kind,
            job=config.job,
            group=self.group,
            chunk=step * lease.shards + config.lane,
            flags=flags,
            cookie=lease.cookie_up,
            element_type=config.element_type,
            operation=config.operation,
            exponent=exponent,
            outcome=Outcome.NONE if last is None else Outcome.LAST,
            count=lease.elements if last is None else last,
            members=lease.mask if kind == Kind.ANSWER else 1 << config.rank,
        )
        crc = lease.integrity == Integrity.CRC32C
        self._out.append(wire.encode(header, payload, crc=crc))

    # Patience.

    def _patience_ends_ns(self) -> int:
        timers = self.config.timers
        timeout_ns = timers.member_timeout_ns if self._heard else timers.connect_timeout_ns
        return self._progress_ns + timeout_ns

    def _give_up(self) -> None:
        where = f"row {self.config.row} lane {self.config.lane}"
        if not self._heard:
            self.error = LaneError(f"{where}: no word from the box; is it there, and the address?")
        else:
            missing = f"ranks {ranks(self._missing)} are missing" if self._missing else "no answer"
            self.error = LaneError(f"{where}: no progress in member_timeout; {missing}")


def ranks(members: int) -> list[int]:
    """The ranks in a mask."""
    return [rank for rank in range(64) if members >> rank & 1]
