"""`bytemill tokenizer`: train, encode, decode, show, inspect, compare, convert, verify and push."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.validators import Number

from bytemill.cli import comparison, options, output, tokenizer_surgery
from bytemill.cli.executor_options import ExecutorOptions
from bytemill.cli.failures import interruptible
from bytemill.cli.options import CorpusArguments
from bytemill.cli.tokenizer_options import (
    PATTERNS,
    PatternOfFile,
    SpecialTokensOfFile,
    check_usage,
    count_by_processes,
    load_arguments,
    local_path,
    parse_pattern,
    parse_special_tokens,
    publish_output,
    remove_units,
    training_inputs,
    training_resume_hint,
)
from bytemill.formats.registry import WrittenFormat, output_names
from bytemill.tokenizer import open_tokenizer

if TYPE_CHECKING:
    from bytemill.corpus import Corpus

_CORPUS = CorpusArguments()
TOKENS = Group("Tokens", sort_key=-1)

app = App(
    name="tokenizer",
    help="Train, use, inspect, compare, convert and verify tokenizers.",
    help_epilogue="bytemill tokenizer COMMAND --help shows options and examples.",
)


@app.command(
    sort_key=1,
    usage="Usage: bytemill tokenizer train --vocab-size INT [OPTIONS] [INPUTS...]",
    help_epilogue="""Examples:
  bytemill tokenizer train corpus.txt --vocab-size 8192
  bytemill tokenizer train 'data/*.txt' -n 32000 --pattern cl100k -o web.json
  zstd -dc corpus.zst | bytemill tokenizer train - --vocab-size 50257
  bytemill tokenizer train chat.txt -n 8192 --special-token '<|user|>'
  bytemill tokenizer train 'web/*.zst' -n 32000 --max-memory 2GB
  bytemill tokenizer train 'web/*.zst' -n 32000 --counts web.counts
  bytemill tokenizer train --counts web.counts --counts books.counts=2 -n 50000
  bytemill tokenizer train corpus.txt -n 8192 --max-token-characters 16 \\
    --forbid 'regex:[0-9]{3}' --require words.txt""",
)
def train(
    *inputs: Annotated[
        str,
        Parameter(
            name="INPUTS",
            help="Files, folders, globs in quotes ('data/**/*.txt'), URLs, or - for standard input.",
        ),
    ],
    vocab_size: Annotated[
        int,
        Parameter(
            name=["--vocab-size", "-n"],
            converter=options.count,
            help="Number of tokens, such as 32000 or 32k: 256 bytes, the merges and the special tokens.",
        ),
    ],
    special_tokens: Annotated[
        tuple[str, ...],
        Parameter(
            name="--special-token",
            negative=(),
            help="Token that is never split, in addition to <|endoftext|>, which ends documents. Repeat for several.",
        ),
    ] = (),
    no_end_of_text: Annotated[
        bool,
        Parameter(
            name="--no-end-of-text",
            negative=(),
            help="Leave out <|endoftext|> unless --special-token names it.",
        ),
    ] = False,
    pattern: Annotated[
        str,
        Parameter(help=f"How text splits into pre-tokens: {PATTERNS}"),
    ] = "gpt2",
    ties: Annotated[
        Literal["bytes", "huggingface"],
        Parameter(
            help="Which of equally frequent pairs is merged first: the greatest by bytes, or as Hugging Face does."
        ),
    ] = "bytes",
    min_pretoken_count: Annotated[
        int, Parameter(validator=Number(gte=1), help="Drop pre-tokens that occur less often.")
    ] = 1,
    min_frequency: Annotated[
        int, Parameter(validator=Number(gte=1), help="Do not merge pairs that occur less often.")
    ] = 1,
    special_ids: Annotated[
        Literal["last", "first"],
        Parameter(help="Give special tokens the last ids, or the first ones from 0."),
    ] = "last",
    max_token_bytes: Annotated[
        int | None, Parameter(group=TOKENS, validator=Number(gte=1), help="Most bytes of a token.")
    ] = None,
    max_token_characters: Annotated[
        int | None, Parameter(group=TOKENS, validator=Number(gte=1), help="Most characters of a token.")
    ] = None,
    forbid: Annotated[
        tuple[str, ...],
        Parameter(
            group=TOKENS,
            metavar="FILE|regex:EXPR",
            help="Never make these tokens: the lines of a file, or those that contain a match of an expression. Repeat "
            "for several.",
        ),
    ] = (),
    require: Annotated[
        Path | None,
        Parameter(
            group=TOKENS,
            metavar="FILE",
            help="Make the lines of this file tokens first. A word after a space begins with the space.",
        ),
    ] = None,
    initial: Annotated[
        str | None,
        Parameter(group=TOKENS, metavar="TOKENIZER", help="Begin with the merges of this tokenizer."),
    ] = None,
    superwords_from: Annotated[
        int | None,
        Parameter(
            group=TOKENS,
            validator=Number(gte=257),
            converter=options.count,
            help="From this number of tokens on, also make tokens of several words (SuperBPE). INPUTS are read twice.",
        ),
    ] = None,
    superword_words: Annotated[
        int, Parameter(group=TOKENS, validator=Number(gte=2), help="Most words of such a token.")
    ] = 4,
    max_memory: Annotated[
        str | None, Parameter(help="Memory limit, such as 300MB or 2GB. It does not change the tokenizer.")
    ] = None,
    counts: Annotated[
        tuple[str, ...],
        Parameter(
            help="Save the counts of pre-tokens to this file, or use the file if it exists. Without INPUTS: files of "
            "counts to add up, as FILE or FILE=WEIGHT."
        ),
    ] = (),
    corpus: CorpusArguments = _CORPUS,
    threads: options.Threads = None,
    processes: ExecutorOptions = ExecutorOptions(),  # noqa: B008  (it is immutable)
    output_file: Annotated[
        Path, Parameter(name=["--output", "-o"], help="File to write, or its URL.")
    ] = Path("tokenizer.json"),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    profile: options.Profile = False,
    profile_file: options.ProfileFile = None,
) -> None:
    """Train a tokenizer and write it as a tokenizer.json.

    Hugging Face tokenizers opens the file too. Every text file is a document;
    special tokens in a text separate documents. The same command resumes an
    interrupted counting of files. With --executor, several processes or the nodes
    of a cluster count.
    """
    from bytemill.cli.output import ProgressDisplay, training_progress
    from bytemill.cli.profile import profiled
    from bytemill.cli.tokenizer_views import write_training
    from bytemill.storage import exists
    from bytemill.storage.input_check import check_file_is_no_input
    from bytemill.system.atomic_files import check_output_file
    from bytemill.system.locks import lock_output
    from bytemill.tokenizer import open_tokenizer
    from bytemill.tokenizer.conversion import check_can_be_saved
    from bytemill.tokenizer.surgery.extension import read_words
    from bytemill.training.counts import CountedCorpus
    from bytemill.training.options import SPECIAL_TOKENS, checkpoint_folder
    from bytemill.training.pipeline import token_options, train
    from bytemill.training.superwords import train_superwords
    from bytemill.training.token_rules import read_forbidden

    check_usage(inputs, counts)
    if not no_end_of_text:
        special_tokens = (
            *(token for token in SPECIAL_TOKENS if token not in special_tokens),
            *special_tokens,
        )
    target, output_file = output_file, local_path(output_file, overwrite=overwrite)
    check_output_file(output_file, overwrite=overwrite)
    chosen_pattern = parse_pattern(pattern)
    check_can_be_saved(chosen_pattern, special_tokens)
    wanted: dict[str, Any] = {
        "max_token_bytes": max_token_bytes,
        "max_token_characters": max_token_characters,
        "forbid": [text for name in forbid for text in read_forbidden(name)],
        "require": [] if require is None else read_words(require),
        "initial": None if initial is None else open_tokenizer(initial),
    }
    token_options(chosen_pattern, **wanted)  # errors come before the corpus is read
    if superwords_from is not None and (processes.is_distributed or initial is not None or not inputs):
        raise CycloptsError(
            "--superwords-from reads INPUTS twice, in one process: leave out --executor and --initial"
        )
    if chosen_pattern is not None and chosen_pattern.backtracks and chosen_pattern.name is None:
        output.note("this pattern needs a backtracking regex engine, which is slow", quiet=quiet)
    source, counts_file = training_inputs(inputs, corpus, counts)
    read = [*source.input_files, *counts]
    check_file_is_no_input(target, read)
    folder = checkpoint_folder(output_file if counts_file is None else Path(counts_file))
    with (
        profiled(profile, profile_file, [*read, target]) as measured,
        interruptible(
            lambda: training_resume_hint(target, folder, counts_file, in_units=processes.is_distributed)
        ),
        ProgressDisplay(quiet=quiet) as display,
        lock_output(output_file),
    ):
        # Another process may have written the file before this one had the lock.
        check_output_file(output_file, overwrite=overwrite)
        has_counts = counts_file is not None and exists(counts_file)
        if processes.is_distributed and has_counts and not processes.dry_run:
            output.note(f"{counts_file} exists, so nothing is counted", quiet=quiet)
        elif processes.is_distributed:
            counted = count_by_processes(
                processes,
                source,
                target,
                display,
                special_tokens=special_tokens,
                pattern=chosen_pattern,
                threads=threads,
                max_memory=max_memory,
                counts_file=counts_file,
                as_json=as_json,
                quiet=quiet,
            )
            if counted is None:
                return
            source = counted
        common: dict[str, Any] = {
            **wanted,
            "pattern": chosen_pattern,
            "ties": ties,
            "min_pretoken_count": min_pretoken_count,
            "min_frequency": min_frequency,
            "special_ids": special_ids,
            "num_threads": threads,
            "max_memory": max_memory,
            "counts": None if isinstance(source, CountedCorpus) else counts_file,
            "progress": None if quiet else training_progress(display),
        }
        if superwords_from is None:
            tokenizer = train(source, vocab_size, special_tokens, work_folder=folder, **common)
        else:
            del common["initial"]
            tokenizer = train_superwords(
                cast("Corpus", source),
                vocab_size,
                special_tokens,
                words_size=superwords_from,
                max_words=superword_words,
                **common,
            )
        tokenizer.save(output_file)
        publish_output(output_file, target, overwrite=overwrite)
        if processes.is_distributed:
            remove_units(target)
    write_training(tokenizer, target, as_json=as_json, quiet=quiet, profile=measured.to_json())


@app.command(
    sort_key=2,
    usage="Usage: bytemill tokenizer encode [OPTIONS] TOKENIZER [TEXT]",
    help_epilogue="""Examples:
  bytemill tokenizer encode tokenizer.json "Hello, world"
  bytemill tokenizer encode tokenizer.json --file corpus.txt > ids.txt
  cat corpus.txt | bytemill tokenizer encode tokenizer.json --count""",
)
def encode(
    tokenizer_file: options.TokenizerFile,
    text: options.Text = None,
    /,
    *,
    file: options.TextFile = None,
    allowed_special: options.AllowedSpecial = "all",
    count: Annotated[bool, Parameter(help="Print the number of ids instead of the ids.")] = False,
    errors: options.Errors = "strict",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Encode a text: TEXT, a file or standard input.

    Prints the ids on one line, or as a list with --json. Memory use does not grow
    with the text.
    """
    from bytemill.cli.texts import encode_text, ids_as_text, text_input

    tokenizer = open_tokenizer(tokenizer_file)
    arrays = encode_text(
        tokenizer, text_input(text, file), allowed_special=allowed_special, errors=errors, num_threads=threads
    )
    if count:
        n_tokens = sum(len(ids) for ids in arrays)
        output.write_json({"n_tokens": n_tokens}) if as_json else output.write_line(str(n_tokens))
        return
    for part in ids_as_text(arrays, as_json=as_json):
        output.write(part)


