"""The command `bytemill data report`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bytemill.cli import options, output


def report(
    folder: Annotated[Path, Parameter(name="DIR", help="The output folder of data curate.")],
    /,
    *,
    output_path: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="The page; by default report.html in DIR.")
    ] = None,
    tokenizer_file: Annotated[
        Path | None,
        Parameter(
            name="--tokenizer",
            help="Count tokens too, of this tokenizer: a file, a folder or a published name.",
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a page on what a curation removed, with samples.

    The page has the funnel by step, what each rule removed and what it alone
    removed, samples of both with the words that decided, and languages, lengths
    and domains. It is one file that loads nothing from elsewhere.
    """
    from bytemill.curation.report import curation_page
    from bytemill.system.atomic_files import write_text
    from bytemill.tokenizer import open_tokenizer

    tokenizer = None if tokenizer_file is None else open_tokenizer(tokenizer_file)
    path = folder / "report.html" if output_path is None else output_path
    write_text(path, curation_page(folder, tokenizer))
    if as_json:
        output.write_json({"path": str(path)})
    elif not quiet:
        output.write_line(str(path))
