"""Which settings apply to which question: what is about chips to design, and what about devices that exist.

The table is the annotations of ``Request``: ``About.hardware`` says of each setting which hardware it is about, ``About.modes``
which modes take it. It is looked up before a file is read or a model is traced.
"""

from collections.abc import Collection, Iterator, Mapping

from Common.errors import InputError
from Common.settings import shown
from Studies.annotations import Hardware, Mode
from Studies.request import request_fields


def inapplicable(stated: Collection[str], origins: Mapping[str, str]) -> Iterator[InputError]:
    """Refusals of settings that do not apply to the hardware that is given, one for each of ``origins`` (file, command line).

    ``stated`` are the keys of the settings that were given, ``origins`` where.
    """
    given = "device" in stated
    about = Hardware.CHIPS if given else Hardware.DEVICES
    wrong = [field.key for field in request_fields() if field.key in stated and field.about.hardware is about]
    wrong = [key for key in wrong if key != "device"]
    for origin in dict.fromkeys(origins[key] for key in wrong):
        flags = [shown(key, origin) for key in wrong if origins[key] == origin]
        names, them = _joined(flags), "it" if len(flags) == 1 else "them"
        if given:
            device = shown("device", origins["device"])
            yield InputError(
                f"{origin}: {names} {'is' if len(flags) == 1 else 'are'} about chips to design, but the device is given; "
                f"leave {them} or {device} out"
            )
        else:
            verb = "belongs" if len(flags) == 1 else "belong"
            yield InputError(f"{origin}: {names} {verb} to devices that exist; add --device, or leave {them} out")


def unasked(stated: Collection[str], mode: Mode, file: str | None = None) -> Iterator[InputError]:
    """Refusals of a question without its model, or of a plan without the hardware that it is to be priced on.

    ``file`` is the one of the settings, where there is one.
    """
    if "model" not in stated:
        given = "no model was given" if file is None else f"{file} names no model, and none was given"
        yield InputError(f"{given}; name one with --model, for instance --model bertlarge; 'phaze list models' shows them")
    if mode is Mode.EVALUATE and not {"device", "chip"} & set(stated):
        from Estimator.devices.files import device_names

        yield InputError(
            f"no device was given; name one with --device: {', '.join(device_names())}; or a designed chip with --chip"
        )


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
