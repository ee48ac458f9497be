"""Which settings apply to which question: what is about chips to design, and what about devices
that exist.

The table is the annotations of ``Request``: ``About.hardware`` says of each setting which hardware
it is about, ``About.modes`` which modes take it. It is looked up before a file is read or a model
is traced.
"""

from collections.abc import Collection, Iterator, Mapping

from phaze.settings.request import request_fields
from phaze_common.echo import clipped
from phaze_common.errors import InputError
from phaze_common.setting_fields import Hardware, Mode
from phaze_common.settings import REFUSED, shown


def inapplicable(
    specified: Mapping[str, object], origins: Mapping[str, str]
) -> Iterator[InputError]:
    """Refusals of settings that do not apply to the hardware that is given, one for each of
    ``origins`` (file, command line).

    ``specified`` are the settings that were given, ``origins`` where.
    """
    given = "device" in specified
    about = Hardware.CHIPS if given else Hardware.DEVICES
    wrong = [
        field.key
        for field in request_fields()
        if field.key in specified and field.about.hardware is about
    ]
    wrong = [key for key in wrong if key != "device"]
    for origin in dict.fromkeys(origins[key] for key in wrong):
        flags = {key: shown(key, origin) for key in wrong if origins[key] == origin}
        them = "it" if len(flags) == 1 else "them"
        if given:
            names = _joined([_valued(flag, specified[key]) for key, flag in flags.items()])
            device = shown("device", origins["device"])
            named = _valued("the device", specified["device"])
            yield InputError(
                f"{origin}: {names} {'is' if len(flags) == 1 else 'are'} about chips to design, "
                f"but {named} is given; leave {them} or {device} out"
            )
        else:
            names, verb = _joined([*flags.values()]), "belongs" if len(flags) == 1 else "belong"
            yield InputError(
                f"{origin}: {names} {verb} to devices that exist; add --device, or leave {them} out"
            )


def unasked(
    specified: Collection[str], mode: Mode, file: str | None = None
) -> Iterator[InputError]:
    """Refusals of a request without a model, or of a plan without hardware.

    ``file`` is the one of the settings, where there is one.
    """
    if "model" not in specified:
        given = (
            "no model was given" if file is None else f"{file} names no model, and none was given"
        )
        yield InputError(
            f"{given}; name one with --model, for instance --model bertlarge; 'phaze list models' "
            "shows them"
        )
    if mode is Mode.EVALUATE and not {"device", "chip"} & set(specified):
        from Estimator.devices.files import device_names

        yield InputError(
            f"no device was given; name one with --device: {', '.join(device_names())}; or a "
            "designed chip with --chip"
        )


def _valued(name: str, value: object) -> str:
    """A setting with its value, where that was not refused."""
    if value is REFUSED:
        return name
    values = value if isinstance(value, list | tuple) else (value,)
    return " ".join((name, *map(_plain, values)))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return clipped(str(int(value) if isinstance(value, float) and value.is_integer() else value))


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
