"""Hostile files are refused within limits on memory and time that the system enforces."""

import resource
import subprocess
import sys
from pathlib import Path

MAX_MEMORY = 1 << 30
"""Bytes of address space. Python with the package takes a quarter of that, and the largest file has 24 MB."""

MAX_SECONDS = 60
"""Processor time for all of some thirty files: they take less than 5 s, most of it to write them."""


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def test_hostile_files_are_refused_within_limits(tmp_path: Path) -> None:
    program = Path(__file__).with_name("hostile_files.py")
    outcome = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert len(outcome.stdout.splitlines()) > 30
