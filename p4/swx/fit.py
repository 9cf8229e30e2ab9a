"""Makes a .spec fit the target: 22.11 addresses metadata by 8 bits of offset, does not say so, and
wraps around beyond 256 bytes. Temporaries of p4c-dpdk that are never alive together share a field, and
fields that nothing reads have none.

    fit.py < FROM > TO

A temporary is alive from the first line that names it to the last: jumps of a .spec are forward.
"""

import re
import sys

METADATA_BYTES_MAX = 256
# Instructions that write their first operand; a meter writes its last.
WRITES = r"(?:(?:mov|and|or|xor|add|sub|shl|shr|regrd|rx|recircid) |meter (?:\S+ ){4})"


def unwritten(text: str) -> list[str]:
    """Fields of metadata that are read or matched though nothing writes them. p4c-dpdk drops writes
    that only a table's key needs where another table matches the same field."""
    written = set(re.findall(rf"\b{WRITES}m\.(\w+)", text))
    return sorted(set(re.findall(r"\bm\.(\w+)", text)) - written)


def main() -> None:
    """See above."""
    text = sys.stdin.read()
    start = text.index("\nstruct meta_t {")
    end = text.index("}", start)
    fields = re.findall(r"bit<(\d+)> (\w+)", text[start:end])
    # What is written but never read needs no place.
    for _, name in fields:
        written = len(re.findall(rf"^\s*mov m\.{name}\b", text, re.M))
        if written and written == len(re.findall(rf"\bm\.{name}\b", text)):
            text = re.sub(rf"^\s*mov m\.{name}\b.*\n", "", text, flags=re.M)
    at = text.index("\napply {")
    head, body = text[:at], text[at:].split("\n")
    alive: dict[str, list[int]] = {}
    for number, line in enumerate(body):
        for name in re.findall(r"\bm\.(\w+)", line):
            alive.setdefault(name, [number, number])[1] = number
    elsewhere = set(re.findall(r"\bm\.(\w+)", head))
    shared: dict[str, list[tuple[str, int]]] = {}
    renamed = {}
    kept = []
    order = sorted(fields, key=lambda field: alive.get(field[1], [-1])[0])
    for bits, name in order:
        is_temporary = re.fullmatch(r"(MainControlT_|MainParserT_|tmp)\w*", name)
        if name not in alive and name not in elsewhere:
            continue
        if not is_temporary or name in elsewhere:
            kept.append((bits, name))
            continue
        first, last = alive[name]
        for index, (home, until) in enumerate(shared.get(bits, [])):
            if until < first:
                shared[bits][index] = (home, last)
                renamed[name] = home
                break
        else:
            shared.setdefault(bits, []).append((name, last))
            kept.append((bits, name))
    lost = unwritten(text)
    if lost:
        sys.exit(f"fit.py: nothing writes {', '.join(lost)}: the compiler dropped it")
    size = sum((int(bits) + 7) // 8 for bits, _ in kept)
    if size > METADATA_BYTES_MAX:
        sys.exit(f"fit.py: metadata has {size} bytes: cut fields of meta_t or temporaries")
    held = {name for _, name in kept}
    lines = [f"\tbit<{bits}> {name}" for bits, name in fields if name in held]
    text = head[:start] + "\nstruct meta_t {\n" + "\n".join(lines) + "\n" + head[end:]
    body = re.sub(
        r"\bm\.(\w+)", lambda found: "m." + renamed.get(found[1], found[1]), "\n".join(body)
    )
    sys.stderr.write(f"fit.py: {size} bytes of metadata\n")
    sys.stdout.write(text + body)


main()
