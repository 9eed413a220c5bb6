"""Every example in the README and the documentation runs, or says why it is not run.

The blocks of a page run from top to bottom in one folder:

- `python`: executed. If a `text` block follows, it is the output. All blocks of a page share their names.
- `console`: lines after `$` are commands; the lines below are their output, if there are any.
- `sh`: commands whose output is not shown.
- `<!-- not run: REASON -->` in the line above leaves a block out. Blocks in other languages are not code to run.

In an output, `...` stands for any text, and a line `...` for any lines.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.command_server import PYTHON

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
INPUTS = Path(__file__).with_name("inputs.py")
PYTHON_SESSION = Path(__file__).with_name("python_session.py")
SELF_CONTAINED = {"README.md", "docs/index.md", "docs/guides/tutorial.md"}
"""Pages that make their files themselves; the examples of all others find those of `inputs.py`."""

RUN = {"python", "console", "sh"}
NOT_CODE = {"text", "json", "toml", "rust"}
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    flags=re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"<!-- not run: \S.* -->\s*\Z")
SEPARATOR = "\x1e"
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Block:
    """A block of code in a page."""

    page: str
    line: int
    language: str
    code: str
    is_run: bool
    expected: str | None = None
    """The `text` block that follows a `python` block."""

    @property
    def where(self) -> str:
        """Path and line, for messages."""
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    fences = list(FENCE.finditer(text))
    for match, following in zip(fences, [*fences, None][1:], strict=True):
        language = match["language"].strip()
        expected = None
        if following and following["language"].strip() == "text":
            is_next = not text[match.end() : following.start()].strip()
            expected = _dedent(following) if is_next else None
        found.append(
            Block(
                page=page.relative_to(REPOSITORY).as_posix(),
                line=text.count("\n", 0, match.start()) + 1,
                language=language,
                code=_dedent(match),
                is_run=language in RUN and MARK.search(text, 0, match.start()) is None,
                expected=expected,
            )
        )
    return found


def _dedent(match: re.Match[str]) -> str:
    return re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a `console` block with their output, as far as it is shown."""
    found: list[tuple[str, str]] = []
    for line in block.code.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and not found[-1][1] and found[-1][0].endswith("\\\n"):
            found[-1] = (found[-1][0] + line, "")
        else:
            assert found, f"{block.where}: a console block starts with a command after $"
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def matches(shown: str, printed: str) -> bool:
    """Tell whether what a page shows is what was printed; blanks at line ends do not count.

    >>> matches("a ... d\\n...\\nz", "a b c d\\nx\\ny\\nz\\n")
    True
    """
    lines = [line.rstrip() for line in shown.strip("\n").splitlines()]
    pattern = "\n".join(
        r"(?:.*\n)*?.*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?") for line in lines
    )
    text = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, text) is not None


