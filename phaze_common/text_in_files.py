"""Records that files hold as one text, as people write them."""

from __future__ import annotations

from typing import Any, Self

from phaze_common.errors import InputError


class TextInFiles:
    """A record whose ``str`` is what files hold and ``parsed`` reads; files of earlier versions
    hold its fields."""

    @classmethod
    def parsed(cls, text: str) -> Self:
        """The record that is written so.

        Raises:
            InputError: it is written otherwise.
        """
        raise NotImplementedError

    @classmethod
    def each_alone(cls) -> tuple[Self, ...]:
        """Of records that name several things those of one, beside what else the setting takes."""
        return ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """How pydantic reads and writes it."""
        from pydantic_core import core_schema

        def read(stated: Any) -> TextInFiles:
            try:
                return cls.parsed(_text(cls, stated))
            except (InputError, TypeError, ValueError) as error:
                raise ValueError(f"a text that can be read ({error})") from error

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.to_string_ser_schema()
        )


def _text(cls: type[Any], stated: Any) -> str:
    """What is ``stated`` as text, be it the fields of a record."""
    if isinstance(stated, dict):
        values = {
            key: tuple(each) if isinstance(each, list) else each for key, each in stated.items()
        }
        return str(cls(**values))
    if isinstance(stated, str | cls):
        return str(stated)
    raise TypeError(f"{stated!r} is none")
