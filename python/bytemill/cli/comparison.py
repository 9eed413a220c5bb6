"""`bytemill tokenizer compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import CycloptsError, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.options import CorpusArguments

if TYPE_CHECKING:
    from bytemill.comparison import Comparison

_CORPUS = CorpusArguments()


def compare(
    *tokenizers: Annotated[
        str, Parameter(name="TOKENIZERS", help="Two to twenty tokenizer files or published names.")
    ],
    text: Annotated[
        tuple[str, ...],
        Parameter(
            consume_multiple=True,
            help="Files, folders, globs or URLs to compare on. NAME=PATH puts them into a group of that name.",
        ),
    ] = (),
    parallel: Annotated[
        Path | None,
        Parameter(help="Folder with a .txt file for each language, with the same content line by line."),
    ] = None,
    sizes: Annotated[
        str,
        Parameter(
            help="Vocabulary sizes, such as 1000,2000,4000, at which larger tokenizers are measured too, with their "
            "first merges; shown on the page and in the JSON."
        ),
    ] = "",
    output_path: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="Also write the result: a page (.html), or a .json, .md, .csv or .tex file.",
        ),
    ] = None,
    ngram_bytes: Annotated[
        str,
        Parameter(
            help="Text at the start of each group that the n-gram models are made of, such as 50MB; 0: none."
        ),
    ] = "50MB",
    model: Annotated[
        str | None, Parameter(help="Also show what each tokenizer costs this model, a preset such as gpt2.")
    ] = None,
    speed: Annotated[
        bool,
        Parameter(negative=(), help="Also measure speed and memory, which differ from run to run."),
    ] = False,
    all_pairs: Annotated[
        bool,
        Parameter(
            negative=(), help="Show the differences of all pairs, not those of the first tokenizer alone."
        ),
    ] = False,
    threads: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Number of threads; by default one per core.")
    ] = None,
    corpus: CorpusArguments = _CORPUS,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare tokenizers on the same text, without training a model.

    The figures have 95 % intervals, by bootstrap over documents and over passages
    of long documents. The best value is marked where its difference to every other
    is shown. Bits per byte of n-gram models predict best how a model will do.
    """
    from bytemill.cli.failures import interruptible
    from bytemill.cli.output import ProgressDisplay
    from bytemill.comparison import compare as run
    from bytemill.comparison.result import check_output_name
    from bytemill.corpus import parse_bytes
    from bytemill.storage.input_check import check_file_is_no_input

    if not text:
        raise CycloptsError("there is no text to compare on: give --text FILE")
    if output_path is not None:
        check_output_name(output_path)
    groups: dict[str, list[str]] = {}
    for entry in text:
        name, is_named, path = entry.partition("=")
        if not is_named or Path(entry).exists():
            name, path = "text", entry
        groups.setdefault(name, []).append(path)
    texts = {name: corpus.corpus(paths) for name, paths in groups.items()}
    if output_path is not None:
        files = [file for each in texts.values() for file in each.input_files]
        languages = () if parallel is None else tuple(parallel.glob("*"))
        check_file_is_no_input(output_path, [*tokenizers, *files, *languages])
    with interruptible("run the same command again"), ProgressDisplay(quiet=quiet) as display:
        comparison = run(
            list(tokenizers),
            texts,
            parallel=parallel,
            sizes=_numbers(sizes),
            model=model,
            speed=speed,
            all_pairs=all_pairs,
            documents=corpus.documents,
            ngram_bytes=parse_bytes(ngram_bytes),
            num_threads=threads,
            progress=lambda phase, done, total: (
                display.update(phase, "bytes", done, total) if done else display.step(phase)
            ),
        )
    if output_path is not None:
        comparison.save(output_path)
    if as_json:
        output.write_json(comparison.to_dict())
    elif not quiet:
        write_comparison(comparison)


def _numbers(sizes: str) -> list[int]:
    try:
        return [int(size) for size in sizes.split(",") if size.strip()]
    except ValueError:
        raise CycloptsError(f"{sizes!r} are not sizes: write --sizes 1000,2000,4000") from None


def write_comparison(comparison: "Comparison") -> None:
    """Print a table for each group, and one of the languages."""
    from bytemill.comparison.result import (
        boundary_rows,
        cost_rows,
        figure_rows,
        language_rows,
        speed_rows,
        vocabulary_rows,
    )
    from bytemill.system.units import format_bytes, format_count

    names = list(comparison.tokenizers)
    right = range(1, len(names) + 1)
    n_ids = ("ids", *(format_count(comparison.tokenizers[name]["n_vocab"]) for name in names))
    for group, about in comparison.groups.items():
        size = f"{format_bytes(about['n_bytes'])}, {about['n_units']:,} documents and passages"
        output.write_line(output.styled(f"{group}: {size}", "1"))
        _, *rows = figure_rows(comparison, group, star="*")
        output.write_table(("", *names), [n_ids, *rows], right=right)
        output.write_line()
    if comparison.parallel is not None:
        own = comparison.parallel
        output.write_line(
            output.styled(f"tokens for the same {own.n_lines:,} lines, relative to {own.reference}", "1")
        )
        _, *rows = language_rows(comparison)
        output.write_table(("", *names), rows, right=right)
        output.write_line()
    for table in (boundary_rows, vocabulary_rows, cost_rows, speed_rows):
        header, *rows = table(comparison)
        if rows:
            output.write_table(header, rows, right=range(2 if header[0] == "group" else 1, len(header)))
            output.write_line()
    output.write_line("* best: its difference to each other one has a 95 % interval beyond 0")
