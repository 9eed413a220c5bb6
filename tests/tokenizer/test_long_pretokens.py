"""Long pre-tokens with published vocabularies, merged by a queue first and by backtracking later."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import bytemill

SMALL = "abcdefghijklmnopqrstuvwxyz"
LENGTHS = (100, 248, 249, 500, 1000, 1024, 3000, 4096, 4097, 8000, 20_000)
"""Bytes. Among them where pre-tokens become too long to be remembered, cut at seams, or merged without a memo."""

BYTES_BY_QUEUE = 100_000
"""Bytes of long pre-tokens that a tokenizer merges with a queue, more or less, before it makes tables for them."""

ALPHABETS = {
    "random letters": SMALL,
    "frequent letters": "etaoinshrdlu",
    "three letters": "abc",
    "small and capital letters": SMALL + SMALL.upper(),
    "accents": "eéèaàuüñoöß",
    "Cyrillic": "оеаинтсрвлкмдпуяыьгзбч",
    "ideographs": "".join(map(chr, range(0x4E00, 0x9FA6, 7))),
    "Hangul": "".join(map(chr, range(0xAC00, 0xD7A4, 5))),
    "Thai": "กขคงจฉชซฌญดตถทธนบปผฝพ",
    "signs": "=-_*#~.,:;!?+",
    "emoji": "".join(map(chr, range(0x1F300, 0x1F650))),
    "NUL and others that are neither letter nor sign": "\0\x01\u0301\u200d",
}
UNITS = [
    "a",
    "ab",
    "the",
    "aA",
    "é",
    "字",
    "ния",
    "\u0301",
    "^",
    "=-",
    "\0",
    "👩\u200d👩\u200d👧",
    " ",
    "\r\n",
    "'s",
]


def cut_to(text: str, n_bytes: int) -> str:
    """The start of a text, of at most so many bytes."""
    return text.encode()[:n_bytes].decode(errors="ignore")


def drawn(alphabet: str, n_bytes: int, chance: random.Random) -> str:
    return cut_to("".join(chance.choices(alphabet, k=n_bytes)), n_bytes)


def of_stretches(n_bytes: int, chance: random.Random) -> str:
    """Letters of one script, then of another, with runs between them."""
    alphabets = [
        ALPHABETS[name] for name in ("random letters", "accents", "Cyrillic", "ideographs", "Hangul", "Thai")
    ]
    stretches: list[str] = []
    while sum(map(len, stretches)) < n_bytes:
        alphabet = chance.choice(alphabets)
        letters = chance.choices(alphabet, k=chance.randrange(1, 12))
        stretches.append("".join(letters) if chance.random() < 0.8 else letters[0] * chance.randrange(2, 40))
    return cut_to("".join(stretches), n_bytes)


def long_pretokens(seed: int, most_bytes: int = max(LENGTHS)) -> dict[str, str]:
    """Texts of one pre-token each, or of few, by what they are made of."""
    chance = random.Random(seed)
    lengths = [n_bytes for n_bytes in LENGTHS if n_bytes <= most_bytes]
    texts = {
        f"{name}, {n_bytes} bytes": drawn(alphabet, n_bytes, chance)
        for name, alphabet in ALPHABETS.items()
        for n_bytes in lengths
    }
    texts |= {
        f"{unit!r}, {n_bytes} bytes": cut_to(unit * n_bytes, n_bytes) for unit in UNITS for n_bytes in lengths
    }
    return texts | {f"stretches, {n_bytes} bytes": of_stretches(n_bytes, chance) for n_bytes in lengths}


def test_long_pretokens_have_the_ids_of_tiktoken(peer: Any) -> None:
    # More than enough of them that the tables for long pre-tokens are made.
    peer.ours.encode("ab" * 100_000)
    for name, text in long_pretokens(1).items():
        assert peer.ours.encode(text) == peer.theirs.encode_ordinary(text), name


def test_the_first_long_pretokens_have_the_ids_of_tiktoken(peer: Any) -> None:
    ours, n_bytes = peer.ours, BYTES_BY_QUEUE
    for name, text in long_pretokens(2, most_bytes=5000).items():
        n_bytes += len(text.encode())
        if n_bytes > BYTES_BY_QUEUE:
            ours, n_bytes = bytemill.Tokenizer.from_spec(peer.ours.to_spec()), len(text.encode())
        assert ours.encode(text) == peer.theirs.encode_ordinary(text), name


words = st.sampled_from(UNITS).flatmap(lambda unit: st.integers(1, 400).map(lambda n: unit * n)) | st.text(
    st.characters(categories=["L", "M"]), max_size=40
)


@given(text=st.lists(words, max_size=30).map("".join))
def test_runs_among_any_letters_have_the_ids_of_tiktoken(peer: Any, text: str) -> None:
    assert peer.ours.encode(text) == peer.theirs.encode_ordinary(text)
