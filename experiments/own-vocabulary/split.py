"""Divide a file of stories into text/train.txt, text/tuning.txt and text/validation.txt: 18, 1 and 1 of 20 stories.

python split.py tinystories_2MiB.txt
"""

from __future__ import annotations

import sys
from pathlib import Path

END = "<|endoftext|>"


def main() -> None:
    whole = Path(sys.argv[1]).read_text(encoding="utf-8", errors="ignore")
    stories = [story for story in whole.split(END) if story.strip()]
    parts = {
        "tuning": stories[0::20],
        "validation": stories[10::20],
        "train": [story for number, story in enumerate(stories) if number % 10],
    }
    Path("text").mkdir(exist_ok=True)
    for name, own in parts.items():
        text = END.join(own)
        Path(f"text/{name}.txt").write_text(text, encoding="utf-8", newline="")
        print(f"{name}: {len(own):,} stories, {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
