"""Compares pre-tokens with Python's `regex` and ids with tiktoken, on all text at hand and on random strings.

    uv run python benchmarks/exactness.py texts  [--text FILE]... [--processes 2]
    uv run python benchmarks/exactness.py random [--strings 10000000] [--seed 1] [--state FILE] [--seconds 60]
    uv run python benchmarks/exactness.py random --model qwen3.tokenizer.json --strings 1000000

"texts" takes every file of ../shared/data and the texts of corpus.py, in pieces of about 64 KB that end at line ends.
"random" takes strings from `random_strings.py`. Patterns gpt2, cl100k, o200k and llama3 (which has cl100k's ranks for
want of its own); ids where the rank files are at hand. The first difference of each pattern is printed as the shortest
string that still shows it, and the exit status is 1. With --state, a run that was ended by --seconds or Ctrl-C goes on
where it stopped. With --model, ids of a tokenizer.json are compared with Hugging Face's instead, and half of the random
strings get one of its added tokens at a random place.
"""

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import corpus
import harness
from encode import standing_texts
from vocabularies import expression_of

PATTERNS = ("gpt2", "cl100k", "o200k", "llama3")
RANKS = {
    "gpt2": "r50k_base.tiktoken",
    "cl100k": "cl100k_base.tiktoken",
    "o200k": "o200k_base.tiktoken",
    "llama3": "cl100k_base.tiktoken",
}
PIECE_BYTES = 64 * 1024
BATCH_STRINGS = 5_000


@dataclass(frozen=True)
class Difference:
    """Where bytemill and its reference part."""

    pattern: str
    what: str
    text: str
    source: str


@dataclass(frozen=True)
class Job:
    """A piece of work for one process: a batch of random strings, or a stretch of a file."""

    source: str
    seed: int = 0
    batch: int = 0
    n_strings: int = 0
    start: int = 0
    end: int = 0

    def texts(self) -> list[str]:
        """What is to be compared."""
        if self.n_strings:
            import random_strings

            return random_strings.draw(self.seed, self.batch, self.n_strings)
        with Path(self.source).open("rb") as file:
            file.seek(self.start)
            return [file.read(self.end - self.start).decode("utf-8", "replace")]


@cache
def expression(name: str) -> Any:
    """The pattern compiled by `regex`. In Python `$` also matches before a line feed at the end of the text."""
    import regex

    from bytemill._core import NAMED_PATTERNS

    return regex.compile(NAMED_PATTERNS[name].replace("$", r"\Z"))


def same_pretokens(name: str, text: str) -> bool:
    """Whether the core splits as the expression says; both leave nothing out, so equal pieces lie at equal places."""
    from bytemill._core import pretoken_spans

    data = text.encode("utf-8")
    ours = [data[start:end] for start, end in pretoken_spans(text, name)]
    return ours == [pretoken.encode("utf-8") for pretoken in expression(name).findall(text)]


@cache
def encoders(name: str) -> tuple[Any, Any] | None:
    """bytemill's and tiktoken's encoder for a pattern; None where the rank file is not at hand."""
    import tiktoken

    import bytemill
    from bytemill._core import NAMED_PATTERNS

    data = harness.shared_data()
    if data is None or not (data / RANKS[name]).is_file():
        return None
    ours = bytemill.Tokenizer.load(data / RANKS[name], pattern=name, special_tokens={})
    pattern = expression_of(name) if name != "llama3" else NAMED_PATTERNS[name]
    ranks = {ours.decode_single_token_bytes(i): i for i in ours.vocab}
    return ours, tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def same_ids(name: str, text: str) -> bool:
    """Whether the ids are tiktoken's; True where there is nothing to compare with."""
    both = encoders(name)
    return both is None or both[0].encode_ordinary(text) == both[1].encode_ordinary(text)


@cache
def models(path: str) -> tuple[Any, Any]:
    """bytemill's and Hugging Face's tokenizer of a tokenizer.json."""
    import tokenizers

    import bytemill

    return bytemill.Tokenizer.load(path), tokenizers.Tokenizer.from_file(path)


def same_model_ids(path: str, text: str) -> bool:
    """Whether the ids are Hugging Face's, added tokens included."""
    ours, theirs = models(path)
    return ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


def with_added_tokens(path: str, texts: list[str], seed: int, batch: int) -> list[str]:
    """The texts, every other one with an added token of the model somewhere."""
    added = [token.content for token in models(path)[1].get_added_tokens_decoder().values()]
    chance = random.Random(f"{seed} {batch}")  # noqa: S311
    changed = list(texts)
    for k in range(0, len(texts), 2):
        at = chance.randint(0, len(texts[k]))
        changed[k] = texts[k][:at] + chance.choice(added) + texts[k][at:]
    return changed


CHECKS: dict[str, Callable[[str, str], bool]] = {"pre-tokens": same_pretokens, "ids": same_ids}
MODEL_CHECKS: dict[str, Callable[[str, str], bool]] = {"ids": same_model_ids}


