"""What is damaged: one small, correct file of every format, what base commands make of them, and a
folder in which each damaged one is read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from scripts.reference.examples import EXAMPLES
from tests.builders.processes import started
from tests.fuzzing.flags import WRITTEN
from tests.fuzzing.server import WARM, Outcome
from tests.fuzzing.targets import BUILD, WARMING

REPOSITORY = Path(__file__).resolve().parents[2]
HARDWARE = REPOSITORY / "Estimator" / "hardware"
AMPED = REPOSITORY / "third_party" / "amped"
SHIPPED = {  # files that ship, as a person's own
    "technology.yaml": "technologies/phaze_22nm.yaml",
    "platform.yaml": "platforms/phaze_hbm2.yaml",
    "functions.yaml": "vector_functions/phaze.yaml",
    "device.yaml": "devices/a100_80gb.yaml",
    "software.yaml": "software/megatron_core.yaml",
}
OURS = frozenset({"pristine", "live", "stdout", "stderr", "work", "home"})
OUT = "out"  # folders whose names begin so are what commands write
CACHES = ("GraphExtractor", "Estimator")  # folders that runs share
SET_ASIDE = frozenset({*CACHES, "points"})  # folders in which damaged files are replaced
ONE_THREAD = dict.fromkeys(  # a fork does not take threads along
    (f"{each}_NUM_THREADS" for each in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")), "1"
)


def write_base_files(folder: Path) -> None:
    """Write all of them into ``folder``; paths in them are relative to it."""
    shutil.copytree(Path(__file__).parent / "files", folder, dirs_exist_ok=True)
    for name in ("prices.yaml", "attention.yaml", "contention.yaml"):
        (folder / name).write_text(EXAMPLES[name])
    own = {"device.yaml": {"cluster": "cluster.yaml", "software": "software.yaml"}}
    own["software.yaml"] = {"attention": "attention.yaml", "contention": "contention.yaml"}
    for name, place in SHIPPED.items():
        content = yaml.safe_load((HARDWARE / place).read_text()) | own.get(name, {})
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    shutil.copy(AMPED / "examples" / "gpt3_175b_1024_a100.json", folder / "amped.json")
    tables = yaml.safe_load((AMPED / "lookup_tables.yaml").read_text())
    (folder / "lookup_tables.json").write_text(json.dumps(tables, indent=1))
    (folder / "empty.yaml").touch()
    (folder / "binary.yaml").write_bytes(b"\0\1\2")
    (folder / "folder.yaml").mkdir()
    (folder / "loop.yaml").symlink_to("loop.yaml")


class Base:
    """``pristine`` files and the ``live`` copy that commands read and write: ``work``, the current
    folder, and ``home``."""

    def __init__(self, root: Path, server: subprocess.Popen[str]) -> None:
        self.root, self._server = root, server
        self.live, self.pristine = root / "live", root / "pristine"
        self._built: set[str] = set()
        self._keep()
        self.require(next(iter(BUILD)))
        for command in WARMING:
            self._demand([WARM, *command.split()])
        self._keep()

    def require(self, *words: str) -> None:
        """Make what base commands make, where one of the ``words`` is in it."""
        for name, command in BUILD.items():
            if name in self._built or not any(word.split("/")[0] == name for word in words):
                continue
            self._built.add(name)
            self._restore()
            for room in CACHES:
                shared = self.live / "work" / next(iter(BUILD)) / room
                if shared.exists():
                    shutil.copytree(shared, self.live / "work" / name / room, dirs_exist_ok=True)
            self._demand(command.split())
            self._keep()

    def files(self, pattern: str) -> list[str]:
        """Names of the pristine files that fit, of which there must be some."""
        self.require(pattern)
        work = self.pristine / "work"
        found = sorted(str(path.relative_to(work)) for path in work.glob(pattern) if path.is_file())
        assert found, f"there is no {pattern}: a base command does not write it any more"
        return found

    def content(self, file: str) -> bytes:
        """What a pristine file holds."""
        return (self.pristine / "work" / file).read_bytes()

    def tried(self, words: Sequence[str], file: str = "", content: bytes = b"") -> Outcome:
        """How a command ends where ``file``, if one is named, has another content."""
        self.require(*words)
        self._restore()
        if file:
            (self.live / "work" / file).write_bytes(content)
        before = contents(self.live)
        outcome, after = self._ended(words), contents(self.live)
        written = tuple(_written(words))  # as it was told
        lost = [
            f"lost or changed {name}"
            for name in before
            if after.get(name) != before[name] and not name.startswith(written)
        ]
        if not any(".." in word for word in (*words, content.decode("latin-1"))):
            places = (*self.root.iterdir(), *self.live.iterdir())
            lost += [f"wrote {path.name} elsewhere" for path in places if path.name not in OURS]
        return replace(outcome, lost=tuple(lost))

    def _keep(self) -> None:
        shutil.rmtree(self.pristine, ignore_errors=True)
        shutil.copytree(self.live, self.pristine, symlinks=True)  # and times of files

    def _restore(self) -> None:
        for path in self.root.iterdir():
            if path == self.pristine:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(self.pristine, self.live, symlinks=True)

    def _ended(self, words: Sequence[str]) -> Outcome:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(list(words)) + "\n")
        self._server.stdin.flush()
        return Outcome(**json.loads(self._server.stdout.readline()))

    def _demand(self, words: Sequence[str]) -> None:
        outcome = self._ended(words)
        assert outcome.status == 0, f"{' '.join(words)} ended with {outcome}"


@contextmanager
def base_in(root: Path) -> Iterator[Base]:
    """The base files in a folder, and a server that runs commands there."""
    for folder in (root / "live" / "work", root / "live" / "home"):
        folder.mkdir(parents=True)
    (root / "live" / "home" / "bystander.txt").write_text("of somebody else")
    write_base_files(root / "live" / "work")
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": REPOSITORY}
    words = [sys.executable, "-m", "tests.fuzzing.server", str(root)]
    with started(words, env=os.environ | ONE_THREAD, **options) as server:
        yield Base(root, server)


def contents(live: Path) -> dict[str, str]:
    """Digest of every file that no command may change: without what runs write, and caches, in
    which damaged files are replaced."""
    found = {}
    for path in sorted((*(live / "work").rglob("*"), *(live / "home").rglob("*"))):
        place = path.relative_to(live / path.relative_to(live).parts[0])
        if place.parts[0].startswith(OUT) or not SET_ASIDE.isdisjoint(place.parts):
            continue
        if path.is_file() and not path.is_symlink():
            found[str(place)] = hashlib.blake2b(path.read_bytes()).hexdigest()
    return found


def _written(words: Sequence[str]) -> Iterator[str]:
    flags = tuple(f"--{name}" for name in WRITTEN)
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if following and (word in flags or word == "--force"):
            yield following
        elif word.startswith((*(f"{flag}=" for flag in flags), "output=")):
            yield word.partition("=")[2]