class Session:
    """A folder, a Python process and a shell environment in which the blocks of one page run."""

    def __init__(self, folder: Path, commands_folder: Path | None = None) -> None:
        self._python: subprocess.Popen[str] | None = None
        self._interpreter = commands_folder / PYTHON if commands_folder else Path(sys.executable)
        path = os.environ["PATH"]
        dropped = {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
        self.environment = {name: value for name, value in os.environ.items() if name not in dropped} | {
            "PATH": os.pathsep.join(
                [*([str(commands_folder)] if commands_folder else []), str(Path(sys.executable).parent), path]
            ),
            "BYTEMILL_CACHE": str(folder / ".cache"),
            "HF_HUB_OFFLINE": "1",
            # Models are trained for a moment only; options on the command line are stronger.
            "BYTEMILL_TRAINING_STEPS": "2",
            "BYTEMILL_TRAINING_BATCH_SIZE": "2",
            "OMP_NUM_THREADS": "1",
        }

    def close(self) -> None:
        """End the Python process."""
        if self._python is not None:
            self._python.communicate(timeout=TIMEOUT_SECONDS)

    def python(self, code: str, where: str) -> str:
        """Execute code in the Python process of the page and return what it prints."""
        if self._python is None:
            self._python = subprocess.Popen(
                [self._interpreter, "-c", PYTHON_SESSION.read_text(encoding="utf-8")],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        print(json.dumps([where, code]), file=self._python.stdin, flush=True)
        printed, error = json.loads(self._python.stdout.readline())
        assert error is None, f"{where}:\n{error}"
        return printed

    def shell(self, script: str, where: str) -> str:
        """Run commands and return what they print, errors included."""
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{where}: exit status {done.returncode}\n{script}\n{done.stdout}"
        return done.stdout

    def run(self, block: Block) -> None:
        """Run a block and compare its output with the page."""
        match block.language:
            case "python":
                printed = self.python("\n" * block.line + block.code, block.where)
                if block.expected is not None:
                    self.compare(block, block.expected, printed)
            case "console":
                self.run_console(block)
            case _:
                self.shell(block.code, block.where)

    def run_console(self, block: Block) -> None:
        """Run the commands of a `console` block and compare each output that is shown.

        A command may fail where the page shows its error.
        """
        wanted = commands(block)
        script = "".join(
            f"status=0\n{{ {command.rstrip()}\n}} || status=$?\nprintf '{SEPARATOR}%s\\n' $status\n"
            for command, _ in wanted
        )
        printed = self.shell(script, block.where)
        parts = re.split(rf"{SEPARATOR}(\d+)\n", printed)
        for (command, shown), text, status in zip(wanted, parts[::2], parts[1::2], strict=False):
            is_failure_shown = "error: " in shown
            assert (status != "0") == is_failure_shown, (
                f"{block.where}: {command}exit status {status}\n{text}"
            )
            if shown.strip():
                self.compare(block, shown, text)

    def compare(self, block: Block, shown: str, printed: str) -> None:
        """Raise unless the page shows what was printed."""
        assert matches(shown, printed), f"{block.where} shows\n{shown}\nbut this was printed:\n{printed}"


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the examples start from."""
    folder = tmp_path_factory.mktemp("inputs")
    subprocess.run([sys.executable, INPUTS], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_block_names_its_language(page: Path) -> None:
    unknown = [
        (block.where, block.language) for block in blocks(page) if block.language not in RUN | NOT_CODE
    ]
    assert unknown == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="platform: bash is not installed")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.is_run for block in blocks(page))],
    ids=lambda page: page.relative_to(REPOSITORY).as_posix(),
)
def test_the_examples_run_from_top_to_bottom(
    page: Path, inputs: Path, commands_folder: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if page.relative_to(REPOSITORY).as_posix() not in SELF_CONTAINED:
        shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    with contextlib.closing(Session(tmp_path, commands_folder)) as session:
        for block in blocks(page):
            if block.is_run:
                session.run(block)


def test_the_examples_of_the_readme_pass_pyright_strict_which_would_see_a_mistake(tmp_path: Path) -> None:
    examples = [block.code for block in blocks(REPOSITORY / "README.md") if block.language == "python"]
    files = {
        "examples.py": "\n".join(examples),
        "mistakes.py": "import bytemill as bm\n\nbm.Tokenizer.load('tokenizer.json').encode(b'bytes')\n",
    }
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    arguments = ["--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pyright", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == len(files)
    found = [
        (Path(item["file"]).name, item["range"]["start"]["line"] + 1, item["rule"])
        for item in answer["generalDiagnostics"]
    ]
    assert found == [("mistakes.py", 3, "reportArgumentType")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="platform: bash is not installed")
@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```python\n1 / 0\n```", "division by zero"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "but this was printed"),
        ("```sh\nfalse\ntrue\n```", "exit status 1"),
        ("```console\n$ exit 3\n```", "exit status 3"),
        ("```console\n$ echo one\ntwo\n```", "but this was printed"),
        ("```console\n$ false\n$ true\n```", "exit status 1"),
        ("<!-- not run: -->\n```sh\nfalse\n```", "exit status 1"),
    ],
)
def test_an_example_that_does_not_hold_would_be_seen(
    page: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "REPOSITORY", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    with contextlib.closing(Session(tmp_path)) as session, pytest.raises(AssertionError, match=message):
        session.run(blocks(tmp_path / "page.md")[0])


def test_an_example_with_a_reason_not_to_run_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "REPOSITORY", tmp_path)
    page = "<!-- not run: it fails -->\n```sh\nfalse\n```\n\n```sh\ntrue\n```\n"
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    assert [(block.line, block.is_run) for block in blocks(tmp_path / "page.md")] == [(2, False), (6, True)]
