"""The commands `bytemill data encode` and `bytemill data info`."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from bytemill.cli import data_convert, data_curate, data_reencode, data_report, options, output
from bytemill.cli.data_convert import LayoutName
from bytemill.cli.executor_options import ExecutorOptions
from bytemill.cli.options import CorpusArguments
from bytemill.storage import shown
from bytemill.system.units import format_bytes, format_rate, format_seconds, plural

if TYPE_CHECKING:
    from bytemill.data import EncodeProgress, Manifest

app = App(
    name="data",
    help="Encode text to shards of token ids, and convert shards.",
    help_epilogue="bytemill data COMMAND --help shows options and examples.",
)

app.command("bytemill.cli.data_get:app", name="get", help="Download a well-known text.", sort_key=5)
app.command(
    "bytemill.cli.data_contamination:app",
    name="contamination",
    help="Search documents for evaluation items.",
    sort_key=7,
)
app.command(
    "bytemill.cli.data_classifier:app",
    name="classifier",
    help="Tell documents apart by examples.",
    sort_key=6,
)


@app.command(
    sort_key=1,
    usage="Usage: bytemill data encode [OPTIONS] TOKENIZER INPUTS... --output DIR",
    help_epilogue="""Examples:
  bytemill data encode tokenizer.json corpus.txt --output shards
  bytemill data encode gpt2 stories.txt -o shards --documents '<|endoftext|>'
  bytemill data encode gpt2 fineweb/ -o shards --layout llmc
  bytemill data encode gpt2 web.parquet -o shards --validation-fraction 0.01
  bytemill data encode gpt2 books/ code/ -o shards --shuffle 1
  bytemill data encode gpt2 books/ -o shards --dropout 0.1 --epochs 4
  bytemill data encode gpt2 fineweb/ -o shards --executor ray --ray-address auto
  bytemill data encode model/ --conversations chats.jsonl -o chats""",
)
def encode(
    tokenizer_file: options.TokenizerFile,
    /,
    *inputs: Annotated[options.Inputs, Parameter(required=False)],
    output_folder: Annotated[
        Path,
        Parameter(
            name=["--output", "-o"], help="The output folder, or the URL of one: s3://, gs:// or az://."
        ),
    ],
    conversations: Annotated[
        tuple[str, ...],
        Parameter(
            name="--conversations",
            metavar="FILE",
            help="JSON lines of conversations, instead of INPUTS: messages; conversations of from and value; "
            "prompt with completion or response; or chosen and rejected, for two sets of shards. Every shard gets "
            "a mask of what the assistant says. Repeat for several files.",
        ),
    ] = (),
    max_tokens: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            converter=options.count,
            help="Most ids of a conversation: leave out whole turns at its end.",
        ),
    ] = None,
    corpus: CorpusArguments = CorpusArguments(),  # noqa: B008  (it is immutable)
    layout: Annotated[LayoutName, Parameter(metavar="LAYOUT", help="Layout of the files.")] = "npy",
    shard_tokens: Annotated[
        int,
        Parameter(
            validator=Number(gte=1),
            converter=options.count,
            help="Ids per shard (100M), except the last one.",
        ),
    ] = 100_000_000,
    document_index: Annotated[bool, Parameter(help="Write documents.npy, the ends of documents.")] = False,
    no_separators: options.NoSeparators = False,
    prepend_bos: Annotated[
        bool, Parameter(help="Begin every document with the usual special token of the tokenizer.")
    ] = False,
    bos: Annotated[str | None, Parameter(help="Begin every document with this special token.")] = None,
    validation_fraction: Annotated[
        float,
        Parameter(
            validator=Number(gte=0, lt=1),
            help="Fraction of the documents, chosen by a hash of their text, for the folder validation; the others go "
            "to train.",
        ),
    ] = 0.0,
    split_seed: Annotated[int, Parameter(validator=Number(gte=0), help="Seed of that hash.")] = 0,
    shuffle: options.Shuffle = None,
    dropout: Annotated[
        float,
        Parameter(
            validator=Number(gte=0, lt=1),
            help="Leave out each merge with this probability whenever it could happen (BPE-dropout), for text to train "
            "on.",
        ),
    ] = 0.0,
    dropout_seed: Annotated[int, Parameter(validator=Number(gte=0), help="Seed of that.")] = 0,
    epochs: Annotated[
        int,
        Parameter(
            validator=Number(gte=1),
            help="With --dropout, encode the text this many times, each time otherwise, to the folders epoch-0, "
            "epoch-1 and so on.",
        ),
    ] = 1,
    allowed_special: options.AllowedSpecial = "all",
    threads: options.Threads = None,
    processes: ExecutorOptions = ExecutorOptions(),  # noqa: B008  (it is immutable)
    overwrite: options.Overwrite = False,
    recheck: options.Recheck = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    profile: options.Profile = False,
    profile_file: options.ProfileFile = None,
) -> None:
    """Encode text to shards of token ids.

    Every document ends with the special token of --documents, by default the usual
    one of the tokenizer, such as <|endoftext|>; some layouts put it at the start.

    Memory use does not grow with the text. If interrupted by Ctrl-C or SIGTERM
    (exit code 130), the same command resumes from the last checkpoint and writes
    the same files. A folder that already contains the result is left unchanged; a
    folder with other shards is an error. With --executor, several processes or
    the nodes of a cluster share the work.
    """
    from bytemill.cli import encoding
    from bytemill.cli.profile import profiled
    from bytemill.cli.summaries import manifest_notes
    from bytemill.data import EncodeSettings
    from bytemill.data.encode import conversation_sets, located_rows
    from bytemill.data.manifest import ConversationSettings, DropoutSettings
    from bytemill.tokenizer import open_tokenizer

    if bool(inputs) == bool(conversations):
        raise CycloptsError("name INPUTS, or files of conversations with --conversations FILE")
    if conversations and (bos or prepend_bos or no_separators or corpus != CorpusArguments()):
        raise CycloptsError(
            "--conversations FILE writes what the chat template makes of rows: leave out options of text"
        )
    if max_tokens is not None and not conversations:
        raise CycloptsError("--max-tokens needs --conversations FILE")
    if epochs > 1 and not dropout:
        raise CycloptsError("--epochs needs --dropout P: without it, all of them would be the same")
    if processes.is_distributed and (profile or profile_file is not None):
        raise CycloptsError("--profile measures one process: leave out --executor")
    tokenizer = open_tokenizer(tokenizer_file)
    if conversations:
        corpus = replace(corpus, format="text", documents="line")
    source = corpus.corpus(inputs or conversations, repeat_by_weight=True)
    settings = EncodeSettings(
        layout=layout,
        shard_tokens=shard_tokens,
        document_index=document_index,
        allowed_special=allowed_special,
        separators=not no_separators,
        prepend=bos or prepend_bos,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        shuffle_seed=shuffle,
        conversations=ConversationSettings(max_tokens=max_tokens) if conversations else None,
        dropout=DropoutSettings(probability=dropout, seed=dropout_seed) if dropout else None,
    )
    if conversations:
        sets = conversation_sets(source, output_folder, settings)
    elif settings.dropout is not None and epochs > 1:
        sets = [
            (output_folder / f"epoch-{k}", replace(settings, dropout=replace(settings.dropout, epoch=k)))
            for k in range(epochs)
        ]
    else:
        sets = [(output_folder, settings)]
    started = time.monotonic()
    manifests: dict[Path, Manifest] = {}
    progress: list[EncodeProgress | None] = []
    with (
        profiled(profile, profile_file, [tokenizer_file, *source.input_files]) as measured,
        located_rows(source),
    ):
        for folder, each in sets:
            encoded = encoding.encode(
                processes,
                tokenizer,
                source,
                folder,
                each,
                threads=threads,
                overwrite=overwrite,
                recheck=recheck,
                as_json=as_json,
                quiet=quiet,
            )
            if encoded is None:
                return
            manifests |= _manifests(folder, encoded[0])
            progress.append(encoded[1])
    seconds = time.monotonic() - started
    if as_json or not quiet:
        _show(manifests, as_json=as_json, more=measured.to_json())
    if not as_json and not quiet and not all(last and last.already_complete for last in progress):
        if None in progress:  # several processes
            n_bytes = sum(each.n_bytes for each in manifests.values())
            rates = format_rate(n_bytes, seconds, "bytes")
        else:
            n_tokens = sum(last.n_tokens - last.n_tokens_before for last in progress if last)
            n_bytes = sum(last.n_bytes - last.n_bytes_before for last in progress if last)
            rates = f"{format_rate(n_bytes, seconds, 'bytes')}, {format_rate(n_tokens, seconds, 'tokens')}"
        output.write_line(f"\n  encoded in {format_seconds(seconds)}: {rates}")
    manifest = next(iter(manifests.values()))
    notes = settings.document_notes(source, list(manifests.values()))
    for note in [*manifest_notes(manifest), *notes]:
        output.note(note, quiet=quiet)


@app.command(
    sort_key=2,
    help_epilogue="""Examples:
  bytemill data info shards
  bytemill data info shards --verify
  bytemill data info shards --json | jq .n_tokens""",
)
def info(
    folder: Annotated[Path, Parameter(name="DIR", help="A shard folder, or its URL.")],
    /,
    *,
    verify: Annotated[bool, Parameter(help="Compare every shard with its sha256.")] = False,
    tokenizer: Annotated[
        str | None,
        Parameter(
            help="The tokenizer of conversations, to show some of them with what the assistant says in colour."
        ),
    ] = None,
    examples: Annotated[int, Parameter(validator=Number(gte=1), help="Number of conversations to show.")] = 3,
    as_json: options.Json = False,
) -> None:
    """Show the contents of a shard folder, or of both parts of a split corpus.

    What a killed encoding left of its finished result is removed, with a note.
    With --verify, the exit code is 1 if a shard is damaged.
    """
    from bytemill.cli.summaries import manifest_notes, write_examples
    from bytemill.data import read_manifest
    from bytemill.data import verify as find_problems
    from bytemill.data.manifest import parts_of, sets_of
    from bytemill.data.object_store import unnamed_files
    from bytemill.errors import ShardError
    from bytemill.storage import StoreFolder, url_of

    folders = [part for each in sets_of(folder) for part in parts_of(each)]
    problems = [problem for path in folders for problem in find_problems(path)] if verify else None
    manifests = {each: read_manifest(each) for each in folders}
    _show(manifests, as_json=as_json, problems=problems)
    for each in sets_of(folder):
        _remove_leftovers(each, parts_of(each))
    if tokenizer is not None and not as_json:
        from bytemill.tokenizer import open_tokenizer

        for each in folders:
            write_examples(each, open_tokenizer(tokenizer), examples)
    for each, manifest in manifests.items():
        if (url := url_of(each)) is None:
            continue
        of_which = "of an encoding that is running or did not end"
        store = StoreFolder(url)
        if unnamed := unnamed_files(store, manifest):
            size = format_bytes(sum(unnamed.values()))
            output.note(
                f"{url} has {plural(len(unnamed), 'file')} more ({size}), {of_which}, such as {min(unnamed)}"
            )
    if not as_json:
        for note in manifest_notes(manifests[folders[0]]):  # both parts count the whole corpus
            output.note(note)
    if problems:
        for problem in problems:
            output.note(problem)
        raise ShardError(
            f"the shards in {shown(folder)} are damaged",
            hint=f"encode the corpus again: bytemill data encode TOKENIZER INPUTS --output {shown(folder)} --overwrite",
        )
    if problems is not None and not as_json:
        output.write_line("\n  verified: every shard matches the manifest")


def _remove_leftovers(folder: Path, parts: list[Path]) -> None:
    """Remove what a killed encoding left of the finished shards in these parts, and say so."""
    from bytemill.data.target import target_of
    from bytemill.errors import BytemillError

    try:
        target_of(folder, [part.name for part in parts if part != folder]).remove_leftovers(output.note)
    except BytemillError as error:  # it may belong to others
        output.note(f"what an encoding left in {shown(folder)} cannot be removed: {error}")


def _manifests(folder: Path, manifest: "Manifest") -> "dict[Path, Manifest]":
    """Return the manifests of a result by folder: of both parts of a split corpus."""
    from bytemill.data import read_manifest

    if not manifest.part:
        return {folder: manifest}
    return {folder / part: read_manifest(folder / part) for part in ("train", "validation")}


def _show(
    manifests: "dict[Path, Manifest]",
    *,
    as_json: bool,
    problems: list[str] | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    """Write the manifest of a folder, or of the parts of a split corpus."""
    from bytemill.cli.summaries import manifest_to_json, manifests_to_json, write_manifest

    if as_json and len(manifests) == 1:
        [(folder, manifest)] = manifests.items()
        manifest_to_json(manifest, folder, problems, more)
    elif as_json:
        manifests_to_json(manifests, problems, more)
    else:
        for number, (folder, manifest) in enumerate(manifests.items()):
            if number:
                output.write_line()
            write_manifest(manifest, folder)


app.command(data_convert.convert, sort_key=3, help_epilogue=data_convert.EXAMPLES)
app.command(data_reencode.reencode, sort_key=4, help_epilogue=data_reencode.EXAMPLES)
app.command(
    data_curate.curate,
    sort_key=6,
    usage="Usage: bytemill data curate [OPTIONS] RECIPE INPUTS... --output DIR",
    help_epilogue=data_curate.EXAMPLES,
)
app.command(
    data_report.report,
    sort_key=8,
    help_epilogue="""Examples:
  bytemill data report clean
  bytemill data report clean --tokenizer tokenizer.json -o page.html""",
)
