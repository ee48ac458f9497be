"""Files of measured runs: both headers, empty cells, and errors that name line and column."""

from dataclasses import replace

import pytest

from phaze.validation.published_runs import SINGLE_NODE_COLUMNS
from phaze.validation.published_runs import read_rows as read_runs
from phaze.validation.typed_run import StatedDegrees
from phaze_common.errors import InputError

HEADER = "model,layers,hidden,gpu,n_gpus,global_batch,micro_batch,measured_iter_time_s,mfu_pct,params_B,seq"


def written(tmp_path, *lines, header=HEADER, encoding="utf-8"):
    path = tmp_path / "runs.csv"
    path.write_bytes("\n".join([header, *lines]).encode(encoding))
    return path


def test_an_empty_cell_is_not_said(tmp_path):
    (run,) = read_runs(written(tmp_path, "GPT,24,1024,A100,8,64,,1.5,,,"))
    assert (run.layers, run.hidden, run.devices, run.global_batch, run.iteration_s) == (
        24,
        1024,
        8,
        64.0,
        1.5,
    )
    assert run.micro_batch_size is run.mfu is run.parameters is run.degrees.tp is run.heads is None
    assert run.zero == run.network == run.recompute == ""
    assert run.source == "runs.csv"


@pytest.mark.parametrize("cell", ["0", "nan", "N/A", "unknown", "?", "-"])
def test_zero_and_words_for_nothing_are_not_said(tmp_path, cell):
    (run,) = read_runs(written(tmp_path, f"GPT,24,1024,A100,8,64,{cell},1.5,,,"))
    assert run.micro_batch_size is None
    assert not run.unclear


@pytest.mark.parametrize("cell", ["auto", "1-2", "2.5"])
def test_words_where_a_count_belongs_are_listed(tmp_path, cell):
    (run,) = read_runs(written(tmp_path, f"GPT,24,1024,A100,8,64,{cell},1.5,,,"))
    assert run.micro_batch_size is None
    assert run.unclear == ("micro_batch",)


def test_scales_and_units_are_understood(tmp_path):
    first, second = read_runs(
        written(
            tmp_path,
            "GPT,24,1024,A100,8,4M tokens,2,60.1 s,43.5,175,8k",
            'GPT,24,1024,A100,"1,024",1.5k,2,1.5,0.435,350M,2048',
        )
    )
    assert (first.global_batch, first.global_batch_in_tokens) == (4e6, True)
    assert (first.iteration_s, first.mfu, first.parameters, first.sequence_length) == (
        60.1,
        0.435,
        175e9,
        8192,
    )
    assert (second.devices, second.global_batch, second.global_batch_in_tokens) == (
        1024,
        1500.0,
        False,
    )
    assert (second.mfu, second.parameters, second.sequence_length) == (0.435, 350e6, 2048)


def test_lines_are_numbered_as_in_the_file(tmp_path):
    runs = read_runs(
        written(
            tmp_path,
            "GPT,24,1024,A100,8,64,2,1.5,,,",
            "",
            '"GPT\nof two lines",24,1024,A100,8,64,2,1.5,,,',
            "GPT,24,1024,A100,8,64,2,1.5,,,",
        )
    )
    assert [run.line for run in runs] == [2, 4, 6]


def test_a_single_node_file_brings_its_facts(tmp_path):
    path = written(
        tmp_path,
        "4,16,4,2048,16,24,1024,1,2,2,410.49",
        header=",".join(SINGLE_NODE_COLUMNS),
        encoding="utf-8-sig",
    )
    (run,) = read_runs(path)
    assert (
        run.devices,
        run.global_batch,
        run.micro_batch_size,
        run.hidden,
        run.heads,
        run.layers,
    ) == (4, 16.0, 4, 2048, 16, 24)
    assert run.sequence_length == 1024 and run.degrees == StatedDegrees(tp=1, dp=2, pp=2)
    assert run.iteration_s == pytest.approx(0.41049)
    assert (run.recompute, run.zero, run.precision, run.vocabulary) == ("full", "0", "fp16", 51200)
    assert run.model == "hidden 2048, 24 layers"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("GPT,24,1024,A100,8,64,-2,1.5,,,", "line 2, column micro_batch is '-2'"),
        ("GPT,24,1024,A100,8,64,2,-1.5,,,", "line 2, column measured_iter_time_s is '-1.5'"),
        ("GPT,24,1024,A100,inf,64,2,1.5,,,", "line 2, column n_gpus is 'inf'"),
        (
            "GPT, with a comma,24,1024,A100,8,64,2,1.5,,,",
            "line 2 has 12 cells for 11 columns",
        ),
        ('"GPT,24,1024,A100,8,64,2,1.5,,,', "line 2 is not CSV"),
    ],
)
def test_a_bad_line_is_named_with_its_column(tmp_path, line, words):
    with pytest.raises(InputError, match=r"line|column") as caught:
        read_runs(written(tmp_path, line))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "is empty"),
        ("a,b", "line 1 lacks columns gpu, n_gpus, "),
        (
            "gpu,n_gpus,layers,hidden,global_batch",
            "line 1 lacks column measured_iter_time_s or achieved_tflops_per_gpu or mfu_pct",
        ),
        (HEADER + ",hidden", "line 1 names column hidden twice"),
        (HEADER, "no runs"),
    ],
)
def test_a_bad_header_is_refused(tmp_path, header, words):
    with pytest.raises(InputError) as caught:
        read_runs(written(tmp_path, header=header))
    assert words in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent\.csv"):
        read_runs(tmp_path / "absent.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"cannot read .*binary\.csv"):
        read_runs(binary)


def test_columns_may_be_called_as_the_flags_are(tmp_path):
    own = "model,device,devices,sequence-length,--micro-batch-size,Global_Batch_Size,sequence_parallel,zero_stage"
    own += ",iteration_s,cluster"
    line = "llama2,a100_80gb,8,4096,2,64,yes,1,1.5,dgx_a100"
    (run,) = read_runs(written(tmp_path, line, header=own))
    published = (
        "model,gpu,n_gpus,seq,micro_batch,global_batch,seq_parallel,zero,measured_iter_time_s"
    )
    (same,) = read_runs(written(tmp_path, line.rpartition(",")[0], header=published))
    assert run == replace(same, cluster="dgx_a100")
    with pytest.raises(InputError, match=r"names column gpu \(also called device\) twice"):
        read_runs(written(tmp_path, header="model,gpu,device,n_gpus,global_batch,iteration_s"))


def test_layers_and_width_are_needed_only_where_no_model_is_named(tmp_path):
    with pytest.raises(InputError, match="line 1 lacks columns layers and hidden; the columns are"):
        read_runs(
            written(
                tmp_path, "A100,8,64,1.5", header="gpu,n_gpus,global_batch,measured_iter_time_s"
            )
        )


def test_a_table_names_no_other_file(tmp_path):
    with pytest.raises(InputError, match=r"line 2, column cluster is '\.\./x\.yaml'; give a name,"):
        read_runs(
            written(
                tmp_path,
                "m,A100,8,64,1.5,../x.yaml",
                header="model,gpu,n_gpus,global_batch,iteration_s,cluster",
            )
        )
