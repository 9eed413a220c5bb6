"""What `bytemill tokenizer convert` has done, as people and scripts read it."""

import shlex
from pathlib import Path

from bytemill.cli import output
from bytemill.formats.conversion import Conversion
from bytemill.formats.writing import FORMATS, WrittenFormat
from bytemill.units import plural

_PROOFS = {
    "fingerprint": "yes: what was written has the same fingerprint",
    "ids": "yes: what was written gives the same ids for a sample text, every token and every special token",
    "none": "no: a listing is for people, and no tool reads it",
}


def write_conversion(conversion: Conversion, *, as_json: bool, quiet: bool) -> None:
    """What was written, what it leaves out, and how to open it."""
    if as_json:
        output.write_json(conversion.to_dict())
        return
    if quiet:
        return
    title = FORMATS[conversion.written_format].title
    first, *others = conversion.files
    output.write_line(
        f"{output.styled(str(first), '1')}: {title}, {plural(conversion.tokenizer.n_vocab, 'token')}"
    )
    output.write_line()
    beside = [("beside it", str(file)) for file in others]
    output.write_facts(
        [
            ("from", str(conversion.source)),
            *beside,
            ("same tokenizer", _PROOFS[conversion.proof]),
            ("fingerprint", conversion.tokenizer.fingerprint),
            ("left out", "; ".join(conversion.left_out) or "nothing"),
        ]
    )
    lines = _how_to_open(conversion.written_format, first, has_settings=bool(others))
    if lines:
        output.write_line()
        output.write_line("Open it:")
        for line in lines:
            output.write_line(f"  {line}")


def _how_to_open(written_format: WrittenFormat, file: Path, *, has_settings: bool) -> list[str]:
    show = f"bytemill tokenizer show {shlex.quote(str(file))}"
    name = repr(str(file))
    match written_format:
        case "huggingface":
            return [show, f"tokenizers.Tokenizer.from_file({name})"]
        case "tiktoken" if has_settings:
            settings = repr(f"{file}.json")
            return [
                show,
                f"tiktoken.Encoding(**json.load(open({settings})), "
                f"mergeable_ranks=tiktoken.load.load_tiktoken_bpe({name}))",
            ]
        case "gpt2":
            return [show, f"transformers.GPT2TokenizerFast({name}, {str(file).replace('vocab.json', 'merges.txt')!r})"]
        case "minbpe":
            return [show, f"minbpe.RegexTokenizer(PATTERN).load({name})"]
        case "vocab":
            return [f"less {shlex.quote(str(file))}"]
        case _:
            return [show]
