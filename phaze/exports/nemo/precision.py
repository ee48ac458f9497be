"""The formats of a configuration of NeMo or Megatron Bridge: a recipe of mixed precision by its
name, and keys that change what it says.

Recipes are those of Megatron Bridge 0.3 and later (bridge/training/mixed_precision.py), with what
NeMo 2 and scripts of Bridge call them.
"""

from __future__ import annotations

from dataclasses import dataclass

from phaze.exports.given_keys import GivenKeys, is_off, refused
from phaze.exports.megatron_lm.formats import PRECISION_OF
from phaze_common.choices import Precision
from phaze_common.errors import InputError

PATHS = ("mixed_precision", "trainer.precision", "precision", "mixed_precision.precision")
WEIGHTS = "mixed_precision.fp8_param_gather"
BF16_ENDS = ("mixed_precision.first_last_layers_bf16", "model.first_last_layers_bf16")
FP8, FP4 = ("mixed_precision.fp8", "model.fp8"), ("mixed_precision.fp4", "model.fp4")
FP8_KINDS = ("hybrid", "e4m3", "true")
OF_FP8 = ("mixed_precision.fp8_recipe", "model.fp8_recipe")
CUSTOM = "custom"  # a recipe that somebody wrote


@dataclass(frozen=True)
class Recipe:
    """A recipe of mixed precision: its products, whether weights are held in fp8, and blocks that
    it leaves in bf16."""

    precision: Precision
    fp8_weights: bool = False
    in_bf16: int = 0


_DELAYED, _CURRENT = Recipe(Precision.FP8, True), Recipe(Precision.FP8_CURRENT, True, in_bf16=2)
_BLOCKS, _MXFP8 = Recipe(Precision.FP8_BLOCK), Recipe(Precision.MXFP8, True)
_OF_BRIDGE = {
    "fp8": _DELAYED,
    "fp8_delayed_scaling": _DELAYED,
    "fp8_current_scaling": _CURRENT,
    "fp8_subchannel_scaling": _BLOCKS,
    "mxfp8": _MXFP8,
    "nvfp4": Recipe(Precision.NVFP4),
}
RECIPES = {
    **dict.fromkeys(("bf16", "bf16_mixed", "bf16_true", "bfloat16"), Recipe(Precision.BF16)),
    **dict.fromkeys(("fp16", "fp16_mixed", "16", "16_mixed", "16_true"), Recipe(Precision.FP16)),
    **dict.fromkeys(("32", "32_true", "float32", "fp32"), Recipe(Precision.FP32)),
    "fp8": _DELAYED,
    "fp8_cs": _CURRENT,
    "fp8_sc": _BLOCKS,
    "fp8_mx": _MXFP8,
    "mxfp8": _MXFP8,
    "nvfp4": Recipe(Precision.NVFP4),
    **{f"bf16_with_{name}_mixed": each for name, each in _OF_BRIDGE.items()},
    **{f"fp16_with_{name}_mixed": each for name, each in _OF_BRIDGE.items()},
    "nemotron_h_bf16_with_fp8_current_scaling_mixed": Recipe(Precision.FP8_CURRENT, True, 4),
    "nanov2_bf16_with_fp8_current_scaling_mixed": Recipe(Precision.FP8_BLOCK, True, 4),
    "nemotron_3_super_bf16_with_nvfp4_mixed": Recipe(Precision.NVFP4, in_bf16=15),
}  # fmt: skip


def is_recipe(name: str) -> bool:
    """Whether there is a recipe of this name."""
    return name.replace("-", "_") in RECIPES


def precision_of(given: GivenKeys) -> dict[str, object]:
    """The precision as settings of ``evaluate``; nothing where no key says it.

    Raises:
        InputError: a recipe or a format is none that there is, or there is one of fp8 and of fp4.
    """
    recipe = _recipe(given)
    fp8, fp4 = (_format(given, paths) for paths in (FP8, FP4))
    if fp8 and fp4:
        raise InputError(
            f"the configuration asks for fp8 ({fp8}) and for fp4 ({fp4}), of which Megatron takes "
            "one; leave one out"
        )
    precision = None if recipe is None else recipe.precision
    by_recipe = precision is not None and precision.reads_fp8
    if fp4:
        precision = Precision.NVFP4
    elif by_recipe and not fp8 and any(path in given.content for path in FP8):
        precision = Precision.BF16  # turned off
    elif fp8 or by_recipe:
        precision = _in_fp8(given, precision if by_recipe else None)
    elif precision is None:
        kinds = (Precision.BF16, Precision.FP16, Precision.FP32)
        said = (each for each in kinds if given.flag(f"mixed_precision.{each}", f"model.{each}"))
        precision = next(said, None)
    if precision is None or not precision.reads_fp8:
        unused = (path for path in OF_FP8 if not is_off(given.value(path)))
        given.usual.update(dict.fromkeys(unused, "has no effect without fp8"))
    if precision is None:
        return {}
    ends = recipe.in_bf16 if recipe is not None and recipe.precision is precision else 0
    stated = [path for path in BF16_ENDS if path in given.content]
    if stated:
        ends = 2 * given.flag(*stated)
    if ends and precision.is_reduced:
        given.usual[stated[0] if stated else _path(given)] = (
            f"priced with all blocks in {precision}, of which some stay in bf16"
        )
    weights = recipe is not None and recipe.fp8_weights
    if WEIGHTS in given.content:
        weights = given.flag(WEIGHTS)
    held = weights and precision.reads_fp8
    return {"precision": precision.value, **({"fp8_weights": True} if held else {})}


def _path(given: GivenKeys) -> str:
    return next((path for path in PATHS if given.value(path) not in (None, {})), PATHS[0])


def _recipe(given: GivenKeys) -> Recipe | None:
    path = _path(given)
    value = given.value(path)
    if value in (None, {}):
        return None
    name = str(value).replace("-", "_")
    if name not in RECIPES:
        listed = ", ".join(each for each in RECIPES if each.endswith("_mixed"))
        raise refused(path, value, f"a recipe of mixed precision: {listed}; or 32")
    return RECIPES[name]


def _format(given: GivenKeys, paths: tuple[str, ...]) -> str:
    """The format that the first of ``paths`` says; empty where it is off."""
    value = given.first(*paths)
    if is_off(value):
        return ""
    kinds = FP8_KINDS if paths == FP8 else ("e2m1", "true")
    if str(value).lower() not in kinds:
        raise refused(paths[0], value, " or ".join(kinds))
    return str(value)


def _in_fp8(given: GivenKeys, usual: Precision | None) -> Precision:
    """The recipe of fp8 that the file names, else the ``usual`` one."""
    path = next((path for path in OF_FP8 if given.value(path) is not None), "")
    if not path:
        return usual or Precision.FP8
    recipe = given.value(path)
    if recipe == CUSTOM:
        given.untold[path] = "its recipe is written by hand"
        return Precision.FP8
    if recipe not in PRECISION_OF:
        raise refused(path, recipe, f"{', '.join(PRECISION_OF)}, or leave it out")
    return PRECISION_OF[str(recipe)]
