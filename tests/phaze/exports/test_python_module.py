"""Python launches: every way to change a value around the call that makes the arguments counts, or
is refused."""

from __future__ import annotations

import dataclasses
from functools import partial
from random import Random
from typing import Any

import pytest

from phaze.exports.hf_trainer import reader as hf_trainer_reading
from phaze.exports.torchtitan import reader as torchtitan_reading
from phaze_common.errors import InputError

CALL = "args = TrainingArguments(output_dir='o', per_device_train_batch_size=2)\n"
KEYWORDS = "kw = dict(output_dir='o', per_device_train_batch_size=2)\n"
MADE = "args = TrainingArguments(**kw)\n"
REFUSED = None


@dataclasses.dataclass
class Trainer:
    """As in transformers."""

    args: TrainingArguments


@dataclasses.dataclass
class TrainingArguments:
    """As in transformers, with what phaze reads of it."""

    output_dir: str = "o"
    per_device_train_batch_size: int = 8
    gradient_checkpointing: bool = False
    bf16: bool = False

    def set_training(
        self, learning_rate: float = 5e-5, batch_size: int = 8, weight_decay: float = 0
    ) -> TrainingArguments:
        self.per_device_train_batch_size = batch_size
        self.gradient_checkpointing = False
        return self

    def set_dataloader(self, train_batch_size: int = 8) -> TrainingArguments:
        self.per_device_train_batch_size = train_batch_size
        return self

    def set_optimizer(self, name: str = "adamw_torch") -> TrainingArguments:
        return self


