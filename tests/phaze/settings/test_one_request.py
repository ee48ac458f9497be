"""The request: every setting once, resolved alike from everywhere, read back as itself, refused
with a sentence."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from Estimator.plans.state_formats import FORMAT_KEYS
from phaze.settings.request import SECTIONS, request_fields, settings_for
from phaze.settings.resolve import resolve
from phaze_common.choices import GroupOrder, Optimizer, Precision, Recompute
from phaze_common.errors import InputError
from phaze_common.setting_fields import Hardware, Mode

DEVICE: dict[str, object] = {
    "model": "gpt:layers=4,hidden=256,heads=4,vocabulary=1000,sequence_length=128",
    "device": "a100_80gb",
    "devices": 8,
}
BERT: dict[str, object] = {"model": "bertlarge"}
MIXTRAL: dict[str, object] = {"model": "mixtral-8x7b", "device": "h100", "devices": 32}
KINDS: dict[str, tuple[dict[str, object], Mode]] = {
    "chips": (BERT, Mode.SEARCH),
    "devices": (DEVICE, Mode.SEARCH),
    "one plan": (BERT | {"device": "h100"}, Mode.EVALUATE),
}


@pytest.mark.parametrize(("asked", "mode"), KINDS.values(), ids=KINDS)
def test_every_field_is_a_setting_of_some_mode_and_reads_back(
    asked: dict[str, object], mode: Mode
) -> None:
    request = resolve({}, asked, mode)
    mapping = request.as_mapping()
    assert set(mapping) <= set(settings_for(mode).keys)
    assert all(value is not None for value in mapping.values())
    assert resolve(mapping, {}, mode) == request
    assert resolve({}, mapping, mode) == request
    assert resolve(yaml.safe_load(request.to_yaml()), {}, mode) == request
    assert (
        "name" not in mapping
        and resolve({}, asked | {"name": "mine"}).as_mapping()["name"] == "mine"
    )


def test_what_applies_is_recorded() -> None:
    """Only what may be absent is not: names, a chip, what several models need, stages, host memory,
    formats, parts, own sizes."""
    for asked, mode in KINDS.values():
        request = resolve({}, asked, mode)
        kind = Hardware.DEVICES if "device" in asked else Hardware.CHIPS
        applies = {
            each.key
            for each in request_fields()
            if mode in each.about.modes and each.about.hardware in {None, kind}
        }
        own_sizes = {"fast_domain", "memory_size", "memory_bandwidth", "peak_flops"}
        own_sizes |= {"constants", "frequency", "hbm_bandwidth", "setting", "memory", "links"}
        own_sizes |= {"attention_kernel"}
        own_sizes |= {
            "max_area",
            "max_power",
            "max_chip_cost",
            "max_cluster_cost",
            "prices",
            "front",
            "space_part",
        }
        absent = {"name", "chip", "combine", "output", "stage_layers", "offload", *FORMAT_KEYS}
        assert applies - set(request.as_mapping()) <= absent | own_sizes


@pytest.mark.parametrize("mode", Mode)
def test_every_name_of_a_setting_is_its_own(mode: Mode) -> None:
    names = [
        name for setting in settings_for(mode).settings for name in (setting.key, *setting.aliases)
    ]
    assert len(names) == len(set(names))
    fields_of_sections = [each.name for record in SECTIONS.values() for each in fields(record)]
    assert sorted(field.name for field in request_fields()) == sorted(fields_of_sections)


def test_accelerators_are_searched_over_what_they_always_were() -> None:
    request = resolve({}, BERT)
    assert (request.plan.micro_batch_size, request.plan.tp, request.plan.recompute) == (
        (1,),
        (1,),
        tuple(Recompute),
    )
    assert (request.plan.sequence_parallel, request.plan.zero_stage, request.plan.interleave) == (
        (False,),
        (0,),
        (1,),
    )
    assert (request.plan.cp, request.plan.ep, request.plan.pp, request.plan.dp) == (
        (1,),
        (1,),
        None,
        None,
    )
    assert (
        request.plan.overlap_gradients,
        request.plan.overlap_tensor,
        request.search.use_all_devices,
    ) == (
        (False,),
        (False,),
        False,
    )
    assert (
        request.hardware.technology,
        request.hardware.devices,
        request.workload.sequence_length,
    ) == (
        "phaze_22nm",
        1024,
        (512,),
    )
    assert resolve({}, BERT | {"cluster": "dgx_a100"}).plan.group_order == (
        GroupOrder.DATA_INNER,
        GroupOrder.PIPELINE_INNER,
    )
    assert resolve(
        {}, BERT | {"cluster": "dgx_a100", "group_order": "all"}
    ).plan.group_order == tuple(GroupOrder)


def test_devices_are_searched_over_all_that_fits() -> None:
    request = resolve({}, DEVICE | {"global_batch_size": 24})
    assert request.plan.micro_batch_size == (1, 2, 4, 8)  # 16 does not divide 24
    assert request.plan.tp == (1, 2, 4) and request.records.cluster.num_devices == 8
    assert (request.plan.sequence_parallel, request.plan.zero_stage, request.plan.recompute) == (
        (False, True),
        (0, 1, 2, 3),
        tuple(Recompute),
    )
    assert (
        request.plan.interleave,
        request.plan.pp,
        request.plan.dp,
        request.search.use_all_devices,
    ) == (
        None,
        None,
        None,
        True,
    )
    assert request.plan.group_order == (GroupOrder.DATA_INNER,)  # eight devices are one node
    assert (request.hardware.software, request.plan.precision) == ("megatron_2022", Precision.BF16)
    assert resolve({}, DEVICE | {"device": "v100_32gb"}).plan.precision is Precision.FP16
    assert resolve({}, MIXTRAL).plan.ep == (1, 2, 4, 8)
    assert resolve({}, MIXTRAL | {"devices": 20}).plan.ep == (1, 2, 4)


def test_the_word_all_stands_for_every_possible_value() -> None:
    asked = dict.fromkeys(
        ("tp", "pp", "dp", "ep", "interleave", "zero_stage", "recompute", "sequence_parallel"),
        "all",
    )
    request = resolve({}, BERT | asked)
    assert (request.plan.pp, request.plan.dp, request.plan.interleave, request.plan.zero_stage) == (
        None,
        None,
        None,
        (0, 1, 2, 3),
    )
    assert (request.plan.sequence_parallel, request.plan.ep) == ((False, True), (1,))
    assert request.plan.tp == (1, 2, 4, 8, 16)
    assert resolve({}, DEVICE | {"overlap_tensor": ["all"]}).plan.overlap_tensor == (False, True)
    assert resolve({}, MIXTRAL | {"device": None, "ep": "all"}).plan.ep == (1, 2, 4, 8)


def test_lengths_are_those_of_the_models_or_as_given() -> None:
    pair = {"model": ["bertlarge", "gpt2"]}
    assert resolve({}, pair).workload.sequence_length == (512, 1024)
    assert resolve({}, pair | {"sequence_length": 128}).workload.sequence_length == (128, 128)
    assert resolve({}, pair | {"sequence_length": [128, 256]}).sequence_length_of("gpt2") == 256
    with pytest.raises(InputError, match="lists 3 lengths for 2 models"):
        resolve({}, pair | {"sequence_length": [1, 2, 3]})


def test_a_known_chip_or_a_file_of_one(tmp_path: Path) -> None:
    chip = resolve({}, BERT | {"chip": "tpuv4_like"}).records.chip
    assert chip is not None and (chip.num_tc, chip.num_vc, chip.glb_bytes) == (8, 2, 128 * 2**20)
    own = tmp_path / "mine.yaml"
    own.write_text("{num_tc: 8, num_vc: 2, width: 128, depth: 128, width_vc: 128, glb_mib: 128}")
    assert resolve({}, BERT | {"chip": str(own)}).records.chip == chip
    with pytest.raises(InputError, match="no known chip 'imaginary'; it has tpu_v4"):
        resolve({}, BERT | {"chip": "imaginary"})
    own.write_text("{num_tc: 0, num_vc: 2, width: 128, depth: 128, width_vc: 128, glb_mib: 128}")
    with pytest.raises(InputError, match="num_tc is 0"):
        resolve({}, BERT | {"chip": str(own)})


def test_the_same_question_has_the_same_name_however_it_is_put(tmp_path: Path) -> None:
    first = resolve({}, BERT)
    assert (
        resolve({}, {"phaze_model": ["bertlarge"], "max_tp": "1", "hbm_size": "32"}).output.name
        == first.output.name
    )
    assert (
        resolve(
            {"model": {"bertlarge": 1}, "technology": "phaze_22nm", "cluster": "phaze_icml24"}, {}
        ).output.name
        == first.output.name
    )
    assert (
        resolve(
            {}, BERT | {"output": str(tmp_path), "csv": True, "force_reextract_model": True}
        ).output.name
        == first.output.name
    )
    assert resolve({}, BERT | {"zero_stage": 1}).output.name != first.output.name
    from Estimator.hardware_files import HARDWARE

    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text((HARDWARE / "clusters" / "dgx_a100.yaml").read_text())
    one, two = (
        resolve({}, BERT | {"cluster": str(tmp_path / name)}).output.name
        for name in ("one.yaml", "two.yaml")
    )
    assert one == two != first.output.name
    (tmp_path / "two.yaml").write_text((HARDWARE / "clusters" / "dgx_h100.yaml").read_text())
    assert resolve({}, BERT | {"cluster": str(tmp_path / "two.yaml")}).output.name != one


BAD = {
    "name that is a path, on devices": (DEVICE | {"name": "../x"}, "cannot name a folder"),
    "output that is a file, on devices": (DEVICE | {"output": __file__}, "is a file"),
    "HBM of a device": (
        DEVICE | {"hbm_size": 32},
        "(hbm_size|--hbm-size) 32 is about chips to design",
    ),
    "objective of devices": (
        DEVICE | {"objective": "throughput"},
        "objective throughput is about chips to design",
    ),
    "a chip and a device": (
        DEVICE | {"chip": "tpuv4_like"},
        "chip tpuv4_like is about chips to design",
    ),
    "framework of no device": (
        BERT | {"software": "megatron_core"},
        "software belongs to devices that exist",
    ),
    "two models on devices": (
        DEVICE | {"model": "gpt2 bertlarge"},
        "places one model, given gpt2, bertlarge",
    ),
    "more devices than there are": (
        BERT | {"devices": 10**5},
        "has 1024 devices, 100000 were asked for",
    ),
    "format that a device lacks": (DEVICE | {"precision": "fp8"}, "no matrix units for float8"),
    "width that divides no heads": (DEVICE | {"tp": 3}, "use one of 1, 2, 4"),
    "context that does not divide": (
        DEVICE | {"cp": 3},
        "context parallel degree 3 does not divide the 128 tokens",
    ),
    "experts of none": (DEVICE | {"ep": 2}, "has no experts; use ep 1"),
    "experts that do not divide": (
        MIXTRAL | {"ep": 3},
        "does not divide the 8 experts; possible with the rest as it is: ep 1, 2, 4, 8",
    ),
    "degrees that leave devices idle": (
        DEVICE | {"pp": 3},
        "possible with the rest as it is: pp 1, 2, 4$",
    ),
    "all degrees, too few": (DEVICE | {"tp": 2, "pp": 2, "dp": 4}, "tp 1, or pp 1, or dp 2"),
    "degrees beyond the devices": (
        BERT | {"pp": 8, "dp": 256},
        "pp 8 x dp 256 needs 2048 devices, phaze_icml24 has 1024; ",
    ),
    "and what would do": (BERT | {"pp": 8, "dp": 256}, "pp of at most 4, or dp of at most 128"),
    "experts over too few replicas": (
        MIXTRAL | {"ep": 8, "pp": 4, "tp": 4},
        "dp 2 x cp 1 = 2 devices .* give a divisor of 2: 1, 2",
    ),
    "experts beyond any plan": (
        MIXTRAL | {"ep": 8, "tp": 8},
        "divides dp x cp of no plan on 32 devices; .* ep 1, 2, 4",
    ),
    "replicas beyond the batch": (
        DEVICE | {"dp": 8, "global_batch_size": 4},
        "need a global batch of at least 8",
    ),
    "interleaving of one stage": (
        DEVICE | {"pp": 1, "interleave": 2},
        "interleave 2 needs pp of at least 2; give a larger --pp",
    ),
    "interleaving of no blocks": (
        DEVICE | {"pp": 2, "interleave": 3},
        "must divide the 4 blocks .* possible are 1, 2$",
    ),
    "interleaving of an odd batch": (
        DEVICE
        | {
            "pp": 2,
            "dp": 4,
            "tp": 1,
            "interleave": 2,
            "micro_batch_size": 1,
            "global_batch_size": 12,
        },
        "interleave 2 needs micro-batches in multiples of pp; give a --global-batch-size",
    ),
    "more stages than layers": (
        BERT | {"pp": 27},
        "pp must be at most the 26 layers of the model$",
    ),
    "micro-batch beyond the batch": (
        DEVICE | {"micro_batch_size": 64, "global_batch_size": 32},
        "exceeds the global batch",
    ),
}


@pytest.mark.parametrize(("asked", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_refused_with_what_could(asked: dict[str, object], said: str) -> None:
    for config, command_line in ((asked, {}), ({}, asked)):
        with pytest.raises(InputError, match=said):
            resolve(config, command_line)


KEYS = sorted({key for mode in Mode for key in settings_for(mode).keys})
plausible = st.sampled_from(
    [
        1,
        2,
        3,
        4,
        8,
        64,
        4096,
        "all",
        "true",
        "false",
        "none",
        "full",
        "h100",
        "a100_80gb",
        "dgx_a100",
        "phaze_icml24",
        "tpuv4_like",
    ]
    + [each.value for each in (*Optimizer, *Precision, *GroupOrder)]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | plausible,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.sampled_from([BERT, DEVICE, MIXTRAL, {}]),
    st.dictionaries(
        st.sampled_from(KEYS) | st.text(),
        plausible | st.lists(plausible, max_size=3) | anything,
        max_size=5,
    ),
    st.sampled_from(Mode),
)
def test_any_mapping_gives_a_request_or_an_input_error(
    base: dict[str, object], asked: dict[str, object], mode: Mode
) -> None:
    try:
        request = resolve(base | asked, {}, mode)
    except InputError as error:
        assert "\n" not in str(error).strip()
    else:
        assert resolve(yaml.safe_load(request.to_yaml()), {}, mode) == request
        assert resolve(request.as_mapping(), {}, mode).output.name == request.output.name


@pytest.mark.parametrize("mode", Mode)
def test_memory_with_a_unit_is_the_same_request_as_in_gib(mode: Mode) -> None:
    chip = {"chip": "tpu_v4"} if mode is Mode.EVALUATE else {}
    for text, plain in (("64 GiB", 64), ("65536 MiB", 64), ("80 GB", 80e9 / 2**30)):
        same = resolve({}, BERT | chip | {"hbm_size": plain}, mode)
        assert (
            resolve({}, BERT | chip | {"hbm_size": text}, mode)
            == resolve(BERT | chip | {"hbm_size": text}, {}, mode)
            == same
        )
    assert same.hardware.hbm_sizes_bytes == (80 * 10**9,)
    assert yaml.safe_load(same.to_yaml())["hbm_size"] == [80e9 / 2**30]


def test_widths_that_sequence_parallelism_cannot_have_are_not_searched_by_default() -> None:
    asked = {
        "model": "vit-era5",
        "device": "b200",
        "fast_domain": 64,
        "devices": 512,
        "sequence_parallel": True,
    }
    assert resolve({}, asked).plan.tp == (
        1,
        2,
        4,
        8,
        16,
        32,
    )  # of 64,800 tokens, 64 heads and 64 devices in a domain
    assert 64 in resolve({}, asked | {"sequence_length": 65536}).plan.tp
    assert 64 in resolve({}, asked | {"sequence_parallel": None}).plan.tp
    with pytest.raises(InputError, match="sequence parallelism over 64 devices does not divide"):
        resolve({}, asked | {"tp": [64]})


def test_a_setting_changes_in_its_own_section_and_an_unknown_one_is_a_defect() -> None:
    request = resolve({}, BERT)
    changed = request.with_settings(tp=(2,), csv=True)
    assert (changed.plan.tp, changed.output.csv) == ((2,), True)
    assert changed.with_settings(tp=request.plan.tp, csv=False) == request
    with pytest.raises(KeyError):
        request.with_settings(width=3)


def test_assignments_to_tiers_are_written_as_they_are_read() -> None:
    asked = {"model": "megatron-1.7b", "device": "h100", "tp": 2, "dp": 4, "offload": "optimizer"}
    request = resolve(asked, {"group_order": "tp2.dp4"}, Mode.EVALUATE)
    written = yaml.safe_load(request.to_yaml())
    assert written["group_order"] == ["tp2.dp4"] and written["offload"] == ["optimizer"]
    assert resolve(written, {}, Mode.EVALUATE) == request
