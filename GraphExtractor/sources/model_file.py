"""What a user's ``model.py`` says about itself, read without running it.

The file has ``build()``, ``example_inputs(micro_batch_size, sequence_length)``, optionally
``loss(output)`` and ``tensor_parallel = {...}``. The default of the parameter ``sequence_length``
is the model's own sequence length; a function without that parameter has inputs of one size, which
count as one token.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from GraphExtractor.models.base import TensorParallelPlan
from phaze_common.errors import InputError
from phaze_common.files import read_bytes

FUNCTIONS = {
    "build": "build() returns the torch.nn.Module",
    "example_inputs": "example_inputs(micro_batch_size, sequence_length) returns its input tensors",
}
MODEL_FILE = "a model file (Python)"
PLAN = "tensor_parallel"
SIZES = "sizes"  # key of the plan: what widths must divide
_GLOBS = ("column", "row", "entrances")


@dataclass(frozen=True)
class ModelFile:
    """A model file as it stands; ``version`` changes with it and with files that it imports.

    ``sequence_length`` is 0 where none is given; ``tokens`` is whether the inputs depend on one.
    ``sizes`` are what tensor-parallel widths must divide under ``plan``; none: there is no plan.
    """

    path: str
    version: str
    tokens: bool
    sequence_length: int
    plan: TensorParallelPlan
    sizes: Mapping[str, int]


def read_model_file(path: str) -> ModelFile:
    """Read what a model file says.

    Raises: InputError: the file is no Python, or lacks a function that can be called.
    """
    tree = _parsed(path)
    functions = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    bound = frozenset(_bound(tree.body))
    for name, purpose in FUNCTIONS.items():
        if name not in bound and "*" not in bound:
            raise InputError(f"{path} has no function {name}(); write one: {purpose}")
    for name, fewest, most in (("build", 0, 0), ("example_inputs", 1, 2), ("loss", 1, 1)):
        if name in functions:
            _check_arguments(path, functions[name], fewest, most)
    tokens, length = True, 0
    if "example_inputs" in functions:
        tokens, length = _sequence_length(path, functions["example_inputs"], tree)
    plan, sizes = _plan(path, tree)
    return ModelFile(path, _version(Path(path)), tokens, length, plan, sizes)


def _parsed(path: str) -> ast.Module:
    try:
        return ast.parse(read_bytes(Path(path), MODEL_FILE), path)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        raise InputError(f"{where} is not valid Python: {error.msg}; correct it") from error
    # null bytes; nested deeper than the parser goes
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "nested too deeply"
        raise InputError(f"{path} is not valid Python: {why}; correct it") from error


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that running the statements may bind; "*" for a star import."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        else:
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id
            for name in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)


def _check_arguments(
    path: str, function: ast.FunctionDef | ast.AsyncFunctionDef, fewest: int, most: int
) -> None:
    """Refuse a function that cannot be called with ``fewest`` to ``most`` arguments."""
    where = f"{path}:{function.lineno}: {function.name}()"
    if isinstance(function, ast.AsyncFunctionDef):
        raise InputError(f"{where} is asynchronous; write it with def")
    arguments = function.args
    taken = len(arguments.posonlyargs) + len(arguments.args)
    needed = taken - len(arguments.defaults)
    named = sum(default is None for default in arguments.kw_defaults)
    if named or needed > most or (taken < fewest and arguments.vararg is None):
        expected = {
            "build": "no arguments",
            "example_inputs": "(micro_batch_size, sequence_length)",
            "loss": "one argument, the module's output",
        }[function.name]
        raise InputError(
            f"{where} must take {expected}, but needs {needed + named} and takes {taken}; change "
            "its parameters"
        )


def _sequence_length(
    path: str, function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module
) -> tuple[bool, int]:
    """Whether the inputs depend on a sequence length, and its default (0: none)."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if len(positional) < 2:
        several = arguments.vararg is not None
        return several, 0 if several else 1
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    default = defaults[1]
    if isinstance(default, ast.Name):
        default = _constant(tree, default.id)
    if default is None:
        return True, 0
    value = default.value if isinstance(default, ast.Constant) else None
    if type(value) is not int or value < 1:
        raise InputError(
            f"{path}:{function.lineno}: the default of {positional[1].arg} is read without "
            "running the file; "
            "write it as a positive whole number, or leave it out and give --sequence-length"
        )
    return True, value