def batch_of(text: str) -> int | None:
    """The micro-batch that is read; None where the file is refused in one sentence that says what
    to do."""
    try:
        found = hf_trainer_reading.read(text).settings["micro_batch_size"]
    except InputError as error:
        assert ";" in str(error) and "\n" not in str(error), error
        return None
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        (CALL + "args.per_device_train_batch_size = 4", 4),
        (CALL + "args.per_device_train_batch_size *= 2", 4),
        (CALL + "setattr(args, 'per_device_train_batch_size', 4)", 4),
        (CALL + "object.__setattr__(args, 'per_device_train_batch_size', 4)", 4),
        (CALL + "setattr(args, name(), 4)", REFUSED),
        (
            CALL
            + "for key, value in {'per_device_train_batch_size': 4}.items():\n    setattr(args, "
            "key, value)",
            4,
        ),
        (CALL + "for key, value in overrides():\n    setattr(args, key, value)", REFUSED),
        (CALL + "[setattr(args, key, value) for key, value in overrides()]", REFUSED),
        (CALL + "args = dataclasses.replace(args, per_device_train_batch_size=4)", 4),
        (CALL + "args = dataclasses.replace(args, **overrides())", REFUSED),
        (
            CALL + "new = dataclasses.replace(args, per_device_train_batch_size=4)",
            REFUSED,
        ),  # which is used?
        (
            CALL
            + "new = dataclasses.replace(args, per_device_train_batch_size=4)\nTrainer(args=new)",
            4,
        ),
        (CALL + "args = args.set_training(batch_size=4)", 4),
        (CALL + "args = args.set_training(1e-4, 4)", 4),
        (
            CALL + "args.set_training(learning_rate=1e-4)",
            8,
        ),  # it sets all that it is not given to its defaults
        (CALL + "args = args.set_dataloader(train_batch_size=4).set_optimizer('adamw_torch')", 4),
        (CALL + "args.set_lr_scheduler(name='linear')", 2),
        (CALL + "args.set_training(**overrides())", REFUSED),
        (CALL + "args.set_everything(4)", REFUSED),
        (CALL + "args.__dict__.update(per_device_train_batch_size=4)", 4),
        (CALL + "args.__dict__['per_device_train_batch_size'] = 4", 4),
        (CALL + "vars(args)['per_device_train_batch_size'] = 4", 4),
        (CALL + "vars(args).update(overrides())", REFUSED),
        (CALL + "other = args\nother.per_device_train_batch_size = 4", 4),
        (CALL + "trainer = Trainer(args=args)\ntrainer.args.per_device_train_batch_size = 4", 4),
        (CALL + "tune(args)", REFUSED),
        (CALL + "args = tune(args)", REFUSED),
        (CALL + "print(args)\ntrainer = Trainer(model=model, args=args)\ntrainer.train()", 2),
        (CALL + "def tune(a):\n    a.per_device_train_batch_size = 4\ntune(args)", 4),
        (CALL + "def tune():\n    args.per_device_train_batch_size = 4\ntune()", 4),
        (CALL + "def tune():\n    args.per_device_train_batch_size = 4\nrun_later(tune)", REFUSED),
        (
            CALL
            + "def tune(a):\n    if a.quick():\n        return\n    a.per_device_train_batch_size "
            "= 4\ntune(args)",
            REFUSED,
        ),
        (CALL + "if big():\n    args.per_device_train_batch_size = 4", REFUSED),
        (CALL + "if big():\n    args.per_device_train_batch_size = 2", 2),
        (
            CALL + "if big():\n    args = dataclasses.replace(args, per_device_train_batch_size=4)",
            REFUSED,
        ),
        (
            CALL
            + "if big():\n    raise ValueError\nelse:\n    args.per_device_train_batch_size = 4",
            4,
        ),
        (CALL + "big() and setattr(args, 'per_device_train_batch_size', 4)", REFUSED),
        (CALL + "while more():\n    args.per_device_train_batch_size += 1", REFUSED),
        (
            CALL + "try:\n    args.per_device_train_batch_size = 4\nexcept Exception:\n    pass",
            REFUSED,
        ),
        (CALL + "try:\n    args.per_device_train_batch_size = 4\nfinally:\n    pass", 4),
        (CALL + "with mode():\n    args.per_device_train_batch_size = 4", 4),
        (CALL + "if True:\n    args.per_device_train_batch_size = 4", 4),
        (CALL + "if __name__ == '__main__':\n    args.per_device_train_batch_size = 4", 4),
        (CALL + "if False:\n    args.per_device_train_batch_size = 4", 2),
        (CALL + "del args.per_device_train_batch_size", REFUSED),
        (CALL + "exec(more)", REFUSED),
        (KEYWORDS + "kw['per_device_train_batch_size'] = 4\n" + MADE, 4),
        (KEYWORDS + "kw.update(per_device_train_batch_size=4)\n" + MADE, 4),
        (KEYWORDS + "kw.update({'per_device_train_batch_size': 4})\n" + MADE, 4),
        (KEYWORDS + "kw.update([('per_device_train_batch_size', 4)])\n" + MADE, 4),
        (KEYWORDS + "kw |= {'per_device_train_batch_size': 4}\n" + MADE, 4),
        (KEYWORDS + "kw = kw | {'per_device_train_batch_size': 4}\n" + MADE, 4),
        (KEYWORDS + "kw = dict(kw, per_device_train_batch_size=4)\n" + MADE, 4),
        (KEYWORDS + "kw = {**kw, 'per_device_train_batch_size': 4}\n" + MADE, 4),
        (KEYWORDS + "kw.pop('per_device_train_batch_size')\n" + MADE, 8),
        (KEYWORDS + "del kw['per_device_train_batch_size']\n" + MADE, 8),
        (KEYWORDS + "kw.setdefault('per_device_train_batch_size', 4)\n" + MADE, 2),
        (KEYWORDS + "same = kw\nsame['per_device_train_batch_size'] = 4\n" + MADE, 4),
        (KEYWORDS + MADE + "kw['per_device_train_batch_size'] = 4\n", 2),
        (KEYWORDS + "kw.update(overrides())\n" + MADE, REFUSED),
        (KEYWORDS + "kw |= overrides()\n" + MADE, REFUSED),
        (KEYWORDS + "kw[name()] = 4\n" + MADE, REFUSED),
        (KEYWORDS + "tune(kw)\n" + MADE, REFUSED),
        (KEYWORDS + "if big():\n    kw['per_device_train_batch_size'] = 4\n" + MADE, REFUSED),
        (KEYWORDS + "if big():\n    kw = {}\n" + MADE, REFUSED),
        (
            "def make(**kw):\n    return TrainingArguments(output_dir='o', **kw)\nargs = "
            "make(per_device_train_batch_size=4)",
            4,
        ),
        ("args = (lambda b: TrainingArguments(per_device_train_batch_size=b))(4)", 4),
        (
            "def main():\n    args = TrainingArguments('o')\n    args.per_device_train_batch_size "
            "= 4",
            4,
        ),
        ("for size in (2, 4):\n    TrainingArguments(per_device_train_batch_size=size)", REFUSED),
        ("TrainingArguments('o', 4)", REFUSED),
        ("TrainingArguments(*given())", REFUSED),
        (
            "from transformers import TrainingArguments as Some, TrainingArguments\nargs = "
            "Some(per_device_train_batch_size=4)",
            4,
        ),
    ],
)
def test_a_value_that_is_changed_around_the_call_counts_or_is_refused(
    text: str, batch: int | None
) -> None:
    assert batch_of(text + "\n# TrainingArguments(") == batch


USES = {
    "Trainer": lambda text: hf_trainer_reading.read(
        f"{text}\nTrainingArguments(per_device_train_batch_size=B)"
    ),
    "torchtitan": lambda text: torchtitan_reading.read(
        f"{text}\nTrainer.Config(training=TrainingConfig(local_batch_size=B), "
        "parallelism=ParallelismConfig())"
    ),
}