@app.command(
    sort_key=3,
    usage="Usage: bytemill tokenizer decode TOKENIZER [IDS...]",
    help_epilogue="""Examples:
  bytemill tokenizer decode tokenizer.json 15496 11 995
  bytemill tokenizer decode tokenizer.json < ids.txt > text.txt""",
)
def decode(
    tokenizer_file: options.TokenizerFile, /, *ids: Annotated[str, Parameter(name="IDS", help="The ids.")]
) -> None:
    """Decode IDS, or the ids on standard input.

    Writes the exact bytes. Ids are separated by blanks, commas or brackets.
    """
    from bytemill.cli.texts import decode_stream, id_blocks, read_ids

    tokenizer = open_tokenizer(tokenizer_file)
    blocks, name = id_blocks(ids)
    for data in decode_stream(tokenizer, read_ids(blocks, name)):
        output.write_bytes(data)


@app.command(
    sort_key=4,
    help_epilogue="""Examples:
  bytemill tokenizer show tokenizer.json
  bytemill tokenizer show tokenizer.json --token 262 --token 300
  bytemill tokenizer show tokenizer.json --tokens --json""",
)
def show(
    tokenizer_file: options.TokenizerFile,
    /,
    *,
    token: Annotated[tuple[int, ...], Parameter(help="Show the token with this id.")] = (),
    tokens: Annotated[bool, Parameter(help="List all tokens, one per line.")] = False,
    pattern: PatternOfFile = None,
    special_tokens: SpecialTokensOfFile = (),
    as_json: options.Json = False,
) -> None:
    """Show a tokenizer's sizes, settings and longest tokens, or single tokens."""
    from bytemill.analysis.summary import describe, token_infos
    from bytemill.cli import tokenizer_views

    tokenizer = open_tokenizer(tokenizer_file, **load_arguments(pattern, special_tokens))
    if token:
        tokenizer_views.write_tokens(tokenizer, token_infos(tokenizer, token), as_json=as_json)
    elif tokens:
        tokenizer_views.write_token_list(token_infos(tokenizer), as_json=as_json)
    else:
        tokenizer_views.write_tokenizer(describe(tokenizer), tokenizer_file, as_json=as_json)


