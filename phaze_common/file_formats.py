"""Versions of the files that a later phaze may read: what each kind is at, what is made of older
ones, and what is refused.

A file states its version under ``schema_version``; one that states none is of version 1, as what
was written before there were versions. The version of a kind rises where a file of before would be
read wrongly or not at all: the change then comes with an entry in ``migrations``, or the older file
is refused in a sentence that says what to do. Caches are not here: what other code made is made
again (``phaze_common.files.code_version``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from phaze_common.echo import as_given, clipped
from phaze_common.errors import InputError
from phaze_common.json_text import parse_json

KEY = "schema_version"
FIRST = 1
Migration = Callable[[dict[str, Any]], dict[str, Any]]


class FormatError(InputError):
    """A file of a version that is not read."""


@dataclass(frozen=True)
class FileFormat:
    """A kind of file: ``what`` one is called, ``files`` of it, and a ``remedy``.

    ``migrations[n]`` makes of a document of version n, without its version, one of version n + 1.
    """

    what: str
    files: str
    remedy: str
    version: int = FIRST
    migrations: Mapping[int, Migration] = field(default_factory=dict)

    @property
    def oldest(self) -> int:
        """The oldest version that is read: from there on there is a migration to each next one."""
        oldest = self.version
        while oldest - 1 in self.migrations:
            oldest -= 1
        return oldest

    def current(self, document: Any, source: str) -> Any:
        """A ``document`` as this version has it, without the version it states.

        Raises: FormatError: its version is none, newer, or older than there are migrations for;
            names ``source`` and what to do.
        """
        if not isinstance(document, Mapping):
            return document
        stated = document.get(KEY, FIRST)
        if isinstance(stated, bool) or not isinstance(stated, int):
            given = f"{clipped(as_given(stated), 60)}, but must be a whole number"
            raise FormatError(f"{source}: {KEY} is {given}; correct it, or {self.remedy}")
        if stated > self.version:
            known = f"this phaze reads {self._read}"
            raise FormatError(
                f"{source} is {self.what} of version {stated}, {known}; use a newer phaze, or "
                f"{self.remedy}"
            )
        if stated < self.oldest:
            raise FormatError(
                f"{source} is {self.what} of version {stated}, this phaze reads {self._read}; "
                f"{self.remedy}"
            )
        plain = {key: value for key, value in document.items() if key != KEY}
        for version in range(stated, self.version):
            plain = self.migrations[version](plain)
        return plain

    def current_json(self, text: bytes, source: str) -> bytes:
        """As ``current``, of JSON text and as such; what is no JSON stays for others to refuse.

        Raises:
            FormatError: as ``current``.
        """
        try:
            document = parse_json(text, source)
        except InputError:
            return text
        return json.dumps(self.current(document, source)).encode()

    def stamped(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A document as it is written: its version first."""
        return {KEY: self.version, **document}

    def stamped_json(self, text: bytes, indent: int | None = None) -> bytes:
        """As ``stamped``, of JSON text and as such."""
        return json.dumps(self.stamped(json.loads(text)), indent=indent).encode()

    @property
    def _read(self) -> str:
        if self.oldest == self.version:
            return f"version {self.version}"
        return f"versions {self.oldest} to {self.version}"


def _with_front(manifest: dict[str, Any]) -> dict[str, Any]:
    """Manifests of version 1 may not say what the front is of, which then was always the same."""
    return {"front": ["throughput", "area", "energy"], **manifest}


def _everywhere(change: Migration, document: Any) -> Any:
    """A document with ``change`` of each mapping in it, the inner ones first."""
    if isinstance(document, list):
        return [_everywhere(change, each) for each in document]
    if not isinstance(document, dict):
        return document
    return change({key: _everywhere(change, value) for key, value in document.items()})


def _one_convention(found: dict[str, Any]) -> dict[str, Any]:
    """Before version 2 ``model_flops_utilization`` counted all scores, and another key those that a
    causal mask leaves."""
    if "model_flops_utilization" in found:
        left = found.pop("causal_model_flops_utilization", None)
        found["all_scores_flops_utilization"] = found["model_flops_utilization"]
        if left is not None:
            found["model_flops_utilization"] = left
    return found


def _with_degrees(found: dict[str, Any]) -> dict[str, Any]:
    """Before version 3 a stage stated its degrees and layout beside its layers."""
    if isinstance(found.get("stages"), list) and "interleave" in found and "schedule" in found:
        found["gpipe"] = found.pop("schedule") == "gpipe"
        found["stages"] = [_stage(each) for each in found["stages"]]
    return found


def _stage(stage: Any) -> Any:
    if not isinstance(stage, dict) or not isinstance(stage.get("layout"), dict):
        return stage
    own = {key: value for key, value in stage.items() if key not in {"layers", "layout"}}
    recomputed = own.pop("recomputed_layers", None)
    layout = {("layout" if key == "kind" else key): value for key, value in stage["layout"].items()}
    layers = stage.get("layers")
    return {"layers": layers, "degrees": layout | own, "recomputed_layers": recomputed}


