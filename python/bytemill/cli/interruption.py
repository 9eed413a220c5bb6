"""Hints for interrupted commands: how to continue."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bytemill.storage import exists, shown, url_of


@contextmanager
def interruptible(hint: str | Callable[[], str]) -> Generator[None]:
    """Attach a hint to an interruption of the block.

    Args:
        hint: What to do next, or a function that returns it, called after the interruption.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(hint if isinstance(hint, str) else hint())
        raise


def resume_hint(folder: Path) -> str:
    """Return how to continue an interrupted encoding to a folder."""
    from bytemill.data.object_store import work_folder
    from bytemill.data.unfinished import JOURNAL_NAME

    if (url := url_of(folder)) is not None:
        folder = work_folder(url)
    if (folder / JOURNAL_NAME).exists():
        return "run the same command again to resume from the last checkpoint"
    return "run the same command again to start over (there is no checkpoint yet)"


def training_resume_hint(
    output_file: Path, work_folder: Path, counts: str | None, *, in_units: bool = False
) -> str:
    """Return how to continue an interrupted training of a tokenizer.

    Args:
        output_file: The tokenizer file, which was not written.
        work_folder: Folder of the checkpoints of counting.
        counts: File of counts, or None.
        in_units: Several processes count in units, each of which is kept.
    """
    from bytemill.training.work_folder import has_checkpoint

    if has_checkpoint(work_folder):
        how = "resume from the last checkpoint"
    elif counts is not None and exists(counts):
        how = f"train on the counts in {counts}"
    elif in_units:
        how = "resume after the units that are finished"
    else:
        how = "start over"
    return f"{shown(output_file)} was not written: run the same command again to {how}"
