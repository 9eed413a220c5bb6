"""Pytest plugin: a skipped test fails, unless its reason is on a short list.

A test that is skipped everywhere holds nothing. What a clone lacks is not a reason: dependencies come with the
development group, data with `tests/data`.
"""

from collections.abc import Generator
from typing import Any

import pytest

ALLOWED_REASONS = ("no GPU", "no network", "platform: ")
"""What the reason of a skip must start with. `platform: ` is followed by what this system or this user lacks."""


def _fail_if_unexpected(report: Any) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(ALLOWED_REASONS):
        report.outcome = "failed"
        report.longrepr = (
            f"unexpected skip: {reason}\nThe reason of a skip starts with one of {ALLOWED_REASONS}."
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn an unexpected skip of a test into a failure."""
    report = yield
    _fail_if_unexpected(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn an unexpected skip of a whole module into a failure."""
    report = yield
    _fail_if_unexpected(report)
    return report
