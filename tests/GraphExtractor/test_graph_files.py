"""Graphs on disk."""

import gzip
import json
import logging
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from GraphExtractor.graph import Attention, GraphKey, KeyExchange, TensorLayout
from GraphExtractor.models.registry import canonical_name, find_model, listed_models
from GraphExtractor.storage import graph_path, load, load_or_extract, store
from phaze_common.errors import ArtefactError, InputError
from phaze_common.logs import configure_logs
from phaze_common.sealed import sealed, unsealed
from phaze_common.user_cache import SETTING

KEY = GraphKey("bertbase", 1, 128, 1)


@pytest.fixture
def stored(tmp_path, extracted, monkeypatch):
    """A folder with one stored graph, and no way to extract another."""
    graph = extracted("bertbase", sequence_length=128)
    monkeypatch.setattr("GraphExtractor.extract.extract_graph", lambda key: graph)
    load_or_extract(KEY, tmp_path)
    return tmp_path


def the_file(folder):
    return graph_path(KEY, folder, find_model("bertbase"))


@pytest.mark.parametrize("model", ["bertbase", "llama2"])
def test_round_trip(model, tmp_path, extracted):
    graph = extracted(model, tp=2)
    store(graph, "key", tmp_path / "graph.json.gz")
    assert load(tmp_path / "graph.json.gz", "key") == graph


def test_names_follow_the_original_and_tell_settings_apart():
    family = find_model("megatrongpt3")
    key = GraphKey("megatrongpt3", 2, 2048, 1)
    name = "megatrongpt3_mbs_2_sl_2048"
    assert graph_path(key, Path("out"), family) == Path(f"out/GPT/{name}_graph.json.gz")
    parallel = replace(key, tp=8, attention=Attention.EAGER, sequence_parallel=True)
    assert graph_path(parallel, Path("out"), family).name == f"{name}_tmp_8_eager_sp_graph.json.gz"
    assert (
        graph_path(replace(parallel, cp=4), Path("out"), family).name
        == f"{name}_tmp_8_cp_4_eager_sp_graph.json.gz"
    )
    ring, square = (
        replace(key, cp=4, exchange=KeyExchange.RING),
        replace(key, tp=8, tp2=4, layout=TensorLayout.TWO_D),
    )
    assert graph_path(ring, Path("out"), family).name == f"{name}_cp_4_ring_graph.json.gz"
    assert graph_path(square, Path("out"), family).name == f"{name}_tmp_8_2d_4_graph.json.gz"
    assert {find_model(model).folder for model in listed_models()} >= {
        "Bert",
        "GPT",
        "OPT",
        "Llama",
        "Bloom",
        "MPT",
    }


def test_a_stored_graph_is_read_not_traced(stored, extracted, monkeypatch):
    def refuse(key):
        raise AssertionError("extracted again")

    monkeypatch.setattr("GraphExtractor.extract.extract_graph", refuse)
    assert load_or_extract(KEY, stored) == extracted("bertbase", sequence_length=128)
    with pytest.raises(AssertionError, match="extracted again"):
        load_or_extract(KEY, stored, force=True)


def test_a_graph_that_another_run_of_the_user_made_is_read_not_traced(
    tmp_path, extracted, monkeypatch
):
    monkeypatch.setenv(SETTING, str(tmp_path / "cache"))
    graph = extracted("bertbase", sequence_length=128)
    monkeypatch.setattr("GraphExtractor.extract.extract_graph", lambda key: graph)
    load_or_extract(KEY, tmp_path / "first")
    monkeypatch.setattr("GraphExtractor.extract.extract_graph", None)
    assert load_or_extract(KEY, tmp_path / "second") == graph
    assert the_file(tmp_path / "second").exists()
    (kept,) = (each for each in (tmp_path / "cache").rglob("*") if each.is_file())
    kept.write_bytes(b"damaged")
    with pytest.raises(TypeError):  # is traced
        load_or_extract(KEY, tmp_path / "third")


def test_a_graph_of_one_s_own_code_is_kept_for_its_run_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, str(tmp_path / "cache"))
    model = Path(__file__).parents[1] / "builders" / "own_layers.py"
    load_or_extract(GraphKey(str(model), 1, 16, 1), tmp_path / "first")
    assert not (tmp_path / "cache").exists()


def test_two_that_trace_one_model_at_once_leave_one_whole_file(tmp_path, extracted, monkeypatch):
    graph, together = extracted("bertbase", sequence_length=128), Barrier(2)

    def traced(key):
        together.wait()
        return graph

    monkeypatch.setattr("GraphExtractor.extract.extract_graph", traced)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: load_or_extract(KEY, tmp_path), range(2))) == [graph, graph]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [the_file(tmp_path)]
    monkeypatch.setattr("GraphExtractor.extract.extract_graph", None)
    assert load_or_extract(KEY, tmp_path) == graph