def _constant(tree: ast.Module, name: str) -> ast.expr | None:
    """What the last assignment to ``name`` at the top of the file gives it."""
    found: ast.expr | None = None
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            found = value
    return found


def _plan(path: str, tree: ast.Module) -> tuple[TensorParallelPlan, Mapping[str, int]]:
    written = _constant(tree, PLAN)
    if written is None:
        return TensorParallelPlan(), {}
    where = f"{path}:{written.lineno}: {PLAN}"
    try:
        given = ast.literal_eval(written)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InputError(
            f"{where} is read without running the file; write it out as a dictionary of literals"
        ) from error
    known = [each.name for each in fields(TensorParallelPlan)] + [SIZES]
    if not isinstance(given, dict):
        kind, keys = type(given).__name__, ", ".join(known)
        raise InputError(f"{where} is a {kind}; write a dictionary with the keys {keys}")
    for key in given:
        if key not in known:
            raise InputError(f"{where} has no key {key!r}; the keys are {', '.join(known)}")
    sizes = given.pop(SIZES, {})
    fit = isinstance(sizes, dict) and all(_is_size(name, size) for name, size in sizes.items())
    if not fit or not sizes:
        raise InputError(
            f"{where} must say under {SIZES!r} what a width has to divide, such as {{'attention "
            "heads': 16, 'ffn width': 4096}"
        )
    values = {key: _value(where, key, value) for key, value in given.items()}
    if not values.get("column") or not values.get("row"):
        raise InputError(
            f"{where} must name linears under 'column' and under 'row': they are split in pairs"
        )
    return TensorParallelPlan(**values), sizes  # type: ignore[arg-type]


def _value(where: str, key: str, value: object) -> object:
    if key in _GLOBS:
        return _names(where, key, value)
    if key == "divided":
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            what = "must map module paths to names of attributes"
            raise InputError(f"{where}: {key!r} {what}, given {value!r:.80}")
        return {name: _names(where, key, attributes) for name, attributes in value.items()}
    if not isinstance(value, str):
        raise InputError(f"{where}: {key!r} must be the path of one module, given {value!r:.80}")
    return value


def _names(where: str, key: str, value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names):
        return tuple(names)
    raise InputError(f"{where}: {key!r} must list names in quotes, given {value!r:.80}")


def _is_size(name: object, size: object) -> bool:
    return isinstance(name, str) and type(size) is int and size > 0


def _version(path: Path) -> str:
    """Hash of a file and of the files in its folder that it imports, and they import."""
    digest = hashlib.blake2b(digest_size=10)
    pending, seen = [path], {path}
    while pending:
        source = pending.pop()
        content = read_bytes(source, MODEL_FILE)
        digest.update(str(source.relative_to(path.parent)).encode() + b"\0" + content)
        found = sorted(set(_imported(content, source, path.parent)) - seen)
        seen.update(found)
        pending += found
    return digest.hexdigest()


def _imported(content: bytes, source: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # said when it is imported
        return
    for node in ast.walk(tree):
        start = root
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if 0 < node.level <= len(source.parents):
                start = source.parents[node.level - 1]
            inside = f"{node.module}." if node.module else ""
            names = [node.module or "", *(inside + alias.name for alias in node.names)]
        else:
            continue
        for name in names:
            place = start.joinpath(*name.split(".")) if name else start
            folders = (place, *(each for each in place.parents if root in each.parents))
            files = [place.with_suffix(".py"), *(each / "__init__.py" for each in folders)]
            yield from (each for each in files if each.is_file() and root in each.parents)
