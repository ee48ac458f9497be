"""Commands of Megatron-LM whose words are not all known, cut, misspelt or said twice: nothing of
them is lost without a word."""

from __future__ import annotations

import re

import pytest

from phaze.exports.megatron_lm.known_arguments import known_arguments, values_of
from phaze.exports.megatron_lm.reader import read
from phaze.exports.near_names import near_name
from phaze.settings.launched import KeyKind
from phaze_common.errors import InputError

SIZES = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64 "
    "--vocab-size 128"
)
SMALL = (
    f"torchrun --nproc-per-node 4 pretrain_gpt.py {SIZES} --seq-length 64 --micro-batch-size "
    "1 --global-batch-size 8"
)
LIKE_LLAMA = (
    "--swiglu --use-rotary-position-embeddings --disable-bias-linear "
    "--untie-embeddings-and-output-weights"
)


def unknown(text: str) -> list[str]:
    return [key.name for key in read(text).of_kind(KeyKind.UNKNOWN)]


def told(text: str, kind: KeyKind = KeyKind.NOT_EXPRESSIBLE) -> dict[str, str]:
    return {key.bare: key.reason for key in read(text).of_kind(kind)}


# Cut commands.


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            f"{SMALL} \\\n  # of the cluster\n  --tensor-model-parallel-size 4",
            "line 1 is to be continued and is not, for a comment",
        ),
        (
            f"{SMALL} \\\n\n  --tensor-model-parallel-size 4",
            "line 1 is to be continued and is not, for a comment or an empty line",
        ),
        (
            f"# a\n{SMALL} \\ \n  --tensor-model-parallel-size 4",
            "line 2 is to be continued and is not, for a blank",
        ),
        (
            f"{SMALL} \\\t\r\n  --tensor-model-parallel-size 4",
            "line 1 is to be continued and is not, for a blank",
        ),
        (f"{SMALL}\n  --tensor-model-parallel-size 4", "line 2 continues none"),
        (
            f"A='--tensor-model-parallel-size 4'\n{SMALL}\n  $A",
            "the words before it are a command of their own",
        ),
        (
            "python pretrain_gpt.py \\\n --bf16 \\ \n" + SMALL.partition(".py ")[2],
            "line 2 is to be continued and is not",
        ),
        (f"{SMALL} --data-path \\\n  # the mix\n  0.3 a 0.7 b --bf16", "line 1 is to be continued"),
    ],
)
def test_a_command_that_ends_in_the_midst_of_its_flags_is_refused(text: str, where: str) -> None:
    with pytest.raises(InputError, match=f"is cut before .*{re.escape(where)}.*; join the lines"):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{SMALL} \\\n  --tensor-model-parallel-size 4  # of the cluster",
        f"A=(\n  # the plan\n\n  --tensor-model-parallel-size 4\n)\n{SMALL} ${{A[@]}}",
        f"mkdir -p x \\ \n{SMALL} --tensor-model-parallel-size 4",
        f"{SIZES}\n--seq-length 64\n--micro-batch-size 1 --tensor-model-parallel-size 4\n",
    ],
)
def test_a_whole_command_is_not_refused(text: str) -> None:
    assert read(text).settings["tp"] == 4


@pytest.mark.parametrize(
    "head", ["cat > opts.txt <<X", "read -r -d '' MORE <<'X'", 'cat <<-"X" | sbatch']
)
def test_a_text_within_a_script_is_no_cut_command(head: str) -> None:
    assert read(f"{head}\n--tensor-model-parallel-size 4\nX\n{SMALL}").settings["tp"] == 1


# Processes and functions.


