"""Each golden packet is read as its index says, and made again, byte for byte."""

from __future__ import annotations

import tomllib
import unittest
from pathlib import Path

from tests.ethernet import udp_of
from weft_client import numbers, wire

VECTORS = Path(__file__).resolve().parents[3] / "vectors"
DECODE = {
    wire.ElementType.I32: numbers.decode_i32,
    wire.ElementType.F32: numbers.decode_f32,
    wire.ElementType.BF16: numbers.decode_bf16,
}
ENCODE = {
    wire.ElementType.I32: numbers.encode_i32,
    wire.ElementType.F32: numbers.encode_f32,
    wire.ElementType.BF16: numbers.encode_bf16,
}


def read(frame: bytes) -> tuple[str, wire.Datagram | None, bool]:
    """Verdict, the datagram if it parsed, and the congestion mark."""
    try:
        payload, congestion, checksum_is_good = udp_of(frame)
        datagram = wire.parse(payload)
    except wire.Malformed as refused:
        return str(refused), None, False
    if datagram.crc and not datagram.crc_is_good():
        return "crc", datagram, congestion
    return "ok" if checksum_is_good else "checksum", datagram, congestion


class GoldenVectors(unittest.TestCase):
    def test_every_packet_is_read_and_made_again(self) -> None:
        index = tomllib.loads((VECTORS / "vectors.toml").read_text())["vector"]
        self.assertGreater(len(index), 80)
        for vector in index:
            with self.subTest(vector["file"]):
                frame = (VECTORS / vector["file"]).read_bytes()
                verdict, datagram, congestion = read(frame)
                self.assertEqual(verdict, vector["verdict"])
                if "header" in vector:
                    assert datagram is not None
                    self.assertEqual(congestion, vector["frame"]["congestion"])
                    self.check(datagram, vector)

    def check(self, datagram: wire.Datagram, vector: dict) -> None:
        """The fields are the index's, and encoding them gives the datagram."""
        header, want = datagram.header, vector["header"]
        self.assertEqual(header.kind.name, want["kind"])
        self.assertEqual(sorted(flag.name for flag in header.flags), sorted(want["flags"]))
        self.assertEqual(header.outcome.name, want["outcome"])
        self.assertEqual(header.group, want["group_row"] << 16 | want["group_generation"])
        self.assertEqual(header.cookie, int(want["cookie"], 16))
        self.assertEqual(header.members, int(want["members"], 16))
        self.assertEqual(header.element_type.name.lower(), want["element_type"])
        self.assertEqual(header.operation.name.lower(), want["operation"])
        self.assertEqual(datagram.crc, int(want["crc"], 16))
        for name in ("job", "chunk", "exponent", "count"):
            self.assertEqual(getattr(header, name), want[name], name)
        if datagram.hello:
            self.check_hello(datagram.hello, vector["hello"])
            made = wire.encode_hello(header, datagram.hello)
        else:
            made = wire.encode(header, datagram.payload, crc=datagram.crc != 0)
        # A corrupted packet keeps the CRC of what was sent.
        if vector["verdict"] == "ok":
            self.assertEqual(made, datagram.raw)
        if elements := vector.get("elements"):
            shown = DECODE[header.element_type](datagram.payload)
            self.assertEqual(
                *(numbers.to_f32([float(x) for x in some]) for some in (elements, shown[:4]))
            )
            self.assertEqual(ENCODE[header.element_type](shown), datagram.payload)

    def check_hello(self, hello: wire.Hello, want: dict) -> None:
        """The body's fields are the index's."""
        for name, value in want.items():
            match name:
                case "phase" | "reason":
                    self.assertEqual(getattr(hello, name).name, value)
                case "integrity":
                    self.assertEqual(hello.integrity.name.lower(), value)
                case "overflow":
                    self.assertEqual(("wrap", "clamp")[hello.overflow], value)
                case "bitmap":
                    self.assertEqual(hello.bitmap.hex(), value)
                case _:
                    shown = int(value, 16) if isinstance(value, str) else value
                    self.assertEqual(getattr(hello, name), shown, name)


if __name__ == "__main__":
    unittest.main()
