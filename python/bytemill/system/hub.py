"""Upload a folder to Hugging Face's hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill.errors import OutputError
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from pathlib import Path

CARD_NAME = "README.md"


@dataclass(frozen=True)
class Pushed:
    """An upload."""

    url: str
    """The page of the repository."""
    commit: str
    """Id of the commit."""
    files: list[str]
    """Names of the uploaded files."""
    kept_card: bool
    """Whether the repository had a model card, which was left as it is."""


def push_folder(
    folder: Path, repo: str, *, private: bool = False, message: str | None = None, replace_card: bool = False
) -> Pushed:
    """Upload the files of a folder in one commit; make the repository if there is none.

    The token is the one of `hf auth login` or HF_TOKEN; HF_ENDPOINT sets another hub.

    Args:
        folder: The folder.
        repo: Name of the repository: USER/NAME.
        private: Make a new repository private.
        message: Message of the commit.
        replace_card: Replace the model card (README.md) that the repository has.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        OutputError: The hub refuses it or cannot be reached.
    """
    hub = import_library("huggingface_hub", "the hub")
    api = hub.HfApi()
    try:
        url = str(api.create_repo(repo, private=private, exist_ok=True))
        keeps_card = not replace_card and bool(api.file_exists(repo, CARD_NAME))
        ignored = [CARD_NAME] if keeps_card else None
        commit: Any = api.upload_folder(
            repo_id=repo,
            folder_path=str(folder),
            commit_message=message or "Upload with bytemill",
            ignore_patterns=ignored,
        )
    except hub.errors.HFValidationError as error:
        raise OutputError(f"{repo!r} is no name of a repository", hint="name it USER/NAME") from error
    except hub.errors.HfHubHTTPError as error:
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        hint = "log in with `hf auth login`, or set HF_TOKEN" if status in (401, 403) else "try again later"
        raise OutputError(f"cannot upload to {repo}: {_first_line(error)}", hint=hint) from error
    except Exception as error:  # the HTTP library has error classes of its own
        raise OutputError(
            f"cannot upload to {repo}: {_first_line(error)}", hint="check the connection and HF_ENDPOINT"
        ) from error
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    files = [name for name in names if not (keeps_card and name == CARD_NAME)]
    return Pushed(url, str(commit.oid), files, keeps_card)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
