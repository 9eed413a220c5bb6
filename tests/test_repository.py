"""What holds for the repository as a whole: its files, and how the Makefile reads."""

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

import bytemill

REPOSITORY = Path(__file__).resolve().parent.parent

# Written so that this file does not match them.
REGISTRY_HOST = re.compile(
    r"(?:\bpypi\.(?:org|python\.org)|\bpythonhosted\.org|\b(?:static|index)\.crates\.io|//(?:www\.)?crates\.io"
    r"|\bnpmjs\.(?:org|com)|\bproxy\.golang\.org|\brepo1?\.maven\.(?:apache\.)?org|\bdeb\.debian\.org)"
)
MACHINE_PATH = re.compile(r"(?<![\w.~}>)-])/(?:root|home/(?!user/)\w+|Users/(?!name/)\w+|work)/")

HOST_PARTS = ("pypi.", "pythonhosted", "crates.io", "npmjs", "golang.org", "maven", "debian.org")
PATH_PARTS = tuple(f"/{name}/" for name in ("root", "home", "Users", "work"))


def run(*command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def committed() -> list[Path]:
    """Files that are committed, or would be with `git add --all`."""
    if shutil.which("git") is None or run("git", "rev-parse", "--show-toplevel").stdout.strip() != str(
        REPOSITORY
    ):
        pytest.skip("platform: not a git checkout")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout.split("\0")
    # A file that is deleted but not yet committed is still listed.
    return sorted({REPOSITORY / name for name in listed if name and (REPOSITORY / name).is_file()})


def test_no_file_names_the_host_of_a_package_registry_or_a_path_of_one_machine(committed: list[Path]) -> None:
    found: list[str] = []
    for file in committed:
        text = file.read_text(encoding="utf-8", errors="replace")
        for pattern, parts in ((REGISTRY_HOST, HOST_PARTS), (MACHINE_PATH, PATH_PARTS)):
            if not any(part in text for part in parts):
                continue  # looking for parts is much quicker than matching
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{file.relative_to(REPOSITORY)}:{line}: {match[0]}")
    assert found == []


@pytest.mark.parametrize(
    "name", ["https://{}.org/simple", "files.{}hosted.org", "https://static.{}.io/crates"]
)
def test_hosts_would_be_seen(name: str) -> None:
    hosts = {
        "https://{}.org/simple": "pypi",
        "files.{}hosted.org": "python",
        "https://static.{}.io/crates": "crates",
    }
    assert REGISTRY_HOST.search(name.format(hosts[name]))


def test_the_index_that_cargo_writes_into_its_lock_file_is_no_host() -> None:
    assert not REGISTRY_HOST.search('source = "registry+https://github.com/rust-lang/crates.io-index"')


@pytest.mark.parametrize("folder", ["root", "home/somebody", "Users/somebody", "work"])
def test_machine_paths_would_be_seen(folder: str) -> None:
    assert MACHINE_PATH.search(f"see /{folder}/bytemill")
    assert not MACHINE_PATH.search(f"see docs/{folder}/bytemill")


def test_the_lock_file_of_uv_stays_out(committed: list[Path]) -> None:
    assert REPOSITORY / "uv.lock" not in committed
    assert run("git", "check-ignore", "--quiet", "uv.lock").returncode == 0


def test_the_version_is_the_same_everywhere() -> None:
    version = re.findall(r'^version = "(.*)"$', (REPOSITORY / "Cargo.toml").read_text(), flags=re.MULTILINE)
    assert version == [bytemill.__version__]
    cited = re.findall(r"^version: (.*)$", (REPOSITORY / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert cited == version
    assert f"## {bytemill.__version__}" in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def makefile_targets() -> dict[str, str]:
    """Target -> its one line, empty where it has none. Names with `_` or `.` in front are not for people."""
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([A-Za-z][\w-]*):(?![=:]).*?(?:## (.*))?$", text, flags=re.MULTILINE)
    return dict(rules)


def test_every_target_of_the_makefile_has_its_line() -> None:
    targets = makefile_targets()
    assert {"demo", "test", "lint", "format", "docs", "bench", "clean"} <= set(targets)
    assert [name for name, line in targets.items() if not line] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="platform: make is not installed")
class TestMake:
    # Run inside `make test`, its variables would change what the inner make prints.
    environment: ClassVar = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }

    def test_alone_lists_every_target_with_its_line(self) -> None:
        answer = run("make", environment=self.environment)
        assert answer.returncode == 0, answer.stderr
        listed = dict(re.findall(r"^  make (\S+) +(.*)$", answer.stdout, flags=re.MULTILINE))
        assert listed == makefile_targets()

    def test_knows_what_each_target_needs(self) -> None:
        for target in makefile_targets():
            answer = run("make", "--dry-run", target, environment=self.environment)
            assert answer.returncode == 0, answer.stderr
            assert answer.stdout.strip(), target


def test_ci_runs_the_makefile() -> None:
    script = REPOSITORY / ".ci" / "run"
    assert os.access(script, os.X_OK)
    called = re.findall(r"^make (\w+)$", script.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert called == ["lint", "docs", "test"]


def test_no_module_has_the_name_of_what_its_package_exports():
    """`import package.name` gives the function otherwise, and never the module."""
    found: list[str] = []
    for init in (REPOSITORY / "python" / "bytemill").rglob("__init__.py"):
        folder = init.parent
        package = ".".join(folder.relative_to(REPOSITORY / "python").parts)
        modules = {path.stem for path in folder.iterdir()}
        for node in ast.walk(ast.parse(init.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module != package:
                names = {alias.asname or alias.name for alias in node.names}
                found += [f"{package}.{name}" for name in names & modules]
    assert not found
