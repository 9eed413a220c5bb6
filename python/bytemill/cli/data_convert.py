"""The command `bytemill data convert`."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.failures import interruptible

BuiltInLayout: TypeAlias = Literal["npy", "bin", "llmc", "megatron", "datatrove"]
LayoutName: TypeAlias = BuiltInLayout | str
"""A layout of bytemill, listed and completed, or a registered one."""
IdType: TypeAlias = Literal["uint16", "uint32", "int32", "int64"]

SourceLayout: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--source-layout", help="Layout of files without a manifest, if it cannot be recognized: bin."
    ),
]
SourceDtype: TypeAlias = Annotated[
    IdType | None,
    Parameter(name="--source-dtype", help="Type of the ids in files that do not store it (bin, datatrove)."),
]
NoVerify: TypeAlias = Annotated[
    bool, Parameter(name="--no-verify", negative=(), help="Skip the sha256 check of the source shards.")
]
ShardTokens: TypeAlias = Annotated[
    int | None,
    Parameter(
        validator=Number(gte=1),
        converter=options.count,
        help="Ids per shard (100M), except the last one; by default as in SHARDS.",
    ),
]
Separator: TypeAlias = Annotated[
    str | None,
    Parameter(help="Token between documents in SHARDS without a manifest: an id or a special token."),
]

EXAMPLES = """Examples:
  bytemill data convert shards for_megatron --layout megatron
  bytemill data convert shards for_llmc --layout llmc --shard-tokens 200000000
  bytemill data convert train.bin shards --layout npy \\
    --source-layout bin --source-dtype uint16
  bytemill data convert 'fineweb_*.bin' shards --layout npy --separator 50256"""


def convert(
    shards: Annotated[
        Path,
        Parameter(
            name="SHARDS", help="A shard folder, or a file, folder or glob of another program; or a URL."
        ),
    ],
    out: Annotated[Path, Parameter(name="OUT", help="The output folder, or its URL.")],
    /,
    *,
    layout: Annotated[LayoutName, Parameter(metavar="LAYOUT", help="Layout of the result.")],
    shard_tokens: ShardTokens = None,
    separator: Separator = None,
    keep_separators: Annotated[
        bool,
        Parameter(help="Leave all ids unchanged: do not move separators to where the layout expects them."),
    ] = False,
    tokenizer: Annotated[
        Path | None,
        Parameter(help="The tokenizer of files without a manifest: a file, or a name such as gpt2."),
    ] = None,
    dtype: Annotated[
        Literal["uint16", "uint32"] | None,
        Parameter(help="Type of the ids in the result; by default the narrowest for the vocabulary."),
    ] = None,
    source_layout: SourceLayout = None,
    source_dtype: SourceDtype = None,
    no_verify: NoVerify = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert shards to the layout of another program.

    The ids stay the same, except that separators are moved to the start or the
    end of documents, as the layout expects. Files of other programs can be read
    too: .npy, .bin, .bin with .idx, .ds.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.cli.summaries import manifest_to_json, write_manifest
    from bytemill.data.convert import ConvertProgress, convert_shards
    from bytemill.tokenizer import open_tokenizer

    with interruptible("run the same command again to start over"), ProgressDisplay(quiet=quiet) as display:

        def progress(event: ConvertProgress) -> None:
            display.update("converting", "tokens", event.n_tokens, event.total_tokens)

        manifest = convert_shards(
            shards,
            out,
            layout=layout,
            shard_tokens=shard_tokens,
            separator=separator_of(separator),
            keep_separators=keep_separators,
            tokenizer=None if tokenizer is None else open_tokenizer(tokenizer),
            dtype=dtype,
            source_layout=source_layout,
            source_dtype=source_dtype,
            note=lambda note: output.note(note, quiet=quiet),
            progress=progress,
            overwrite=overwrite,
            verify=not no_verify,
        )
    if as_json:
        manifest_to_json(manifest, out)
    elif not quiet:
        write_manifest(manifest, out)


def separator_of(text: str | None) -> int | str | None:
    """Parse a separator: a number is an id, anything else a special token.

    >>> separator_of("50256"), separator_of("<|endoftext|>")
    (50256, '<|endoftext|>')
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() else text
