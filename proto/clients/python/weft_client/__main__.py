"""`python3 -m weft_client`: a worker of an allreduce, for a look and for tests."""

from __future__ import annotations

import argparse
import json
import sys

from weft_client import Config, LaneError, Numbers, Session
from weft_client.timers import MS, Timers
from weft_client.wire import Operation


def address(text: str) -> tuple[str, int]:
    """`ip:port`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not ip:port")
    return host, int(port)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="weft_client", description=__doc__)
    parser.add_argument("local", type=address, help="ip:port of lane 0; a port per lane follows")
    parser.add_argument("box", type=address, help="ip:port of the aggregator")
    parser.add_argument("rank", type=int, help="place among the row's members, from 0")
    parser.add_argument("--job", type=int, default=0, help="index of the job (0)")
    parser.add_argument("--row", type=int, default=0, help="index of the row (0)")
    parser.add_argument(
        "--numbers", choices=[n.value for n in Numbers], default="fixed", help="(fixed)"
    )
    parser.add_argument("--operation", choices=["sum", "max"], default="sum", help="(sum)")
    parser.add_argument("--exponent-row", type=int, help="the MAX row, without a fixed exponent")
    parser.add_argument("--mtu", type=int, default=1500, help="of the path (1500)")
    parser.add_argument("--member-timeout", type=float, default=30, metavar="S", help="(30)")
    parser.add_argument(
        "--in",
        dest="vectors",
        metavar="FILE",
        help="a JSON list of vectors, or - for stdin; each sum is a line of JSON",
    )
    return parser.parse_args()


def main() -> int:
    """Exit status: 0 all sums came, 1 the session ended early, 2 wrong usage."""
    args = arguments()
    if args.vectors is None:
        vectors = [[float(args.rank + 1)] * 1000]
    else:
        with sys.stdin if args.vectors == "-" else open(args.vectors) as file:
            vectors = json.load(file)
    config = Config(
        rank=args.rank,
        job=args.job,
        row=args.row,
        numbers=Numbers(args.numbers),
        operation=Operation[args.operation.upper()],
        exponent_row=args.exponent_row,
        probe_len=args.mtu - 28,
        timers=Timers(member_timeout_ns=int(args.member_timeout * 1000) * MS),
    )
    try:
        with Session(args.local, args.box, config) as session:
            for vector in vectors:
                result = session.allreduce(vector)
                flags = {"clamped": result.clamped, "congestion": result.congestion}
                print(json.dumps({"sum": result.values, **flags}), flush=True)
    except LaneError as error:
        print(f"weft_client: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
