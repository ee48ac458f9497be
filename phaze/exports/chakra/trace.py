"""Execution traces of schema 0.0.4: nodes, and the files that hold those of a rank.

Source: mlcommons/chakra, ``schema/protobuf/et_def.proto`` (numbers of fields, types and
collectives), and the attributes that its feeder and ASTRA-sim read, in the types in which they read
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from phaze.exports.chakra import wire
from phaze_common.errors import InputError

VERSION = "0.0.4"

# numbers of the schema's fields of a node, of what it reads, and of an attribute by its type
_NODE_ID, _NODE_NAME, _NODE_TYPE, _CTRL_DEPS, _DATA_DEPS, _START, _DURATION, _INPUTS = range(1, 9)
_ATTRIBUTE = 10
_SHAPES = 2
_NAME, _DOUBLE, _INT32, _INT64, _UINT64, _BOOL, _STRING = 1, 3, 7, 9, 13, 27, 29


class NodeType(IntEnum):
    """What a node does; the types that are written."""

    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


class CollectiveType(IntEnum):
    """Which collective a node is; those that are written."""

    ALL_REDUCE = 0
    ALL_GATHER = 2
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7


@dataclass(frozen=True)
class Node:
    """A node of one rank.

    ``data_deps`` must all be finished before it starts; those of them that only keep the order of
    its device are ``ctrl_deps`` too. ``duration_s`` is exact, ``start_micros`` and
    ``duration_micros`` what the schema has room for; a receiver starts when it asks.
    ``tensor_size`` are the bytes that it reads and writes, ``num_ops`` its floating-point
    operations. ``comm_size`` are bytes of a message, or of what a rank gives to a collective: its
    part of what is gathered, all of what is reduced. ``group`` names a communicator.
    """

    id: int
    name: str
    type: NodeType
    duration_s: float
    duration_micros: int
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    num_ops: int = 0
    tensor_size: int = 0
    comm_type: CollectiveType | None = None
    comm_size: int = 0
    comm_src: int = 0
    comm_dst: int = 0
    comm_tag: int = 0
    group: str = ""
    start_micros: int = 0


def node_bytes(node: Node) -> bytes:
    """``node`` as a message of the schema but for what only its rank has, which ``of_rank`` adds
    behind it."""
    numbers = {"comm_size": (_INT64, node.comm_size)}
    if node.type is NodeType.COMPUTE:
        numbers = {"num_ops": (_INT64, node.num_ops), "tensor_size": (_UINT64, node.tensor_size)}
    if node.comm_type is not None:
        numbers["comm_type"] = (_INT64, node.comm_type)
    return b"".join(
        (
            wire.whole(_NODE_ID, node.id),
            wire.text(_NODE_NAME, node.name),
            wire.whole(_NODE_TYPE, node.type),
            wire.packed(_CTRL_DEPS, node.ctrl_deps),
            wire.packed(_DATA_DEPS, node.data_deps),
            wire.whole(_START, node.start_micros),
            wire.whole(_DURATION, node.duration_micros),
            _attribute("is_cpu_op", wire.whole(_BOOL, 0)),
            # ours: readers pass over others' attributes
            _attribute("duration_s", wire.double(_DOUBLE, node.duration_s)),
            *(_attribute(name, wire.whole(*number)) for name, number in numbers.items()),
        )
    )


def of_rank(node: Node) -> bytes:
    """The fields of ``node`` that differ from rank to rank; a message goes on with them as if they
    had stood in it."""
    if node.type is NodeType.COLLECTIVE:
        return _attribute("pg_name", wire.text(_STRING, node.group))
    if node.type is NodeType.COMPUTE:
        return b""
    numbers = {"comm_src": node.comm_src, "comm_dst": node.comm_dst, "comm_tag": node.comm_tag}
    found = (_attribute(name, wire.whole(_INT32, value)) for name, value in numbers.items())
    return b"".join(found)


def _attribute(name: str, value: bytes) -> bytes:
    return wire.content(_ATTRIBUTE, wire.text(_NAME, name) + value)


def trace_bytes(messages: Iterable[bytes]) -> bytes:
    """A file with the nodes ``messages``: the version first, each message behind its length."""
    return b"".join(map(wire.framed, (wire.text(1, VERSION), *messages)))


def read_trace(content: bytes) -> tuple[Node, ...]:
    """The nodes of a file that ``trace_bytes`` wrote.

    Raises:
        InputError: it is damaged, or of another version.
    """
    messages = wire.read_framed(content)
    metadata = wire.read_fields(next(messages, b""))
    version = _text_of(metadata, 1)
    if version != VERSION:
        raise InputError(
            f"an execution trace says version {version!r:.40}, {VERSION} is read; write it again "
            "with that one"
        )
    return tuple(map(_node, messages))


@dataclass(frozen=True, eq=False)
class NodeFields:
    """A node of any program, as far as it says something: its fields and attributes by name."""

    single: Mapping[int, wire.Field]
    data_deps: tuple[int, ...]
    ctrl_deps: tuple[int, ...]
    attributes: Mapping[str, wire.Field]

    @staticmethod
    def of(message: bytes) -> NodeFields:
        """The fields of ``message``; a repeated field may come in parts."""
        single, attributes = dict[int, wire.Field](), dict[str, wire.Field]()
        deps = defaultdict[int, tuple[int, ...]](tuple)
        for field in wire.read_fields(message):
            if field.number == _ATTRIBUTE:
                attributes |= attribute(field.content)
            elif field.number not in (_CTRL_DEPS, _DATA_DEPS):
                single[field.number] = field
            elif isinstance(field.value, int):
                deps[field.number] += (field.value,)
            else:
                deps[field.number] += wire.read_packed(field.content)
        return NodeFields(single, deps[_DATA_DEPS], deps[_CTRL_DEPS], attributes)

    @property
    def id(self) -> int:
        """Its number; as all fields it is left out where it is 0."""
        return self._whole(_NODE_ID)

    @property
    def name(self) -> str:
        """What it is called."""
        return _text_of(self.single.values(), _NODE_NAME)

    @property
    def type(self) -> int:
        """One of the schema's types, of which ``NodeType`` has some."""
        return self._whole(_NODE_TYPE)

    @property
    def start_micros(self) -> int:
        """When it starts, 0 where that is not said."""
        return self._whole(_START)

    @property
    def duration_micros(self) -> int:
        """How long it lasts, 0 where that is not said."""
        return self._whole(_DURATION)

    @property
    def input_shapes(self) -> str:
        """Shapes of what it reads, a list of lists as text; empty where they are not said."""
        fields = wire.read_fields(self.single[_INPUTS].content) if _INPUTS in self.single else ()
        return _text_of(fields, _SHAPES)

    def number(self, name: str) -> int | None:
        """The whole number that the attribute ``name`` is; None where it has none."""
        return self.attributes[name].whole if name in self.attributes else None

    def _whole(self, number: int) -> int:
        return self.single[number].whole if number in self.single else 0


