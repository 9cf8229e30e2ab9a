"""What the program's tables hold on SWX: the entries of the agent, as files for the pipeline's
command line.

The target has no multicast. A group's receivers are a ring of copies: each copy names the mirror
session that it leaves by and the copy after it, so `copies` is written anew when its group is.
"""

from __future__ import annotations

import re

CPU_PORT = 15
PORTS_COUNT = 16
SINK_PORT = 16
ECHO_SESSION = 49
RANKS_MAX = 64
FLOOD_GROUP = 1


class Refused(Exception):
    """The target cannot do what it is told; the argument says why."""


def port_of(number: int) -> int:
    """This target's number of a port: the agent's is the last."""
    if number == 255:
        return CPU_PORT
    if number >= CPU_PORT:
        raise Refused(f"port {number}: the target has 0 to {CPU_PORT - 1}, and 255")
    return number


def session_of(port: int) -> int:
    """The first of a port's mirror sessions (sizes.p4)."""
    return 1 + 3 * port


class Tables:
    """Takes entries by the names of the program; `changes` are what the target is to be told."""

    def __init__(self, spec: str) -> None:
        self.tables = re.findall(r"^table (\w+) \{", spec, re.M)
        self.actions = re.findall(r"^action (\w+) args", spec, re.M)
        self.args = {
            name: re.findall(r"bit<\d+> (\w+)", fields)
            for name, fields in re.findall(r"^struct (\w+)_arg_t \{(.*?)\n\}", spec, re.M | re.S)
        }
        self.groups: dict[int, list[tuple[int, int]]] = {}
        # The copies that were told of, and of these, with session and successor, the ones held.
        self.told: dict[tuple[int, int], list] = {}
        self.held: dict[tuple[int, int], list] = {}
        self.flooded: list[int] = []
        self.changes: list[tuple[str, str, str]] = []
        for session in range(1, ECHO_SESSION + 1):
            self.put("clones", "clone", [session], [session])

    def resolve(self, names: list[str], name: str) -> str:
        """The program's name of what the tables' owner calls `name`."""
        for full in names:
            if re.sub(r"_\d+$", "", full).endswith("_" + name) or full == name:
                return full
        raise Refused(f"the program has no {name}")

    def put(self, table: str, action: str, keys: list, values: list) -> None:
        """An entry, new or in the place of the one with its key."""
        table, action = self.resolve(self.tables, table), self.resolve(self.actions, action)
        args = self.args.get(action, [])
        if len(args) != len(values):
            raise Refused(f"{action} has {len(args)} parameters, {len(values)} given")
        named = " ".join(f"{name} {value}" for name, value in zip(args, values))
        line = f"match {' '.join(map(str, keys))} action {action} {named}"
        self.changes.append(("add", table, line))

    def drop(self, table: str, keys: list) -> None:
        """No entry with this key."""
        line = f"match {' '.join(map(str, keys))}"
        self.changes.append(("delete", self.resolve(self.tables, table), line))

    def write(self, how: str, table: str, action: str, keys: list, values: list) -> None:
        """`how` is insert, modify or delete."""
        if how not in ("insert", "modify", "delete"):
            raise Refused(f"{how} is none of insert, modify, delete")
        if table == "copies":
            key = (int(keys[0], 0), int(keys[1], 0))
            if how == "delete":
                self.told.pop(key, None)
            else:
                self.told[key] = values
            self.renew(key[0])
        elif how == "delete":
            self.drop(table, keys)
        else:
            if table == "bridge":
                values = [port_of(int(values[0], 0)), *values[1:]]
            self.put(table, action, keys, values)

    def group(self, number: int, nodes: list[tuple[int, int]]) -> None:
        """The receivers of a group: port and id of each."""
        nodes = [(port_of(port), id_) for port, id_ in nodes]
        self.groups[number] = nodes
        if number == FLOOD_GROUP:
            self.flood(sorted({port for port, _ in nodes}))
        else:
            self.renew(number - 2)

    def flood(self, ports: list[int]) -> None:
        """The ports as a ring: each with the one after it, and how that is reached."""
        for port in set(self.flooded) - set(ports):
            self.drop("floods", [port])
        for port in ports:
            later = next((other for other in ports if other > port), ports[0])
            self.put("floods", "flood_to", [port], [later, session_of(later)])
        self.flooded = ports

    def renew(self, scope: int) -> None:
        """The copies of a scope that are both told of and in its group."""
        ports = {id_: port for port, id_ in self.groups.get(2 + scope, [])}
        ids = sorted(id_ for of, id_ in self.told if of == scope and id_ in ports)
        ranks = [id_ for id_ in ids if id_ < RANKS_MAX] or ids
        wanted = {}
        for id_ in ids:
            later = next((rank for rank in ranks if rank > id_), ranks[0])
            wanted[scope, id_] = [*self.told[scope, id_], session_of(ports[id_]), later]
        for key in [key for key in self.held if key[0] == scope and key not in wanted]:
            self.drop("copies", list(key))
            del self.held[key]
        for key, values in wanted.items():
            if self.held.get(key) != values:
                self.put("copies", "copy", list(key), values)
                self.held[key] = values
