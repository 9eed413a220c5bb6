"""The command `bytemill data reencode`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bytemill.cli import options, output
from bytemill.cli.data_convert import (
    LayoutName,
    NoVerify,
    Separator,
    ShardTokens,
    SourceDtype,
    SourceLayout,
    separator_of,
)
from bytemill.cli.executor_options import ExecutorOptions
from bytemill.cli.failures import interruptible
from bytemill.system.units import plural

EXAMPLES = """Examples:
  bytemill data reencode shards --from gpt2 --to mine.json --output mine
  bytemill data reencode 'fineweb_*.bin' --from gpt2 --to mine.json -o mine"""


def reencode(
    shards: Annotated[
        Path,
        Parameter(
            name="SHARDS", help="A shard folder, or a file, folder or glob of another program; or a URL."
        ),
    ],
    /,
    *,
    old: Annotated[
        Path,
        Parameter(name="--from", help="The tokenizer that encoded them: a file, or a name such as gpt2."),
    ],
    new: Annotated[Path, Parameter(name="--to", help="The tokenizer of the result.")],
    output_folder: Annotated[Path, Parameter(name=["--output", "-o"], help="The output folder, or its URL.")],
    layout: Annotated[
        LayoutName | None, Parameter(metavar="LAYOUT", help="Layout of the result; by default as in SHARDS.")
    ] = None,
    shard_tokens: ShardTokens = None,
    document_index: Annotated[
        bool | None,
        Parameter(help="Write documents.npy, the ends of documents; by default if SHARDS have it."),
    ] = None,
    separator: Separator = None,
    documents: Annotated[
        str | None,
        Parameter(help="Special token that ends documents in the result; by default the same as in SHARDS."),
    ] = None,
    no_separators: options.NoSeparators = False,
    on_error: Annotated[
        Literal["fail", "skip", "replace"],
        Parameter(
            help="A document that is not UTF-8, or contains text that looks like a special token: stop, omit it, or "
            "read malformed bytes as U+FFFD."
        ),
    ] = "fail",
    shuffle: options.Shuffle = None,
    threads: options.Threads = None,
    source_layout: SourceLayout = None,
    source_dtype: SourceDtype = None,
    no_verify: NoVerify = False,
    processes: ExecutorOptions = ExecutorOptions(),  # noqa: B008  (it is immutable)
    overwrite: options.Overwrite = False,
    recheck: options.Recheck = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Re-encode shards with another tokenizer.

    Every document is decoded to its exact text and encoded again; the original
    text is not needed. If interrupted, the same command resumes. With --executor,
    several processes or the nodes of a cluster share the work.
    """
    from bytemill.cli import encoding
    from bytemill.cli.output import ProgressDisplay
    from bytemill.cli.summaries import manifest_notes, manifest_to_json, write_manifest
    from bytemill.data.reencode import reencode_settings, shard_corpus
    from bytemill.tokenizer import open_tokenizer

    _ = processes.is_distributed  # an option without --executor is an error before the shards are read
    target = open_tokenizer(new)
    with interruptible("run the same command again to start over"), ProgressDisplay(quiet=quiet) as display:
        corpus = shard_corpus(
            shards,
            open_tokenizer(old),
            target,
            separator=separator_of(separator),
            on_error=on_error,
            source_layout=source_layout,
            source_dtype=source_dtype,
            verify=not no_verify,
            progress=lambda n, total: display.update("searching special tokens", "tokens", n, total),
        )
    for token, n in corpus.special_as_text.items():
        note = f"{new} has no special token {token!r}: {plural(n, 'occurrence')} inside documents"
        output.note(f"{note} will become plain text", quiet=quiet)
    settings = reencode_settings(
        corpus,
        target,
        layout=layout,
        shard_tokens=shard_tokens,
        document_index=document_index,
        documents=documents,
        separators=False if no_separators else None,
        shuffle_seed=shuffle,
    )
    encoded = encoding.encode(
        processes,
        target,
        corpus,
        output_folder,
        settings,
        threads=threads,
        overwrite=overwrite,
        recheck=recheck,
        as_json=as_json,
        quiet=quiet,
    )
    if encoded is None:
        return
    manifest, _ = encoded
    for note in manifest_notes(manifest):
        output.note(note, quiet=quiet)
    if as_json:
        manifest_to_json(manifest, output_folder)
    elif not quiet:
        write_manifest(manifest, output_folder)
