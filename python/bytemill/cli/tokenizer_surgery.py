"""`bytemill tokenizer extend`, `trim` and `lint`: changes and checks of a finished tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import CycloptsError, Parameter
from cyclopts.validators import Number

from bytemill.cli import options
from bytemill.cli.failures import interruptible
from bytemill.cli.options import CorpusArguments
from bytemill.cli.tokenizer_options import (
    PatternOfFile,
    SpecialTokensOfFile,
    load_arguments,
    training_inputs,
    training_resume_hint,
)

_CORPUS = CorpusArguments()


def extend(
    base: options.TokenizerFile,
    /,
    *inputs: Annotated[
        str,
        Parameter(
            name="INPUTS",
            help="Files, folders, globs in quotes ('data/**/*.txt'), URLs, or - for standard input.",
        ),
    ],
    add: Annotated[
        int | None,
        Parameter(
            converter=options.count,
            validator=Number(gte=1),
            help="Number of tokens to learn from INPUTS, such as 2000 or 2k.",
        ),
    ] = None,
    words: Annotated[
        Path | None,
        Parameter(
            help="File of words to make tokens, one per line, each as it stands in a text: with its leading space."
        ),
    ] = None,
    as_added: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Add the words beside the vocabulary, as added tokens that match anywhere, and not by merges.",
        ),
    ] = False,
    reuse_reserved: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Use ids without a token and those of reserved special tokens before the next ids.",
        ),
    ] = False,
    ties: Annotated[
        Literal["bytes", "huggingface"] | None,
        Parameter(
            help="Which of equally frequent pairs is merged first: the greatest by bytes, or as Hugging Face does. By "
            "default the rule of TOKENIZER, or bytes."
        ),
    ] = None,
    min_pretoken_count: Annotated[
        int, Parameter(validator=Number(gte=1), help="Drop pre-tokens that occur less often.")
    ] = 1,
    min_frequency: Annotated[
        int, Parameter(validator=Number(gte=1), help="Do not merge pairs that occur less often.")
    ] = 1,
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
    pattern: PatternOfFile = None,
    special_tokens: SpecialTokensOfFile = (),
    corpus: CorpusArguments = _CORPUS,
    threads: options.Threads = None,
    output_file: Annotated[
        Path,
        Parameter(name=["--output", "-o"], help="File or folder to write; its name implies the format."),
    ] = Path("extended.json"),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add tokens to a tokenizer: continue its training, or name words.

    All tokens of TOKENIZER keep their ids. New merges come after its own, so text
    in which none of them applies keeps its ids too. Special tokens in a text
    separate documents. The same command resumes an interrupted counting of files.
    """
    from bytemill.cli.output import ProgressDisplay, training_progress
    from bytemill.cli.surgery_views import write_extension
    from bytemill.storage.input_check import check_file_is_no_input
    from bytemill.system.atomic_files import check_output_file
    from bytemill.system.locks import lock_output
    from bytemill.tokenizer import open_tokenizer
    from bytemill.tokenizer.surgery.extension import add_words, read_words
    from bytemill.tokenizer.surgery.output import check_can_be_written, write
    from bytemill.training.extension import extend
    from bytemill.training.options import checkpoint_folder

    if add is None and (inputs or counts):
        raise CycloptsError("say how many tokens to learn from INPUTS: --add N")
    if add is None and words is None:
        raise CycloptsError("say what to add: --add N learns tokens from INPUTS, --words FILE names them")
    if add is not None and not inputs and not counts:
        raise CycloptsError("name INPUTS to learn from, or files of counts with --counts FILE")
    if inputs and len(counts) > 1:
        raise CycloptsError(
            "use --counts once with INPUTS; without INPUTS, several files of counts are added up"
        )
    if as_added and words is None:
        raise CycloptsError("--as-added is about words: name them with --words FILE")
    check_output_file(output_file, overwrite=overwrite)
    tokenizer = open_tokenizer(base, **load_arguments(pattern, special_tokens))
    before = tokenizer
    check_can_be_written(tokenizer, output_file)
    named = []
    if words is not None:
        added = add_words(tokenizer, read_words(words), as_added=as_added, reuse_reserved=reuse_reserved)
        tokenizer, named = added.tokenizer, added.words
    if add is None:
        write(tokenizer, output_file)
    else:
        source, counts_file = training_inputs(inputs, corpus, counts)
        check_file_is_no_input(output_file, [*source.input_files, *counts, base])
        folder = checkpoint_folder(output_file if counts_file is None else Path(counts_file))
        with (
            interruptible(lambda: training_resume_hint(output_file, folder, counts_file)),
            ProgressDisplay(quiet=quiet) as display,
            lock_output(output_file),
        ):
            check_output_file(output_file, overwrite=overwrite)
            tokenizer = extend(
                tokenizer,
                source,
                add,
                reuse_reserved=reuse_reserved,
                ties=ties,
                min_pretoken_count=min_pretoken_count,
                min_frequency=min_frequency,
                num_threads=threads,
                max_memory=max_memory,
                counts=counts_file,
                work_folder=folder,
                progress=None if quiet else training_progress(display),
            )
            write(tokenizer, output_file)
    if not quiet or as_json:
        write_extension(before, tokenizer, named, output_file, as_json=as_json)


