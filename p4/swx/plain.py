"""Rewrites a preprocessed program so that no condition has && or ||, which p4c-dpdk drops or refuses
when a side is a comparison by < or >. Each becomes nested ifs that set a scratch field.

    plain.py < FROM > TO
"""

import re
import sys

SCRATCH = "meta.color"


def closing(text: str, at: int) -> int:
    """Where the bracket that opens at `at` closes."""
    pairs, depth = {"(": ")", "{": "}"}, 0
    opens, closes = text[at], pairs[text[at]]
    for index in range(at, len(text)):
        depth += (text[index] == opens) - (text[index] == closes)
        if depth == 0:
            return index
    raise ValueError("a bracket does not close")


def split(condition: str, operator: str) -> list[str]:
    """The sides of an operator that is in no bracket."""
    sides, depth, start, at = [], 0, 0, 0
    while at < len(condition):
        depth += (condition[at] == "(") - (condition[at] == ")")
        if depth == 0 and condition.startswith(operator, at):
            sides.append(condition[start:at])
            at = start = at + 2
            continue
        at += 1
    return [*sides, condition[start:]]


def test(condition: str, body: str) -> str:
    """Ifs that run `body`, once or more, when the condition holds."""
    condition = condition.strip()
    while condition.startswith("(") and closing(condition, 0) == len(condition) - 1:
        condition = condition[1:-1].strip()
    sides = split(condition, "||")
    if len(sides) > 1:
        return " ".join(test(side, body) for side in sides)
    sides = split(condition, "&&")
    if len(sides) > 1:
        return test(sides[0], test(" && ".join(sides[1:]), body))
    return f"if ({condition}) {{ {body} }}"


def statement(text: str, at: int) -> tuple[str, int]:
    """The if that begins at `at`, rewritten, and where it ends."""
    opens = text.index("(", at)
    closes = closing(text, opens)
    condition = text[opens + 1 : closes]
    begins = closes + 1 + (len(text[closes + 1 :]) - len(text[closes + 1 :].lstrip()))
    if text[begins] != "{":
        raise ValueError(f"an if without a block: {text[at:begins + 20]!r}")
    ends = closing(text, begins)
    block, end = "{" + program(text[begins + 1 : ends]) + "}", ends + 1
    rest = re.compile(r"\s*else\b\s*").match(text, end)
    if rest:
        if text[rest.end()] == "{":
            last = closing(text, rest.end())
            block += " else {" + program(text[rest.end() + 1 : last]) + "}"
            end = last + 1
        else:
            chained, end = statement(text, rest.end())
            block += " else {" + chained + "}"
    if "&&" not in condition and "||" not in condition:
        return f"if ({condition}) {block}", end
    return (
        f"{{ {SCRATCH} = 0; {test(condition, f'{SCRATCH} = 1;')} if ({SCRATCH} == 1) {block} }}",
        end,
    )


def program(text: str) -> str:
    """All ifs of a text, rewritten."""
    done, at = [], 0
    for found in iter(lambda: re.compile(r"\bif\s*\(").search(text, at), None):
        done.append(text[at : found.start()])
        rewritten, at = statement(text, found.start())
        done.append(rewritten)
    return "".join(done) + text[at:]


def main() -> None:
    """See above; what the architecture's own files say stays."""
    text = sys.stdin.read()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^#[^\n]*$", "", text, flags=re.M)
    start = text.index("parser WeftParser")
    sys.stdout.write(text[:start] + program(text[start:]))


main()
