"""The scripts in `runs` work from the first line to the last."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_first_model_is_made_and_a_second_call_finds_it(tmp_path: Path) -> None:
    script = REPOSITORY / "runs" / "first-model.sh"
    folder = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "BASE_STEPS": "20",
        "SFT_STEPS": "5",
        "GRPO_STEPS": "6",
        "OMP_NUM_THREADS": "1",
    }
    for _ in range(2):
        done = subprocess.run(
            ["bash", str(script), str(tmp_path / "model")],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "Differences from" in done.stdout
        assert "bytemill studio" in done.stdout.splitlines()[-1]
    assert (tmp_path / "model" / "grpo" / "checkpoints").is_dir()
