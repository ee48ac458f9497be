"""What somebody may have meant: a slip leads back to the name, another name to nothing."""

import pytest

from Estimator.devices.files import device_names
from Estimator.hardware_files import hardware_names
from GraphExtractor.models.registry import listed_aliases, listed_models
from phaze.cli.arguments import mode_parsers
from phaze.settings.request import settings_for
from phaze_common.choices import LayoutName
from phaze_common.setting_fields import Mode
from phaze_common.suggestions import MOST, nearest, slips_between, suggested

MODELS = (*listed_models(), *listed_aliases())
FLAGS = mode_parsers()["run_solver"].flags
KEYS = settings_for(Mode.SEARCH).keys
VOCABULARIES = {
    "models": MODELS,
    "flags": FLAGS,
    "keys": KEYS,
    "devices": device_names(),
    "clusters": hardware_names("clusters"),
    "software": hardware_names("software"),
}
SHORT = 3  # letters, of which every slip is another name: opt, --tp, --pp


def slips(name: str) -> set[str]:
    """One of every kind at every place: a letter left out, doubled, another one, two exchanged."""
    made = set()
    for place in range(len(name)):
        before, letter, after = name[:place], name[place], name[place + 1 :]
        if letter.isalnum():
            made |= {
                before + after,
                before + letter + letter + after,
                before + ("x" if letter.isalpha() else "0") + after,
            }
        if after and letter.isalnum() and after[0].isalnum():
            made.add(before + after[0] + letter + after[1:])
    return made - {name}


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", VOCABULARIES)
def test_a_name_with_one_slip_gets_itself(kind: str) -> None:
    known = VOCABULARIES[kind]
    lost = {}
    for name in known:
        plain = [letter for letter in name if letter.isalnum()]
        for typed in slips(name) if len(plain) > SHORT else ():
            found = suggested(typed, known)
            same = any("".join(filter(str.isalnum, each)) == "".join(plain) for each in found)
            # where the slip makes another name, begins several, or is as near to others, those are
            # as good an answer
            if typed not in known and not same and not _as_good(typed, found):
                lost[typed] = found
    assert not lost


def _as_good(typed: str, found: tuple[str, ...]) -> bool:
    plain = "".join(letter for letter in typed if letter.isalnum() or letter == ".")
    others = [
        "".join(letter for letter in each if letter.isalnum() or letter == ".") for each in found
    ]
    begins = bool(others) and all(
        each.startswith(plain) or slips_between(plain, each) <= 1 for each in others
    )
    return begins and (
        len(found) == MOST or any(each == plain or each.startswith(plain) for each in others)
    )


STRANGERS = (
    "mamba whisper clip swin gemma gemma2-9b phi3 falcon neox starcoder2 olmoe roberta "
    "roberta-large deit-base deberta electra distilbert mobilenet convnext dinov2 yi-34b stablelm "
    "rwkv jamba command-r dbrx pythia-12b flan-t5 x a z9"
)


@pytest.mark.parametrize("name", STRANGERS.split())
def test_models_that_are_not_listed_get_no_other_family(name: str) -> None:
    assert suggested(name, MODELS) == ()


@pytest.mark.parametrize(
    ("typed", "known", "found"),
    [
        ("vit-large", MODELS, ("vit-l-16",)),
        ("bert-large", MODELS, ("bertlarge",)),
        ("Llama-2-7b", MODELS, ("llama2-7b",)),
        ("GPT2-XL", MODELS, ("gpt2-xl",)),
        ("opt13b", MODELS, ("opt-13b",)),
        ("--pp", ["--tp", "--dp", "--cp", "--ep"], ()),
        ("--qp", FLAGS, ()),
        ("--gpus", FLAGS, ()),
        (
            "--batch-size",
            FLAGS,
            ("--micro-batch-size", "--phaze_micro_batch_size", "--global-batch-size"),
        ),
        ("--zero", FLAGS, ("--zero-stage",)),
        ("h1000", device_names(), ("h100",)),
        ("A100", device_names(), ("a100_40gb", "a100_80gb")),
        ("technologie", KEYS, ("technology",)),
        ("", MODELS, ()),
        ("--", FLAGS, ()),
        ("é" * 50, MODELS, ()),
    ],
)
def test_what_was_meant(typed: str, known: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert suggested(typed, known) == found


def test_a_refusal_ends_with_the_names_or_with_what_else_helps() -> None:
    assert (
        nearest("A100", device_names(), "see the list")
        == "did you mean 'a100_40gb' or 'a100_80gb'?"
    )
    assert nearest("abacus", device_names(), "see the list") == "see the list"


def test_values_of_an_enumeration_are_called_as_they_are_given() -> None:
    assert nearest("1D", LayoutName, "see the list") == "did you mean '1d'?"
