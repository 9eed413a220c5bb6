"""Train GPT-2 on FineWeb-Edu with GPT-2's tokenizer and two of our own, and compare bits per byte.

    python run.py full fineweb-edu/sample/10BT --folder study --dry-run
    python run.py full fineweb-edu/sample/10BT --folder study --devices 8
    python run.py single-gpu fineweb-edu/sample/10BT --folder study

Every stage is a command of `bytemill`. A stage whose result exists is skipped, and an interrupted stage resumes, so the
same command continues an interrupted study.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.lm.planning import DEVICES
from bytemill.system.units import format_bytes, format_seconds
from stages import SCALES, Stage, stages

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = (sys.executable, "-m", "bytemill")
NORMALIZATIONS = ("tokens", "characters")
"""Of HellaSwag's accuracy: as build-nanogpt normalizes, and as lm-evaluation-harness does (acc_norm)."""


def describe(found: list[Stage]) -> str:
    """Render what the study will do, its size and its time."""
    lines = []
    for number, stage in enumerate(found, 1):
        seconds = "unknown time" if stage.seconds is None else format_seconds(stage.seconds)
        cost = "done" if stage.is_done else f"{format_bytes(int(stage.n_bytes))}, {seconds}"
        lines += [f"{number:>2}. {stage.title} ({cost})", f"      bytemill {shlex.join(stage.words)}"]
    rest = [stage for stage in found if not stage.is_done]
    total = sum(stage.seconds or 0 for stage in rest)
    lines.append(
        f"{len(rest)} of {len(found)} stages to do: {format_bytes(int(needed_bytes(found)))} on disk, about "
        f"{format_seconds(total)} by estimate (not measured)"
    )
    return "\n".join(lines)


def needed_bytes(found: list[Stage]) -> float:
    return sum(stage.n_bytes for stage in found if not stage.is_done)


def bytemill(words: tuple[str, ...], output: Path | None) -> int:
    """Run a command in a process of its own; write its standard output to a file if one is named.

    Ctrl-C and SIGTERM end the command, which saves first; this process waits for it.
    """
    with contextlib.ExitStack() as stack:
        file = None if output is None else stack.enter_context(output.open("wb"))
        process = subprocess.Popen([*COMMAND, *words], stdout=file)
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        stack.callback(signal.signal, signal.SIGTERM, before)
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # the terminal sends Ctrl-C to the command too
                return process.wait()


def perform(found: list[Stage], call: Callable[[tuple[str, ...], Path | None], int]) -> int:
    """Run the stages that are not done; return 0, or the exit code of the first one that fails."""
    for number, stage in enumerate(found, 1):
        if stage.is_done:
            print(f"{number:>2}. {stage.title}: done before", flush=True)
            continue
        print(f"{number:>2}. {stage.title}", flush=True)
        stage.result.parent.mkdir(parents=True, exist_ok=True) if stage.keep_output else None
        partial = stage.result.with_suffix(".partial") if stage.keep_output else None
        if code := call(stage.words, partial):
            print(
                f"stage {number} failed with exit code {code}: run the same command again to resume",
                file=sys.stderr,
            )
            return code
        if partial is not None:
            partial.replace(stage.result)
    return 0


def table(folder: Path, names: list[str]) -> str:
    """Render the scores of all models as a Markdown table."""
    rows = [
        "| tokenizer | tokens | loss | bits per byte | HellaSwag, by tokens | by characters |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        scores: dict[str, Any] = json.loads((folder / f"{name}.scores.json").read_text(encoding="utf-8"))
        [text] = scores["texts"].values()
        accuracies = [
            f"{score['accuracy'][by]:.2%}" for score in scores["hellaswag"].values() for by in NORMALIZATIONS
        ] or ["–"] * len(NORMALIZATIONS)
        row = [
            name,
            f"{text['n_tokens']:,}",
            f"{text['loss']:.4f}",
            f"{text['bits_per_byte']:.4f}",
            *accuracies,
        ]
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows) + "\n"


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scale", choices=SCALES)
    parser.add_argument("text", nargs="+", help="files, folders or globs of FineWeb-Edu's text")
    parser.add_argument("--folder", default="study", help="folder for everything the study writes")
    parser.add_argument("--shards", help="folder of existing GPT-2 shards: *_train_*.bin and *_val_*.bin")
    parser.add_argument("--hellaswag", help="HellaSwag file, see `bytemill data get hellaswag`")
    parser.add_argument("--devices", type=int, default=1, help="number of GPUs")
    parser.add_argument("--gpu", choices=DEVICES, help="device for the estimated time")
    parser.add_argument("--tokenizer", default="gpt2", help="in place of GPT-2's tokenizer")
    parser.add_argument("--vocab-size", type=int, default=50_257, help="its number of ids")
    parser.add_argument("--documents", action="append", default=[], help="special token that ends documents")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands, sizes and times, and exit"
    )
    return parser.parse_args(words)


def main(
    words: list[str] | None = None, call: Callable[[tuple[str, ...], Path | None], int] = bytemill
) -> int:
    options = parse(words)
    folder = Path(options.folder)
    found = stages(options)
    print(describe(found), flush=True)
    existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed_bytes(found) > free:
        needed = format_bytes(int(needed_bytes(found)))
        print(f"error: {folder} needs about {needed}, but {format_bytes(free)} are free", file=sys.stderr)
        return 1
    if options.dry_run:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    if code := perform(found, call):
        return code
    result = table(folder, ["gpt2", *SCALES[options.scale].vocab_sizes])
    (folder / "results.md").write_text(result, encoding="utf-8")
    print(result, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
