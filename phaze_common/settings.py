"""Tables of settings: of each its key in YAML files, its flags, what it may be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from phaze_common.errors import InputError
from phaze_common.refusals import Refusals
from phaze_common.setting_values import ALL as ALL
from phaze_common.setting_values import COMMAND_LINE as COMMAND_LINE
from phaze_common.setting_values import Form as Form
from phaze_common.setting_values import Kind as Kind
from phaze_common.setting_values import Setting as Setting
from phaze_common.setting_values import read_value
from phaze_common.setting_values import shown as shown
from phaze_common.suggestions import nearest

MOST_NAMED = 20  # unknown keys in a refusal
REFUSED = object()  # in place of a value that is not allowed


@dataclass(frozen=True)
class SettingTable:
    """All settings of a kind of file and its flags; one of ``rivals`` may be given."""

    settings: tuple[Setting, ...]
    rivals: tuple[frozenset[str], ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the settings, in order."""
        return tuple(setting.key for setting in self.settings)

    def canonical(self, raw_values: Mapping[str, object], source: str) -> dict[str, object]:
        """``raw_values`` under the keys of the table, values unread.

        Raises: InputError: all of: unknown keys, settings given twice under two names, rivals;
            names ``source``.
        """
        refusals = Refusals()
        found = self._sorted(raw_values, source, refusals)
        refusals.raise_any()
        return found

    def _sorted(
        self, raw_values: Mapping[str, object], source: str, refusals: Refusals
    ) -> dict[str, object]:
        """As ``canonical``, without what is refused."""
        by_name = {
            name: setting for setting in self.settings for name in (setting.key, *setting.aliases)
        }
        found: dict[str, object] = {}
        named: dict[str, str] = {}
        strange: list[str] = []
        for name, value in raw_values.items():
            setting = by_name.get(str(name).replace("-", "_"))
            if setting is None:
                hint = nearest(str(name).replace("-", "_"), by_name, "")
                if hint:
                    refusals.add(InputError(f"{source}: unknown key {str(name)!r:.200}; {hint}"))
                else:
                    strange.append(f"{str(name)!r:.200}")
            elif setting.key in found:
                twice = f"{named[setting.key]!r} and {name!r} are the same setting"
                refusals.add(InputError(f"{source}: {twice}; give one of them"))
            else:
                found[setting.key], named[setting.key] = value, str(name)
        if strange:  # what is known is listed once for all of them
            what = "unknown key" if len(strange) == 1 else "unknown keys"
            keys = ", ".join(self.keys)
            refusals.add(InputError(f"{source}: {what} {_some(strange)}; the keys are {keys}"))
        for rivals in self.rivals:
            if rivals <= found.keys():
                names = " and ".join(shown(key, source) for key in sorted(rivals))
                refusals.add(InputError(f"{source}: {names} exclude each other; give one of them"))
        return found

    def override(self, below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
        """``below`` with ``above`` over it; a setting removes its rivals."""
        beaten = {rival for rivals in self.rivals for rival in rivals if rivals & above.keys()}
        return {key: value for key, value in below.items() if key not in beaten} | dict(above)

    def read(self, raw_values: Mapping[str, object], source: str) -> dict[str, Any]:
        """Values of ``raw_values`` by key, in their types; None (the default) stays.

        Raises: InputError: all of: as ``canonical``, values that are not what their settings take;
            says what is allowed.
        """
        refusals = Refusals()
        values = self.read_all(raw_values, source, refusals)
        refusals.raise_any()
        return values

    def read_all(
        self, raw_values: Mapping[str, object], source: str, refusals: Refusals
    ) -> dict[str, Any]:
        """As ``read``, with ``REFUSED`` for what is refused; see ``refusals``."""
        settings = {setting.key: setting for setting in self.settings}
        raw = self._sorted(raw_values, source, refusals)

        def value_of(key: str) -> Any:
            return None if raw[key] is None else read_value(settings[key], raw[key], source)

        return {key: refusals.attempt(partial(value_of, key), REFUSED) for key in raw}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
