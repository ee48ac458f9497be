"""The settings of a study: what may be searched, and over what."""

from __future__ import annotations

from Common.settings import Kind, Setting, SettingTable

MODEL = Setting(
    "model",
    Kind.TEXT,
    "models to train, each NAME or NAME=WEIGHT; a name is one that 'phaze models' lists, dimensions such as "
    "gpt:layers=24,hidden=2304,heads=24, or the path of a Hugging Face config.json or of a model.py of your own, which is run; "
    "several give the accelerator that is best for their weighted mean",
    aliases=("phaze_model", "phaze_model_names", "models"),
    many=True,
)
MICRO_BATCH_SIZE = Setting(
    "micro_batch_size",
    Kind.INTEGER,
    "micro-batch sizes, samples (default 1)",
    aliases=("phaze_micro_batch_size",),
    many=True,
    most=2**20,
)
MAX_TP = Setting(
    "max_tp",
    Kind.INTEGER,
    "largest tensor parallel width N; searched are N and the powers of two that divide it (default 1)",
    aliases=("phaze_max_tmp_width",),
    most=4096,
)
TP = Setting("tp", Kind.INTEGER, "tensor parallel widths, listed one by one instead of --max-tp", many=True, most=4096)
SEQUENCE_LENGTH = Setting(
    "sequence_length",
    Kind.INTEGER,
    "tokens per sample (default: each model's own)",
    aliases=("phaze_sequence_length",),
    most=2**22,
)
RECOMPUTE = Setting(
    "recompute",
    Kind.CHOICE,
    "activation recomputation modes to search (default: all)",
    many=True,
    choices=("none", "selective", "full"),
)
ATTENTION = Setting(
    "attention",
    Kind.CHOICE,
    "fused and tiled, or separate products with the scores in HBM (default flash)",
    choices=("flash", "eager"),
)
SEQUENCE_PARALLEL = Setting("sequence_parallel", Kind.SWITCH, "split what tensor parallelism leaves whole along the sequence")
GLOBAL_BATCH_SIZE = Setting("global_batch_size", Kind.INTEGER, "samples per iteration, over all pipelines (default 4096)")
OPTIMIZER = Setting("optimizer", Kind.CHOICE, "optimizer (default adam)", choices=("adam", "sgd", "sgd_momentum"))
ZERO_STAGE = Setting(
    "zero_stage", Kind.INTEGER, "ZeRO stage, 0 to 3: what is sharded over data parallel devices (default 0)", least=0, most=3
)
CLUSTER = Setting("cluster", Kind.TEXT, "cluster, by name or YAML file (default phaze_icml24)")
DESIGN_SPACE = Setting("design_space", Kind.TEXT, "accelerators to search, by name or YAML file (default phaze_icml24)")
TECHNOLOGY = Setting(
    "technology", Kind.TEXT, "areas and energies of the accelerators, by name or YAML file (default: those of the design space)"
)
STRICT = Setting(
    "strict", Kind.SWITCH, "refuse a model with operators that have no cost, instead of pricing them as element-wise"
)

SETTINGS = (
    MODEL,
    MICRO_BATCH_SIZE,
    MAX_TP,
    TP,
    SEQUENCE_LENGTH,
    Setting(
        "hbm_size",
        Kind.NUMBER,
        "HBM per device, GiB (default 32)",
        aliases=("phaze_hbm_size",),
        many=True,
        least=2.0**-10,
        most=2.0**20,
    ),
    RECOMPUTE,
    ATTENTION,
    SEQUENCE_PARALLEL,
    GLOBAL_BATCH_SIZE,
    OPTIMIZER,
    ZERO_STAGE,
    CLUSTER,
    DESIGN_SPACE,
    TECHNOLOGY,
    Setting(
        "objective",
        Kind.CHOICE,
        "what to maximise (default throughput)",
        choices=("throughput", "throughput_per_area", "throughput_per_joule"),
    ),
    Setting("solver", Kind.CHOICE, "scheduler of operators (default native)", choices=("native", "gurobi", "highs")),
    Setting("name", Kind.TEXT, "name of the study and of its run folder (default: the models and a hash of the inputs)"),
    Setting(
        "output",
        Kind.TEXT,
        "folder of the run and of everything it makes (default: GraphExtractor/out, Estimator/..., Solver/output)",
    ),
    Setting("csv", Kind.SWITCH, "also write the design points as CSV"),
    STRICT,
    Setting(
        "force_reextract_model", Kind.SWITCH, "extract graphs again even where they are on disk", aliases=("force_reextract",)
    ),
)
HOUSEKEEPING = frozenset({"name", "output", "csv", "strict", "force_reextract_model"})  # keys that change no answer
STUDY = SettingTable(SETTINGS, rivals=(frozenset({TP.key, MAX_TP.key}),))
