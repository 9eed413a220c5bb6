"""The model card of a tokenizer, and its upload to Hugging Face's hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill._core import __version__
from bytemill.analysis.summary import describe
from bytemill.system.atomic_files import write_text
from bytemill.system.hub import CARD_NAME, Pushed, push_folder
from bytemill.system.units import format_bytes

if TYPE_CHECKING:
    from bytemill.tokenizer.tokenizer import Tokenizer

_N_LONGEST = 20


def tokenizer_card(tokenizer: Tokenizer, repo: str) -> str:
    """Return the model card of a tokenizer, in Markdown with metadata for the hub.

    After training it has what is known of the corpus; a file keeps only the rule for ties and the counts of merges.

    Args:
        tokenizer: The tokenizer.
        repo: Name of the repository, for the examples.
    """
    summary = describe(tokenizer, _N_LONGEST)
    special = (
        ", ".join(f"`{token}` ({token_id})" for token, token_id in summary.special_tokens.items()) or "none"
    )
    pattern = summary.pattern_name or summary.pattern or "none"
    rows = [
        ("tokens", f"{summary.n_tokens:,}"),
        ("merges", f"{summary.n_merges:,}"),
        ("special tokens", special if len(special) < 400 else f"{len(summary.special_tokens):,}"),
        ("pattern", f"`{pattern}`".replace("|", "\\|")),
        ("normalizer", summary.normalizer or "none"),
        ("fingerprint", f"`{summary.fingerprint}`"),
    ]
    report = tokenizer.training_report
    if report is not None:
        rows += [
            ("trained on", f"{format_bytes(report.n_bytes)} of text, {report.n_pretokens:,} pre-tokens"),
            ("unique pre-tokens", f"{report.n_unique_pretokens:,}"),
        ]
    if summary.ties is not None:
        rows.append(("ties between pairs", summary.ties))
    if tokenizer.merge_counts:
        counts = tokenizer.merge_counts
        rows.append(
            ("occurrences of a pair when it was merged", f"{counts[0]:,} at first, {counts[-1]:,} at last")
        )
    longest = ", ".join(
        f"`{token.decode(errors='replace')}`" for _, token in summary.longest_tokens if _is_plain(token)
    )
    return f"""---
library_name: tokenizers
tags:
- tokenizer
- byte-pair-encoding
- bytemill
---

# {repo.rpartition("/")[2]}

A byte-level BPE tokenizer, made with bytemill {__version__}.

| | |
|---|---|
{"".join(f"| {name} | {value} |{chr(10)}" for name, value in rows)}
Longest tokens: {longest or "none of them is plain text"}.

## Use it

```python
from bytemill import Tokenizer

tok = Tokenizer.from_pretrained("{repo}")
tok.encode("Hello, world")
```

```python
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("{repo}")
```
"""


def push_tokenizer(
    tokenizer: Tokenizer,
    repo: str,
    *,
    private: bool = False,
    message: str | None = None,
    replace_card: bool = False,
) -> Pushed:
    """Upload a tokenizer to the hub with its `tokenizer.json`, its configuration and a model card.

    `Tokenizer.from_pretrained(repo)` and transformers open it. A card that the repository has is left as it is.
    Arguments and errors are those of `system.hub.push_folder`.
    """
    with tempfile.TemporaryDirectory(prefix="bytemill-push-") as name:
        folder = Path(name)
        tokenizer.save(folder)
        write_text(folder / CARD_NAME, tokenizer_card(tokenizer, repo))
        return push_folder(folder, repo, private=private, message=message, replace_card=replace_card)


def _is_plain(token: bytes) -> bool:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() and "`" not in text and bool(text.strip())
