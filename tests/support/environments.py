"""Packages that the tests use apart from the environment of the project, in folders of their own below `.cache`."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path

from filelock import FileLock

CACHE = Path(__file__).resolve().parents[2] / ".cache"
REGEX = "regex==2025.9.18"
"""The last release with Unicode 16.0, the version of the core's tables: they are compared span for span."""


def run_uv(*arguments: str) -> None:
    """Run uv without the settings of the project."""
    uv = os.environ.get("UV") or shutil.which("uv") or str(CACHE.parent / ".tools" / "bin" / "uv")
    subprocess.run([uv, *arguments, "--quiet", "--no-config"], check=True, cwd=CACHE, timeout=300)


def use_regex_of_unicode_16() -> None:
    """Make `import regex` give the release of `REGEX` in this process. The environment has a newer one."""
    CACHE.mkdir(exist_ok=True)
    folder = CACHE / f"{REGEX}-{sys.implementation.cache_tag}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as new:
                target = Path(new) / "packages"
                run_uv("pip", "install", "--python", sys.executable, "--target", str(target), REGEX)
                target.rename(folder)
    spec = PathFinder.find_spec("regex", [str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["regex"] = module
    spec.loader.exec_module(module)
