"""`bytemill data classifier`: train classifiers of documents, and score documents with them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.failures import interruptible
from bytemill.cli.options import CorpusArguments
from bytemill.system.units import format_share, plural

if TYPE_CHECKING:
    from bytemill.curation.classifier_training import HeldOut, ThresholdQuality

app = App(
    name="classifier",
    help="Tell documents apart by examples: quality, toxicity, topic.",
    help_epilogue="bytemill data classifier COMMAND --help shows options and examples.",
)


@app.command(
    usage="Usage: bytemill data classifier train [OPTIONS] FILE... --output FILE",
    help_epilogue="""Examples:
  bytemill data classifier train good.jsonl bad.jsonl -o quality.safetensors
  bytemill data classifier train news=a/*.txt law=b.txt art=c.txt \\
    -o topic.safetensors
  bytemill data classifier train good.txt bad.txt --documents line \\
    -o q.safetensors""",
)
def train(
    *files: Annotated[
        str,
        Parameter(
            name="FILE",
            help="Examples of a label each, as FILE, whose name is the label, or LABEL=FILE. The first is the one to "
            "keep.",
        ),
    ],
    output_path: Annotated[Path, Parameter(name=["--output", "-o"], help="The model, a .safetensors file.")],
    n: Annotated[int, Parameter(validator=Number(gte=1, lte=8), help="Words of the longest n-grams.")] = 2,
    hash_bits: Annotated[
        int, Parameter(validator=Number(gte=1, lte=26), help="Hash n-grams to 2^BITS weights.")
    ] = 20,
    penalty: Annotated[
        float, Parameter(validator=Number(gt=0), help="Penalty of large weights: raise it for few examples.")
    ] = 1e-6,
    corpus: CorpusArguments = CorpusArguments(),  # noqa: B008  (it is immutable)
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a classifier of documents on examples.

    A tenth of the examples calibrates the probabilities, and another tenth measures
    them: precision is the share of pages of the label among those that are kept,
    recall the share of all its pages that are kept, with 95 % intervals. The same
    examples and settings give the same file.
    """
    from bytemill.cli.output import ProgressDisplay
    from bytemill.curation.classifier import Features
    from bytemill.curation.classifier_training import train_classifier
    from bytemill.storage.input_check import check_file_is_no_input
    from bytemill.system.atomic_files import check_output_file

    inputs = _labelled(files)
    check_output_file(output_path, overwrite=overwrite)
    texts = {label: corpus.corpus([file]) for label, file in inputs.items()}
    check_file_is_no_input(output_path, [file for own in texts.values() for file in own.input_files])
    with interruptible("run the same command again"), ProgressDisplay(quiet=quiet) as display:

        def show(step: str, n_done: int) -> None:
            display.update(step, "documents" if step == "reading" else "passes", n_done, None)

        model, held_out = train_classifier(
            texts, Features(n, hash_bits), penalty=penalty, num_threads=threads, progress=show
        )
    model.save(output_path)
    if as_json:
        output.write_json({"path": str(output_path), "labels": model.labels, **held_out.to_dict()})
    elif not quiet:
        _write_held_out(model.labels, held_out)
        output.write_line(str(output_path))


def _labelled(files: tuple[str, ...]) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for entry in files:
        label, equals, file = entry.partition("=")
        if not equals:
            label, file = Path(entry).name.split(".")[0], entry
        if not label or not file:
            raise CycloptsError(f"{entry!r} is neither FILE nor LABEL=FILE")
        if label in inputs:
            raise CycloptsError(f"two inputs have the label {label}: name them, as LABEL=FILE")
        inputs[label] = file
    if len(inputs) < 2:
        raise CycloptsError("a classifier needs examples of two labels: good.jsonl bad.jsonl")
    return inputs


def _write_held_out(labels: tuple[str, ...], held_out: "HeldOut") -> None:
    counts = [
        f"{plural(n, 'page')} of {label}" for n, label in zip(held_out.n_documents, labels, strict=True)
    ]
    output.write_line(f"held out: {', '.join(counts)}")
    output.write_fields(
        [
            ("right", _with_interval(held_out.accuracy, held_out.accuracy_interval)),
            ("error of probabilities", format_share(held_out.calibration_error)),
        ]
    )
    output.write_line()
    output.write_table(
        ("keep", "pages", "threshold", "precision", "recall"), map(_row, held_out.thresholds), right=(1, 2)
    )


def _row(own: "ThresholdQuality") -> tuple[str, ...]:
    return (
        f"likely {own.label}" if own.share is None else f"{format_share(own.share)} by {own.label}",
        f"{own.n_kept:,}",
        f"{own.threshold:.6f}",
        _with_interval(own.precision, own.precision_interval),
        _with_interval(own.recall, own.recall_interval),
    )


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None or interval is None:
        return "–"
    return f"{value:.3f}  [{interval[0]:.3f}, {interval[1]:.3f}]"


@app.command(
    usage="Usage: bytemill data classifier score [OPTIONS] MODEL INPUTS...",
    help_epilogue="""Examples:
  bytemill data classifier score quality.safetensors web.jsonl --keep-share 0.1
  bytemill data classifier score lid.176.ftz web.jsonl -o scores.jsonl""",
)
def score(
    model_file: Annotated[
        Path, Parameter(name="MODEL", help="A model of train, or of fastText (.bin or .ftz).")
    ],
    /,
    *inputs: options.Inputs,
    label: Annotated[str | None, Parameter(help="The label to keep; by default the first.")] = None,
    keep_share: Annotated[
        float | None,
        Parameter(
            validator=Number(gt=0, lte=1),
            help="Print the threshold that this share of the documents reaches.",
        ),
    ] = None,
    output_path: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="Write the scores of each document, as JSON lines."),
    ] = None,
    corpus: CorpusArguments = CorpusArguments(),  # noqa: B008  (it is immutable)
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score documents with a classifier.

    A score is the probability of a label. The summary has its percentiles, over
    documents. Each line of the output file has the name of the input, the number of
    the document in it and its scores.
    """
    import contextlib

    import numpy as np

    from bytemill.cli.output import ProgressDisplay
    from bytemill.curation.classifier import QualityModel, threshold_at
    from bytemill.curation.documents import whole_documents
    from bytemill.errors import CorpusError
    from bytemill.storage.input_check import check_file_is_no_input
    from bytemill.system import atomic_files

    texts = corpus.corpus(inputs)
    if output_path is not None:
        atomic_files.check_output_file(output_path, overwrite=overwrite)
        check_file_is_no_input(output_path, [model_file, *texts.input_files])
    model = QualityModel.load(model_file)
    column = 0 if label is None else model.column(label)
    names = texts.source_names
    own: list[Any] = []
    numbers = dict.fromkeys(range(len(names)), 0)
    with (
        interruptible("run the same command again"),
        ProgressDisplay(quiet=quiet) as display,
        contextlib.nullcontext() if output_path is None else atomic_files.open_text(output_path) as file,
    ):
        n_documents = 0
        for batch in whole_documents(texts):
            scores = model.batch_scores(batch)
            own.append(scores[:, column])
            n_documents += len(scores)
            display.update("scoring", "documents", n_documents, None)
            if file is None:
                continue
            for row in scores.tolist():
                place = {"source": names[batch.source], "document": numbers[batch.source]}
                numbers[batch.source] += 1
                rounded = {name: round(value, 6) for name, value in zip(model.labels, row, strict=True)}
                file.write(json.dumps({**place, "scores": rounded}, ensure_ascii=False) + "\n")
        if not n_documents:
            raise CorpusError("there is no document to score")
    values = np.concatenate(own)
    shares = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    thresholds = {share: threshold_at(values, share) for share in ((keep_share,) if keep_share else shares)}
    if as_json:
        output.write_json(
            {
                "label": model.labels[column],
                "n_documents": n_documents,
                "thresholds": [{"keep": share, "threshold": value} for share, value in thresholds.items()],
            }
        )
    elif not quiet:
        output.write_line(f"{plural(n_documents, 'document')}, scores of {model.labels[column]}")
        rows = [(format_share(share), f"{value:.6f}") for share, value in thresholds.items()]
        output.write_table(("keep", "threshold"), rows, right=(0, 1))
