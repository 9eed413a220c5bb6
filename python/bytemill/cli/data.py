"""`bytemill data`: encode, info."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.failures import on_interrupt

app = App(
    name="data",
    help="Turn text into shards of token ids.",
    help_epilogue="bytemill data COMMAND --help shows options and examples.",
)

app.command("bytemill.cli.data_get:app", name="get", help="Get a well-known text.", sort_key=5)

_EOT = "<|endoftext|>"


@app.command(
    sort_key=1,
    help_epilogue="""Examples:
  bytemill data encode tokenizer.json corpus.txt --output shards
  bytemill data encode tokenizer.json 'docs/*.txt' --output shards --append-eot
  zstd -dc corpus.zst | bytemill data encode tokenizer.json - --output shards""",
)
def encode(
    tokenizer_file: options.TokenizerFile,
    /,
    *inputs: options.Inputs,
    output_folder: Annotated[
        Path, Parameter(name=["--output", "-o"], help="The folder for the shards and their manifest.")
    ],
    shard_tokens: Annotated[
        int, Parameter(validator=Number(gte=1), help="Ids in each shard but the last.")
    ] = 100_000_000,
    document_separator: Annotated[
        str | None,
        Parameter(help="The special token that ends documents in the text; the manifest then counts them."),
    ] = None,
    append_eot: Annotated[
        bool,
        Parameter(
            name="--append-eot",
            show_default=False,
            help=f"End every input with the document separator, {_EOT} where none is named.",
        ),
    ] = False,
    allowed_special: options.AllowedSpecial = "all",
    errors: options.Errors = "strict",
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Encode text to .npy shards of token ids.

    Memory does not grow with the text. A folder that holds the result already is
    left as it is; one that holds other shards is refused.
    """
    from bytemill.cli.progress import ProgressDisplay, encoding_progress
    from bytemill.cli.summaries import manifest_to_json, write_manifest
    from bytemill.shards import EncodeProgress, encode_to_shards
    from bytemill.tokenizer import Tokenizer

    tokenizer = Tokenizer.open(tokenizer_file)
    with (
        on_interrupt(
            "run the same command again: it starts afresh and replaces the shards that are finished"
        ),
        ProgressDisplay(quiet=quiet) as display,
    ):
        show = encoding_progress(display)

        def progress(event: EncodeProgress) -> None:
            if event.already_complete:
                output.note(f"{output_folder} holds these shards already: nothing to do", quiet=quiet)
            else:
                show(event)

        manifest = encode_to_shards(
            tokenizer,
            list(inputs),
            output_folder,
            shard_tokens=shard_tokens,
            allowed_special=allowed_special,
            errors=errors,
            document_separator=document_separator or (_EOT if append_eot else None),
            append_separator=append_eot,
            num_threads=threads,
            progress=progress,
            overwrite=overwrite,
        )
    if as_json:
        manifest_to_json(manifest, output_folder)
    elif not quiet:
        write_manifest(manifest, output_folder)


@app.command(
    sort_key=2,
    help_epilogue="""Examples:
  bytemill data info shards
  bytemill data info shards --verify
  bytemill data info shards --json | jq .n_tokens""",
)
def info(
    folder: Annotated[Path, Parameter(name="DIR", help="A folder of shards.")],
    /,
    *,
    verify: Annotated[
        bool,
        Parameter(
            name="--verify", show_default=False, help="Read every shard and compare it with its sha256."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show what a folder of shards holds.

    With --verify the exit status is 1 where anything is wrong with the shards.
    """
    from bytemill.cli.summaries import manifest_to_json, write_manifest
    from bytemill.errors import ShardError
    from bytemill.shards import read_manifest
    from bytemill.shards import verify as find_problems

    manifest = read_manifest(folder)
    problems = find_problems(folder) if verify else None
    if as_json:
        manifest_to_json(manifest, folder, problems)
    else:
        write_manifest(manifest, folder)
    if problems:
        for problem in problems:
            output.note(problem)
        raise ShardError(
            f"the shards in {folder} are damaged", hint="encode the corpus again with --overwrite"
        )
    if problems is not None and not as_json:
        output.write_line("\n  verified: every shard is as the manifest says")
