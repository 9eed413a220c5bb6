"""`bytemill lm eval`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from bytemill.cli import options
from bytemill.cli.failures import interruptible
from bytemill.cli.lm_interchange import MODEL_HELP, usable_path
from bytemill.lm.model_config import KernelName

if TYPE_CHECKING:
    from bytemill.cli.lm_scores import TaskReport
    from bytemill.cli.output import ProgressDisplay
    from bytemill.lm.benchmarks.answers import AnswerOptions
    from bytemill.lm.benchmarks.core import CoreTaskScore
    from bytemill.lm.benchmarks.evaluate import TaskItems
    from bytemill.lm.evaluate import LossByClass, TextScore
    from bytemill.lm.training.saved_model import TrainedModel

TASKS = Group("Tasks", sort_key=-2)
ANSWERS = Group("Generated answers", sort_key=-1)

Run = Annotated[Path, Parameter(name="RUN", help=MODEL_HELP)]
Device = Annotated[str, Parameter(help="Device: auto, cpu, cuda, cuda:N or mps.")]
Kernels = Annotated[
    KernelName,
    Parameter(
        help="Implementation: the fastest for the device (auto), torch's, Triton's, or the readable reference."
    ),
]
Weights = Annotated[
    Literal["auto", "average", "trained"],
    Parameter(help="Trained weights, or their moving average; auto: the average if the run kept one."),
]


def evaluate(
    run: Run,
    /,
    *,
    text: Annotated[tuple[str, ...], Parameter(consume_multiple=True, help="Text files to score.")] = (),
    shards: Annotated[
        tuple[Path, ...], Parameter(consume_multiple=True, help="Shard folders to score.")
    ] = (),
    task: Annotated[
        tuple[str, ...],
        Parameter(
            group=TASKS,
            metavar="TASK=FILE",
            help="Task and its items: hellaswag, arc, mmlu (a folder), gsm8k, or mmlu-answers. May be repeated.",
        ),
    ] = (),
    hellaswag: Annotated[
        Path | None,
        Parameter(group=TASKS, help="HellaSwag file, the same as --task hellaswag=FILE."),
    ] = None,
    core: Annotated[
        Path | None,
        Parameter(group=TASKS, help="Folder of CORE's tasks: core.yaml, eval_meta_data.csv, eval_data."),
    ] = None,
    shots: Annotated[
        int, Parameter(group=TASKS, validator=Number(gte=0), help="Examples before each item of a task.")
    ] = 0,
    shots_from: Annotated[
        tuple[str, ...],
        Parameter(
            group=TASKS,
            metavar="TASK=FILE",
            help="Items for --shots; for mmlu by default SUBJECT_dev.csv. May be repeated.",
        ),
    ] = (),
    chat: Annotated[
        bool,
        Parameter(group=TASKS, negative=(), help="Put items into the chat template, as what a user says."),
    ] = False,
    limit: Annotated[
        int | None,
        Parameter(group=TASKS, validator=Number(gte=1), help="Use only the first N items of each task."),
    ] = None,
    against: Annotated[
        Path | None,
        Parameter(
            group=TASKS, metavar="RUN|RESULTS", help="Compare with another model, or with its --results file."
        ),
    ] = None,
    overlap: Annotated[
        tuple[Path, ...],
        Parameter(
            group=TASKS,
            consume_multiple=True,
            help="Shard folders of the training data, to search for 13 words in a row of each item.",
        ),
    ] = (),
    results: Annotated[
        Path | None,
        Parameter(group=TASKS, help="Save results of tasks item by item to this file, and resume from it."),
    ] = None,
    max_tokens: Annotated[
        int, Parameter(group=ANSWERS, validator=Number(gte=1), help="Maximum tokens of an answer.")
    ] = 256,
    samples: Annotated[
        int,
        Parameter(
            group=ANSWERS, validator=Number(gte=1), help="Answers to each item, for pass@k and majority vote."
        ),
    ] = 1,
    temperature: Annotated[
        float,
        Parameter(group=ANSWERS, validator=Number(gte=0), help="0 always takes the most likely token."),
    ] = 0.0,
    seed: Annotated[int, Parameter(group=ANSWERS, help="Seed of sampled answers.")] = 0,
    stride: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            help="Tokens between windows, by default the context length; a smaller stride gives each token more "
            "context and takes longer.",
        ),
    ] = None,
    by_class: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Also show the loss by class of token (words, digits, punctuation, white space) and by frequency.",
        ),
    ] = False,
    batch_size: Annotated[int, Parameter(validator=Number(gte=1), help="Windows or answers per batch.")] = 16,
    device: Device = "auto",
    weights: Weights = "auto",
    kernels: Kernels = "auto",
    threads: options.ModelThreads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Evaluate a model: loss, perplexity and bits per byte, accuracy on tasks.

    Bits per byte are comparable between models with different tokenizers. Special
    tokens count in loss and perplexity, but not in bits per byte. Accuracies have
    95 % intervals.
    """
    from bytemill.cli.lm_scores import write_scores
    from bytemill.cli.output import ProgressDisplay
    from bytemill.lm.benchmarks.answers import AnswerOptions
    from bytemill.lm.benchmarks.core import evaluate_core, load_core
    from bytemill.lm.benchmarks.evaluate import load_tasks
    from bytemill.lm.device import memory_errors, use_threads
    from bytemill.lm.training.saved_model import load_trained

    if not (text or shards or task or hellaswag or core):
        raise CycloptsError("nothing to evaluate on: give --text, --shards, --task, --hellaswag or --core")
    files = (*task, *([] if hellaswag is None else [f"hellaswag={hellaswag}"]))
    if not files and (overlap or against or shots_from):
        raise CycloptsError("--overlap, --against and --shots-from need a --task or --hellaswag")
    items = load_tasks(files, shots=shots, examples=shots_from, limit=limit)
    core_tasks = [] if core is None else load_core(core, limit=limit)
    answers = AnswerOptions(max_tokens, samples, temperature, seed, chat=chat)
    use_threads(threads)
    trained = load_trained(usable_path(run, quiet=quiet), device, weights, kernels)
    context = trained.config.model.context_length
    if stride is not None and stride > context:
        raise CycloptsError(f"--stride {stride} is more than the model's context of {context} tokens")
    hint = "run the same command again to " + ("start over" if results is None else f"resume from {results}")
    with interruptible(hint), memory_errors("lower --batch-size"), ProgressDisplay(quiet=quiet) as display:
        show = _shown_by(display)
        texts, classes = _text_scores(
            trained, text, shards, show, by_class=by_class, stride=stride, batch_size=batch_size
        )
        settings: dict[str, Any] = {"batch_size": batch_size, "results": results}
        other = None
        if against is not None and not (other_path := usable_path(against, quiet=quiet)).is_file():
            other = load_trained(other_path, device, weights, kernels)
        reports = _task_reports((trained, other, against), items, answers, overlap, show, settings)
        core_scores: list[CoreTaskScore] = []
        if core_tasks:
            core_scores = evaluate_core(trained, core_tasks, results=results, progress=show("CORE", "items"))
    if not quiet or as_json:
        write_scores(trained, texts, classes, reports, core_scores, as_json=as_json)


