"""`bytemill data get`: download well-known data sets."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from bytemill.cli import options, output
from bytemill.cli.failures import interruptible

app = App(
    name="get",
    usage="Usage: bytemill data get [OPTIONS] [NAME]",
    help_epilogue="""Examples:
  bytemill data get --list
  bytemill data get tinystories-valid
  bytemill tokenizer train "$(bytemill data get tinystories-valid)" -n 8192
  bytemill data get hellaswag --output hellaswag_val.jsonl""",
)


@app.default
def get(
    name: Annotated[
        str | None, Parameter(name="NAME", help="Name of a data set, as shown by --list.")
    ] = None,
    /,
    *,
    show_list: Annotated[
        bool,
        Parameter(name="--list", show_default=False, help="List the data sets, with sizes and licences."),
    ] = False,
    output_path: Annotated[
        str | None,
        Parameter(
            name=["--output", "-o"],
            help="Output file or folder. By default the file stays in the download cache.",
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        Parameter(name="--from-file", help="Check and copy this file instead of downloading."),
    ] = None,
    verify: Annotated[
        bool,
        Parameter(
            name="--verify", show_default=False, help="Compute the checksum of a file that exists already."
        ),
    ] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Download a well-known data set and print the path of its file.

    A file that exists already is not downloaded again. Downloads are checked
    against the published size and sha256. Data sets from the Hugging Face hub
    require huggingface_hub (the extra hub); HF_ENDPOINT sets a mirror.
    """
    if show_list:
        _list(as_json=as_json)
        return
    if name is None:
        raise CycloptsError("pass the name of a data set, or --list")
    from bytemill.cli.output import ProgressDisplay
    from bytemill.datasets import DownloadProgress, available, find
    from bytemill.datasets import get as get_dataset

    existed = find(name, output_path) is not None
    with (
        interruptible("run the same command again; downloads from the Hugging Face hub resume"),
        ProgressDisplay(quiet=quiet) as display,
    ):

        def show(progress: DownloadProgress) -> None:
            display.update(f"{progress.step} {name}", "bytes", progress.done, progress.total)

        path = get_dataset(
            name,
            output_path,
            from_file=from_file,
            verify=verify,
            overwrite=overwrite,
            progress=show,
        )
    dataset = next(dataset for dataset in available() if dataset.name == name)
    if not existed:
        output.note(f"licence of {name}: {dataset.licence} (see {dataset.homepage})", quiet=quiet)
    if as_json:
        output.write_json({"path": str(path), **dataset.to_dict()})
    else:
        output.write_line(str(path))


def _list(*, as_json: bool) -> None:
    from bytemill.datasets import available, find
    from bytemill.system.units import format_bytes

    paths = {dataset.name: find(dataset.name) for dataset in available()}
    if as_json:
        entries = ((dataset, paths[dataset.name]) for dataset in available())
        output.write_json([{**dataset.to_dict(), "path": path and str(path)} for dataset, path in entries])
        return
    for dataset in available():
        here = "" if paths[dataset.name] is None else "downloaded"
        size = format_bytes(dataset.n_bytes)
        output.write_line(f"{output.styled(f'{dataset.name:<18}', '1')} {size:>8}  {here}".rstrip())
        output.write_fields(
            [("what", dataset.description), ("licence", dataset.licence), ("from", dataset.homepage)]
        )