@pytest.mark.parametrize("program", USES)
@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("B = 2\nB *= 2", 4),
        ("B = 2\nB += 2", 4),
        ("B: int = 4", 4),
        ("A, B = 2, 4", 4),
        ("A, (C, B) = 2, (3, 4)", 4),
        ("(B := 4)", 4),
        ("A = (B := 4) + 1", 4),
        ("def f():\n    global B\n    B = 4\nB = 2\nf()", 4),
        ("def f():\n    B = 4\nB = 2\nf()", 2),
        ("globals()['B'] = 4", 4),
        ("if True:\n    B = 4\nelse:\n    B = 2", 4),
        ("if not __debug_mode__():\n    B = 4\nelse:\n    B = 4", 4),
        ("B = 2\nfor _ in range(3):\n    B += 1", 5),
        ("B = 4 if 2 > 1 else 2", 4),
        ("SIZES = {'a': [2, 4]}\nB = SIZES['a'][1]", 4),
        ("B = None or 4", 4),
        ("B = 2\nfrom elsewhere import B", REFUSED),
        ("B = 2\nfrom elsewhere import *", REFUSED),
        ("B = 2\nif big():\n    B = 4", REFUSED),
        ("B = 4 if big() else 2", REFUSED),
        ("B = 2\nfor B in sizes():\n    pass", REFUSED),
        ("B = 2\nwhile more():\n    B += 1", REFUSED),
        ("B = 2\ntry:\n    B = size()\nexcept Exception:\n    pass", REFUSED),
        ("try:\n    import torch\n    B = 2\nexcept ImportError:\n    B = 4", REFUSED),
        ("A, B = sizes()", REFUSED),
        ("*A, B = 1, 2, 4", REFUSED),
        ("B = 2\nwith size() as B:\n    pass", REFUSED),
        ("B = 2\nmatch size():\n    case 1:\n        B = 4", REFUSED),
        ("B = 2\nmatch size():\n    case B:\n        pass", REFUSED),
        ("B = 2\ndel B", REFUSED),
        ("B = 2\nexec('B = 4')", REFUSED),
        ("B = 2\n[B := each for each in sizes()]", REFUSED),
        ("B = 2\nbig() or (B := 4)", REFUSED),
        ("def f():\n    global B\n    if big():\n        B = 4\nB = 2\nf()", REFUSED),
        ("B = 2\nB **= 2", REFUSED),
        ("B = 2\nclass B:\n    pass", REFUSED),
    ],
)
def test_a_constant_is_right_where_it_is_known_and_refused_by_name_where_not(
    program: str, text: str, batch: int | None
) -> None:
    key = "per_device_train_batch_size" if program == "Trainer" else "training.local_batch_size"
    if batch is None:
        with pytest.raises(InputError, match=rf"{key} is .*;"):
            USES[program](text)
    else:
        assert USES[program](text).settings["micro_batch_size"] == batch


def test_a_constant_counts_as_it_stands_where_it_is_used() -> None:
    assert batch_of("B = 2\nTrainingArguments(per_device_train_batch_size=B)\nB = 4") == 2
    late = (
        "B = 2\ndef f():\n    return "
        "Trainer.Config(training=TrainingConfig(local_batch_size=B))\nB = 4"
    )
    assert torchtitan_reading.read(late).settings["micro_batch_size"] == 4


TITAN = (
    "def f():\n    c = Trainer.Config(training=TrainingConfig(local_batch_size=2), "
    "parallelism=ParallelismConfig())\n"
)


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("    setattr(c.training, 'local_batch_size', 4)", 4),
        ("    vars(c.training)['local_batch_size'] = 4", 4),
        ("    t = c.training\n    t.local_batch_size = 4", 4),
        ("    if big():\n        c.training.local_batch_size = 4", REFUSED),
        ("    if big():\n        return c\n    c.training.local_batch_size = 4", REFUSED),
        ("    for t in (c.training,):\n        t.local_batch_size = 4", 4),
        ("    for t in parts(c):\n        t.local_batch_size = 4", REFUSED),
        (
            "    try:\n        c.training.local_batch_size = size()\n    except Exception:\n      "
            "  pass",
            REFUSED,
        ),
        ("    c.training = other_training()", REFUSED),
        ("    tune(c)", REFUSED),
        ("    tune(c.training)", REFUSED),
        ("    c.training = TrainingConfig(4)", REFUSED),
        ("    c = elsewhere()\n    c.training.local_batch_size = 4", REFUSED),
    ],
)
def test_a_configuration_of_torchtitan_that_is_changed_counts_or_is_refused(
    text: str, batch: int | None
) -> None:
    text = f"from torchtitan.x import elsewhere\n{TITAN}{text}\n    return c\n"
    if batch is None:
        with pytest.raises(InputError, match=r";"):
            torchtitan_reading.read(text)
    else:
        assert torchtitan_reading.read(text).settings["micro_batch_size"] == batch


