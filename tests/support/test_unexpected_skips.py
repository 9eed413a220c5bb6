"""A skipped test fails, unless its reason is on the list."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "test_body.py": "import pytest\ndef test_it():\n    pytest.skip('{reason}')\n",
    "test_mark.py": "import pytest\n@pytest.mark.skip(reason='{reason}')\ndef test_it():\n    pass\n",
    "test_fixture.py": "import pytest\n@pytest.fixture\ndef data():\n    pytest.skip('{reason}')\n"
    "def test_it(data):\n    pass\n",
    "test_module.py": "import pytest\npytest.skip('{reason}', allow_module_level=True)\n",
}
"""A skip in each place that can have one."""


OPTIONS = ["-p", "unexpected_skips", "-p", "no:cacheprovider", "--continue-on-collection-errors"]


def run(folder: Path, programs: dict[str, str]) -> tuple[int, str]:
    """Run pytest with the plugin on files of tests; return its exit status and its output."""
    for name, program in programs.items():
        (folder / name).write_text(program, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return outcome.returncode, outcome.stdout


def test_the_plugin_is_active_in_this_run(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("unexpected_skips")


def test_skips_without_an_allowed_reason_fail(tmp_path: Path) -> None:
    status, out = run(tmp_path, {name: text.format(reason="no texts") for name, text in SKIPS.items()})
    assert status == 1
    assert "unexpected skip: Skipped: no texts" in out
    assert (
        "1 failed, 3 errors" in out.splitlines()[-1]
    )  # a skip before the body of the test counts as an error


def test_skips_with_an_allowed_reason_and_expected_failures_stay_what_they_are(tmp_path: Path) -> None:
    programs = {name: text.format(reason="platform: no named pipes") for name, text in SKIPS.items()}
    programs["test_fails.py"] = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    raise ValueError\n"
    status, out = run(tmp_path, programs | {"test_fine.py": "def test_it():\n    pass\n"})
    assert status == 0
    assert "1 passed, 4 skipped, 1 xfailed" in out
