"""Bash as far as launches need it: words, variables, arithmetic and branches; every character costs
the same."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.exports.bash.arithmetic import value_of
from phaze.exports.bash.script import script_of
from phaze.exports.bash.variables import MAYBE, SURE
from phaze.exports.bash.words import tokens_of
from phaze.exports.megatron_lm.reader import read
from phaze_common.errors import InputError


def words_of(text: str) -> list[tuple[str, ...]]:
    return list(script_of(text).commands)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("TP=${TP:-4}; PP=2; run $TP $PP", ("run", "4", "2")),
        ("run ${X-a} ${Y:=b} $Y ${Z:+c}", ("run", "a", "b", "b")),
        ("G=8; N=2; W=$((G*N)); run $W $((W / 3)) $(( (G + N) % 4 ))", ("run", "16", "5", "2")),
        (
            "A=(--x 1 '--y 2'); A+=(--z); run ${A[@]} \"${A[@]}\"",
            ("run", "--x", "1", "--y", "2", "--z", "--x", "1", "--y 2", "--z"),
        ),
        ("A=(\n  --x 1  # one\n  --y\n)\nrun ${A[1]} ${A[*]}", ("run", "1", "--x", "1", "--y")),
        ("TP=4; TP+=2; run $TP", ("run", "42")),
        ('A="--x 1"; A="$A --y"; run $A', ("run", "--x", "1", "--y")),
        ("run a \\\n  b # c\n", ("run", "a", "b")),
        ("export A=1 B=2; local C=3; run $A$B$C", ("run", "123")),
        (
            "run '$A' \"$B\" $(date) `date` ${C} > log 2>&1",
            ("run", "$A", "$B", "$(date)", "`date`", "$C"),
        ),
        (
            "run --f ([0]*3+[1]*2) --p <path to data> --x",
            ("run", "--f", "([0]*3+[1]*2)", "--p", "<path to data>", "--x"),
        ),
        ('run "$(dirname "$0")/x" "${A:-it\'s}"', ("run", '$(dirname "$0")/x', "its")),
        (
            "S=1.7B\nif [ ${S} == '1.7B' ]; then T=1; elif [ $S = 2 ]; then T=2; else T=3; fi; "
            "run $T",
            ("run", "1"),
        ),
        (
            "S=2\nif [[ $S -eq 1 ]]; then T=1\nelif [[ $S -ge 2 && -n $S ]]; then T=2\nelse "
            "T=3\nfi\nrun $T",
            ("run", "2"),
        ),
        ("S=b; case $S in a|c) T=1;; b) T=2;; *) T=3;; esac; run $T", ("run", "2")),
        ('[ -z "$X" ] && T=1; [[ -n $X ]] && T=2; [ a = a ] || T=3; run $T', ("run", "1")),
        ("for T in 5; do run $T; done", ("run", "5")),
        ("f() { T=7; }\nf\nrun $T", ("run", "7")),
        ("let T=2*3 S=T+1; (( S += 2 )); ((T--)); (cd x; run $T $S); run $T $S", ("run", "5", "9")),
        ("T=4; if (( T > 2 )); then S=1; else S=2; fi; (( T == 4 && 1 )); run $S", ("run", "1")),
        ("T=$(expr 6 / 2); S=`expr $T \\* 2`; run $T $S", ("run", "3", "6")),
        ('run `# --x 1` $(: --y) $(echo --z 2) "$(echo -n a b)"', ("run", "--z", "2", "a b")),
        (
            "run $(make --x 1) `make --y` $(cat other)",
            ("run", "$(make...)", "`make...`", "$(cat other)"),
        ),
        ("T=1; T=2 run $T; run $T", ("run", "1")),
        (
            "set -- --x 'a b'; run $# $2 \"$@\" $*",
            ("run", "2", "a", "b", "--x", "a b", "--x", "a", "b"),
        ),
        ("eval 'T=3 S=\"a b\"'; run $T $S", ("run", "3", "a", "b")),
        ("read -r T <<< 4; printf -v S 5; run ${T:-1} ${S:-1}", ("run", "4", "${S}")),
        ("while IFS= read -r T; do :; done < x; run ${T-1}", ("run", "${T}")),
        ("for T in $(seq 3); do run $T; done", ("run", "${T}")),
        ("while [[ $# -gt 0 ]]; do T=$2; shift; done; T=${T:-6}; run $T", ("run", "6")),
    ],
)
def test_words_are_those_of_bash(text: str, words: tuple[str, ...]) -> None:
    assert words_of(text)[-1] == words


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("if [ -f x ]; then T=1; else T=2; fi; run $T", ("1", "2")),
        ("T=4; if [ -f x ]; then T=1; fi; run $T", ("1", "4")),
        ("for T in 1 2 4; do run $T; done", ("1", "2", "4")),
        ("T=1; for ((i = 1; i < 3; i++)); do T=$i; done; run $T", ("$i", "1")),
        ("T=1; if (( SLURM_NNODES > 1 )); then T=2; fi; run $T", ("2", "1")),
        ("[ -f x ] && T=1; run $T", ("1",)),
        ("case $(hostname) in a) T=1;; *) T=2;; esac; run $T", ("1", "2")),
        ("if [ $SLURM_NNODES -gt 1 ]; then T=1; else T=2; fi; run $T", ("1", "2")),
    ],
)
def test_a_value_of_a_branch_that_may_not_run_is_not_taken(
    text: str, options: tuple[str, ...]
) -> None:
    script = script_of(text)
    assert script.commands[-1][-1] == "${T}"
    assert script.unsure["T"] == options
    launch = (
        "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 8 "
        "--micro-batch-size $T"
    )
    with pytest.raises(
        InputError,
        match=rf"'\$\{{T\}}' .{re.escape(' or '.join(options))}, by a branch or loop.*give "
        r"--micro-batch-size",
    ):
        read(text.replace("run $T", f"python pretrain_gpt.py {launch}"))


def test_both_branches_of_one_value_are_known_and_added_words_are_marked() -> None:
    assert words_of("if [ -f x ]; then T=1; else T=1; fi; run $T")[-1] == ("run", "1")
    assert words_of('A="--x"; if [ -f x ]; then A="$A --y 1"; fi; run $A')[-1] == (
        "run",
        "--x",
        MAYBE,
        "--y",
        "1",
        SURE,
    )
    launch = (
        "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 8 "
        "--micro-batch-size 1 --bf16"
    )
    found = read(
        f"A=({launch})\nif [ -f x ]; then A+=(--fp8-format hybrid); fi\npython pretrain_gpt.py "
        "${A[@]}"
    )
    assert found.settings["precision"] == "bf16"
    assert [(key.name, key.value) for key in found.of_kind("unknown")] == [
        ("--fp8-format", "hybrid")
    ]


def test_files_that_a_script_prints_are_read_where_they_lie_beside_it() -> None:
    assert script_of(
        "run $(cat a.txt) `cat ./a.txt` $(< a.txt)", {"a.txt": "--x 1\n"}.get
    ).commands[-1] == (*("run", "--x", "1", "--x", "1", "--x", "1"),)


def test_commands_put_in_within_others_end() -> None:
    deep = "$(echo " * 3000 + "x" + ")" * 3000
    assert script_of(f"run {deep}").commands[-1][0] == "run"


def test_files_that_a_script_reads_are_read_where_they_lie_beside_it() -> None:
    found = script_of(
        "TP=2\n. `pwd`/CONFIG.sh\nsource $X/other.sh\nrun $A", {"CONFIG.sh": 'A="--tp $TP"'}.get
    )
    assert found.commands[-1] == ("run", "--tp", "2")


@given(st.text(alphabet="ab $'\"`(){}[];&|<>#\\\n=+-*/!0", max_size=60))
def test_any_text_has_words(text: str) -> None:
    tokens_of(text)
    script_of(text)


NAMES = st.sampled_from("ABC")
NUMBERS = st.integers(0, 9)
STATEMENTS = st.one_of(
    st.builds("{}={}".format, NAMES, NUMBERS),
    st.builds("{}+={}".format, NAMES, NUMBERS),
    st.builds("let {}={}*{}".format, NAMES, NUMBERS, NUMBERS),
    st.builds(
        "(( {} {}= {} + {} )) || true".format,
        NAMES,
        st.sampled_from(["", "+", "-", "*"]),
        NUMBERS,
        NUMBERS,
    ),
    st.builds(
        "if (( {} {} {} )); then {}={}; fi".format,
        NUMBERS,
        st.sampled_from(["<", ">=", "=="]),
        NUMBERS,
        NAMES,
        NUMBERS,
    ),
    st.builds(
        "{}=$(({} {} ({} - {})))".format, NAMES, NAMES, st.sampled_from("+-*"), NAMES, NUMBERS
    ),
    st.builds('{}=${{{}:-{}}}; {}="${{{}}}"'.format, NAMES, NAMES, NUMBERS, NAMES, NAMES),
    st.builds(
        "if [ ${} -gt {} ]; then {}={}; elif [[ ${} == {} ]]; then {}=1; else {}=7; fi".format,
        NAMES,
        NUMBERS,
        NAMES,
        NUMBERS,
        NAMES,
        NUMBERS,
        NAMES,
        NAMES,
    ),
    st.builds(
        "[ ${} -{} {} ] {} {}={}".format,
        NAMES,
        st.sampled_from(["lt", "ne", "ge"]),
        NUMBERS,
        st.sampled_from(["&&", "||"]),
        NAMES,
        NUMBERS,
    ),
    st.builds(
        "case ${} in {}|1) {}=2;; {}) {}=3;; *) {}=4;; esac".format,
        NAMES,
        NUMBERS,
        NAMES,
        NUMBERS,
        NAMES,
        NAMES,
    ),
    st.builds("for {} in {}; do {}=${}; done".format, NAMES, NUMBERS, NAMES, NAMES),
    st.builds('L+=(${} "{} ${}")'.format, NAMES, NUMBERS, NAMES),
    st.builds("L=(--x ${})".format, NAMES),
    st.builds(
        "f() {{\n  {}={}; local {}=$1\n  B=$B${}\n}}\n{}".format,
        NAMES,
        NUMBERS,
        NAMES,
        NAMES,
        st.sampled_from(["f 1 2", "f", "A=5 f $A", ""]),
    ),
    st.builds(
        'g() {{ local A=$#; shift; L+=("$@" $A); [ $A -gt {} ] && return; C=4; }}; g '
        "{} 'a b'".format,
        NUMBERS,
        NUMBERS,
    ),
    st.builds(
        "function h {{ if (( $1 > {} )); then {}=$1; return; fi; {}=6; }}\nh {}".format,
        NUMBERS,
        NAMES,
        NAMES,
        NUMBERS,
    ),
    st.builds("if h2() {{ {}=3; }}; then :; fi; h2".format, NAMES),
    st.builds("read -r {} {} <<< '{} 4'".format, NAMES, NAMES, NUMBERS),
    st.builds(
        "read -r -d '' D <<{}\n  {} ${}\n# 2\nX\n".format,
        st.sampled_from(["X", "'X'"]),
        NUMBERS,
        NAMES,
    ),
    st.builds("D=$(cat <<X\n$A {}\nX\n)".format, NUMBERS),
    st.builds("L[${{#L[@]}}]={}; I=0; L[I]=${}; unset 'L[-1]'".format, NUMBERS, NAMES),
    st.builds("L[{}-{}]+=z".format, NUMBERS.map(lambda number: number % 3 + 1), st.just(1)).map(
        lambda text: "L=(a b c); " + text
    ),
    st.builds(
        "declare -A M=([x]={} [y]=2); M[$A]=3; {}=${{M[x]}}${{M[$A]}}${{#L[@]}}${{#A}}".format,
        NUMBERS,
        NAMES,
    ),
    st.builds("{}=$((010 + 0{}))".format, NAMES, NUMBERS.map(lambda number: number % 8)),
    st.builds("unset {0}; {0}=${{{0}:-{1}}}".format, NAMES, NUMBERS),
    st.builds("set -- $A 5 'b c'; shift; {}=$1$#".format, NAMES),
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@settings(max_examples=60)
@given(st.lists(STATEMENTS, min_size=1, max_size=8), st.sampled_from(["\n", "; "]))
def test_scripts_come_to_what_bash_makes_of_them(statements: list[str], between: str) -> None:
    between = "\n" if "\n" in "".join(statements) else between
    text = between.join(
        [
            "A=1",
            "B=2",
            "C=3",
            "D=x",
            "L=(0)",
            *statements,
            'run $A $B "$C" $D "$D" ${L[@]} "${L[@]}" "${L[*]}"',
        ]
    )
    shown = subprocess.run(
        ["bash", "-c", "run() { printf '%s\\0' \"$@\"; }\n" + text],
        capture_output=True,
        text=True,
        check=True,
        env={},
    ).stdout
    script = script_of(text)
    assert list(script.commands[-1][1:]) == shown.split("\0")[:-1]
    assert not script.unsure


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    "text",
    [
        "T=4; f() { T=2; }; run $T",
        "f() { local T=2; run $T $1 \"$2\" $#; }; T=4; f a 'b c'; run $T",
        'f() { run "$@"; }; f --x \'a b\' --y; function g() { f "$@" 1; }; g 2',
        "f() (\n  run $1\n)\nf 3 && run 4",
        "f() { T=$1; }; T=1; if f 2; then :; fi; run $T | cat",
        "f() { if [ $1 -gt 2 ]; then return; fi; run $1; f2 $1; }; f2() { run f2 $1; }; for T in "
        "1; do f $T; done; f 3",
        "f() { run 1; f; }; g() { run 2; }; g",
        "T=3; f() { run $T; }; T=5 f; run $T",
        "command run 1; ! run 2; if run 3; then run 4; fi",
        "cat > args.txt <<E\n--x 1 \\\n --y 2\nE\nrun $(cat args.txt) $(< args.txt)",
        "echo --x 1 > a.txt; echo --y 2 >> a.txt; run $(cat a.txt)",
        "T=2; cat <<'E' > x.sh\nT=${T:-7}; run $T $1\nE\nbash x.sh a; export T; bash x.sh b; T=5 "
        "bash -eu ./x.sh c; run $T",
        "cat > env.sh <<E\nexport T=4\nE\nsource ./env.sh; . env.sh; run $T",
        "T=2; bash <<E\nrun $T\nE\nbash -c 'run \"$0\" $1' a b; export S=3; bash -c 'run $S'; "
        "echo run 5 | bash",
        "tee x.sh <<E > /dev/null\nrun 1\nE\nbash x.sh; cat x.sh | bash; bash < x.sh",
        "bash lib/other.sh 1; source lib/env.sh; run $L; source $PWD/lib/env.sh",
        "cat <<E\nrun 1\nE\nrun 2",
        "IFS=, read -ra A <<< '1,2,3'; run ${A[@]} ${#A[@]}; mapfile -t B <<E\n4\n5\nE\nrun "
        "${B[@]}",
        "A='a # b\n# c'; run $A; run '# d' # e",
        "T=4; ( T=8; run $T ); run $T; f() ( T=9 ); f; run $T; (T=1; (T=2; run $T); run $T); run "
        "$T",
        "T=4; g() { T=1; }; g | cat; run $T; echo 1 | read T; run $T",
        "[ a = b ] && { T=1; run 1; }; run 2; [ a = a ] && { run 3; }; [ a = a ] || { run 4; run "
        "5; }; run 6",
        "[ a = b ] && (run 1; run 2); run 3; [ a = a ] && if [ b = b ]; then run 4; fi; run 5",
        "f() { return 1; }; f && run 1; f || run 2; f || { run 3; }; ! f && run 4; if f; then run "
        "5; else run 6; fi; run 7",
        "cat > e.sh <<E\nP=2\nreturn 0\nP=4\nE\nsource ./e.sh; run $P",
        'k=T; export "$k=8"; run $T; declare "$k=9"; run $T; echo T=5 > env.txt; export $(cat '
        "env.txt); run $T",
        'for kv in T=4; do export "$kv"; done; run $T',
        "env T=4 bash -c 'run $T'; export T=2; env T=5 P=1 bash -c 'run $T $P'; run $T",
        "T=2; C='run $T'; eval \"$C\"; P=$(( T > 1 ? 2 : 8 )); run $P $((T==4?4:1))",
        "case x in (a) run 1;; (x) run 2;; esac; case y in x) run 3;; *) run 4;; esac; run 5",
    ],
)
def test_functions_and_other_scripts_are_read_as_bash_runs_them(text: str, tmp_path: Path) -> None:
    program = tmp_path / "run"
    program.write_text("#!/bin/bash\nprintf '%s\\0' run \"$@\" >> $OUT; printf '\\n' >> $OUT\n")
    program.chmod(0o755)
    library = tmp_path / "lib"
    library.mkdir()
    (library / "env.sh").write_text("L=8\n")
    (library / "other.sh").write_text("run $1 other\n")
    folder = {name: (library / name).read_text() for name in ("env.sh", "other.sh")}
    script = script_of(
        text,
        lambda name: folder.get(name.removeprefix("lib/")) if name.startswith("lib/") else None,
    )
    out = tmp_path / "out"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OUT": str(out)}
    ended = (
        "; f() { run 1; }; f" if text.startswith("f() { run 1; f; }") else ""
    )  # which calls itself for ever
    subprocess.run(
        ["bash", "-c", text + ended],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    shown = [tuple(line.split("\0")[:-1]) for line in out.read_text().splitlines()]
    assert [words[words.index("run") :] for words in script.commands if "run" in words] == shown[
        : len(shown) - bool(ended)
    ]


def test_what_nothing_calls_or_reads_is_read_where_it_is_asked_for() -> None:
    text = "f() { run $T; }\ncat > x.sh <<'E'\nrun --x $T\nE\nT=2"
    assert script_of(text).commands == ()
    assert script_of(text, whole=True).commands == (("run", "2"), ("run", "--x", "2"))


@given(st.integers(-99, 99), st.integers(-99, 99), st.sampled_from("+-*/%"))
def test_arithmetic_is_that_of_c(left: int, right: int, how: str) -> None:
    found = value_of(f"$A {how} ({right})", {"A": str(left)}.get)
    if how in "/%" and right == 0:
        assert found is None
        return
    whole = {"+": left + right, "-": left - right, "*": left * right}.get(how)
    if whole is None:
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        whole = quotient if how == "/" else left - right * quotient
    assert found == whole


@pytest.mark.parametrize(
    "text", ["A", "1 if 1 else 2", "__import__('os')", "9**9**9", "(" * 300, "1.5", "A == 1"]
)
def test_other_expressions_have_no_value(text: str) -> None:
    assert value_of(text, lambda name: None) is None


# Work.


def lines_run(text: str) -> int:
    """Lines of Python that reading takes: work, whatever the machine."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.suppress(InputError):
            read(text)
    finally:
        sys.settrace(before)
    return count


