#!/usr/bin/env bash
# Makes .venv in the repository root with everything phaze needs; does nothing, at once, when that is already there.
# Usage: ./setup.sh [--dev]     --dev adds the tools of the tests. PHAZE_PYTHON names another Python than python3.
set -euo pipefail

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
venv=$root/.venv
stamp=$venv/.phaze-setup
oldest="3.11"

say() { printf 'setup: %s\n' "$*" >&2; }

case ${1:-} in
    "") flavour=core ;;
    --dev) flavour=dev ;;
    *) say "unknown argument '$1'; the only one is --dev"; exit 2 ;;
esac

# What a finished set-up was made for: this folder, this Python, these wanted packages. A dev set-up serves as a core one too.
wanted() { printf '%s\n%s\n%s\n' "$root" "$("$venv/bin/python" -c 'import sys; print(sys.version)' 2>/dev/null)" "$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)"; }
is_done() {
    [[ -f $stamp ]] && { [[ $(<"$stamp") == "$(wanted)"$'\n'dev ]] || [[ $(<"$stamp") == "$(wanted)"$'\n'"$flavour" ]]; }
}

is_new_enough() { "$1" -c "import sys; sys.exit(sys.version_info[:2] < (${oldest/./, }))" >/dev/null 2>&1; }

find_python() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11)
    if [[ -n ${PHAZE_PYTHON:-} ]]; then candidates=("$PHAZE_PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        if is_new_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    say "no Python $oldest or newer (looked for ${candidates[*]}); install one, or name it: PHAZE_PYTHON=/path/to/python3 ./setup.sh"
    exit 1
}

if is_done; then exit 0; fi
if command -v flock >/dev/null; then # one set-up at a time; the lock is the folder itself and goes with the process
    exec 9<"$root"
    flock 9
    if is_done; then exit 0; fi
fi

say "installing into $venv (once, some minutes)"
if ! { is_new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version; } >/dev/null 2>&1; then
    python=$(find_python)
    "$python" -m venv --clear "$venv" || { say "'$python -m venv' failed; install the venv module of that Python (python3-venv on Debian and Ubuntu)"; exit 1; }
fi
rm -f "$stamp"
if [[ $flavour == core && -x $venv/bin/pytest ]]; then flavour=dev; fi # keep the tools up to date where they are installed
extra=$([[ $flavour == dev ]] && printf '[dev]' || printf '[report,runtime]')
what=(--constraint "$root/constraints.txt" --editable "$root$extra")
torch=$(grep '^torch==' "$root/constraints.txt")
pip() { "$venv/bin/python" -m pip "$@" >&2; }

# install_with_uv UV
# With the indexes, folders, constraints and certificates that pip is set up with, which uv does not read by itself.
install_with_uv() {
    local settings name value backend=${UV_TORCH_BACKEND:-cpu} flags=(--quiet --python "$venv/bin/python")
    flags+=(--index-strategy unsafe-best-match) # of all indexes, as pip does
    settings=$("$venv/bin/python" -m pip config list) || return
    for name in index-url extra-index-url find-links constraint cert; do # those of the environment come first, and win
        value=$(sed -n "s/^[^=]*\\.$name='\(.*\)'\$/\1/p" <<<"$settings" | head -n 1)
        for value in ${value//\\n/ }; do
            if [[ $name == cert ]]; then export SSL_CERT_FILE=${SSL_CERT_FILE:-$value}; else flags+=("--$name" "$value"); fi
        done
    done
    # torch's own index has CPU builds, a tenth as large; asked once whether it can be reached.
    if UV_HTTP_RETRIES=0 UV_HTTP_TIMEOUT=10 "$1" pip install "${flags[@]}" --dry-run --reinstall --no-deps --torch-backend "$backend" "$torch" 2>/dev/null; then
        flags+=(--torch-backend "$backend")
    fi
    "$1" pip install "${flags[@]}" "${what[@]}" >&2
}

# torch first: of that very version pip takes a CPU build where it is offered one, of a range the newest.
install_with_pip() {
    local flags=(--quiet --disable-pip-version-check --no-compile)
    pip install "${flags[@]}" "$torch" && pip install "${flags[@]}" "${what[@]}"
}

uv=$(command -v uv) || { pip install --quiet --disable-pip-version-check --retries 1 uv && uv=$venv/bin/uv; } || uv=
if [[ -z $uv ]] || ! install_with_uv "$uv"; then
    say "going on with pip instead of uv, which takes longer"
    install_with_pip || {
        say "pip could not install everything (see above); once that is solved, the same command goes on from here"
        exit 1
    }
fi
printf '%s\n%s\n' "$(wanted)" "$flavour" >"$stamp"

if [[ $flavour == dev ]]; then
    say "done"
    exit 0
fi
# A first small search compiles the inner loops (kept in __pycache__) and shows that everything works together. Meanwhile
# the other core compiles what runs may import to bytecode: not models and tests of others, more than half of their code.
say "trying it out"
trial=$(mktemp -d)
"$venv/bin/python" -m compileall -q -x '/(transformers/models|_inductor|testing|tests?)/' "$venv/lib" >/dev/null 2>&1 & # templates are no Python
trap 'kill $! 2>/dev/null || true; rm -rf "$trial"' EXIT
status=0
PYTHONDONTWRITEBYTECODE="" "$venv/bin/python" "$root/phaze.py" run_solver --model bertbase --sequence-length 64 --quiet --output "$trial" >/dev/null || status=$?
if ((status == 130)); then # Ctrl-C, which phaze has told of; the next set-up tries again
    rm -f "$stamp"
    exit "$status"
fi
((status == 0)) || say "the first search failed (see above); '$venv/bin/phaze doctor' may tell why"
wait || true
say "done"
