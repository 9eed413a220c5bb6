"""`bytemill lm adapt`."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from bytemill.cli import options, output
from bytemill.cli.lm_interchange import MODEL_HELP, Folder, usable_path
from bytemill.storage import shown


def adapt(
    model: Annotated[str, Parameter(name="MODEL", help=MODEL_HELP)],
    /,
    *,
    tokenizer: Annotated[
        str, Parameter(help="The new tokenizer: a file, a folder or a published name.", required=True)
    ],
    destination: Folder,
    init: Annotated[
        Literal["mean", "weighted", "zero", "random"],
        Parameter(
            help="Rows of new tokens: the mean of the rows of their parts, that mean weighted by bytes, zeros, or "
            "normal values."
        ),
    ] = "mean",
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Seed of random rows.")] = 0,
    text: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(), help="Score the model before and after on this file or glob. Repeat for several."
        ),
    ] = (),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Move a model to another tokenizer.

    Rows of the embedding and the output layer are kept for tokens that both
    tokenizers have, by their bytes; those of new tokens are made of the rows of
    their parts. All other weights stay. Train further with
    `bytemill lm train --init-from`.
    """
    from bytemill.corpus import iter_texts
    from bytemill.experiment.statistics import mean, paired_difference
    from bytemill.lm.adaptation import adapt_saved_model
    from bytemill.lm.adaptation_report import parts_of, score_parts
    from bytemill.lm.training.saved_model import load_trained
    from bytemill.system.units import format_count
    from bytemill.tokenizer import open_tokenizer

    new = open_tokenizer(tokenizer)
    parts = parts_of(list(iter_texts(list(text)))) if text else []
    source = usable_path(model, quiet=quiet)
    with output.ProgressDisplay(quiet=quiet) as display:
        display.step("adapting the model")
        adapted = adapt_saved_model(
            source,
            new,
            destination,
            init,
            seed=seed,
            overwrite=overwrite,
            progress=lambda done, total: display.update("writing", "bytes", done, total),
        )
        scores = [
            score_parts(
                load_trained(folder),
                parts,
                progress=lambda done, total: display.update("scoring", "parts", done, total),
            )
            for folder in ((source, destination) if parts else ())
        ]
    for problem in adapted.refused:
        output.note(f"skipped a damaged checkpoint: {problem}", quiet=quiet)
    for note in adapted.notes:
        output.note(note, quiet=quiet)
    n_rows = adapted.folder.model.vocab_size
    report: dict[str, Any] = {}
    if scores:
        before, after = scores
        change = paired_difference(after.bits_per_byte, before.bits_per_byte)
        for name, score in (("before", before), ("after", after)):
            own = mean(score.bits_per_byte)
            report[name] = {
                "bits_per_byte": own.value,
                "half_width": own.half_width,
                "bytes_per_token": score.bytes_per_token,
            }
        report["difference"] = {"bits_per_byte": change.value, "half_width": change.half_width, "n": change.n}
    if as_json:
        output.write_json(
            {
                "folder": shown(adapted.folder.path),
                "tokenizer": adapted.folder.fingerprint,
                "vocab_size": n_rows,
                "n_kept": adapted.n_kept,
                "n_new": adapted.n_new,
                "n_dropped": adapted.n_dropped,
                "init": init,
                **report,
            }
        )
        return
    if quiet:
        return
    output.write_line(
        f"{shown(adapted.folder.path)}: {adapted.n_kept:,} tokens kept, {adapted.n_new:,} new, "
        f"{adapted.n_dropped:,} dropped; {format_count(n_rows)} rows"
    )
    if report:
        output.write_line()
        output.write_table(
            ("", "bits per byte", "bytes per token"),
            [
                (name, _interval(report[name]), f"{report[name]['bytes_per_token']:.3f}")
                for name in ("before", "after")
            ]
            + [("difference", _interval(report["difference"], sign="+"), "")],
            right=(1, 2),
        )


def _interval(values: dict[str, Any], sign: str = "") -> str:
    half_width = values["half_width"]
    more = "" if half_width is None else f" ± {half_width:.4f}"
    return f"{values['bits_per_byte']:{sign}.4f}{more}"
