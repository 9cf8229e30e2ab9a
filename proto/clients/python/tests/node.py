"""A real `weft-node` on the loopback, for a test."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from weft_client import Config, Session

NODE_PORT = 22341
MEMBER_PORT = 24000
METRICS_PORT = 9464
PATIENCE_S = 60

_addresses = itertools.count(1)


def program() -> Path:
    """`weft-node`: `WEFT_NODE`, or the build's; the test is skipped where there is none."""
    target = os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parents[4] / "target")
    path = Path(os.environ.get("WEFT_NODE", Path(target) / "debug" / "weft-node"))
    if not path.is_file():
        raise unittest.SkipTest(f"no {path}: `cargo build -p weft-node` makes it")
    return path


class Node:
    """A node with one job and the rows of `rows`; each has `members` members.

    `more` comes before the job, `jobs` behind its rows; {ip} is the node's address there.
    """

    def __init__(
        self, members: int, *rows: str, shards: int = 1, more: str = "", jobs: str = ""
    ) -> None:
        self._program = program()
        own = next(_addresses) % 254 + 1
        pid = os.getpid()
        self.ip = f"127.{128 | pid >> 8 & 63}.{pid & 255}.{own}"
        addresses = ", ".join(f'"{self.ip}:{MEMBER_PORT + 64 * rank}"' for rank in range(members))
        text = (
            f'[node]\nstats_format = "json"\nmetrics = "{self.ip}:{METRICS_PORT}"\n'
            f'metrics_period_ms = 100\n'
            f'[port]\nio = "udp"\nip = "{self.ip}/8"\n'
            f"[lcores]\nshards = {shards}\n{more}\n[[job]]\nid = 0\n"
        )
        for index, row in enumerate(rows):
            text += f"[[row]]\nrow = {index}\njob = 0\nmembers = [{addresses}]\n{row}\n"
        text += jobs.replace("{ip}", self.ip)
        self._directory = tempfile.TemporaryDirectory()
        self._file = Path(self._directory.name) / "node.toml"
        self._file.write_text(text)
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it serves."""
        log = Path(self._directory.name) / "log"
        with log.open("w") as stderr:
            self._child = subprocess.Popen(
                [self._program, "--config", self._file], stdout=subprocess.PIPE, stderr=stderr
            )
        end_s = time.monotonic() + PATIENCE_S
        while '"ready":true' not in log.read_text():
            if self._child.poll() is not None or time.monotonic() > end_s:
                raise AssertionError(f"weft-node does not start: {log.read_text()}")
            time.sleep(0.005)

    def kill(self) -> None:
        """kill -9."""
        self._child.kill()
        self._child.communicate()

    def end(self) -> dict:
        """Ends it; its statistics."""
        self._child.send_signal(signal.SIGINT)
        out, _ = self._child.communicate(timeout=PATIENCE_S)
        return json.loads(out)

    def session(self, rank: int, **config: object) -> Session:
        """A session of `rank`."""
        local = (self.ip, MEMBER_PORT + 64 * rank)
        return Session(local, (self.ip, NODE_PORT), Config(rank, **config))

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *rest: object) -> None:
        if self._child.poll() is None:
            self.kill()
        self._directory.cleanup()


def together(
    count: int, work: Callable[[int], object], patience_s: float = PATIENCE_S
) -> list:
    """Runs `work` for each rank on a thread of its own; the results by rank."""
    results: list = [None] * count
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s)
    if errors:
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        raise AssertionError(f"a member does not end within {patience_s} s")
    return results