def trim(
    base: options.TokenizerFile,
    /,
    *inputs: Annotated[
        str,
        Parameter(
            name="INPUTS",
            help="Texts whose tokens are counted: files, folders, globs in quotes, URLs, or - for standard input.",
        ),
    ],
    vocab_size: Annotated[
        int | None,
        Parameter(
            name=["--vocab-size", "-n"],
            converter=options.count,
            help="Remove tokens until this many are left, such as 32000 or 32k, special tokens included.",
        ),
    ] = None,
    min_count: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Remove all tokens that INPUTS use less often."),
    ] = None,
    keep: Annotated[
        Path | None,
        Parameter(
            help="File of tokens or texts, one per line, whose tokens stay. Without --vocab-size and --min-count, "
            "all others go."
        ),
    ] = None,
    id_map: Annotated[
        Path | None,
        Parameter(
            help="File for the new id of each old one, -1 where it is gone. By default id_map.npy beside the output."
        ),
    ] = None,
    max_memory: Annotated[
        str | None, Parameter(help="Memory limit, such as 300MB or 2GB. It does not change the tokenizer.")
    ] = None,
    pattern: PatternOfFile = None,
    special_tokens: SpecialTokensOfFile = (),
    corpus: CorpusArguments = _CORPUS,
    threads: options.Threads = None,
    output_file: Annotated[
        Path,
        Parameter(name=["--output", "-o"], help="File or folder to write; its name implies the format."),
    ] = Path("trimmed.json"),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove tokens that a text rarely uses, the least used first.

    Bytes, special tokens and what remaining tokens are merged from stay. Texts that
    use none of the removed tokens keep their segmentation; all others decode to the
    same bytes. The remaining tokens get new ids without gaps, as the id map says.
    """
    import numpy as np

    from bytemill.cli.output import ProgressDisplay
    from bytemill.cli.surgery_views import write_trimming
    from bytemill.storage.input_check import check_file_is_no_input
    from bytemill.system.atomic_files import AtomicFile, check_output_file
    from bytemill.tokenizer import open_tokenizer
    from bytemill.tokenizer.surgery.extension import read_words
    from bytemill.tokenizer.surgery.output import check_can_be_written, write
    from bytemill.tokenizer.surgery.trimming import trim
    from bytemill.tokenizer.surgery.vocabulary import check_byte_level
    from bytemill.training.usage import count_tokens

    if vocab_size is None and min_count is None and keep is None:
        raise CycloptsError("say what to remove: --vocab-size N, --min-count K or --keep FILE")
    if min_count is not None and not inputs:
        raise CycloptsError("name INPUTS whose tokens --min-count counts")
    map_file = id_map if id_map is not None else output_file.parent / "id_map.npy"
    for file in (output_file, map_file):
        check_output_file(file, overwrite=overwrite)
    tokenizer = open_tokenizer(base, **load_arguments(pattern, special_tokens))
    check_byte_level(tokenizer, "trim")
    check_can_be_written(tokenizer, output_file)
    kept = () if keep is None else read_words(keep)
    uses = None
    if vocab_size is not None:  # what cannot be is known before texts are counted
        trim(tokenizer, vocab_size=vocab_size, keep=kept)
    if inputs:
        source = corpus.corpus(inputs)
        for file in (output_file, map_file):
            check_file_is_no_input(file, [*source.input_files, base])
        with (
            interruptible("run the same command again to start over"),
            ProgressDisplay(quiet=quiet) as display,
        ):
            uses = count_tokens(
                tokenizer,
                source,
                num_threads=threads,
                max_memory=max_memory,
                progress=lambda done, total: display.update("counting tokens", "bytes", done, total),
            )
    trimmed = trim(tokenizer, uses, vocab_size=vocab_size, min_count=min_count, keep=kept)
    write(trimmed.tokenizer, output_file)
    with AtomicFile(map_file) as atomic:
        np.save(atomic.file, trimmed.id_map)
    n_uses = None if uses is None else int(uses.sum())
    if not quiet or as_json:
        write_trimming(tokenizer, trimmed, n_uses, output_file, map_file, as_json=as_json)


def lint(
    tokenizer_file: options.TokenizerFile,
    /,
    *inputs: Annotated[
        str,
        Parameter(
            name="INPUTS",
            help="Texts whose tokens are counted: files, folders, globs in quotes, URLs, or - for standard input.",
        ),
    ],
    strict: Annotated[bool, Parameter(negative=(), help="Exit with 1 on warnings too.")] = False,
    model: Annotated[
        str | None,
        Parameter(
            help="Run or model with this tokenizer: find tokens that it has hardly learned, by its rows and by "
            "repeating them."
        ),
    ] = None,
    html: Annotated[Path | None, Parameter(help="Write a page with all tokens that were found.")] = None,
    pattern: PatternOfFile = None,
    special_tokens: SpecialTokensOfFile = (),
    corpus: CorpusArguments = _CORPUS,
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check a vocabulary: tokens that no text can produce, junk, and what is unused.

    Prints what each rule finds, errors first, with examples; --json and --html have
    all tokens. With INPUTS, also which tokens they do not use. Exits with 1 on
    errors.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.cli.surgery_views import under_trained_tokens, write_lint
    from bytemill.report.lint_page import lint_page
    from bytemill.system.atomic_files import check_output_file, write_text
    from bytemill.tokenizer import open_tokenizer
    from bytemill.tokenizer.surgery.lint import lint
    from bytemill.tokenizer.surgery.vocabulary import check_byte_level
    from bytemill.training.usage import count_tokens

    if html is not None:
        check_output_file(html, overwrite=overwrite)
    tokenizer = open_tokenizer(tokenizer_file, **load_arguments(pattern, special_tokens))
    check_byte_level(tokenizer, "lint")
    uses = None
    if inputs:
        with (
            interruptible("run the same command again to start over"),
            ProgressDisplay(quiet=quiet) as display,
        ):
            uses = count_tokens(
                tokenizer,
                corpus.corpus(inputs),
                num_threads=threads,
                progress=lambda done, total: display.update("counting tokens", "bytes", done, total),
            )
    found = lint(tokenizer, uses)
    if model is not None:
        finding = under_trained_tokens(model, tokenizer)
        found = found if finding is None else found.plus(finding)
    if html is not None:
        write_text(html, lint_page(found, str(tokenizer_file)))
    write_lint(found, tokenizer_file, as_json=as_json, quiet=quiet)
    if found.count("error") or (strict and found.count("warning")):
        raise SystemExit(1)