Show = Callable[[str, str], Callable[[int, int], None]]


def _shown_by(display: "ProgressDisplay") -> Show:
    return lambda name, unit: lambda done, total: display.update(name, unit, done, total)


def _text_scores(
    trained: "TrainedModel",
    text: tuple[str, ...],
    shards: tuple[Path, ...],
    show: Show,
    *,
    by_class: bool,
    **windows: Any,
) -> tuple[dict[str, "TextScore"], dict[str, "LossByClass"]]:
    """Score texts and shards, by name."""
    from bytemill.lm.evaluate import LossByClass, score_shards, score_text_file

    model, tokenizer = trained.model, trained.tokenizer
    classes = {
        name: LossByClass(tokenizer, model.config.vocab_size, model.lm_head.weight.device)
        for name in ((*text, *map(str, shards)) if by_class else ())
    }
    texts = {
        name: score_text_file(
            model,
            tokenizer,
            name,
            bos_id=trained.bos_id,
            documents=trained.documents(),
            progress=show(f"scoring {name}", "tokens"),
            by_class=classes.get(name),
            **windows,
        )
        for name in text
    } | {
        str(folder): score_shards(
            model,
            tokenizer,
            folder,
            documents=trained.documents(folder),
            progress=show(f"scoring {folder}", "tokens"),
            by_class=classes.get(str(folder)),
            **windows,
        )
        for folder in shards
    }
    return texts, classes


def _task_reports(  # noqa: PLR0917 - the models, and how they are scored
    models: "tuple[TrainedModel, TrainedModel | None, Path | None]",
    tasks: "list[TaskItems]",
    answers: "AnswerOptions",
    overlap: tuple[Path, ...],
    show: Show,
    settings: dict[str, Any],
) -> "list[TaskReport]":
    """Score tasks, compare with another model, and search training data for the items."""
    from bytemill.cli.lm_scores import TaskReport
    from bytemill.experiment.accuracy_table import accuracy_rows, corrected
    from bytemill.lm.benchmarks.evaluate import evaluate_task, measures, saved_score
    from bytemill.lm.benchmarks.overlap import overlap as find_overlap

    trained, other, against = models
    reports: list[TaskReport] = []
    saved: dict[str, Any] = {}
    if against is not None and other is None:  # fails before time is spent
        saved = {items.section: measures(items, saved_score(items, against, answers)) for items in tasks}
    for items in tasks:
        others, found = saved.get(items.section), None
        if overlap:
            own_texts = [item.own_text for item in items.items]
            progress = show(f"searching for {items.title}", "tokens")
            found = find_overlap(own_texts, overlap, trained.tokenizer, progress=progress)
        score = evaluate_task(trained, items, answers, progress=show(items.title, "items"), **settings)
        if other is not None:
            section, progress = f"{items.section} against", show(f"{items.title}, {against}", "items")
            their_score = evaluate_task(other, items, answers, section=section, progress=progress, **settings)
            others = measures(items, their_score)
        rows = accuracy_rows(
            measures(items, score),
            groups=[item.group for item in items.items],
            overlapping=None if found is None else found.found,
            others=others,
        )
        reports.append(TaskReport(items, score, rows, found, None if against is None else str(against)))
    tables = corrected([report.rows for report in reports])
    return [replace(report, rows=rows) for report, rows in zip(reports, tables, strict=True)]
