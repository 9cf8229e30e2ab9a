#!/usr/bin/env python3
"""Runs a scenario of a table of rows with other nodes, threads and modes: a cell each, a line each.

    testbed/bench/keys_table.py factorisation --how virtual --nodes 1,2,4,8 --threads 1,2,4 \\
        --modes relocation,classic-fast-local

`--how` is `virtual` (weft run --level packet), `loopback` (--no-lab) or `lab` (network namespaces;
`--rate-mbit` shapes their links, and those of virtual time). `--set key=value` changes another key
of [factorisation], `--cost key=value` one of [costs]. `--weft` is the program, by default
target/debug/weft. Output: CSV, one line a cell as it comes; a cell that cannot be (rows no multiple
of all threads) is left out with a word on standard error. Exit 1 if a run failed.
"""

import argparse
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SCENARIOS = pathlib.Path(__file__).resolve().parent.parent / "scenarios"
COLUMNS = [
    "scenario", "how", "rate_mbit", "mode", "nodes", "threads", "verdict", "epoch_ms",
    "local_percent", "relocations", "relocation_us_p50", "loss", "reference_loss", "wrong_values",
    "wire_bytes", "wire_ms", "fingerprint",
]


def pairs(texts):
    return dict(text.split("=", 1) for text in texts)


def changed(text, values, section):
    """The scenario with other values in a section; a key that it has not is added to it."""
    head, name, body = text.partition(f"[{section}]")
    body, mark, rest = body.partition("\n[")
    for key, value in values.items():
        line = f"{key} = {value}"
        body, count = re.subn(rf"(?m)^{key} = [^#\n]*?(?=\s*(#|$))", line, body)
        if count == 0:
            first, end, others = body.partition("\n")
            body = f"{first}\n{line}{end}{others}"
    return head + name + body + mark + rest


def scenario(options, mode, nodes, threads):
    text = (SCENARIOS / f"{options.scenario}.toml").read_text()
    cell = {"mode": f'"{mode}"', "nodes": nodes, "threads": threads, **pairs(options.set)}
    text = changed(text, cell, "factorisation")
    text = changed(text, pairs(options.cost), "costs")
    if options.rate_mbit and options.how != "loopback":
        text += f"\n[lab]\nrate_mbit = {options.rate_mbit}\n"
    return text


def run(options, mode, nodes, threads):
    how = {"virtual": ["--level", "packet"], "loopback": ["--no-lab", "--io", "udp"], "lab": []}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "scenario.toml"
        file.write_text(scenario(options, mode, nodes, threads))
        command = [options.weft, "run", str(file), "--format", "json", "--out", f"{folder}/out"]
        ran = subprocess.run([*command, *how[options.how]], capture_output=True, text=True)
    if not ran.stdout:
        said = ran.stderr.strip().splitlines()
        print(f"{mode} {nodes} x {threads}: {said[-1] if said else ran}", file=sys.stderr)
        return None, "a multiple of nodes * threads" in ran.stderr
    return json.loads(ran.stdout), ran.returncode == 0


def row(options, report):
    def ms(seconds):
        return "" if seconds is None else round(seconds * 1e3, 3)

    rate = options.rate_mbit if options.how != "loopback" else None
    return {
        **{key: report.get(key) for key in COLUMNS},
        "scenario": options.scenario,
        "how": options.how,
        "rate_mbit": rate,
        "epoch_ms": ms(report["epoch_s"]),
        "wire_ms": ms(report["wire_s"]),
        "local_percent": round(report["local_share"] * 100, 2),
        "relocation_us_p50": round(report["relocation_us_p50"], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("scenario", help="factorisation, rescal, complex or word2vec")
    parser.add_argument("--how", choices=["virtual", "loopback", "lab"], default="virtual")
    parser.add_argument("--nodes", default="1,2,4,8")
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--modes", default="relocation")
    parser.add_argument("--rate-mbit", type=float)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--cost", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--weft", default="target/debug/weft")
    options = parser.parse_args()
    numbers = [[int(n) for n in text.split(",")] for text in (options.nodes, options.threads)]
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    is_good = True
    for nodes, threads in ((n, t) for n in numbers[0] for t in numbers[1]):
        for mode in options.modes.split(","):
            report, was_good = run(options, mode, nodes, threads)
            is_good &= was_good
            if report is not None:
                writer.writerow(row(options, report))
                sys.stdout.flush()
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
