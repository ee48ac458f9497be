"""The list of transformers' models is kept between processes, and is the one that it makes."""

import sys
from importlib import import_module
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import pytest

from GraphExtractor import models_listing
from GraphExtractor.models_listing import keep_listing, listed
from GraphExtractor.torch_internals import LISTED_BY, LISTING_MODULE
from phaze_common.sealed import sealed

MAKER = Path(models_listing.__file__)
NAMES = {"bert": {frozenset({"torch"}): {"modeling_bert": {"BertModel"}}, frozenset(): {}}}


class Maker:
    """Makes a list, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _path: Any) -> dict[Any, Any]:
        self.calls += 1
        return NAMES


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models, and a cache of its own."""
    monkeypatch.setenv("PHAZE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "models"
    (folder / "bert").mkdir(parents=True)
    (folder / "bert" / "modeling_bert.py").write_text("class BertModel: ...")
    (folder / "__init__.py").touch()
    return folder


def test_a_list_is_made_once(models: Path) -> None:
    made = Maker()
    assert listed(models, made, MAKER) == listed(models / "__init__.py", made, MAKER) == NAMES
    assert made.calls == 1


def test_a_file_that_is_edited_or_added_makes_it_anew(models: Path) -> None:
    made = Maker()
    listed(models, made, MAKER)
    (models / "bert" / "modeling_bert.py").write_text("class BertModel: ...\nclass Other: ...")
    listed(models, made, MAKER)
    (models / "bert" / "modeling_other.py").touch()
    listed(models, made, MAKER)
    (models / "bert" / "modeling_lost.py").symlink_to("nowhere.py")
    listed(models, made, MAKER)
    listed(models, made, models / "__init__.py")  # another version of what makes it
    assert made.calls == 5


def test_a_damaged_list_is_made_anew(models: Path, tmp_path: Path) -> None:
    made = Maker()
    listed(models, made, MAKER)
    (kept,) = (tmp_path / "cache" / "listings").iterdir()
    for damaged in (
        kept.read_bytes()[:-9],
        *map(sealed, (b"[]", b"7", b"[[1,2,3]]", b'[["a",1]]')),
    ):
        made.calls = 0
        kept.write_bytes(damaged)
        assert listed(models, made, MAKER) == NAMES
        assert made.calls == 1


def test_without_a_cache_and_in_other_folders_it_is_made_as_ever(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Maker()
    listed(models / "bert", made, MAKER)
    listed(models / "bert", made, MAKER)
    monkeypatch.setenv("PHAZE_CACHE", "")
    listed(models, made, MAKER)
    listed(models, made, MAKER)
    assert made.calls == 4


def test_transformers_lists_its_models_as_it_does_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PHAZE_CACHE", str(tmp_path))
    theirs = import_module(LISTING_MODULE)
    utilities = Path(str(theirs.__file__)).parent
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "transformers")
    keep_listing()
    keep_listing()  # once is enough
    finder, second = sys.meta_path[:2]
    assert finder != second
    spec = finder.find_spec(LISTING_MODULE, [str(utilities)])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = utilities.parent / models_listing.MODELS
    own = getattr(theirs, LISTED_BY)(folder)
    for _ in range(2):  # made, then read
        assert getattr(module, LISTED_BY)(folder) == own
    assert len(list((tmp_path / "listings").iterdir())) == 1
