"""`bytemill data contamination`: search documents for evaluation items."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.failures import interruptible
from bytemill.cli.options import CorpusArguments
from bytemill.system.units import format_share, plural

_N_SHOWN = 20

app = App(
    name="contamination",
    help="Search documents for evaluation items.",
    help_epilogue="bytemill data contamination COMMAND --help shows options and examples.",
)


@app.command(
    usage="Usage: bytemill data contamination items [OPTIONS] TASK=FILE... --output FILE",
    help_epilogue="""Examples:
  bytemill data contamination items hellaswag=hellaswag_val.jsonl mmlu=data \\
    -o items.jsonl
  bytemill data contamination items gsm8k=test.jsonl -o items.jsonl""",
)
def items(
    *tasks: Annotated[
        str,
        Parameter(
            name="TASK", help="A task of lm eval and its file or folder, such as mmlu=data. Repeatable."
        ),
    ],
    output_path: Annotated[Path, Parameter(name=["--output", "-o"], help="The items, as JSON lines.")],
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the texts of evaluation items to a file that find reads.

    Each line has item, a name, and text: a question with its right answer where the
    task has choices. Write such lines for your own items, or a text file with an
    item on each line.
    """
    from bytemill.curation.contamination import Item, write_items
    from bytemill.lm.benchmarks.evaluate import load_tasks
    from bytemill.storage.input_check import check_file_is_no_input
    from bytemill.system.atomic_files import check_output_file

    check_output_file(output_path, overwrite=overwrite)
    check_file_is_no_input(output_path, [entry.partition("=")[2] for entry in tasks])
    found = [
        Item(f"{own.section}:{number}", item.own_text)
        for own in load_tasks(tasks)
        for number, item in enumerate(own.items)
    ]
    write_items(output_path, found)
    if as_json:
        output.write_json({"path": str(output_path), "n_items": len(found)})
    elif not quiet:
        output.write_line(f"{output_path}: {plural(len(found), 'item')}")


@app.command(
    usage="Usage: bytemill data contamination find [OPTIONS] ITEMS INPUTS...",
    help_epilogue="""Examples:
  bytemill data contamination find items.jsonl web.jsonl
  bytemill data contamination find items.jsonl crawl/*.jsonl --n 8 \\
    -o matches.jsonl""",
)
def find(
    items_file: Annotated[
        Path, Parameter(name="ITEMS", help="Items: JSON lines with text, or text with an item on each line.")
    ],
    /,
    *inputs: options.Inputs,
    n: Annotated[
        int, Parameter(validator=Number(gte=2, lte=64), help="Words in a row that make a match.")
    ] = 13,
    output_path: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="Write the matches of each document, as JSON lines."),
    ] = None,
    corpus: CorpusArguments = CorpusArguments(),  # noqa: B008  (it is immutable)
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Search documents for words in a row of evaluation items.

    Case, punctuation and line breaks make no difference. The table has the items
    that most documents have. Each line of the output file has the name of the
    input, the number of the document in it and its matches, from one character
    to another.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.curation.contamination import ContaminationIndex, Match, overlap_by_item
    from bytemill.curation.documents import whole_documents
    from bytemill.storage.input_check import check_file_is_no_input
    from bytemill.system.atomic_files import check_output_file, open_text

    texts = corpus.corpus(inputs)
    if output_path is not None:
        check_output_file(output_path, overwrite=overwrite)
        check_file_is_no_input(output_path, [items_file, *texts.input_files])
    index = ContaminationIndex.load([items_file], n)
    names = texts.source_names
    numbers = dict.fromkeys(range(len(names)), 0)
    found: list[list[Match]] = []
    n_documents = 0
    with (
        interruptible("run the same command again"),
        ProgressDisplay(quiet=quiet) as display,
        contextlib.nullcontext() if output_path is None else open_text(output_path) as file,
    ):
        for batch in whole_documents(texts):
            for matches in index.batch_matches(batch, threads):
                n_documents += 1
                number = numbers[batch.source]
                numbers[batch.source] += 1
                if not matches:
                    continue
                found.append(matches)
                if file is not None:
                    row = {
                        "source": names[batch.source],
                        "document": number,
                        "matches": list(map(asdict, matches)),
                    }
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
            display.update("searching", "documents", n_documents, None)
    overlap = overlap_by_item(found)
    summary = {"n_documents": n_documents, "n_contaminated": len(found), "n_items": len(index.items)}
    if as_json:
        short = {"n_found_items": len(overlap), "n_short_items": index.n_short}
        output.write_json({**summary, **short, "items": list(map(asdict, overlap))})
        return
    if quiet:
        return
    output.write_line(
        f"{len(found):,} of {plural(n_documents, 'document')} have {n} words in a row of an item; "
        f"{len(overlap):,} of {plural(len(index.items), 'item')} ({format_share(len(overlap) / len(index.items))}) "
        "are found" + (f", {index.n_short:,} are too short to be" if index.n_short else "")
    )
    if overlap:
        rows = [(own.item, f"{own.n_documents:,}", f"{own.n_words:,}") for own in overlap[:_N_SHOWN]]
        output.write_table(("item", "documents", "words in a row"), rows, right=(1, 2))
    if len(overlap) > _N_SHOWN:
        output.write_line(f"  … and {plural(len(overlap) - _N_SHOWN, 'more item')}")
