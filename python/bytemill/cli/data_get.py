"""`bytemill data get`: well-known texts."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from bytemill.cli import options, output
from bytemill.cli.interruption import interruptible

app = App(
    name="get",
    help_epilogue="""Examples:
  bytemill data get --list
  bytemill data get tinystories-valid
  bytemill tokenizer train "$(bytemill data get tinystories-valid)" -n 8192
  bytemill data get hellaswag --output hellaswag_val.jsonl""",
)


@app.default
def get(
    name: Annotated[str | None, Parameter(name="NAME", help="A data set of --list.")] = None,
    /,
    *,
    show_list: Annotated[
        bool,
        Parameter(name="--list", show_default=False, help="List the data sets, with sizes and licences."),
    ] = False,
    output_path: Annotated[
        str | None,
        Parameter(
            name=["--output", "-o"], help="The file or folder to put it into, and not bytemill's cache."
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        Parameter(
            name="--from-file", help="Fetch nothing: check this file, which came in another way, and copy it."
        ),
    ] = None,
    url: Annotated[
        str | None,
        Parameter(
            name="--url", help="A mirror with the same paths; also the environment's BYTEMILL_DATA_URL."
        ),
    ] = None,
    verify: Annotated[
        bool,
        Parameter(
            name="--verify", show_default=False, help="Compute the checksum of a file that is there again."
        ),
    ] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Get a well-known text, and print the path of its file.

    What is there already is not fetched again. An interrupted download goes on
    where it ended. A file stands under its name only with the published size and
    sha256.
    """
    if show_list:
        _list(as_json=as_json)
        return
    if name is None:
        raise CycloptsError("give the name of a data set, or --list")
    from bytemill.cli.progress import ProgressDisplay
    from bytemill.datasets import DownloadProgress, available, path_of
    from bytemill.datasets import get as get_dataset

    was_there = path_of(name, output_path).exists()
    with (
        interruptible("what has come is kept: the same command goes on from there"),
        ProgressDisplay(quiet=quiet) as display,
    ):

        def show(progress: DownloadProgress) -> None:
            if progress.step == "waiting":
                display.update("waiting for another process that fetches it", "bytes", 0, None)
            else:
                display.update(f"{progress.step} {name}", "bytes", progress.done, progress.total)

        path = get_dataset(
            name,
            output_path,
            from_file=from_file,
            base_url=url,
            verify=verify,
            overwrite=overwrite,
            progress=show,
        )
    dataset = next(dataset for dataset in available() if dataset.name == name)
    if not was_there:
        output.note(f"licence of {name}: {dataset.licence} (see {dataset.homepage})", quiet=quiet)
    if as_json:
        output.write_json({"path": str(path), **dataset.to_dict()})
    else:
        output.write_line(str(path))


def _list(*, as_json: bool) -> None:
    from bytemill.datasets import available, path_of
    from bytemill.datasets.partial import partial_path
    from bytemill.system.units import format_bytes

    if as_json:
        output.write_json(
            [
                {
                    **dataset.to_dict(),
                    "path": str(path_of(dataset.name)),
                    "is_here": path_of(dataset.name).exists(),
                }
                for dataset in available()
            ]
        )
        return
    for dataset in available():
        path = path_of(dataset.name)
        here = "here" if path.exists() else "begun" if partial_path(path).exists() else ""
        size = format_bytes(dataset.n_bytes)
        output.write_line(f"{output.styled(f'{dataset.name:<18}', '1')} {size:>8}  {here}".rstrip())
        output.write_facts(
            [("what", dataset.description), ("licence", dataset.licence), ("from", dataset.homepage)]
        )
