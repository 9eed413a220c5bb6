"""Print generated text: plain, with token boundaries, with probabilities, or as JSON."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.analysis.inspection import TextToken, visible
from bytemill.cli import output
from bytemill.cli.tokenizer_views import running_text
from bytemill.errors import RunConfigError
from bytemill.lm.generation.many import continue_prompts, in_order
from bytemill.lm.generation.text_generation import (
    GenerationOptions,
    generate_text,
    prompt_ids,
    token_probabilities,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bytemill.lm.generation.speculative import Speculation
    from bytemill.lm.generation.text_generation import NewText
    from bytemill.lm.model_config import KernelName
    from bytemill.lm.training.saved_model import TrainedModel


def open_draft(
    draft: str, n_guesses: int, trained: TrainedModel, device: str, kernels: KernelName
) -> Speculation:
    """Open the draft that --draft names: "ngram", or a model.

    Raises:
        RunConfigError: The model has another tokenizer.
    """
    from bytemill.lm.generation.speculative import ModelDraft, NgramDraft, Speculation
    from bytemill.lm.training.saved_model import load_trained

    if draft == "ngram":
        return Speculation(NgramDraft(), n_guesses)
    small = load_trained(Path(draft), device, "auto", kernels)
    if small.tokenizer.fingerprint != trained.tokenizer.fingerprint:
        raise RunConfigError(
            f"{draft} has another tokenizer than the model", hint="use a draft model with the same tokenizer"
        )
    return Speculation(ModelDraft(small.model), n_guesses)


def write_text(trained: TrainedModel, prompt: str, options: GenerationOptions) -> None:
    """Print one sample while it is generated, or several samples one after the other."""
    news = generate_text(trained.model, trained.tokenizer, prompt, options, bos_id=trained.bos_id)
    if options.n_samples == 1:
        output.write(prompt)
        ends_line = prompt.endswith("\n")
        for new in news:
            output.write(_without_control_codes(new.text))
            output.flush()
            ends_line = new.text.endswith("\n") if new.text else ends_line
        if not ends_line:
            output.write_line()
        return
    texts = [prompt] * options.n_samples
    for new in news:
        texts[new.sample] += new.text
    for number, text in enumerate(texts):
        _write_heading(number)
        output.write_line(_without_control_codes(text))


def stream_text(trained: TrainedModel, prompt: str, options: GenerationOptions) -> Iterator[str]:
    """Print the continuation of a prompt while it is generated, and yield what was printed."""
    for new in generate_text(trained.model, trained.tokenizer, prompt, options):
        output.write(_without_control_codes(new.text))
        output.flush()
        yield new.text


def write_tokens(trained: TrainedModel, prompt: str, options: GenerationOptions) -> None:
    """Print samples with token boundaries; a single sample is printed while it is generated."""
    colour = output.colour_allowed(sys.stdout)
    for number, news in enumerate(_by_sample(trained, prompt, options)):
        if options.n_samples > 1:
            _write_heading(number)
        for text in running_text(_pieces(trained, prompt, news), colour=colour):
            output.write(text)
            output.flush()
        output.write_line()


def write_probabilities(
    trained: TrainedModel, prompt: str, options: GenerationOptions, n_alternatives: int
) -> None:
    """Print a line per token with its probability before and after the sampling options, and alternatives."""
    for number, news in enumerate(_by_sample(trained, prompt, options)):
        if options.n_samples > 1:
            _write_heading(number)
        heading = f"{'id':>7}  {'prob.':>7}  {'log p':>8}  {'sampled':>10}  token"
        output.write_line(output.styled(heading, "2"))
        for new in news:
            if new.token is None:
                continue
            own, best = token_probabilities(new.token, trained.tokenizer, n_alternatives)
            log = math.log(own.probability) if own.probability else -math.inf
            output.write_line(
                f"{own.id:>7}  {own.probability:>7.2%}  {log:>8.3f}  {own.sampled:>10.2%}  "
                f"'{visible(own.bytes)}'  {output.styled(own.bytes.hex(' '), '2')}"
            )
            for other in best:
                mark = "→" if other.id == own.id else " "
                line = f"{mark}{other.id:>6}  {other.probability:>7.2%}  {'':>8}  {other.sampled:>10.2%}"
                line += f"    '{visible(other.bytes)}'"
                output.write_line(output.styled(line, "2"))
            output.flush()


def write_samples_json(
    trained: TrainedModel, prompt: str, options: GenerationOptions, n_alternatives: int
) -> None:
    """Print one JSON object with all samples and the probabilities of their tokens."""
    texts = [""] * options.n_samples
    tokens: list[list[dict[str, Any]]] = [[] for _ in texts]
    for new in generate_text(trained.model, trained.tokenizer, prompt, options, bos_id=trained.bos_id):
        texts[new.sample] += new.text
        if new.token is not None:
            own, best = token_probabilities(new.token, trained.tokenizer, n_alternatives)
            tokens[new.sample].append({**own.to_dict(), "alternatives": [other.to_dict() for other in best]})
    output.write_json(
        {
            "checkpoint": str(trained.path),
            "prompt": prompt,
            "samples": [
                {"text": text, "ids": [token["id"] for token in own], "tokens": own}
                for text, own in zip(texts, tokens, strict=True)
            ],
        }
    )


def write_continuations(
    trained: TrainedModel, prompts: list[str], options: GenerationOptions, n_rows: int, *, as_json: bool
) -> None:
    """Print a sample or several of each prompt, in the order of the prompts, as they end."""
    ids = {n: prompt_ids(trained.tokenizer, prompt, trained.bos_id) for n, prompt in enumerate(prompts)}
    found = continue_prompts(trained.model, trained.tokenizer, ids, options, n_rows=n_rows)
    for new in in_order(found, len(prompts), options.n_samples):
        prompt = prompts[new.prompt]
        if as_json:
            output.write_json({**vars(new), "prompt": prompt, "number": new.prompt}, indent=None)
        else:
            _write_heading(new.sample, new.prompt)
            output.write_line(_without_control_codes(prompt + new.text))
        output.flush()


def _write_heading(number: int, prompt: int | None = None) -> None:
    of = "" if prompt is None else f"prompt {prompt + 1}, "
    output.write_line(output.styled(f"── {of}sample {number + 1} ──", "2"))


def _without_control_codes(text: str) -> str:
    """Replace control codes, which a model may generate, if standard output is a terminal."""
    if not output.is_terminal(sys.stdout):
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else visible(c.encode()) for c in text)


def _by_sample(
    trained: TrainedModel, prompt: str, options: GenerationOptions
) -> Iterator[Iterator[NewText] | list[NewText]]:
    news = generate_text(trained.model, trained.tokenizer, prompt, options, bos_id=trained.bos_id)
    if options.n_samples == 1:
        yield news
        return
    samples: list[list[NewText]] = [[] for _ in range(options.n_samples)]
    for new in news:
        samples[new.sample].append(new)
    yield from samples


def _pieces(
    trained: TrainedModel, prompt: str, news: Iterator[NewText] | list[NewText]
) -> Iterator[TextToken]:
    tokenizer = trained.tokenizer
    special = set(tokenizer.special_tokens.values())
    start = 0
    for token_id in tokenizer.encode(prompt):
        yield TextToken(token_id, tokenizer.decode_single_token_bytes(token_id), token_id in special, start)
    for new in news:
        if new.token is not None:
            token_bytes = tokenizer.decode_single_token_bytes(new.token.id)
            yield TextToken(new.token.id, token_bytes, new.token.id in special, start)
