"""Models that stand for all listed ones where extracting every size would take long: each family
and each way it is built."""

from GraphExtractor.models.registry import canonical_name

SAMPLED = (
    "bertbase",
    "bertlarge",
    "megatronbert",
    "gpt2",
    "megatrongpt3",
    "opt",
    "opt-1.3b",
    "llama2",
    "llama3-8b",
    "bloom-560m",
    "mpt-1b",
    "qwen3-0.6b",
)

# One small model of every family that dimensions can name, of widths that no sequence length in the
# tests equals.
SMALL = {
    "gpt": "gpt:layers={},hidden=160,heads=4,vocabulary=512,sequence_length=192",
    "llama": "llama:layers={},hidden=160,heads=4,kv_heads=2,vocabulary=512,sequence_length=192",
    "opt": "opt:layers={},hidden=160,heads=4,vocabulary=512,sequence_length=192",
    "bloom": "bloom:layers={},hidden=160,heads=4,ffn=320,vocabulary=512,sequence_length=192",
    "mpt": "mpt:layers={},hidden=160,heads=4,ffn=320,vocabulary=512,sequence_length=192",
    "bert": "bert:layers={},hidden=160,heads=4,vocabulary=512,sequence_length=192",
    "megatronbert": "megatronbert:layers={},hidden=160,heads=4,vocabulary=512,sequence_length=192",
    "qwen3": "qwen3:layers={},hidden=160,heads=4,kv_heads=2,head_width=64,vocabulary=512,sequence_length=192",
    "mixtral": "mixtral:layers={},hidden=160,heads=4,kv_heads=2,ffn=320,experts=4,vocabulary=512,sequence_length=192",
    "qwen3moe": "qwen3moe:layers={},hidden=160,heads=4,kv_heads=2,head_width=64,ffn=96,experts=8,chosen=2,"
    "vocabulary=512,sequence_length=192",
}
SMALL_LENGTH = 192
SMALL_OPT, SMALL_BLOOM, SMALL_MPT = (
    canonical_name(SMALL[family].format(2)) for family in ("opt", "bloom", "mpt")
)
