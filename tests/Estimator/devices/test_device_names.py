"""Devices by the names that papers, drivers and clouds give them: one rule, and aliases that no two
devices share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.devices.files import device_names, device_of_run, load_device
from Estimator.devices.names import forms_of
from phaze_common.errors import InputError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA A100", "a100_80gb"),
        ("A100", "a100_80gb"),
        ("A100-80GB (Ampere)", "a100_80gb"),
        ("8x A100 80GB", "a100_80gb"),
        ("8xA100-SXM4-40GB", "a100_40gb"),
        ("64 x A100 [SXM4]", "a100_80gb"),
        ("A100 x8", "a100_80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("H100 SXM5", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("Tesla V100-SXM2-32GB", "v100_32gb"),
        ("V100", "v100_16gb"),
        ("Tesla V100-PCIE-16GB", "v100_pcie_16gb"),
        ("Tesla V100-SXM3-32GB", "v100_sxm3_32gb"),
        ("Tesla V100S-PCIE-32GB", "v100s_pcie_32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("L40S-48GB", "l40s"),
        ("RTX4090", "rtx_4090"),
        ("GeForce RTX 3090", "rtx_3090"),
        ("NVIDIA GeForce RTX 4090 GPU", "rtx_4090"),
        ("NVIDIA GH200 480GB", "gh200_96gb"),
        ("NVIDIA GH200 144G HBM3e", "gh200_144gb"),
        ("NVIDIA GB200", "gb200"),
        ("DGX-GB300", "gb300"),
        ("NVIDIA GB300 NVL72", "gb300"),
        ("DGX-B300", "b300"),
        ("HGX B300", "b300"),
        ("NVIDIA H800 SXM5 80GB", "h800"),
        ("A800-80GB", "a800"),
        ("NVIDIA H20", "h20"),
        ("AMD Instinct MI325X OAM", "mi325x"),
        ("MI355X", "mi355x"),
        ("TPU v7x Ironwood (chips)", "tpu_v7x"),
        ("Google TPU7x", "tpu_v7x"),
        ("AMD Instinct MI210", "mi210"),
        ("AMD Instinct MI250X", "mi250x"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("Gaudi2", "gaudi2"),
        ("Habana Gaudi 2", "gaudi2"),
        ("Intel Gaudi 2 accelerators", "gaudi2"),
        ("TPUv4 (275 TF)", "tpu_v4"),
        ("Cloud TPU v4", "tpu_v4"),
        ("TPU v5p", "tpu_v5p"),
        ("Google Cloud TPU v5e", "tpu_v5e"),
        ("Trillium", "tpu_v6e"),
    ],
)
def test_published_words_find_their_device(text: str, name: str) -> None:
    assert device_of_run(text).name == name
    assert load_device(text).name == name


@pytest.mark.parametrize(
    "text",
    [
        "A100 PCIe",
        "H100 NVL",
        "GeForce RTX 4090 Laptop GPU",
        "H800 PCIe",
        "V1000",
        "NVIDIA",
        "8x",
        "A100 or H100",
        "",
    ],
)
def test_what_no_name_is_as_a_whole_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(
        InputError,
        match=r"no device is known as .*; known are a100_40gb, .*v100s_pcie_32gb, or give a YAML "
        r"file",
    ):
        device_of_run(text)


def test_no_words_for_one_device_are_words_for_another() -> None:
    """Aliases are compared as they are looked up, so one may differ from another only where a
    lookup tells them apart."""
    meant: dict[str, set[str]] = {}
    for name in device_names():
        for text in (name, *load_device(name).aliases):
            meant.setdefault(forms_of(text)[0], set()).add(name)
            assert device_of_run(text).name == name
    assert {text: names for text, names in meant.items() if len(names) > 1} == {}


@pytest.mark.parametrize("name", device_names())
def test_the_title_of_a_device_or_an_alias_says_which_it_is(name: str) -> None:
    """What a driver prints is the title without the memory, or an alias; makers in front change
    nothing."""
    for alias in load_device(name).aliases:
        for words in (
            alias.replace("-", " "),
            alias.lower(),
            f"NVIDIA {alias}",
            f"4x {alias}",
            f"{alias} (2024)",
            f"{alias} GPUs",
        ):
            assert device_of_run(words).name == name


@given(st.text())
def test_any_text_has_forms_without_case_and_punctuation(text: str) -> None:
    forms = forms_of(text)
    assert 1 <= len(forms) <= 3
    assert all(form == form.lower() and (form.isalnum() or not form) for form in forms)