@pytest.mark.parametrize(
    ("launch", "devices"),
    [
        ("srun -N 4 --ntasks-per-node=8", 32),
        ("srun -N4 -n32", 32),
        ("srun -n 16", 16),
        ("#SBATCH -N 4 --gpus-per-node=8  # all of them\nsrun", 32),
        ("#SBATCH -N 4\n#SBATCH -n 32\nsrun", 32),
        ("mpirun -np 16 -x A=B", 16),
        ("srun -N 2 --ntasks-per-node=8 bash -n", 16),
        ("#SBATCH -N 2 --gres=gpu:h100:8\nsrun", 16),
        ("#SBATCH --gpus=16\nsrun", 16),
        ("#SBATCH -N 4 --gpus-per-node=8\nmodule load x\n#SBATCH -N 2\nsrun", 32),
        ("mpirun -np 16 --npernode 8", 16),
        ("mpirun -N 8 -np 32", 32),
        ("deepspeed --include a:0,1,2,3@b:0,1,2,3", 8),
    ],
)
def test_short_flags_of_a_queue_count_processes(launch: str, devices: int) -> None:
    command = SMALL.partition("4 ")[2].replace("size 8", "size 64")
    assert read(f"{launch} python {command}").settings["dp"] == devices


@pytest.mark.parametrize("head", ["run() {", "function run {", "run ()\n{"])
def test_flags_that_a_function_is_given_are_read(head: str) -> None:
    text = f'{head}\n{SMALL} "$@"\n}}\nrun '
    assert read(f"{text}--bf16 --tensor-model-parallel-size 2").settings["tp"] == 2
    assert read(f"{text}").settings["tp"] == 1


@pytest.mark.parametrize(
    "text",
    [
        f"train() {{\n{SMALL} --tensor-model-parallel-size 4\n}}",
        f"cat > run.sh <<'X'\n#!/bin/bash\n{SMALL} --tensor-model-parallel-size 4\nX\n",
        f"cat > run.sh <<X\n{SMALL} --tensor-model-parallel-size $TP\nX\nTP=4 sbatch "
        "run.sh".replace("$TP", "\\$TP"),
        f"sbatch <<X\n{SMALL} --tensor-model-parallel-size 4\nX\n",
        f"read -r -d '' A <<'X'\n--tensor-model-parallel-size 4\nX\n{SMALL} $A",
        f"cat > args.txt <<X\n--tensor-model-parallel-size 4\nX\n{SMALL} $(cat args.txt)",
        f"T=4; f() {{ T=2; }}; {SMALL} --tensor-model-parallel-size $T",
        f"if ! {SMALL} --tensor-model-parallel-size 4; then exit 1; fi",
    ],
)
def test_functions_and_texts_of_a_script_are_read(text: str) -> None:
    assert read(text).settings["tp"] == 4


def test_a_script_that_is_started_on_nodes_has_their_number() -> None:
    command = SMALL.partition("4 ")[2].replace("size 8", "size 64")
    found = read(
        "srun -N 4 --ntasks-per-node=8 bash run.sh 2",
        beside={"run.sh": f"python {command} --bf16"}.get,
    )
    assert found.settings["dp"] == 32


# Words that are not known.


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"{SMALL} --bf16 $MORE", "$MORE"),
        (f'{SMALL} "${{MORE[@]}}"', "${MORE[@]}"),
        (f"{SMALL} --bf16 $(cat args.txt)", "$(cat args.txt)"),
        (f"{SMALL} --bf16 `cat args.txt`", "`cat args.txt`"),
        (f"{SMALL} --lr 1e-4 $(python plan.py --tp 2)", "$(python...)"),
        (f"{SMALL} --bf16 ${{A/4/2}}", "${A/4/2}"),
        (f"B=A; A=--bf16; {SMALL} --lr 1 ${{!B}}", "${!B}"),
        (f"mapfile -t ARGS < args.txt; {SMALL} --bf16 ${{ARGS[@]}}", "${ARGS}"),
        (f'while read L; do A="$A $L"; done < args.txt; {SMALL} --bf16 $A', "${A}"),
        (
            f'for a in "--tensor-model-parallel-size 2" --bf16; do A+=($a); done; {SMALL} '
            "${A[@]}",
            "${A}",
        ),
        (f"cat args.txt | xargs {SMALL}", "xargs"),
        (f"{SMALL} --data-path $D $EXTRA_ARGS", "$EXTRA_ARGS"),
        (f"torchrun $DISTRIBUTED_ARGS {SMALL.partition('4 ')[2]}", "$DISTRIBUTED_ARGS"),
    ],
)
def test_words_that_may_hold_flags_are_said(text: str, word: str) -> None:
    assert unknown(text) == [word]


