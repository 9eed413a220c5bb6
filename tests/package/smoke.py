"""Try an installed package: train, save, load, encode, shards and the command line, without a checkout or extras.

    python tests/package/smoke.py

Imports nothing beside the standard library, numpy and bytemill.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import bytemill as bm
from bytemill import cluster

TEXT = "It was a dark and stormy night; naïve café, 東京 and 😀 rained in 1830.\n" * 200


def main() -> None:
    """Run all checks; an exception is a failure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = folder / "corpus.txt"
        corpus.write_text(TEXT, encoding="utf-8")
        tokenizer = bm.train(corpus, 300, ["<|endoftext|>"])
        tokenizer.save(folder / "tokenizer.json")
        loaded = bm.Tokenizer.load(folder / "tokenizer.json")
        assert loaded.fingerprint == tokenizer.fingerprint
        ids = loaded.encode(TEXT)
        assert loaded.decode(ids) == TEXT
        assert loaded.encode_batch([TEXT] * 3) == [ids] * 3
        assert np.array_equal(loaded.encode_to_numpy(TEXT), ids)
        manifest = bm.encode_corpus(loaded, corpus, folder / "shards")
        assert manifest.n_tokens == len(ids)
        assert np.load(folder / "shards" / manifest.shards[0].file).tolist() == ids
        with cluster.open_executor("local", num_workers=2) as executor:
            again = cluster.encode_corpus(executor, loaded, corpus, folder / "again", unit_bytes=5000)
        assert again == manifest

        def command(*arguments: str) -> str:
            run = [sys.executable, "-m", "bytemill", *arguments]
            return subprocess.run(run, check=True, capture_output=True, text=True, encoding="utf-8").stdout

        assert bm.__version__ in command("--version")
        shown = json.loads(command("tokenizer", "show", str(folder / "tokenizer.json"), "--json"))
        assert shown["n_vocab"] == tokenizer.n_vocab == 300
        out = command("tokenizer", "encode", str(folder / "tokenizer.json"), "naïve café")
        assert list(map(int, out.split())) == loaded.encode("naïve café")
    print(f"bytemill {bm.__version__} works: {Path(bm.__file__).parent}")


if __name__ == "__main__":
    main()
