"""Write the data of first-model.sh: sums as text, as conversations, as prompts with a reward, and as a test.

    python runs/sums.py FOLDER

Terms have one or two digits. No expression of the test is anywhere else.
"""

import json
import random
import sys
from pathlib import Path

QUESTION = "Question: {}\nAnswer:"
"""As `bytemill lm eval --task gsm8k` asks, and the template of first-model.sh."""
N_TEXTS, N_CHATS, N_PROMPTS, N_TEST = 20_000, 2_000, 20_000, 500


def sums(n: int, rng: random.Random) -> list[tuple[str, int]]:
    """Return expressions of two terms, and what each of them is."""
    found: list[tuple[str, int]] = []
    for _ in range(n):
        first, second = (rng.randrange(10 ** rng.choice((1, 2))) for _ in range(2))
        sign = rng.choice("+-")
        found.append((f"{first} {sign} {second}", first + second if sign == "+" else first - second))
    return found


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main(folder: Path) -> None:
    """Write all files."""
    rng = random.Random(1)  # noqa: S311
    test = dict(sums(2 * N_TEST, rng))
    rows = [row for row in sums(N_TEXTS + N_CHATS + N_PROMPTS + 10_000, rng) if row[0] not in test]
    folder.mkdir(parents=True, exist_ok=True)
    texts = [
        {"text": f"<|user|>{QUESTION.format(question)}<|end|><|assistant|>{answer}"}
        for question, answer in rows[:N_TEXTS]
    ]
    write_lines(folder / "texts.jsonl", texts)
    del rows[:N_TEXTS]
    chats = [{"prompt": question, "response": str(answer)} for question, answer in rows[:N_CHATS]]
    write_lines(folder / "chats.jsonl", chats)
    prompts = [
        {"messages": [{"role": "user", "content": question}], "answer": str(answer)}
        for question, answer in rows[N_CHATS : N_CHATS + N_PROMPTS]
    ]
    write_lines(folder / "prompts.jsonl", prompts)
    items = [
        {"question": question, "answer": f"#### {answer}"} for question, answer in list(test.items())[:N_TEST]
    ]
    write_lines(folder / "test.jsonl", items)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