@pytest.mark.parametrize(
    "text",
    [
        f"{SMALL} --lr $LR --load $CHECKPOINT --data-path 0.3 $A 0.7 $B --wandb-exp-name $(date "
        "+%s) --exit-interval `cat x`",
        "torchrun --master-addr $(scontrol show hostnames | head -1) "
        f"{SMALL.partition('torchrun ')[2]} $@",
        f"{SMALL} `# --tensor-model-parallel-size 2` $(: --bf16)",
    ],
)
def test_values_of_flags_are_not_said(text: str) -> None:
    assert unknown(text) == []
    assert read(text).settings["tp"] == 1


def test_a_refusal_names_what_may_hold_what_it_misses() -> None:
    with pytest.raises(
        InputError,
        match=r"has no --num-layers \(what \$ARGS and \$\(cat x\) hold is not known\); add it",
    ):
        read("torchrun pretrain_gpt.py $ARGS --bf16 $(cat x)")


@pytest.mark.parametrize("before", ["\u2013", "-", "", "\u2014", "\u201c--"])
def test_a_flag_with_other_dashes_or_quotes_is_refused(before: str) -> None:
    with pytest.raises(
        InputError,
        match="is no flag as it is written; write --tensor-model-parallel-size, with two plain",
    ):
        read(f"{SMALL} --bf16 {before}tensor-model-parallel-size\u201d 2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--sequence-parallel false",
            "--sequence-parallel of the Megatron-LM command is a switch, .*'false' stands behind "
            "it",
        ),
        ("--sequence-parallel=false", "--sequence-parallel of the Megatron-LM command is a switch"),
        (
            "--tensor-model-parallel-size 2 4",
            "--tensor-model-parallel-size of the Megatron-LM command takes 1 value, and '4'",
        ),
        ("--bf16 stray", "--bf16 .*'stray' stands behind it"),
        ("--recompute-granularity full # uniform", None),
        ('--bf16 2>&1 | tee "log of x.txt"', None),
        ("--bf16 $A", None),
        ("--save <path to x> --load $(date +x y) --bf16", None),
        ("--mtp-num-layers 1 2", "--mtp-num-layers .* takes 1 value"),
    ],
)
def test_words_behind_a_flag_that_takes_fewer_are_refused(words: str, said: str | None) -> None:
    if said is None:
        read(f"{SMALL} {words}")
        return
    with pytest.raises(InputError, match=said):
        read(f"{SMALL} {words}")


@pytest.mark.parametrize("value", ["flase", "0", "selective"])
def test_a_switch_of_yaml_is_true_or_false(value: str) -> None:
    flags = [each.split() for each in SMALL.partition("pretrain_gpt.py --")[2].split("--")]
    lines = "MODEL_ARGS:\n" + "".join(f"  --{name}: {value}\n" for name, value in flags)
    for word, recompute in (
        ("true", "selective"),
        ("Yes", "selective"),
        ("False", "none"),
        ("off", "none"),
    ):
        assert (
            read(f"{lines}  --recompute-activations: {word}\n", given={"dp": "1"}).settings[
                "recompute"
            ]
            == recompute
        )
    with pytest.raises(
        InputError,
        match=f"--recompute-activations of the Megatron-LM command is a switch, .*'{value}'",
    ):
        read(f"{lines}  --recompute-activations: {value}\n")


@pytest.mark.parametrize("quote", ["'", '"', "$("])
def test_a_quote_that_never_ends_is_refused_in_a_script(quote: str) -> None:
    text = f"#!/bin/bash\nA=1\necho {quote}it\n{SMALL} --tensor-model-parallel-size 2\n"
    with pytest.raises(InputError, match="in line 3 never ends, which bash refuses"):
        read(text)
    assert read(text.removeprefix("#!")).settings["tp"] == 2


def test_a_comment_within_quotes_is_none() -> None:
    with pytest.raises(InputError, match="'# twice' stands behind it"):
        read(f'A="\n--tensor-model-parallel-size 2\n# twice\n"\n{SMALL} $A')


def test_a_granularity_that_megatron_has_not_is_refused_by_its_flag() -> None:
    with pytest.raises(
        InputError,
        match="--recompute-granularity of the Megatron-LM command is 'fulll'; give selective or "
        "full",
    ):
        read(f"{SMALL} --recompute-granularity fulll")


