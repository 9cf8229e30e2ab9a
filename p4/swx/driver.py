"""The program on SWX for whoever has entries and frames: lines in, lines out.

    driver.py [--elements N] [--build DIR]

Commands, each answered by `ok`, `error TEXT` or what is said here; numbers in decimal or 0x hex:

    insert|modify|delete TABLE ACTION KEY… => PARAMETER…    an entry, in the order of the program
    group NUMBER PORT:ID…                                   a multicast group's receivers
    meter NAME INDEX BYTES_PER_SEC BURST_BYTES              a quota
    frame PORT HEX        the frame is handled; `frame PORT HEX` for each that came, then `ok`
    read NAME INDEX [COUNT]   `value N…`: cells of a counter (drops, transitions, progress)

Port 255 is the agent's, the others are 0 to 14. The first line out is `ready`, or
`skipped TEXT` with exit status 3 where the target is not here. The end of input ends it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pipeline
from tables import Refused


def obey(target: pipeline.Pipeline, words: list[str]) -> list[str]:
    """What is answered to a command."""
    how, *rest = words
    if how in ("insert", "modify", "delete"):
        cut = rest.index("=>") if "=>" in rest else len(rest)
        target.write(how, rest[0], rest[1], rest[2:cut], rest[cut + 1 :])
    elif how == "group":
        nodes = [node.split(":") for node in rest[1:]]
        target.group(int(rest[0], 0), [(int(port, 0), int(id_, 0)) for port, id_ in nodes])
    elif how == "meter":
        target.meter(rest[0], *(int(value, 0) for value in rest[1:4]))
    elif how == "frame":
        came = target.frame(int(rest[0], 0), bytes.fromhex(rest[1]))
        return [*(f"frame {port} {data.hex()}" for port, data in came), "ok"]
    elif how == "read":
        first, count = int(rest[1], 0), int(rest[2], 0) if rest[2:] else 1
        cells = range(first, first + count)
        return [" ".join(["value", *(str(target.register(rest[0], cell)) for cell in cells)])]
    else:
        raise Refused(f"no command {how}")
    return ["ok"]


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, default=32)
    parser.add_argument("--build", type=Path, default=pipeline.HERE.parent / "build")
    args = parser.parse_args()
    spec = args.build / f"weft-swx-{args.elements}.spec"
    lacking = pipeline.missing() + ([] if spec.is_file() else [f"a program of {args.elements}"])
    if lacking:
        print(f"skipped not here: {', '.join(lacking)}", flush=True)
        return 3
    target = pipeline.Pipeline(spec, args.elements)
    try:
        print("ready", flush=True)
        for line in sys.stdin:
            if not line.split():
                continue
            try:
                answer = obey(target, line.split())
            except (Refused, ValueError, IndexError) as error:
                answer = [f"error {error}"]
            print("\n".join(answer), flush=True)
    except pipeline.Failed as error:
        print(f"error {error}", flush=True)
        return 1
    finally:
        target.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
