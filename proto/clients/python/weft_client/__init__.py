"""A client of the Weft protocol, written from proto/SPEC.md alone.

From the bottom up: `wire` reads and writes datagrams, `numbers` turns values into elements, `lane`
is one member's side of one lease (no clock, no socket), `member` spreads vectors over lanes and
rows, `driver` moves the bytes.
"""


