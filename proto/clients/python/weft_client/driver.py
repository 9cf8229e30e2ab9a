"""Moves a member's datagrams through UDP sockets, one per lane (SPEC: Encapsulation)."""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Sequence

from weft_client.lane import LaneError
from weft_client.member import Config, Member, Result

RECEIVE_LEN = 65536
BURST_MAX = 64
ECT_0 = 2
# Linux's numbers, which Python's socket module lacks.
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


def udp_socket(local: tuple[str, int]) -> socket.socket:
    """A socket that sends ECN-capable and unfragmented datagrams from `local`."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT_0)
        opened.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        opened.setblocking(False)
        opened.bind(local)
    except OSError as error:
        opened.close()
        raise LaneError(f"binding {local[0]}:{local[1]}: {error.strerror}") from error
    return opened


class Session:
    """A blocking member: `allreduce` as often as all others, then `close`."""

    def __init__(self, local: tuple[str, int], box: tuple[str, int], config: Config) -> None:
        self._local, self._box = local, box
        self.member = Member(config, random.SystemRandom(), time.monotonic_ns())
        self._sockets: list[socket.socket] = []
        try:
            self._turn_until(lambda: self.member.is_open)
        except BaseException:
            self._close_sockets()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self._close_sockets()

    def allreduce(self, values: Sequence) -> Result:
        """The sum of all members' `values`, which are equally many."""
        self.member.begin(time.monotonic_ns(), values)
        while (result := self._turn()) is None:
            pass
        return result

    def close(self) -> None:
        """Leaves when everybody holds every sum."""
        self.member.close(time.monotonic_ns())
        try:
            self._turn_until(lambda: self.member.is_closed)
        finally:
            self._close_sockets()

    def _close_sockets(self) -> None:
        while self._sockets:
            self._sockets.pop().close()

    def _turn_until(self, done) -> None:
        while not done():
            self._turn()

    def _turn(self) -> Result | None:
        """Sends what is to be sent, waits, and takes in what came."""
        while len(self._sockets) < self.member.lane_count:
            host, port = self._local
            self._sockets.append(udp_socket((host, port + len(self._sockets))))
        for index, lane in self.member.lanes:
            while (data := lane.poll_transmit()) is not None:
                try:
                    self._sockets[index].sendto(data, self._box)
                except OSError:
                    # As good as a loss; a path that never opens is what the probe finds.
                    break
        due = [moment for _, lane in self.member.lanes if (moment := lane.poll_timeout())]
        wait_s = max(0.0, (min(due) - time.monotonic_ns()) / 1e9) if due else 0.0
        ready, _, _ = select.select(self._sockets, [], [], wait_s)
        for index, opened in enumerate(self._sockets):
            if opened in ready:
                self._receive(index, opened)
        # All that has come is taken in before anything is overdue.
        if not ready:
            now_ns = time.monotonic_ns()
            for _, lane in self.member.lanes:
                lane.handle_timeout(now_ns)
        return self.member.poll_result(time.monotonic_ns())

    def _receive(self, index: int, opened: socket.socket) -> None:
        lanes = [lane for i, lane in self.member.lanes if i == index]
        for _ in range(BURST_MAX):
            try:
                data, source = opened.recvfrom(RECEIVE_LEN)
            except BlockingIOError:
                return
            except OSError:
                # An ICMP error of something sent earlier.
                continue
            if source[0] != self._box[0]:
                continue
            now_ns = time.monotonic_ns()
            for lane in lanes:
                lane.handle_datagram(now_ns, data)
