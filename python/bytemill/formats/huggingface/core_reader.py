"""Fast loading of `tokenizer.json`: the core reads vocabulary and merges, Python the rest."""

from __future__ import annotations

from typing import Any

from bytemill._core import TokenizerJson
from bytemill.formats.files import is_object, parse_json
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.model import refuse_other_models, special_tokens_of
from bytemill.formats.huggingface.post_processor import companions_of
from bytemill.formats.loaded import Loaded
from bytemill.formats.spec import special_rules


def load_tokenizer_json(data: bytes, where: str) -> Loaded | None:
    """Read a `tokenizer.json` with the core; None if the core does not support the file.

    Raises `TokenizerFileError` for a file that is damaged or unsupported.
    """
    read = TokenizerJson.read(data)
    if read is None:
        return None
    file, rest = read
    # The file with an empty vocabulary and no merges, which the core has.
    document: Any = parse_json(rest, where)
    if not is_object(document) or not is_object(document.get("model")):
        return None
    model: dict[str, Any] = document["model"]
    refuse_other_models(model, where)
    tokenizer_json.refuse_unsupported(document, where)
    special_tokens, flags = special_tokens_of(
        document.get("added_tokens", []), file.id_of, file.n_entries, f"{where}: added_tokens"
    )
    pattern, record = tokenizer_json.pattern_and_record(document, file.n_merges, where)
    companions = companions_of(document, where)
    normalizer = tokenizer_json.normalizer_of(document, flags, where)
    rules = special_rules(special_tokens, flags, normalizer)
    core = file.encoder(special_tokens, pattern, bool(model.get("ignore_merges")), rules, normalizer == "NFC")
    if core is None:
        return None
    return Loaded(core, record.get("ties"), record.get("merge_counts"), flags, companions)
