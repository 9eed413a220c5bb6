"""Counts the instructions that the parts of the core take, and compares them with what they took before.

    uv run python benchmarks/instructions.py [--check | --keep]

Times on a shared machine vary by a tenth and more; the number of instructions does not, so it shows what a change has
cost before a stopwatch could. It says nothing of waiting for memory and of branches foretold wrongly: an encoder may
take more instructions and less time. Counted by `valgrind --tool=callgrind` (which knows no AVX-512: the parts run
as on a processor with AVX2) over `crates/bytemill/examples/instructions.rs`, on generated text that is
the same everywhere.

The baseline is `results/instructions.json` and holds for one compiler release and architecture: --keep writes it anew,
--check exits with 1 where a part takes more than --tolerance beyond it.
"""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness

BASELINE = harness.RESULTS / "instructions.json"
N_BYTES = 1_000_000
KINDS = ("english", "code", "multilingual")
PATTERNS = ("gpt2", "cl100k", "o200k", "llama3")
PARTS = {
    **{f"split-{name}": KINDS for name in PATTERNS},
    "new": KINDS,
    "again": KINDS,
    "decode": KINDS,
    "count": KINDS,
    "learn": KINDS,
    "merge-short": ("english",),
    "merge-long": ("english",),
}
"""Part -> kinds of text that it is run on; what is merged are letters drawn at random."""

_COLLECTED = re.compile(r"Collected : (\d+)")


def built_example() -> Path:
    """Builds the example and gives its path."""
    command = ["cargo", "build", "--release", "--quiet", "--locked", "--package", "bytemill"]
    command += ["--example", "instructions", "--message-format", "json-render-diagnostics"]
    answer = subprocess.run(command, cwd=harness.REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit("error: the example could not be built: see above")
    artifacts = [json.loads(line) for line in answer.stdout.splitlines()]
    (executable,) = [made["executable"] for made in artifacts if made.get("executable")]
    return Path(executable)


def instructions_of(example: Path, part: str, kind: str) -> int:
    """Instructions of one part on N_BYTES of text."""
    if part == "count":
        # It works in a thread of its own, so all is counted, less what making the text takes.
        return _callgrind(example, part, kind, everything=True) - _callgrind(
            example, "nothing", kind, everything=True
        )
    return _callgrind(example, part, kind, everything=False)


def _callgrind(example: Path, part: str, kind: str, *, everything: bool) -> int:
    only = [] if everything else ["--collect-atstart=no", "--toggle-collect=*measured_part*"]
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *only]
        command += [str(example), part, kind, str(N_BYTES)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _COLLECTED.search(answer.stderr)
    if answer.returncode != 0 or found is None:
        raise SystemExit(f"error: {' '.join(command)} failed:\n{answer.stderr.strip()}")
    return int(found[1])


def measure(example: Path, parts: list[str]) -> dict[str, float]:
    """Part and kind -> instructions per byte."""
    return {
        f"{part} {kind}": round(instructions_of(example, part, kind) / N_BYTES, 3)
        for part in parts
        for kind in PARTS[part]
    }


def grown(counted: dict[str, float], baseline: dict[str, float], tolerance: float) -> list[str]:
    """Parts that take more than they did, in words.

    >>> grown({"new english": 104, "again english": 90}, {"new english": 100, "again english": 95}, 0.03)
    ['new english: 104 instructions a byte, 4.0 % more than 100']
    """
    return [
        f"{name}: {count:g} instructions a byte, {count / baseline[name] - 1:.1%}".replace("%", " %")
        + f" more than {baseline[name]:g}"
        for name, count in counted.items()
        if name in baseline and count > baseline[name] * (1 + tolerance)
    ]


def surroundings() -> dict[str, str]:
    """What the number of instructions depends on beside the code."""
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False).stdout
    return {"compiler": compiler.split("(")[0].strip(), "architecture": platform.machine()}


def why_not() -> str | None:
    """Why nothing can be counted here, None where it can."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    return "cargo is not installed" if shutil.which("cargo") is None else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the instructions that the parts of the core take.")
    parser.add_argument(
        "--parts", type=lambda value: value.split(","), default=list(PARTS), help="comma-separated (all)"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a part takes more than the baseline"
    )
    parser.add_argument("--keep", action="store_true", help="make this the baseline")
    parser.add_argument("--tolerance", type=float, default=0.03, help="share that is let pass (%(default)s)")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"{part!r} is none of {', '.join(PARTS)}")
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    counted = measure(built_example(), arguments.parts)
    found: dict[str, Any] = surroundings() | {"n_bytes": N_BYTES, "instructions_per_byte": counted}
    before: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.is_file() else {}
    comparable = all(before.get(key) == found[key] for key in ("compiler", "architecture", "n_bytes"))
    baseline: dict[str, float] = before["instructions_per_byte"] if comparable else {}
    rows = [
        [*name.split(), f"{count:.2f}", f"{count / baseline[name] - 1:+.1%}" if name in baseline else ""]
        for name, count in counted.items()
    ]
    print(harness.format_table(["part", "text", "instructions/byte", "since baseline"], rows))
    if before and not comparable:
        theirs = ", ".join(str(before.get(key)) for key in ("compiler", "architecture"))
        print(f"\nThe baseline is of {theirs}: not compared.")
    if arguments.json is not None:
        print(f"\nSaved to {harness.save(arguments.json, 'instructions', found)}")
    if arguments.keep:
        kept = found | {"instructions_per_byte": baseline | counted}
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(f"\nThe baseline is now {BASELINE}")
        return 0
    more = grown(counted, baseline, arguments.tolerance)
    for line in more:
        print(line, file=sys.stderr)
    return 1 if more and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
