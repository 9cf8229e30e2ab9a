"""Writes what p4c made of the program as one short line per object, the same on every machine:
without the source's text, which the line numbers name already.

    slim.py FROM.json TO.json
"""

import json
import sys


def without_text(value):
    """The same without fragments of the source."""
    if isinstance(value, dict):
        return {
            key: without_text(item)
            for key, item in value.items()
            if key not in ("source_fragment", "column")
        }
    if isinstance(value, list):
        return [without_text(item) for item in value]
    return value


def main() -> None:
    """See above."""
    with open(sys.argv[1], encoding="utf-8") as file:
        program = without_text(json.load(file))
    lines = []
    for key, value in program.items():
        if isinstance(value, list):
            items = ",\n".join(json.dumps(item, separators=(",", ":")) for item in value)
            lines.append(f'"{key}":[\n{items}]')
        else:
            lines.append(f'"{key}":{json.dumps(value, separators=(",", ":"))}')
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("{" + ",\n".join(lines) + "}\n")


main()