def _stated_once(found: dict[str, Any]) -> dict[str, Any]:
    """Before version 4 a plan stood beside a copy of some of its degrees, in their words."""
    best = found.get("best")
    if isinstance(best, dict) and "tokens_per_s" in best and "time_per_batch_bound_s" in found:
        best |= {key: found[key] for key in ("hbm_bytes", "time_per_batch_bound_s")}
    if not found.get("recompute", "none"):  # where there was no plan
        found = {key: found[key] for key in found if key not in {"recompute", "tp", "pp", "dp"}}
    if found.get("layout") in ("", "sequence"):
        found["layout"] = "1d"
    plan = found.get("plan")
    if not isinstance(plan, dict) or not isinstance(plan.get("stages"), list):
        return found
    if not all(
        isinstance(each, dict) and {"degrees", "layers"} <= each.keys() for each in plan["stages"]
    ):
        return found
    return _with_plan({key: value for key, value in found.items() if key != "plan"}, plan)


def _with_plan(report: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    chunks = plan["stages"]
    shared = {key: value for key, value in plan.items() if key != "stages"}
    first = chunks[0]["degrees"] if chunks else {}
    sizes = [len(each["layers"]) for each in chunks]
    stages = report.get("stages")
    for stage, chunk in zip(stages if isinstance(stages, list) else [], chunks, strict=False):
        if chunk["degrees"] != first or chunk.get("recomputed_layers") is not None:
            stage |= {key: chunk.get(key) for key in ("degrees", "recomputed_layers")}
    found = report | shared | first | {"stage_layers": sizes}
    if "pp" not in found:  # of plans whose stages differ
        found["pp"] = len(chunks)
        found["tokens_per_s"] = report.get("throughput_samples_per_s", 0.0) * plan.get(
            "sequence_length", 0
        )
    return found


def _hardware(what: str, files: str) -> FileFormat:
    return FileFormat(what, files, "write it as docs/reference/yaml.md has it")


_UTILIZATION = partial(_everywhere, _one_convention)
_DEGREES = partial(_everywhere, _with_degrees)
_STATED_ONCE = partial(_everywhere, _stated_once)
_OF_A_RUN = "run its study again"
STUDY = FileFormat(
    "a file of settings",
    "`study.yaml`, `sweep.yaml`, any file of `--config`, `--setting`, `phaze sweep` and `--plan`",
    "write its settings as docs/reference/yaml.md has them",
)
MANIFEST = FileFormat("a manifest", "`manifest.json`", _OF_A_RUN, 2, {1: _with_front})
BEST = FileFormat(
    "the answer of a search",
    "`best.json`",
    _OF_A_RUN,
    4,
    {1: _UTILIZATION, 2: _DEGREES, 3: _STATED_ONCE},
)
PLAN = FileFormat(
    "a plan by value",
    "a plan of `phaze train --plan`",
    "give the best.json of a search",
    2,
    {1: _DEGREES},
)
SCHEDULES = FileFormat("a file of schedules", "`schedules.json.gz`", _OF_A_RUN)
POINT = FileFormat(
    "a finished point",
    "`points/KEY/point.json` of a sweep",
    "run the sweep again",
    3,
    {1: _UTILIZATION, 2: _STATED_ONCE},
)
ROBUST = FileFormat("an answer of phaze robust", "`robust.json`", "ask phaze robust again")
TRAINING_TIME = FileFormat(
    "an answer of phaze training-time", "`training_time.json`", "ask phaze training-time again", 2
)
TRAINING = FileFormat("a record of a training", "`train.json`, `measured.json`", "train again")
CHECKPOINT = FileFormat("a checkpoint", "`checkpoint.json`", "train again from the start")
GRAPH = FileFormat("a training graph", "`*_graph.json.gz`", "extract it again", 11)
MACHINE = FileFormat("a profiled machine", "`machine.yaml`", "profile the machine again")
RESIDUALS = FileFormat(
    "a file of residuals", "`phaze/validation/residuals.yaml`", "write it with scripts/residuals.py"
)
DEVICE = _hardware("a device", "a device, calibrated ones too")
CLUSTER = _hardware("a cluster", "a cluster, calibrated ones too")
SOFTWARE = _hardware("a training framework", "a training framework, calibrated ones too")
ATTENTION = _hardware(
    "a kernel of attention", "a kernel of fused attention, which a framework names"
)
CONTENTION = _hardware(
    "a file of contention", "what activities at once cost each other, which a framework names"
)
DESIGN_SPACE = _hardware("a design space", "a design space")
CHIP = _hardware("a chip", "a chip of `--chip`")
TECHNOLOGY = _hardware("a technology", "a technology")
PLATFORM = _hardware("a platform", "a platform, which a design space names")
VECTOR_FUNCTIONS = _hardware(
    "a file of vector functions", "costs of vector functions, which a design space names"
)
MEMORY = _hardware("a kind of memory", "memory as it is sold, which a design space names")
PRICES = _hardware("a file of prices", "prices")
