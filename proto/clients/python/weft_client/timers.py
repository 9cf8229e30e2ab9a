"""How long to wait, and how much to have in flight (SPEC: Timers, Member).

All times are integers of nanoseconds, and come as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

MS = 1_000_000


@dataclass(frozen=True)
class Timers:
    """SPEC's values, which a client may change: correctness never depends on them."""

    handshake_min_ns: int = 20 * MS
    handshake_max_ns: int = 80 * MS
    connect_timeout_ns: int = 5_000 * MS
    member_timeout_ns: int = 30_000 * MS
    close_linger_ns: int = 2_000 * MS
    rto_initial_ns: int = 20 * MS
    rto_min_ns: int = 1 * MS
    rto_max_ns: int = 1_000 * MS


class Rtt:
    """Retransmission timeout by RFC 6298, with Karn's rule and a back-off that new steps keep."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._smoothed_ns: int | None = None
        self._variation_ns = 0
        self.least_ns: int | None = None
        self.rto_ns = timers.rto_initial_ns

    def sample(self, rtt_ns: int) -> None:
        """A round trip of a step that was sent once. It ends the back-off."""
        if self._smoothed_ns is None:
            self._smoothed_ns, self._variation_ns = rtt_ns, rtt_ns // 2
        else:
            error_ns = abs(self._smoothed_ns - rtt_ns)
            self._variation_ns += (error_ns - self._variation_ns) // 4
            self._smoothed_ns += (rtt_ns - self._smoothed_ns) // 8
        self.least_ns = min(rtt_ns, self.least_ns or rtt_ns)
        self.rto_ns = self._bounded(self._smoothed_ns + 4 * self._variation_ns)

    def back_off(self, passed_ns: int) -> int:
        """The timeout that follows one of `passed_ns`; steps sent from now on have it too."""
        next_ns = self._bounded(2 * passed_ns)
        self.rto_ns = max(self.rto_ns, next_ns)
        return next_ns

    def round_trip_ns(self) -> int:
        """A round trip, for what happens at most once in one."""
        return self._smoothed_ns or self._timers.rto_initial_ns

    def _bounded(self, rto_ns: int) -> int:
        return max(self._timers.rto_min_ns, min(rto_ns, self._timers.rto_max_ns))


class Window:
    """Steps that may be in flight: halved at most once a round trip, grown by one in each."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = float(size_max)
        self._halved_at_ns: int | None = None
        self._given_up = 0.0

    def __int__(self) -> int:
        return int(self._size)

    def grow(self) -> None:
        """A new answer came."""
        self._size = min(self._size_max, self._size + 1 / self._size)

    def halve(self, now_ns: int, round_trip_ns: int) -> None:
        """A loss, or a mark."""
        if self._halved_at_ns is not None and now_ns - self._halved_at_ns < round_trip_ns:
            return
        self._halved_at_ns = now_ns
        self._given_up = self._size / 2
        self._size = max(1.0, self._size / 2)

    def give_back(self) -> None:
        """The timeout that halved it was for nothing."""
        self._size = min(self._size_max, self._size + self._given_up)
        self._given_up = 0.0


class Repeater:
    """When a handshake datagram goes again: after 20 ms, then 40, then every 80."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.due_ns: int | None = None
        self._interval_ns = 0

    def start(self, now_ns: int) -> None:
        """The first one goes at once."""
        self.due_ns, self._interval_ns = now_ns, self._timers.handshake_min_ns

    def sent(self, now_ns: int) -> None:
        """One went."""
        self.due_ns = now_ns + self._interval_ns
        self._interval_ns = min(2 * self._interval_ns, self._timers.handshake_max_ns)

    def stop(self) -> None:
        """None goes any more."""
        self.due_ns = None
