"""`bytemill studio`: look at tokens, vocabularies, models and runs in the browser."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output

app = App(
    name="studio",
    usage="Usage: bytemill studio [OPTIONS] [PATHS...]",
    help_epilogue="""Examples:
  bytemill studio
  bytemill studio tokenizer.json gpt2
  bytemill studio runs/first runs/second
  bytemill studio --root /data/experiments --port 9000""",
)


@app.default
def studio(
    *paths: Annotated[
        str,
        Parameter(
            name="PATHS",
            help="Tokenizer files, published names, folders of runs or studies, and text files to offer first.",
        ),
    ],
    root: Annotated[
        Path,
        Parameter(
            help="Folder whose tokenizers, runs, studies and texts are offered too; nothing else is read."
        ),
    ] = Path(),
    host: Annotated[
        str,
        Parameter(
            help="Address to listen on. Anything but this machine's own needs the token in the printed address."
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        tuple[str, ...],
        Parameter(
            name="--allow-host",
            negative=(),
            help="Another name under which browsers reach it, such as that of a reverse proxy: NAME or NAME:PORT. "
            "May be repeated.",
        ),
    ] = (),
    port: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=0, lte=65535),
            help="Port; 0 takes any free one. By default 8321, or the next one that is free.",
        ),
    ] = None,
    device: Annotated[str, Parameter(help="Device of models: auto, cpu, cuda, cuda:N or mps.")] = "auto",
    no_open: Annotated[bool, Parameter(negative=(), help="Do not open the page in a browser.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Look at tokens, vocabularies, models and runs in the browser.

    Serves one page on this machine until Ctrl-C. Without PATHS it offers what is
    in the current folder, such as the result of the quickstart, and tokenizers
    that come with bytemill.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.errors import OutputError, TokenizerFileError
    from bytemill.tokenizer import open_tokenizer
    from bytemill.tokenizer.pretrained import is_name

    for path in paths:
        if is_name(path):
            open_tokenizer(path)  # downloads it, which the studio itself never does
        elif not Path(path).exists():
            raise TokenizerFileError(
                f"{path}: no such file or folder, and not the name of a tokenizer",
                hint="give the path of a tokenizer, a run, a study or a text",
            )
    if not root.is_dir():
        raise OutputError(f"{root} is not a folder", hint="give a folder: --root DIR")
    from bytemill.studio.library import Library
    from bytemill.studio.server import listen, serve

    address = listen(host, port, allow_host)
    library = Library(root, paths)

    def started() -> None:
        if not quiet:
            output.write_line(f"The studio is at {address.url}")
            output.write_line("Press Ctrl-C to end it.")
            output.flush()
        if not no_open:
            output.open_page(address.url)

    with interruptible("the studio has ended"):
        serve(library, address, device=device, on_start=started)
