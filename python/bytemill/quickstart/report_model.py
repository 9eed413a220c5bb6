"""The part of the report about the language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.analysis.inspection import visible
from bytemill.report.charts import Bar, bar_chart
from bytemill.report.curves import Curve, Level, curves_chart
from bytemill.report.markup import Markup, join, tag
from bytemill.report.page import figure, paragraph, section, table
from bytemill.report.svg import Caption, legend
from bytemill.system.units import format_count, plural

if TYPE_CHECKING:
    from bytemill.quickstart.result import ModelResult, QuickstartResult, Sample


def language_model(result: QuickstartResult) -> list[Markup]:
    """The section, or none where no model was asked for."""
    if result.model is None:
        if result.model_note is None or "torch" not in result.model_note:
            return []
        return [
            section("What a small model learns", paragraph(f"No model: {result.model_note}."), id_="model")
        ]
    model = result.model
    return [
        section(
            "What a small model learns",
            paragraph(
                f"A Transformer of {format_count(model.n_parameters)} parameters read "
                f"{plural(model.n_tokens, 'token')} of the training text in {plural(model.n_steps, 'step')}, and "
                "was then asked to predict text that it had not seen. The loss is what each token surprises it by."
            ),
            _learning(model),
            paragraph(
                "Bits per byte say the same for any tokenizer: so many bits a model would need to write down each "
                "byte of the text. Two models that need no training show what the numbers mean: one to which every "
                "token is as likely as any other, and one that knows only how often each token occurs."
            ),
            _scores(model),
            tag("h3", "How it goes on"),
            paragraph("The beginnings, set in bold, are those of texts that it has not seen."),
            *(_sample(sample) for sample in model.samples),
            id_="model",
        )
    ]


def _learning(model: ModelResult) -> Markup:
    levels = [Level(score.name.lower(), score.loss) for score in model.scores[:2]]
    last = model.scores[-1]
    curves = [
        Curve("training loss", 2, model.curve),
        Curve("validation loss", 1, model.validation_curve, dots=True),
    ]
    caption = Caption(
        "loss-chart",
        "Loss by step",
        f"Two falling curves over {model.n_steps:,} steps, the validation loss ending at {last.loss:.2f} nats a token; "
        + ", ".join(f"{level.name} {level.value:.2f}" for level in levels)
        + " as dashed lines.",
    )
    rows = [(format_count(step), f"{loss:.3f}") for step, loss in model.validation_curve]
    return figure(
        join(
            [
                legend([("f1", "validation text"), ("f2", "training text")]),
                curves_chart(
                    caption, [curve for curve in curves if curve.points], levels, "step", "nats a token"
                ),
            ]
        ),
        "Loss while training: lower is better. The dashed lines need no training.",
        table(("Step", "Validation loss"), rows, "Validation loss in nats a token.", left=0),
    )


def _scores(model: ModelResult) -> Markup:
    bars = [
        Bar(
            score.name,
            score.bits_per_byte,
            f"{score.bits_per_byte:.2f}",
            "f1" if score is model.scores[-1] else "f0",
        )
        for score in model.scores
    ]
    described = "; ".join(f"{bar.label} {bar.shown}" for bar in bars)
    rows = [
        (score.name, f"{score.loss:.3f}", f"{score.perplexity:,.1f}", f"{score.bits_per_byte:.3f}")
        for score in model.scores
    ]
    return figure(
        bar_chart(
            Caption("bits-chart", "Bits per byte", f"Horizontal bars: {described}."), bars, "bits per byte"
        ),
        "Bits per byte on the validation text: shorter is better.",
        table(("", "Loss", "Perplexity", "Bits per byte"), rows, "On the validation text."),
    )


def _sample(sample: Sample) -> Markup:
    shown = [
        "\n".join(visible(line.encode("utf-8", "replace")) for line in text.split("\n"))
        for text in (sample.prompt, sample.text)
    ]
    return tag("pre", tag("b", shown[0]), shown[1], class_="written", tabindex=0)
