"""Generated text as people and scripts read it."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from bytemill.analysis.inspection import TextToken, visible
from bytemill.cli import output
from bytemill.cli.inspection_text import running_text
from bytemill.lm.generation.text_generation import GenerationOptions, chances, generate_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bytemill.lm.generation.text_generation import NewText
    from bytemill.lm.loading import TrainedModel


def write_text(trained: TrainedModel, prompt: str, options: GenerationOptions) -> None:
    """One sample as it comes, several one after the other."""
    pieces = generate_text(trained.model, trained.tokenizer, prompt, options)
    if options.n_samples == 1:
        output.write(prompt)
        ends_line = prompt.endswith("\n")
        for piece in pieces:
            output.write(_harmless(piece.text))
            output.flush()
            ends_line = piece.text.endswith("\n") if piece.text else ends_line
        if not ends_line:
            output.write_line()
        return
    texts = [prompt] * options.n_samples
    for piece in pieces:
        texts[piece.sample] += piece.text
    for number, text in enumerate(texts):
        output.write_line(output.styled(f"── sample {number + 1} ──", "2"))
        output.write_line(_harmless(text))


def write_tokens(trained: TrainedModel, prompt: str, options: GenerationOptions) -> None:
    """The samples with the boundaries of their tokens, each as it comes where there is only one."""
    colour = output.colour_allowed(sys.stdout)
    for number, news in enumerate(_by_sample(trained, prompt, options)):
        if options.n_samples > 1:
            output.write_line(output.styled(f"── sample {number + 1} ──", "2"))
        for stretch in running_text(_pieces(trained, prompt, news), colour=colour):
            output.write(stretch)
            output.flush()
        output.write_line()


def write_probabilities(
    trained: TrainedModel, prompt: str, options: GenerationOptions, n_alternatives: int
) -> None:
    """A line a token: how likely it was before and after temperature and cut-offs, and what else was."""
    for number, news in enumerate(_by_sample(trained, prompt, options)):
        if options.n_samples > 1:
            output.write_line(output.styled(f"── sample {number + 1} ──", "2"))
        heading = f"{'id':>7}  {'prob.':>7}  {'log p':>8}  {'drawn from':>10}  token"
        output.write_line(output.styled(heading, "2"))
        for new in news:
            if new.token is None:
                continue
            own, best = chances(new.token, trained.tokenizer, n_alternatives)
            log = math.log(own.probability) if own.probability else -math.inf
            output.write_line(
                f"{own.id:>7}  {own.probability:>7.2%}  {log:>8.3f}  {own.sampled:>10.2%}  "
                f"'{visible(own.bytes)}'  {output.styled(own.bytes.hex(' '), '2')}"
            )
            for other in best:
                mark = "→" if other.id == own.id else " "
                line = f"{mark:>6} {other.id:>7}  {other.probability:>7.2%}  {other.sampled:>7.2%}"
                line += f"  '{visible(other.bytes)}'"
                output.write_line(output.styled(line, "2"))
            output.flush()


def write_samples_json(
    trained: TrainedModel, prompt: str, options: GenerationOptions, n_alternatives: int
) -> None:
    """One object with all samples and the chances of their tokens."""
    texts = [""] * options.n_samples
    tokens: list[list[dict[str, Any]]] = [[] for _ in texts]
    for new in generate_text(trained.model, trained.tokenizer, prompt, options):
        texts[new.sample] += new.text
        if new.token is not None:
            own, best = chances(new.token, trained.tokenizer, n_alternatives)
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


def _harmless(text: str) -> str:
    """For a terminal without control codes, which a model may have learnt or made up; else as it is."""
    if not output.is_terminal(sys.stdout):
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else visible(c.encode()) for c in text)


def _by_sample(
    trained: TrainedModel, prompt: str, options: GenerationOptions
) -> Iterator[Iterator[NewText] | list[NewText]]:
    news = generate_text(trained.model, trained.tokenizer, prompt, options)
    if options.n_samples == 1:
        yield news
        return
    gathered: list[list[NewText]] = [[] for _ in range(options.n_samples)]
    for new in news:
        gathered[new.sample].append(new)
    yield from gathered


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
            spelled = tokenizer.decode_single_token_bytes(new.token.id)
            yield TextToken(new.token.id, spelled, new.token.id in special, start)