SIMPLE = (
    "B = {n}",
    "B += {n}",
    "A, B = B, {n}",
    "A = B",
    "kw = dict(per_device_train_batch_size=B)",
    "kw['per_device_train_batch_size'] = B",
    "kw.update(per_device_train_batch_size={n})",
    "kw |= dict(gradient_checkpointing=True)",
    "kw = {{**kw, 'bf16': True}}",
    "kw.pop('bf16', None)",
    "kv = kw",
    "kv['per_device_train_batch_size'] = {n}",
    "B = kw.get('per_device_train_batch_size', {n})",
    "change()",
    "put(kw, {n})",
    "B = pick({n})",
)
CHANGES = (
    "args.per_device_train_batch_size = {n}",
    "args.per_device_train_batch_size = B",
    "setattr(args, 'gradient_checkpointing', not args.gradient_checkpointing)",
    "vars(args)['per_device_train_batch_size'] = {n}",
    "args = args.set_training(batch_size={n})",
    "args = replace(args, bf16=True)",
    "other = args",
    "other.per_device_train_batch_size = {n}",
    "other = deepcopy(args)",
    "args.bf16 = coin()",
    "B = args.per_device_train_batch_size",
    "grow(args, {n})",
)
FUNCTIONS = """\
def change():
    global B
    B = B + 1
def put(home, n):
    if coin():
        return
    home['per_device_train_batch_size'] = n
def pick(n, m=3):
    for each in (n, m):
        if coin():
            return each
    return n
def grow(record, n):
    if n > 2:
        record.per_device_train_batch_size = n
        return
    record.gradient_checkpointing = True
"""
FRAMES = (
    "if coin():\n{0}\nelse:\n{1}",
    "if B > 2:\n{0}\nelse:\n{1}",
    "for B in ({n}, {m}):\n{0}",
    "for _ in range(int(coin()) + 1):\n{0}\n{1}",
    "try:\n{0}\n    if coin():\n        raise ValueError\n{1}\nexcept ValueError:\n{2}",
    "while coin():\n{0}\n    if coin():\n        break\n{1}",
    "coin() and change()",
)


def random_block(rng: Random, choices: tuple[str, ...], depth: int = 2) -> str:
    """Some statements in a row."""
    lines = list[str]()
    for _ in range(rng.randint(1, 3)):
        if depth and rng.random() < 0.35:
            inner = [
                random_block(rng, choices, depth - 1).replace("\n", "\n    ") for _ in range(3)
            ]
            lines.append(
                rng.choice(FRAMES).format(
                    *(f"    {each}" for each in inner), n=rng.randint(1, 4), m=rng.randint(1, 4)
                )
            )
        else:
            lines.append(rng.choice(choices).format(n=rng.randint(1, 4)))
    return "\n".join(lines)


def test_what_is_read_of_a_random_script_is_what_running_it_gives() -> None:
    """Whatever an unknown condition says; the rest is refused."""
    read = 0
    for seed in range(1500):
        rng = Random(seed)
        before, after = random_block(rng, SIMPLE), random_block(rng, (*CHANGES, *SIMPLE))
        frame = rng.choice(
            (
                "{}",
                "{}",
                "if True:\n    {}",
                "def main():\n    global args, other, kw, kv, A, B\n    {}\nmain()",
            )
        )
        ends = ("", "\nTrainer(args=args)")
        start = (
            "from dataclasses import replace\nfrom copy import deepcopy\nA, B, kw, kv = 1, 2, {}, "
            "{}\n" + FUNCTIONS
        )
        body = f"{before}\nargs = other = TrainingArguments(**kw)\n{after}{rng.choice(ends)}"
        text = start + frame.format(body.replace("\n", "\n    ") if frame != "{}" else body)
        try:
            found = hf_trainer_reading.read(text).settings
        except InputError:
            continue
        read += 1
        for way in range(6):
            throws = partial(Random(seed * 10 + way).choice, (True, False))
            space: dict[str, Any] = {
                "TrainingArguments": TrainingArguments,
                "Trainer": Trainer,
                "coin": throws,
            }
            exec(compile(text, "launch.py", "exec"), space)
            args = space["args"]
            right = {
                "micro_batch_size": args.per_device_train_batch_size,
                "precision": "bf16" if args.bf16 else "fp32",
                "recompute": "full" if args.gradient_checkpointing else "none",
            }
            assert {name: found[name] for name in right} == right, f"seed {seed}:\n{text}"
    assert read > 300
