"""A client of the Weft protocol, written from proto/SPEC.md alone.

From the bottom up: `wire` reads and writes datagrams, `numbers` turns values into elements, `lane`
is one member's side of one lease (no clock, no socket), `member` spreads vectors over lanes and
rows, `driver` moves the bytes.
"""


from weft_client.driver import Session
from weft_client.lane import LaneError
from weft_client.member import Config, Result
from weft_client.numbers import Numbers

__all__ = ["Config", "LaneError", "Numbers", "Result", "Session"]