@app.command(
    sort_key=5,
    usage="Usage: bytemill tokenizer inspect [OPTIONS] TOKENIZER [TEXT]",
    help_epilogue="""Examples:
  bytemill tokenizer inspect tokenizer.json "It's naïve, isn't it?"
  bytemill tokenizer inspect tokenizer.json --file chapter.txt --ids
  bytemill tokenizer inspect tokenizer.json "unbelievable" --explain
  bytemill tokenizer inspect tokenizer.json "Two tokens" --svg > tokens.svg""",
)
def inspect(
    tokenizer_file: options.TokenizerFile,
    text: options.Text = None,
    /,
    *,
    file: options.TextFile = None,
    ids: Annotated[bool, Parameter(help="Show the ids below the tokens.")] = False,
    explain: Annotated[bool, Parameter(help="Show the merges of each pre-token in order.")] = False,
    svg: Annotated[bool, Parameter(help="Print an SVG image of the tokens and ids.")] = False,
    vocab_size: Annotated[
        int | None,
        Parameter(help="Use the first merges alone: the tokenizer that training with this size would give."),
    ] = None,
    allowed_special: options.AllowedSpecial = "all",
    errors: options.Errors = "strict",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show how a text splits into tokens.

    Tokens are coloured on a terminal and separated by │ elsewhere. Control
    characters are made visible. A token that is part of a character is shown as
    bytes: ⟨e2 80⟩.
    """
    from bytemill.analysis.inspection import inspect
    from bytemill.cli import tokenizer_views
    from bytemill.cli.output import progress_of_long_work
    from bytemill.cli.texts import text_input
    from bytemill.report.tokens import tokens_svg

    if svg and (ids or explain or as_json):
        raise CycloptsError("give --svg without --ids, --explain and --json: the image has the ids")
    tokenizer = open_tokenizer(tokenizer_file)
    if vocab_size is not None:
        tokenizer = tokenizer.truncate(vocab_size)
    content = text_input(text, file).read(errors)
    with progress_of_long_work("inspecting", "tokens", quiet=quiet) as progress:
        inspection = inspect(tokenizer, content, allowed_special=allowed_special, progress=progress)
    if svg:
        output.write(tokens_svg(inspection.tokens))
        return
    explanations = tokenizer.explain(content, allowed_special=allowed_special) if explain else None
    tokenizer_views.write_inspection(inspection, explanations, ids=ids, as_json=as_json)


app.command(
    comparison.compare,
    sort_key=6,
    usage="Usage: bytemill tokenizer compare TOKENIZERS... --text PATH... [OPTIONS]",
    help_epilogue="""Examples:
  bytemill tokenizer compare gpt2 tokenizer.json --text held_out.txt
  bytemill tokenizer compare gpt2 mine.json --text prose=books/ code=src/
  bytemill tokenizer compare a.json b.json --text web.txt -o table.md""",
)


@app.command(
    sort_key=7,
    help_epilogue="""Examples:
  bytemill tokenizer convert tokenizer.json stories.tiktoken
  bytemill tokenizer convert gpt2/vocab.json tokenizer.json
  bytemill tokenizer convert ranks.tiktoken tokenizer.json --pattern cl100k
  bytemill tokenizer convert minbpe.model tokens.vocab
  bytemill tokenizer convert gpt2 chat.json --add-special-token '<|user|>'""",
)
def convert(
    tokenizer_file: options.TokenizerFile,
    output_path: Annotated[
        Path,
        Parameter(
            name="OUT",
            help=f"File to write: {output_names()}. A folder gets vocab.json and merges.txt. Or the URL of either.",
        ),
    ],
    /,
    *,
    written_format: Annotated[
        WrittenFormat | None,
        Parameter(
            name="--output-format", help="Format to write. By default the one that the name of OUT implies."
        ),
    ] = None,
    pattern: PatternOfFile = None,
    special_tokens: SpecialTokensOfFile = (),
    add_special_tokens: Annotated[
        tuple[str, ...],
        Parameter(
            name="--add-special-token",
            help="Further special token, as TOKEN for the next id or TOKEN=ID. Repeat for several.",
        ),
    ] = (),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a tokenizer in another file format, or with further special tokens.

    The new file is read back and compared before it gets its name. A tokenizer that
    the format cannot represent exactly is an error. Settings that the format omits
    without changing ids are listed.
    """
    from bytemill.cli.tokenizer_views import write_conversion
    from bytemill.tokenizer.conversion import convert

    conversion = convert(
        tokenizer_file,
        output_path,
        written_format,
        add_special_tokens=parse_special_tokens(add_special_tokens),
        overwrite=overwrite,
        **load_arguments(pattern, special_tokens),
    )
    write_conversion(conversion, as_json=as_json, quiet=quiet)


@app.command(
    sort_key=8,
    usage="Usage: bytemill tokenizer verify [OPTIONS] TOKENIZER [TEXT...]",
    help_epilogue="""Examples:
  bytemill tokenizer verify tokenizer.json
  bytemill tokenizer verify tokenizer.model "Hello, world!" --file chapter.txt
  bytemill tokenizer verify model.gguf --against tokenizer.json""",
)
def verify(
    tokenizer_file: options.TokenizerFile,
    /,
    *texts: Annotated[str, Parameter(name="TEXT", help="Text to compare besides those that are made.")],
    file: Annotated[str | None, Parameter(help="File with a further text to compare.")] = None,
    against: Annotated[
        str,
        Parameter(
            help="What to compare with: tokenizers, sentencepiece, tiktoken, another tokenizer file, or auto for the "
            "library that the file was made for."
        ),
    ] = "auto",
    random_texts: Annotated[
        int, Parameter(validator=Number(gte=0), help="Number of texts made of the tokenizer's own tokens.")
    ] = 3000,
    seed: Annotated[int, Parameter(help="Seed of the texts that are made.")] = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare a tokenizer's ids, offsets and decoded text with another library's.

    Compares the given texts, and texts of every block of Unicode, of white space,
    of the file's added tokens and of its vocabulary. Prints the shortest text that
    differs and the speed of both on one thread. Exits with 1 if anything differs.
    """
    from bytemill.cli import tokenizer_views
    from bytemill.cli.output import progress_of_long_work
    from bytemill.cli.texts import TextInput
    from bytemill.tokenizer.verification import verify_tokenizer

    given = [*texts, *([] if file is None else [TextInput.from_file(file).read()])]
    with progress_of_long_work("comparing", "texts", quiet=quiet) as show:
        verification = verify_tokenizer(
            tokenizer_file, given, against=against, n_random=random_texts, seed=seed, progress=show
        )
    tokenizer_views.write_verification(verification, tokenizer_file, as_json=as_json)
    if verification.differences:
        raise SystemExit(1)


app.command(
    tokenizer_surgery.extend,
    sort_key=9,
    usage="Usage: bytemill tokenizer extend TOKENIZER [INPUTS...] --add INT [OPTIONS]",
    help_epilogue="""Examples:
  bytemill tokenizer extend llama3 'medical/*.txt' --add 2k -o medical.json
  bytemill tokenizer extend tokenizer.json --words drugs.txt
  bytemill tokenizer extend llama3 web.jsonl --add 200 --reuse-reserved
  bytemill tokenizer extend cl100k_base code.txt --add 1k -o code.tiktoken""",
)


app.command(
    tokenizer_surgery.trim,
    sort_key=10,
    usage="Usage: bytemill tokenizer trim TOKENIZER [INPUTS...] --vocab-size INT [OPTIONS]",
    help_epilogue="""Examples:
  bytemill tokenizer trim o200k_base 'german/*.txt' -n 64k -o german.json
  bytemill tokenizer trim llama3 web.jsonl --min-count 10
  bytemill tokenizer trim tokenizer.json --keep words.txt""",
)


app.command(
    tokenizer_surgery.lint,
    sort_key=11,
    usage="Usage: bytemill tokenizer lint TOKENIZER [INPUTS...] [OPTIONS]",
    help_epilogue="""Examples:
  bytemill tokenizer lint tokenizer.json
  bytemill tokenizer lint cl100k_base 'web/*.txt' --html lint.html
  bytemill tokenizer lint tokenizer.json --strict --json""",
)


@app.command(
    sort_key=12,
    help_epilogue="""Examples:
  bytemill tokenizer push tokenizer.json me/my-tokenizer
  bytemill tokenizer push tokenizer.json me/my-tokenizer --private
  bytemill tokenizer push tokenizer.json me/my-tokenizer --card""",
)
def push(
    tokenizer_file: options.TokenizerFile,
    repo: Annotated[str, Parameter(name="REPO", help="Repository on the hub: USER/NAME.")],
    /,
    *,
    private: Annotated[bool, Parameter(negative="", help="Make a new repository private.")] = False,
    message: Annotated[str | None, Parameter(help="Message of the commit.")] = None,
    replace_card: Annotated[
        bool, Parameter(negative="", help="Replace the model card that the repository has.")
    ] = False,
    card: Annotated[bool, Parameter(negative="", help="Print the model card and upload nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Upload a tokenizer to Hugging Face's hub, with a model card.

    Tokenizer.from_pretrained and transformers' AutoTokenizer open it by the name of
    the repository. Log in with hf auth login or set HF_TOKEN; HF_ENDPOINT sets
    another hub.
    """
    from bytemill.analysis.model_card import push_tokenizer, tokenizer_card

    tokenizer = open_tokenizer(tokenizer_file)
    if card:
        output.write(tokenizer_card(tokenizer, repo))
        return
    pushed = push_tokenizer(tokenizer, repo, private=private, message=message, replace_card=replace_card)
    if as_json:
        output.write_json({"url": pushed.url, "commit": pushed.commit, "files": pushed.files})
        return
    output.write_line(f"{pushed.url}: {', '.join(pushed.files)}")
    if pushed.kept_card:
        output.note("the repository has a model card, which was kept; --replace-card replaces it")