def test_reading_imports_neither_torch_nor_transformers(stored):
    program = (
        "import sys; from pathlib import Path; from GraphExtractor.graph import GraphKey\n"
        "from GraphExtractor.storage import load_or_extract\n"
        f"load_or_extract(GraphKey('bertbase', 1, 128, 1), Path({str(stored)!r}))\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize(
    "damage", ["truncated", "not gzip", "not json", "missing field", "other schema", "cyclic"]
)
def test_a_file_that_cannot_be_used_is_named_set_aside_and_rebuilt(
    damage, stored, extracted, caplog
):
    path = the_file(stored)
    document = json.loads(unsealed(gzip.decompress(path.read_bytes()), ""))
    if damage == "missing field":
        del document["graph"]["layers"][1]["saved"]["none"]
    elif damage == "other schema":
        document["graph"]["schema_version"] = 99
    elif damage == "cyclic":
        document["graph"]["layers"][1]["forward"]["edges"] += [[0, 8], [8, 0]]
    contents = {
        "truncated": path.read_bytes()[:-100],
        "not gzip": b"{}",
        "not json": gzip.compress(b"{"),
    }
    path.write_bytes(contents.get(damage, gzip.compress(sealed(json.dumps(document).encode()))))
    with caplog.at_level(logging.WARNING):
        assert load_or_extract(KEY, stored) == extracted("bertbase", sequence_length=128)
    assert str(path) in caplog.text and "set aside" in caplog.text
    assert path.with_name(path.name + ".damaged").exists()
    caplog.clear()
    load_or_extract(KEY, stored)
    assert caplog.text == ""


def test_a_graph_that_other_code_made_is_made_again_without_a_warning(stored, extracted, caplog):
    path = the_file(stored)
    document = json.loads(unsealed(gzip.decompress(path.read_bytes()), ""))
    document["made_from"] = "something else"
    path.write_bytes(gzip.compress(sealed(json.dumps(document).encode())))
    with caplog.at_level(logging.INFO, logger="phaze_common"):
        assert load_or_extract(KEY, stored) == extracted("bertbase", sequence_length=128)
    assert [
        each.levelname for each in caplog.records if "made by other code" in each.getMessage()
    ] == ["INFO"]
    assert not path.with_name(path.name + ".damaged").exists()


@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.9999])
def test_a_flipped_byte_is_told_in_one_sentence_and_the_graph_traced_again(
    place, stored, extracted, capsys
):
    """Wherever it is: in what was packed, or in the lengths and checks behind it."""
    path = the_file(stored)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0x10
    path.write_bytes(content)
    configure_logs(quiet=True)
    assert load_or_extract(KEY, stored) == extracted("bertbase", sequence_length=128)
    (said,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        rf"warning: {re.escape(str(path))} .*; set aside as {path.name}\.damaged and built again",
        said,
    )
    assert "Error" not in said and "Traceback" not in said
    load_or_extract(KEY, stored)
    assert capsys.readouterr().err == ""


def test_a_graph_that_was_edited_is_traced_again(stored, extracted, caplog):
    """Every size within it may be changed so that it is a graph still: only its digest tells."""
    path = the_file(stored)
    text = gzip.decompress(path.read_bytes())
    edited = re.sub(rb'"k":(\d+)', lambda found: b'"k":%d' % (2 * int(found[1])), text)
    assert edited != text
    path.write_bytes(gzip.compress(edited))
    with caplog.at_level(logging.WARNING):
        assert load_or_extract(KEY, stored) == extracted("bertbase", sequence_length=128)
    assert caplog.text.count(str(path)) == 1 and "digest" in caplog.text
    assert path.with_name(path.name + ".damaged").exists()


def test_graphs_are_their_owner_s_alone(stored):
    assert stat.S_IMODE(the_file(stored).parent.stat().st_mode) == 0o700


def test_loading_says_what_is_wrong(stored):
    path = the_file(stored)
    document = json.loads(unsealed(gzip.decompress(path.read_bytes()), ""))
    document["graph"]["layers"][1]["parameter_count"] = "many"
    path.write_bytes(gzip.compress(sealed(json.dumps(document).encode())))
    with pytest.raises(ArtefactError, match=r"layers\.1\.parameter_count.*'many'"):
        load(path)


@pytest.mark.parametrize(
    ("name", "hint"), [("bertlage", "bertlarge"), ("gpt-3", "gpt3-"), ("LLAMA2", "llama2")]
)
def test_unknown_models_are_refused_with_close_matches(name, hint, tmp_path):
    with pytest.raises(
        InputError, match=f"unknown model '{name}'; did you mean.*{hint}.*phaze models.* lists them"
    ):
        load_or_extract(GraphKey(name, 1, 128, 1), tmp_path)


def test_aliases_share_the_files_of_the_model_they_name():
    assert canonical_name("gpt2-xl") == "gpt2" and canonical_name("llama2-7b") == "llama2"
    assert canonical_name("opt-1.3b") == "opt-1.3b"
