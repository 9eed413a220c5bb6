"""Rewards: what an answer is worth, as functions of the answer and the row of its prompt.

A reward returns a number, or several by name of which `reward` counts. `reward_function` finds one by name; any
function in a Python file does as well.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import MissingExtraError, RunConfigError

if TYPE_CHECKING:
    from bytemill.lm.tuning.rows import Row

Reward = Callable[[str, str, "Row"], float | Mapping[str, float]]
"""Called with the prompt, the answer of the model, and the row of the prompt."""

_NUMBER = re.compile(r"(?<!\d)[-+]?(?:\d[\d,]*)?\.?\d+")
_GSM8K = re.compile(r"####\s*([-+]?[\d,]*\.?\d+)")
_LETTER = re.compile(r"\banswer(?:\s+is)?\s*:?\s*\(?([A-D])\)?(?![A-Za-z0-9])", re.IGNORECASE)
_LONE_LETTER = re.compile(r"\(?([A-D])\)?[.:)]?")
_TAGGED = re.compile(r"\s*<think>.*?</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)


def last_number(text: str) -> str | None:
    """Return the last number of a text without its commas, or None.

    >>> last_number("48 + 1,024 = 1,072."), last_number("seventy-two")
    ('1072', None)
    """
    found = _NUMBER.findall(text)
    return found[-1].replace(",", "").removeprefix("+") if found else None


def gsm8k_number(text: str) -> str | None:
    """Return the number after the last `####`, the form in which GSM8K writes its answers, or None.

    >>> gsm8k_number("48 / 2 = 24\\n#### 1,072"), gsm8k_number("It is 72.")
    ('1072', None)
    """
    found = _GSM8K.findall(text)
    return found[-1].replace(",", "").removeprefix("+") if found else None


def chosen_letter(text: str) -> str | None:
    """Return the letter A to D that a text names as the answer, or None.

    >>> chosen_letter("The correct answer is B."), chosen_letter(" (c) "), chosen_letter("The answer is Berlin.")
    ('B', 'C', None)
    """
    found = _LETTER.findall(text)
    if not found and (alone := _LONE_LETTER.fullmatch(text.strip().upper())):
        return alone[1]
    return found[-1].upper() if found else None


def _is_equal(found: str | None, answer: Any) -> float:
    """Return 1 if a number is that of an answer, whose own number may come after `####`."""
    text = str(answer)
    expected = gsm8k_number(text) or last_number(text)
    return float(found is not None and expected is not None and float(found) == float(expected))


def number(prompt: str, answer: str, row: Row) -> float:  # noqa: ARG001 - all rewards take these arguments
    """Return 1 if the whole answer is the number of `row["answer"]`, with blanks around it."""
    text = answer.strip()
    return _is_equal(text.replace(",", ""), row["answer"]) if _NUMBER.fullmatch(text) else 0.0


def gsm8k_strict(prompt: str, answer: str, row: Row) -> float:  # noqa: ARG001
    """Return 1 if the number after `####` is that of `row["answer"]`."""
    return _is_equal(gsm8k_number(answer), row["answer"])


def gsm8k_flexible(prompt: str, answer: str, row: Row) -> float:  # noqa: ARG001
    """Return 1 if the last number is that of `row["answer"]`."""
    return _is_equal(last_number(answer), row["answer"])


def think_answer(prompt: str, answer: str, row: Row) -> dict[str, float]:
    """Reward the form `<think>…</think> <answer>…</answer>`: 1 if its number is right, 0 otherwise; `format` apart."""
    found = _TAGGED.fullmatch(answer)
    right = gsm8k_flexible(prompt, found[1], row) if found else 0.0
    return {"reward": right, "format": float(found is not None), "answer": right}


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.replace("_", "-")
        raise MissingExtraError(
            f"this reward needs the package {package}: {error}", hint=f"pip install {package}"
        ) from error


def math_answer(prompt: str, answer: str, row: Row) -> float:  # noqa: ARG001
    """Return 1 if `math-verify` finds the last expression equal to that of `row["answer"]`."""
    library = _library("math_verify")
    return float(library.verify(library.parse(str(row["answer"])), library.parse(answer)))


def reasoning_gym(prompt: str, answer: str, row: Row) -> float:  # noqa: ARG001
    """Return the score of `reasoning-gym` for a row of one of its data sets, with `metadata.source_dataset`."""
    library = _library("reasoning_gym")
    score = library.get_score_answer_fn(row["metadata"]["source_dataset"])
    return float(score(answer.strip(), row))


REWARDS: dict[str, Reward] = {
    "number": number,
    "gsm8k-strict": gsm8k_strict,
    "gsm8k-flexible": gsm8k_flexible,
    "think-answer": think_answer,
    "math": math_answer,
    "reasoning-gym": reasoning_gym,
}
"""Rewards by name."""


def reward_function(name: str) -> Reward:
    """Return a reward by its name, or the function that `FILE.py:FUNCTION` names.

    Raises:
        RunConfigError: There is no such reward, file or function, or the file cannot be run.
    """
    if name in REWARDS:
        return REWARDS[name]
    path, colon, function = name.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise RunConfigError(
            f"unknown reward {name!r}",
            hint=f"choose {', '.join(REWARDS)}, or a function of yours: FILE.py:FUNCTION",
        )
    if not Path(path).is_file():
        raise RunConfigError(f"the reward {name!r}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:  # a name that ends in .py has a loader
        raise RunConfigError(f"the reward {name!r}: {path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RunConfigError(
            f"the reward {name!r}: {path} fails with {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise RunConfigError(f"the reward {name!r}: {path} has no function {function}")
    return cast("Reward", found)


def reward_values(reward: Reward, prompt: str, answer: str, row: Row) -> dict[str, float]:
    """Return the values of a reward by name; one that is just a number is `reward`."""
    found = reward(prompt, answer, row)
    values = found if isinstance(found, Mapping) else {"reward": found}
    return {name: float(value) for name, value in values.items()}
