"""The steps of a lane: queued, in flight, held (SPEC: Member, Resync).

Invariant: step `k` is in flight only when the sum of `k - window` is held, and a sum is kept until
that of the slot's next step is held, so that it can be handed over after a restart of the box.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from weft_client.timers import Rtt, Timers, Window
from weft_client.wire import Flags, Hello

SILENT_TIMEOUTS_MAX = 3


@dataclass(frozen=True)
class Contribution:
    """What a member adds to a step."""

    payload: bytes
    exponent: int = 0
    clamped: bool = False
    # Elements without padding, if the vector ends with this chunk.
    last: int | None = None


@dataclass(frozen=True)
class Sum:
    """What came of a step."""

    step: int
    payload: bytes
    exponent: int
    flags: Flags


@dataclass
class Flight:
    """A step whose sum is not held."""

    contribution: Contribution
    sent_ns: int
    rto_ns: int
    due_ns: int
    repeats: int = 0
    in_slot: bool = False
    halved: bool = False


class Steps:
    """All steps of a lane, numbered from 0 in each lease."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.rtt = Rtt(timers)
        self.queue: deque[Contribution] = deque()
        self.arrived: deque[Sum] = deque()
        self.repeats = 0
        self._clear()

    def _clear(self) -> None:
        self.flight: dict[int, Flight] = {}
        self.kept: dict[int, Sum] = {}
        self._low = 0
        self._above: set[int] = set()
        self._next = 0
        self._window = 0
        self._step_count = 0
        self._cwnd = Window(1)
        self._hand_overs: dict[int, int] = {}
        self._timeouts: list[tuple[int, int]] = []
        self._in_slots = 0
        self._silent = 0

    def renew(self) -> None:
        """The lease is closed: the next one begins with step 0."""
        self._clear()

    def restart(self) -> None:
        """The session ended before a sum was held: all contributions go again."""
        flown = [self.flight[step].contribution for step in sorted(self.flight)]
        self._clear()
        self.queue.extendleft(reversed(flown))

    def is_idle(self) -> bool:
        """Whether nothing is waited for."""
        return not self.flight and not self.queue and not self._hand_overs

    def all_held(self) -> bool:
        """Whether each step that was sent is held, and nobody waits for one of them."""
        return not self.flight and not self._hand_overs

    def holds_any(self) -> bool:
        """Whether a sum of this session is held."""
        return self._low > 0 or bool(self._above)

    def is_silent(self) -> bool:
        """Whether timeouts passed in a row without any word of the box."""
        return self._silent >= SILENT_TIMEOUTS_MAX

    def heard(self) -> None:
        """The box spoke."""
        self._silent = 0

    def held(self) -> tuple[int, set[int]]:
        """The step below which all are held, and those above it that are."""
        return self._low, self._above

    def open(self, now_ns: int, lease: Hello, *, is_new: bool) -> list[int]:
        """A WELCOME came. Returns the steps to contribute again."""
        self._silent = 0
        if self._window != lease.window:
            self._cwnd = Window(lease.window)
        self._window, self._step_count = lease.window, lease.step_count
        if is_new:
            self._hand_overs = {}
        for step in lease.steps():
            if step in self.kept:
                self._hand_overs.setdefault(step, now_ns)
        self._timeouts = []
        again = []
        for step in sorted(self.flight):
            flight = self.flight[step]
            flight.rto_ns = self.rtt.rto_ns
            self._set_due(now_ns, step)
            if is_new:
                self._set_in_slot(flight, in_slot=False)
                flight.repeats += 1
                flight.sent_ns = now_ns
                again.append(step)
        return again

    def sendable(self, now_ns: int) -> Iterator[int]:
        """The steps that may be sent now, for the first time."""
        while self.queue and self._next < self._step_count:
            step = self._next
            before = step - self._window
            if before >= self._low and before not in self._above:
                return
            if step >= self._low + 4 * self._window:
                return
            if len(self.flight) - self._in_slots >= int(self._cwnd) and step != self._low:
                return
            self._next += 1
            rto_ns = self.rtt.rto_ns
            self.flight[step] = Flight(self.queue.popleft(), now_ns, rto_ns, 0)
            self._set_due(now_ns, step)
            yield step

    def due_ns(self) -> int | None:
        """The next timeout of a step or of a hand-over."""
        while self._timeouts:
            due_ns, step = self._timeouts[0]
            flight = self.flight.get(step)
            if flight is not None and flight.due_ns == due_ns:
                break
            heapq.heappop(self._timeouts)
        moments = list(self._hand_overs.values())
        if self._timeouts:
            moments.append(self._timeouts[0][0])
        return min(moments, default=None)

    def overdue(self, now_ns: int) -> list[tuple[int, bool]]:
        """Steps whose timeout has passed, and whether a question is enough."""
        overdue = []
        while self._timeouts and self._timeouts[0][0] <= now_ns:
            due_ns, step = heapq.heappop(self._timeouts)
            flight = self.flight.get(step)
            if flight is None or flight.due_ns != due_ns:
                continue
            if not flight.repeats:
                self._cwnd.halve(now_ns, self.rtt.round_trip_ns())
                flight.halved = True
            flight.repeats += 1
            self.repeats += 1
            if not flight.in_slot:
                flight.sent_ns = now_ns
            flight.rto_ns = self.rtt.back_off(flight.rto_ns)
            self._set_due(now_ns, step)
            overdue.append((step, flight.in_slot))
        self._silent += any(step == self._low for step, _ in overdue)
        return overdue

    def hand_overs_due(self, now_ns: int) -> list[int]:
        """Steps whose kept sums the box wants, and has not sent to all yet."""
        due = [step for step, due_ns in self._hand_overs.items() if due_ns <= now_ns]
        for step in due:
            self._hand_overs[step] = now_ns + max(self.rtt.rto_ns, self._timers.rto_initial_ns)
        return due

    def handle_have(self, now_ns: int, step: int, names_member: int) -> bool:
        """A HAVE for `step`. Returns whether the contribution goes again at once."""
        flight = self.flight.get(step)
        if flight is None:
            return False
        if names_member:
            if flight.halved and flight.repeats == 1:
                self._cwnd.give_back()
                flight.halved = False
            self._set_in_slot(flight, in_slot=True)
            return False
        lost = flight.in_slot
        self._set_in_slot(flight, in_slot=False)
        if lost:
            flight.sent_ns = now_ns
            self._set_due(now_ns, step)
        return lost

    def handle_answer(
        self, now_ns: int, step: int, payload: bytes, exponent: int, flags: Flags
    ) -> bool:
        """The sum of `step`. Returns whether it is new."""
        self._hand_overs.pop(step, None)
        flight = self.flight.get(step)
        if flight is None or flight.contribution.exponent != exponent:
            return False
        del self.flight[step]
        self._in_slots -= flight.in_slot
        waited_ns = now_ns - flight.sent_ns
        if not flight.repeats:
            self.rtt.sample(waited_ns)
        elif flight.halved and self.rtt.least_ns is not None and waited_ns < self.rtt.least_ns:
            self._cwnd.give_back()
        self._cwnd.grow()
        if flags & Flags.CONGESTION:
            self._cwnd.halve(now_ns, self.rtt.round_trip_ns())
        arrived = Sum(step, payload, exponent, flags)
        self.arrived.append(arrived)
        self.kept[step] = arrived
        self.kept.pop(step - self._window, None)
        self._above.add(step)
        while self._low in self._above:
            self._above.remove(self._low)
            self._low += 1
        return True

    def _set_due(self, now_ns: int, step: int) -> None:
        flight = self.flight[step]
        flight.due_ns = now_ns + flight.rto_ns
        heapq.heappush(self._timeouts, (flight.due_ns, step))

    def _set_in_slot(self, flight: Flight, *, in_slot: bool) -> None:
        self._in_slots += in_slot - flight.in_slot
        flight.in_slot = in_slot