def test_words_that_are_known_are_read() -> None:
    assert read(f'set -- --tensor-model-parallel-size 4; {SMALL} "$@"').settings["tp"] == 4
    assert read(f"{SMALL} $(echo --pipeline-model-parallel-size 2)").settings["pp"] == 2
    assert read(f"TP=4; TP=2 {SMALL} --tensor-model-parallel-size $TP").settings["tp"] == 4
    slurm = "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
    launch = SMALL.replace(
        "--nproc-per-node 4", "--nproc-per-node $SLURM_GPUS_ON_NODE --nnodes $SLURM_NNODES"
    )
    assert read(slurm + launch).settings["dp"] == 8


# Flags.


def test_the_last_of_several_values_holds_and_the_others_are_said() -> None:
    text = f"{SMALL} --tensor-model-parallel-size 2 --tensor-model-parallel-size 4 --lr 1 --lr 2"
    assert read(text).settings["tp"] == 4
    assert [key.text for key in read(text).keys if "given again" in key.reason] == [
        "--tensor-model-parallel-size 2"
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tensor-model-parallel", "tensor-model-parallel-size"),
        ("tensor-parallel-size", "tensor-model-parallel-size"),
        ("pipeline-parallel-size", "pipeline-model-parallel-size"),
        ("pipeline-model-paralel-size", "pipeline-model-parallel-size"),
        ("context-paralel", "context-parallel-size"),
        ("micro-batch", "micro-batch-size"),
        ("global-batch", "global-batch-size"),
        ("layers", "num-layers"),
        ("recompute-granular", "recompute-granularity"),
    ],
)
def test_near_misses_are_refused_by_the_name_that_is_meant(name: str, meant: str) -> None:
    others = SMALL.replace(f"--{meant}", "--other") if meant in SMALL else SMALL
    with pytest.raises(
        InputError, match=f"--{name} is no flag that is read; did you mean --{meant}"
    ):
        read(f"{others} --{name} 1")


def test_no_argument_of_megatron_is_taken_for_another_one() -> None:
    known = known_arguments()
    assert [name for name in known.read if near_name(name, known.read) != name] == []
    assert values_of("bf16") == 0
    assert values_of("lr") == 1
    assert (values_of("data-path") or 0) > 100
    assert values_of("nproc-per-node") is None


@pytest.mark.parametrize(
    ("flags", "families", "keys"),
    [
        ("--num-experts 8", "gpt-", {"num-experts"}),
        (
            f"{LIKE_LLAMA} --num-experts 8 --moe-shared-expert-intermediate-size 64",
            "mixtral-",
            {"moe-shared-expert-intermediate-size"},
        ),
        (
            f"{LIKE_LLAMA} --num-experts 8 --moe-shared-expert-intermediate-size 0",
            "mixtral-",
            set(),
        ),
        (
            "--num-experts 8 --swiglu --untie-embeddings-and-output-weights --disable-bias-linear",
            "mixtral-",
            {"position-embedding-type"},
        ),
        (
            "--num-experts 8 --swiglu --use-rotary-position-embeddings --disable-bias-linear",
            "mixtral-",
            {"untie-embeddings-and-output-weights"},
        ),
    ],
)
def test_experts_of_other_kinds_are_refused_by_the_flag_that_makes_them(
    flags: str, families: str, keys: set[str]
) -> None:
    found = read(f"{SMALL} {flags}")
    assert str(found.settings["model"]).startswith(families)
    assert told(f"{SMALL} {flags}").keys() == keys
    assert found.ignoring(keys).settings == found.settings


def test_grouped_queries_are_those_of_both_flags() -> None:
    def kv_heads(flags: str) -> str:
        return str(read(f"{SMALL} {flags}").settings["model"]).partition("kv_heads")[2][:1]

    assert kv_heads("--group-query-attention --num-query-groups 2") == "2"
    assert kv_heads("--group-query-attention") == "1"
    assert kv_heads("--num-query-groups 2") == ""
    assert "1 group" in told(f"{SMALL} --group-query-attention", KeyKind.USUAL)["num-query-groups"]
    assert "no effect" in told(f"{SMALL} --num-query-groups 2", KeyKind.USUAL)["num-query-groups"]