def _node(message: bytes) -> Node:
    fields = NodeFields.of(message)
    attributes = fields.attributes
    names = ("num_ops", "tensor_size", "comm_size", "comm_src", "comm_dst", "comm_tag")
    numbers = {name: fields.number(name) or 0 for name in names}
    kind = fields.number("comm_type")
    try:
        return Node(
            id=fields.single[_NODE_ID].whole,
            name=fields.single[_NODE_NAME].content.decode(),
            type=NodeType(fields.single[_NODE_TYPE].whole),
            duration_s=attributes["duration_s"].double,
            duration_micros=fields.duration_micros,
            data_deps=fields.data_deps,
            ctrl_deps=fields.ctrl_deps,
            comm_type=None if kind is None else CollectiveType(kind),
            group=attributes["pg_name"].content.decode() if "pg_name" in attributes else "",
            start_micros=fields.start_micros,
            **numbers,
        )
    except (KeyError, ValueError) as error:
        raise InputError(
            f"a node of an execution trace has no or another {error}; it is of another program"
        ) from error


def attribute(message: bytes) -> Iterator[tuple[str, wire.Field]]:
    """The name and the value of an attribute."""
    fields = tuple(wire.read_fields(message))
    name = _text_of(fields, _NAME)
    yield from ((name, value) for value in fields if value.number != _NAME)


def _text_of(fields: Iterable[wire.Field], number: int) -> str:
    """The text of the first field of a number; empty where there is none."""
    found = (field.content for field in fields if field.number == number)
    return next(found, b"").decode(errors="replace")
