"""The settings of an evaluation: a model, a training plan, and the devices that run it."""

from __future__ import annotations

from dataclasses import replace

from Common.settings import Kind, Setting, SettingTable
from Studies.settings import (
    ATTENTION,
    CLUSTER,
    GLOBAL_BATCH_SIZE,
    MICRO_BATCH_SIZE,
    OPTIMIZER,
    RECOMPUTE,
    SEQUENCE_LENGTH,
    SEQUENCE_PARALLEL,
    STRICT,
    TP,
    ZERO_STAGE,
)

DEVICE = Setting("device", Kind.TEXT, "device, by name or YAML file")
DEVICE_CLUSTER = replace(CLUSTER, help="cluster, by name or YAML file (default: where the device usually is)")
SOFTWARE = Setting("software", Kind.TEXT, "training framework, by name or YAML file (default: what the device usually runs)")
PRECISION = Setting(
    "precision",
    Kind.CHOICE,
    "format of matrix products (default bf16, fp16 on devices without it)",
    choices=("fp16", "bf16", "fp8"),
)
MODEL = Setting(
    "model",
    Kind.TEXT,
    "model to train: a name, dimensions, or the path of a config.json, or of a model.py, which is run",
    aliases=("phaze_model",),
)
FSDP = Setting("fsdp", Kind.SWITCH, "fully sharded: the same as --zero-stage 3")
OUTPUT = Setting("output", Kind.TEXT, "folder under which training graphs are kept (default: GraphExtractor/out)")

EVALUATION = SettingTable(
    (
        MODEL,
        DEVICE,
        DEVICE_CLUSTER,
        SOFTWARE,
        Setting("devices", Kind.INTEGER, "devices in use; tp, pp and cp leave the rest of them to dp", most=2**20),
        replace(TP, help="tensor parallel width (default 1)", many=False),
        Setting("pp", Kind.INTEGER, "pipeline stages (default 1)", most=2**16),
        Setting("dp", Kind.INTEGER, "data parallel degree (default 1, or what --devices leaves)", most=2**20),
        Setting("cp", Kind.INTEGER, "context parallel degree (default 1)", most=4096),
        Setting("ep", Kind.INTEGER, "expert parallel degree (default 1)", most=4096),
        replace(MICRO_BATCH_SIZE, help="samples per micro-batch (default 1)", many=False),
        replace(GLOBAL_BATCH_SIZE, help="samples per iteration (default: one micro-batch per replica)", most=2**20),
        replace(SEQUENCE_LENGTH, help="tokens per sample (default: the model's own)", aliases=("phaze_sequence_length", "seq")),
        Setting("interleave", Kind.INTEGER, "model chunks per pipeline stage (default 1)", most=1024),
        Setting(
            "schedule",
            Kind.CHOICE,
            "order of the passes (default 1f1b, interleaved with several chunks per stage)",
            choices=("1f1b", "gpipe", "interleaved"),
        ),
        Setting(
            "stage_layers",
            Kind.INTEGER,
            "layers of each stage, or of each chunk in model order, embedding and head counted (default: balanced blocks)",
            many=True,
            repeats=True,
            most=2**16,
        ),
        replace(RECOMPUTE, help="activation recomputation (default none)", many=False),
        SEQUENCE_PARALLEL,
        ZERO_STAGE,
        FSDP,
        OPTIMIZER,
        PRECISION,
        ATTENTION,
        Setting(
            "group_order",
            Kind.CHOICE,
            "how the parallel groups nest over the devices, innermost first (default tensor-data-pipeline)",
            choices=("tensor-data-pipeline", "tensor-pipeline-data"),
        ),
        Setting(
            "overlap_gradients",
            Kind.SWITCH,
            "whether gradient communication runs beside computation (default: as the framework does)",
        ),
        Setting(
            "overlap_tensor",
            Kind.SWITCH,
            "whether tensor-parallel communication runs beside computation (default: as the framework does)",
        ),
        STRICT,
        OUTPUT,
    ),
    rivals=(frozenset({ZERO_STAGE.key, FSDP.key}),),
)