LAUNCH = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 8 "
    "--micro-batch-size 1 --vocab-size 128\n"
)
LONG: dict[str, Callable[[int], str]] = {
    "one odd quote": lambda size: 'echo "it is odd\n' + 'A="--x 1" # some words\n' * size + LAUNCH,
    "one odd apostrophe": lambda size: "echo it's\n" + "B='--x 1'\n" * size + LAUNCH,
    "many odd quotes": lambda size: "echo \"a\n\necho 'b\n\n" * size + LAUNCH,
    "open brackets": lambda size: "echo $((" * size + LAUNCH,
    "doubling variables": lambda size: (
        "A0=xxxx\n" + "".join(f"A{i + 1}=$A{i}$A{i}\n" for i in range(size)) + LAUNCH
    ),
    "variables of variables": lambda size: (
        "A0=1\n" + "".join(f"A{i + 1}=$A{i}\n" for i in range(size)) + LAUNCH
    ),
    "branches": lambda size: "if [ -f x ]; then A=1; else A=2; fi\n" * size + LAUNCH,
    "a long list": lambda size: "A=(" + "--x 1 " * size + ")\n" + LAUNCH,
    "many flags": lambda size: "run " + "--lr 1 " * size + LAUNCH,
    "texts that never end": lambda size: (
        "echo <<NEVER\n" * size + "pretrain_gpt.py " + LAUNCH + "--bf16\n"
    ),
}


@pytest.mark.parametrize("kind", LONG)
def test_twice_as_long_a_launch_takes_twice_the_work(kind: str) -> None:
    first, second = (lines_run(LONG[kind](size)) for size in (100, 200))
    assert second < 2.6 * first
