"""Parquet tables that somebody wrote: looked at before they are read, since a small file can claim
billions of values."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from phaze_common.echo import clipped
from phaze_common.errors import ArtefactError

if TYPE_CHECKING:
    import pandas as pd

MAX_FILE_BYTES = 256 * 2**20
MAX_ROWS = 20_000_000  # design points of the largest space by far
MAX_VALUES = 100_000_000  # rows x columns, 8 bytes each once they are read
MAX_UNPACKED_BYTES = 2**30
MAX_TEXT_BYTES = 256 * 2**20  # of all texts of a column, written out
LONGEST_NAME = 200


def read_parquet(content: bytes, source: str) -> pd.DataFrame:
    """The table in ``content``.

    Raises: ArtefactError: it is no table, larger than the bounds above, or of other types than
        numbers, switches and texts.
    """
    import pyarrow as pa
    from pyarrow import parquet as pq

    if len(content) > MAX_FILE_BYTES:
        raise ArtefactError(f"{source} has more than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        metadata = pq.read_metadata(io.BytesIO(content))
        _check_metadata(metadata, source)
        schema = metadata.schema.to_arrow_schema()
        categories = [
            field.name
            for field in schema
            if pa.types.is_dictionary(field.type) and _is_text(field.type.value_type)
        ]
        texts = [field.name for field in schema if _is_text(field.type)]
        _check_types(schema, frozenset((*texts, *categories)), source)
        file = pq.ParquetFile(io.BytesIO(content), read_dictionary=texts)
        table = file.read(use_threads=False)
        for name in (*texts, *categories):  # a long text can stand in millions of rows
            if _text_bytes(table.column(name)) > MAX_TEXT_BYTES:
                raise ArtefactError(
                    f"in {source} column {clipped(name)!r} has more than "
                    f"{MAX_TEXT_BYTES // 2**20} MiB of texts"
                )
        found: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise ArtefactError(
            f"{source} is no table: "
            f"{clipped(str(error).splitlines()[0].rstrip('.') if str(error) else 'damaged')}"
        ) from error
    # texts, where they were not written as categories
    return found.assign(**{name: list(found[name]) for name in texts})


def _is_text(kind: object) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_bytes(column: object) -> int:
    """Bytes of a column of texts with every one written out, from its dictionaries."""
    from pyarrow import compute

    total = 0
    for chunk in column.chunks:  # type: ignore[attr-defined]
        lengths = compute.take(compute.binary_length(chunk.dictionary), chunk.indices)
        total += max(compute.sum(lengths).as_py() or 0, chunk.dictionary.nbytes)
    return total


def _check_metadata(metadata: object, source: str) -> None:
    rows, columns = metadata.num_rows, metadata.num_columns  # type: ignore[attr-defined]
    groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]  # type: ignore[attr-defined]
    rows = max(rows, sum(group.num_rows for group in groups))
    chunks = [group.column(column) for group in groups for column in range(columns)]
    values = max(rows * columns, sum(chunk.num_values for chunk in chunks))
    unpacked = max(
        sum(group.total_byte_size for group in groups),
        sum(chunk.total_uncompressed_size for chunk in chunks),
    )
    negative = min((rows, values, unpacked, *(chunk.num_values for chunk in chunks))) < 0
    if negative or rows > MAX_ROWS or values > MAX_VALUES:
        raise ArtefactError(
            f"{source} says that it has {rows:,} rows of {columns:,} columns, at most {MAX_ROWS:,} "
            f"rows and {MAX_VALUES:,} values are read"
        )
    if unpacked > MAX_UNPACKED_BYTES:
        raise ArtefactError(
            f"{source} unpacks to {unpacked:,} bytes, at most {MAX_UNPACKED_BYTES:,} are read"
        )


def _check_types(schema: object, texts: frozenset[str], source: str) -> None:
    import pyarrow as pa

    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    names = schema.names  # type: ignore[attr-defined]
    if len(set(names)) < len(names) or max(map(len, names), default=0) > LONGEST_NAME:
        raise ArtefactError(
            f"{source} has two columns of one name, or one of more than {LONGEST_NAME} characters"
        )
    for field in schema:  # type: ignore[attr-defined]
        if field.name not in texts and not any(is_type(field.type) for is_type in plain):
            kind = clipped(str(field.type), 60)
            raise ArtefactError(
                f"in {source} column {clipped(field.name)!r} is of type {kind}, which no table "
                "here has"
            )