def shortest(text: str, differs: Callable[[str], bool]) -> str:
    """A string that still differs and no part of which, left out, leaves a difference.

    >>> shortest("xxabxxcxx", lambda text: "a" in text and "c" in text)
    'ac'
    """
    n_characters = len(text) // 2
    while n_characters:
        start = 0
        while start < len(text):
            without = text[:start] + text[start + n_characters :]
            if differs(without):
                text = without
            else:
                start += n_characters
        n_characters //= 2
    return text


def compare(job: Job, patterns: tuple[str, ...]) -> tuple[int, int, list[Difference]]:
    """Number of strings and of their bytes, and the first difference of each pattern and check."""
    texts = drawn = job.texts()
    found: list[Difference] = []
    for name in patterns:
        is_model = name not in PATTERNS
        if is_model and job.n_strings:
            texts = with_added_tokens(name, drawn, job.seed, job.batch)
        for what, check in (MODEL_CHECKS if is_model else CHECKS).items():
            wrong = next((text for text in texts if not check(name, text)), None)
            if wrong is not None:
                text = shortest(wrong, lambda text, name=name, check=check: not check(name, text))
                source = f"{job.source}, seed {job.seed}, batch {job.batch}, bytes {job.start}-{job.end}"
                found.append(Difference(name, what, text, source))
    return len(texts), sum(len(text.encode("utf-8")) for text in texts), found


def pieces_of(path: Path) -> Iterator[Job]:
    """The file in stretches that end at line ends."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = 0
        while start < size:
            file.seek(min(start + PIECE_BYTES, size))
            file.readline()
            yield Job(str(path), start=start, end=file.tell())
            start = file.tell()


def all_texts() -> list[Path]:
    """Every file of the shared data, and the texts of corpus.py."""
    data = harness.shared_data()
    files = sorted(path for path in data.rglob("*") if path.is_file()) if data is not None else []
    return [*files, *standing_texts()]


def jobs_of(arguments: argparse.Namespace) -> list[Job]:
    """All the work, in the order in which it is done."""
    if arguments.what == "random":
        n_batches = -(-arguments.strings // BATCH_STRINGS)
        return [Job("random", arguments.seed, batch, BATCH_STRINGS) for batch in range(n_batches)]
    texts: list[Path] = arguments.text or all_texts()
    return [job for path in texts for job in pieces_of(path)]


def run(jobs: list[Job], arguments: argparse.Namespace) -> tuple[int, list[Difference]]:
    """Does the jobs in order until the time is up; gives how many are done and what was found."""
    started = shown = time.monotonic()
    n_done = n_strings = n_bytes = 0
    found: list[Difference] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes) as pool:
        # Jobs are handed out in order as results are taken, so that a run can end between two of them.
        work = partial(compare, patterns=tuple(arguments.model or arguments.patterns))
        for strings, size, differences in pool.imap(work, jobs):
            n_done, n_strings, n_bytes = n_done + 1, n_strings + strings, n_bytes + size
            for difference in differences:
                known = {(other.pattern, other.what) for other in found}
                if (difference.pattern, difference.what) not in known:
                    print(
                        f"{difference.pattern}, {difference.what}: {difference.text!a} ({difference.source})",
                        flush=True,
                    )
                found.append(difference)
            now = time.monotonic()
            if now - shown > 10 or n_done == len(jobs):
                shown = now
                rate = n_bytes / 1e6 / (now - started)
                print(
                    f"{n_done:,} of {len(jobs):,} jobs, {n_strings:,} strings, {n_bytes / 1e6:.1f} MB, "
                    f"{n_strings / (now - started):,.0f} strings/s, {rate:.2f} MB/s, "
                    f"differences in {len(found)} jobs",
                    flush=True,
                )
            if arguments.seconds is not None and now - started > arguments.seconds:
                pool.terminate()
                break
    return n_done, found


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare pre-tokens with regex and ids with tiktoken.")
    parser.add_argument("what", choices=("texts", "random"))
    parser.add_argument("--text", type=Path, action="append", help="file to compare on, repeatable")
    parser.add_argument("--strings", type=int, default=10_000_000, help="random strings (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random strings (%(default)s)")
    parser.add_argument("--patterns", type=lambda value: value.split(","), default=list(PATTERNS))
    parser.add_argument("--model", action="append", help="tokenizer.json instead of patterns, repeatable")
    parser.add_argument("--processes", type=int, default=2, help="default 2")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--state", type=Path, help="JSON file that says where to go on")
    arguments = parser.parse_args()
    corpus.cache_folder()
    jobs = jobs_of(arguments)
    state: dict[str, Any] = {"done": 0, "differences": []}
    if arguments.state is not None and arguments.state.is_file():
        state = json.loads(arguments.state.read_text(encoding="utf-8"))
    n_done, found = run(jobs[state["done"] :], arguments)
    state["done"] += n_done
    state["differences"] += [[d.pattern, d.what, ascii(d.text), d.source] for d in found]
    if arguments.state is not None:
        arguments.state.write_text(json.dumps(state, indent=1), encoding="utf-8")
    print(f"{state['done']:,} of {len(jobs):,} jobs done, differences in {len(state['differences'])}")
    return 1 if state["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
