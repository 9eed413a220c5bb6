"""Tables of a study: rows of text, the first of which is the header. The terminal and the page show the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bytemill.comparison.figures import FIGURES

if TYPE_CHECKING:
    from bytemill.experiment.findings import Findings
    from bytemill.experiment.statistics import Mean

Rows = list[tuple[str, ...]]


def means_table(findings: Findings, model: str) -> Rows:
    """Bits per byte of each tokenizer by domain."""
    rows: Rows = [("tokenizer", *findings.domains, "seeds", "σ over seeds")]
    for tokenizer in findings.tokenizers:
        own = [findings.means(domain).get((model, tokenizer)) for domain in findings.domains]
        last = own[-1]
        rows.append(
            (
                tokenizer,
                *(_mean(each) for each in own),
                "0" if last is None else str(last.n),
                "–" if last is None or last.deviation is None else f"{last.deviation:.4f}",
            )
        )
    return rows


def _mean(own: Mean | None) -> str:
    if own is None:
        return "–"
    return f"{own.value:.4f}" + ("" if own.half_width is None else f" ± {own.half_width:.4f}")


def pairs_table(findings: Findings, model: str) -> Rows:
    """Differences of all pairs of tokenizers."""
    rows: Rows = [
        ("first − second", "difference", "± seeds", "over documents", "p", "p, corrected", "detectable"),
    ]
    for pair in findings.pairs:
        if pair.model != model:
            continue
        own = pair.difference
        detectable = own.detectable
        rows.append(
            (
                f"{pair.first} − {pair.second}",
                f"{own.value:+.4f}",
                _number(own.half_width),
                "–" if pair.documents is None else f"{pair.documents[0]:+.4f} to {pair.documents[1]:+.4f}",
                _p(own.p),
                _p(pair.corrected_p),
                _number(detectable),
            )
        )
    return rows


def class_table(findings: Findings, model: str) -> Rows:
    """Bits per byte by class of token."""
    rows: Rows = [("class of token", *findings.tokenizers)]
    for name, values in findings.by_class(model).items():
        rows.append((name, *(_number(values.get(tokenizer)) for tokenizer in findings.tokenizers)))
    return rows


def predictions_table(findings: Findings, model: str) -> Rows:
    """Rank correlation of cheap figures with the models' bits per byte."""
    rows: Rows = [("figure of the tokenizer", "Spearman's ρ with bits per byte", "p")]
    rows += [(FIGURES[own.figure].title, f"{own.rho:+.2f}", _p(own.p)) for own in findings.predictions(model)]
    return rows


def hellaswag_table(findings: Findings, model: str) -> Rows:
    """Accuracy on HellaSwag, the mean over the seeds."""
    rows: Rows = [("HellaSwag", "acc", "acc_norm", "items", "tokens shared with the context")]
    for tokenizer in findings.tokenizers:
        own = [
            result["hellaswag"]
            for result in findings.results
            if (result["model"], result["tokenizer"]) == (model, tokenizer) and result.get("hellaswag")
        ]
        if own:
            acc, acc_norm = (
                f"{sum(each[name] for each in own) / len(own):.2%}" for name in ("acc", "acc_norm")
            )
            rows.append((tokenizer, acc, acc_norm, f"{own[0]['n_items']:,}", f"{own[0]['n_unaligned']:,}"))
    return rows


def learning_table(findings: Findings, model: str) -> Rows:
    """How far the models are below the unigram distribution, and the context that they were scored with."""
    rows: Rows = [
        (
            "tokenizer",
            "bits per token",
            "unigram distribution",
            "uniform",
            "below the unigram",
            "over documents",
            "least context",
            "mean context",
        )
    ]
    for tokenizer in findings.tokenizers:
        own = findings.learning.get((model, tokenizer))
        if own is None:
            continue
        rows.append(
            (
                tokenizer,
                f"{own.loss:.2f}",
                f"{own.unigram:.2f}",
                f"{math.log2(findings.grid['tokenizers'][tokenizer]['n_ids']):.2f}",
                f"{own.gain:.1%}",
                "–" if own.interval is None else f"{own.interval[0]:.1%} to {own.interval[1]:.1%}",
                *_context(findings.context(model, tokenizer)),
            )
        )
    return rows


def _context(own: tuple[int | None, float] | None) -> tuple[str, str]:
    if own is None:
        return "–", "–"
    least, average = own
    return "whole documents" if least is None else f"{least:,} bytes", f"{average:,.0f} bytes"


def trials_table(findings: Findings) -> Rows:
    """Learning rates that were tried, and what they gave on the tuning text."""
    rows: Rows = [("tokenizer", "model", "learning rate", "seed", "bits per byte", "FLOPs")]
    rows += [
        (
            result["tokenizer"],
            result["model"],
            f"{result['learning_rate']:g}",
            str(result["seed"]),
            f"{result['bits_per_byte']['tuning']:.4f}",
            f"{result['flops']:.3g}",
        )
        for result in findings.trials
    ]
    return rows


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.0001" if value < 0.0001 else f"{value:.4f}"
