#!/usr/bin/env python3
"""Lets p4testgen walk the paths of the program, and writes what it predicts as vectors.toml.

    generate.py [--seconds N]

p4testgen lacks three things that the program needs, so it walks a copy:

- `truncate`: left out. It cuts echoes of ops only, which are cut here.
- Multicast: such a frame is a drop to p4testgen. The vectors have no groups, so it is one.
- A checksum that is right: it has no way to find such words. `right` has every checksum right by
  assumption, and the frames get theirs here. `random` has the checksums as they are, which never
  are right.

A meter is green. So what is predicted is the parser, each refusal with its reason, what is counted
of a slot, bridging, and ops; not what leaves as an answer.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
P4 = HERE.parent
sys.path.insert(0, str(P4 / "tests"))

import frames  # noqa: E402

ELEMENTS = 32
NO_TRUNCATE = "\n#undef CUT_TO\n#define CUT_TO(bytes)\n"
NO_CHECKSUM = "#undef CHECKSUM\n#define CHECKSUM(to, words) to = 0;\n"
VARIANTS = {"random": NO_TRUNCATE, "right": NO_TRUNCATE + NO_CHECKSUM}
COMMAND = [
    "p4testgen", "--target", "bmv2", "--arch", "v1model", "--std", "p4-16",
    f"-DELEMENTS={ELEMENTS}", "--test-backend", "STF", "--seed", "2", "--max-tests", "0",
    "--path-selection", "RANDOM_BACKTRACK", "--track-coverage", "STATEMENTS",
    "--only-covering-tests", "--packet-size-range", "0:2048",
    "--port-ranges", "0:3,8:9,255:255",
]  # fmt: skip
NONE = 255
OP_FRAME_BYTES = 54


def last(trace: str, field: str, default: int) -> int:
    """The value that a path leaves in a field of the metadata."""
    values = re.findall(rf"Computed: meta\.{field} = (\d+);", trace)
    return int(values[-1]) if values else default


def with_right_checksums(frame: bytes) -> bytes:
    """The frame with the sums that `right` took for granted; a UDP sum of 0 stays none."""
    if frame[12:14] != b"\x08\x00" or len(frame) < 34 or frame[14] != 0x45:
        return frame
    head = frame[14:24] + b"\0\0" + frame[26:34]
    frame = frame[:24] + frames.words_sum(head).to_bytes(2, "big") + frame[26:]
    is_udp = frame[23] == 17 and int.from_bytes(frame[20:22], "big") & 0x3FFF == 0
    if not is_udp or len(frame) < 74 or frame[40:42] == b"\0\0":
        return frame
    # What the parser takes as a vector is summed too.
    end, udp_len = 74, int.from_bytes(frame[38:40], "big")
    if frame[42] in (0x11, 0x15) and udp_len == 40 + 4 * ELEMENTS <= len(frame) - 34:
        end += 4 * ELEMENTS
    words = frame[26:34] + b"\0\x11" + frame[38:40] + frame[34:40] + b"\0\0" + frame[42:end]
    return frame[:40] + (frames.words_sum(words) or 0xFFFF).to_bytes(2, "big") + frame[42:]


def entry(line: str) -> str:
    """An `add` of an STF as an entry of vectors.toml; names are the last of a path."""
    table, rest = re.fullmatch(r'add "([^"]+)" (.*)', line).groups()
    keys, action, params = re.fullmatch(r'(.*) "([^"]+)"\((.*)\)', rest).groups()
    pairs = r'"([^"]+)":(0x[0-9A-Fa-f]+)'
    texts = [
        "[" + ", ".join(f'["{name}", "{value}"]' for name, value in re.findall(pairs, text)) + "]"
        for text in (keys, params)
    ]
    names = [name.rsplit(".", 1)[-1] for name in (table, action)]
    return f'{{ table = "{names[0]}", keys = {texts[0]}, action = "{names[1]}", ' \
           f"params = {texts[1]} }}"


def vector(name: str, text: str, is_right: bool) -> str:
    """An STF, with what its trace says of the counters, as a table of vectors.toml."""
    trace = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    entries = [entry(line) for line in lines if line.startswith("add ")]
    (packet,) = [line for line in lines if line.startswith("packet ")]
    _, port, *data = packet.split()
    data = bytes.fromhex("".join(data))
    frame = with_right_checksums(data) if is_right else data
    out = []
    for line in lines:
        if line.startswith("expect "):
            _, to, *wanted = line.removesuffix("$").split()
            wanted = bytes.fromhex("".join(wanted))
            if int(port) == frames.CPU_PORT and wanted[12:14] == b"\x88\xb5":
                wanted = wanted[:OP_FRAME_BYTES]
            elif wanted == data:
                wanted = frame
            out.append(f'[{to}, "{wanted.hex()}"]')
    reason, scope = last(trace, "reason", NONE), last(trace, "scope", 0)
    happened = [last(trace, field, NONE) for field in ("happened", "happened_too")]
    cells = [scope * 32 + code for code in happened if code != NONE]
    result = ["[[vector]]", f'name = "{name}"']
    result += ["entries = [", *(f"  {text}," for text in entries), "]"]
    result += [f"port = {port}", f'frame = "{frame.hex()}"', f"out = [{', '.join(out)}]"]
    result += [f"drops = [{'' if reason == NONE else reason}]", f"transitions = {cells}", ""]
    return "\n".join(result)


def walked(name: str, change: str, include: str, seconds: int) -> tuple[list[str], str]:
    """The vectors of a variant, and how far p4testgen came."""
    with tempfile.TemporaryDirectory(prefix="weft-p4-testgen-") as folder:
        for source in P4.glob("*.p4"):
            shutil.copy(source, folder)
        with open(Path(folder) / "v1model.p4", "a", encoding="utf-8") as file:
            file.write(change)
        command = ["timeout", str(seconds), *COMMAND, "-I", include, "--out-dir", "out", "weft.p4"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        said = done.stdout + done.stderr
        covered = re.findall(r"Nodes covered: [\d.]+ \((\d+/\d+)\)", said)
        if done.returncode not in (0, 124) or not covered:
            sys.exit(f"p4testgen failed: {said[-2000:]}")
        found = sorted(Path(folder, "out").glob("*.stf"),
                       key=lambda path: int(path.stem.rsplit("_", 1)[1]))
        texts = [path.read_text(encoding="utf-8") for path in found]
        vectors = [
            vector(f"{name}-{number}", text, name == "right")
            for number, text in enumerate(texts, start=1)
        ]
        return vectors, f"{len(vectors)} vectors, at least {covered[-1]} nodes"


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description="vectors by p4testgen")
    parser.add_argument("--seconds", type=int, default=60, help="for each variant")
    args = parser.parse_args()
    program = shutil.which("p4testgen") or sys.exit("p4testgen is not on PATH")
    guesses = [Path(program).resolve().parents[1] / "share/p4c/p4include",
               Path("/usr/local/share/p4c/p4include")]
    include = next((str(path) for path in guesses if path.is_dir()), "p4include")
    version = subprocess.run(["p4c-bm2-ss", "--version"], capture_output=True, text=True)
    version = re.search(r"Version ([\d.]+)", version.stdout + version.stderr).group(1)
    head = [f"# By testgen/generate.py, with p4testgen of p4c {version}:",
            f"# {' '.join(COMMAND[:12])}",
            f"#     {' '.join(COMMAND[12:18])}",
            f"#     {' '.join(COMMAND[18:])}"]
    body = []
    for name, change in VARIANTS.items():
        vectors, said = walked(name, change, include, args.seconds)
        head.append(f"# {name}: {said}, in {args.seconds} s")
        body += vectors
    head.append("# Of these sources:")
    for source in sorted(P4.glob("*.p4")):
        head.append(f"# {hashlib.sha256(source.read_bytes()).hexdigest()}  {source.name}")
    text = "\n".join([*head, "", *body])
    (HERE / "vectors.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
