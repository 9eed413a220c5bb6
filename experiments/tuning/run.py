"""Does GRPO improve a small model of sums after SFT? Pretrain, tune and compare over seeds.

Rows are those of `chain_sum` of the package reasoning-gym. For each seed a model is pretrained on sums as text, tuned
on conversations, and then tuned by the reward of its own answers with each algorithm. Accuracy is that on rows that no
training has seen, of the most likely answer (greedy) and of answers sampled at temperature 1. Run with:

    uv run --with reasoning-gym==0.1.25 python experiments/tuning/run.py OUT_FOLDER
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from bytemill.data import encode_corpus
from bytemill.data.encode import encode_conversations
from bytemill.lm.generation.decoding import sample_continuations
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.training.config import resolve
from bytemill.lm.training.preparation import initial_layers
from bytemill.lm.training.saved_model import load_trained
from bytemill.lm.training.trainer import train
from bytemill.lm.tuning.rewards import reward_function, reward_values
from bytemill.lm.tuning.tune import DEFAULTS, tune
from bytemill.tokenizer.tokenizer import Tokenizer

END = "<|end|>"
TEMPLATE = (
    "{% for m in messages %}{{ {'user': '?', 'assistant': '='}[m.role] }}{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)
SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
N_TEST = 1000
SHAPE = {
    "model.context_length": 32,
    "model.d_model": 128,
    "model.num_layers": 2,
    "model.num_heads": 4,
    "model.d_ff": 384,
    "training.device": "cpu",
}


def sums(n: int, seed: int) -> list[dict[str, str]]:
    """Return rows with the expression as prompt."""
    library: Any = import_module("reasoning_gym")
    return [
        {"prompt": row["metadata"]["expression"], "answer": row["answer"]}
        for row in library.create_dataset("chain_sum", size=n, seed=seed, **SUMS)
    ]


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepare(folder: Path) -> dict[str, str]:
    """Write the tokenizer and the data, and return the rows of the test by prompt."""
    test = {row["prompt"]: row["answer"] for row in sums(2 * N_TEST, seed=1)}
    rows = [row for row in sums(60_000, seed=2) if row["prompt"] not in test]
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>", END])
    tokenizer.chat_template = TEMPLATE
    (folder / "tok").mkdir()
    tokenizer.save(folder / "tok")
    texts = [{"text": f"?{row['prompt']}{END}={row['answer']}"} for row in rows[:20_000]]
    encode_corpus(tokenizer, [write_lines(folder / "texts.jsonl", texts)], folder / "texts")
    chats = [{"prompt": row["prompt"], "response": row["answer"]} for row in rows[20_000:22_000]]
    encode_conversations(tokenizer, [write_lines(folder / "chats.jsonl", chats)], folder / "chats")
    prompts = [
        {"messages": [{"role": "user", "content": row["prompt"]}], "answer": row["answer"]}
        for row in rows[22_000:]
    ]
    write_lines(folder / "prompts.jsonl", prompts)
    return dict(list(test.items())[:N_TEST])


def accuracy(run: Path, test: dict[str, str]) -> dict[str, float]:
    """Return the share of right answers, greedy and of four samples of each row."""
    trained = load_trained(run, "cpu", "auto", "auto")
    tok, reward = trained.tokenizer, reward_function("number")
    special = set(tok.special_tokens.values())
    prompts = {prompt: tok.encode(f"?{prompt}{END}=") for prompt in test}

    def share(temperature: float, n_samples: int) -> float:
        n_right = 0.0
        rows = list(test) * n_samples
        for first in range(0, len(rows), 256):
            batch = rows[first : first + 256]
            answers = sample_continuations(
                trained.model,
                [prompts[prompt] for prompt in batch],
                6,
                parameters=SamplingParameters(temperature=temperature),
                seeds=range(first, first + len(batch)),
                stop_ids=special,
            )
            for prompt, ids in zip(batch, answers, strict=True):
                text = tok.decode([token for token in ids if token not in special])
                n_right += reward_values(reward, prompt, text, {"answer": test[prompt]})["reward"]
        return n_right / (len(test) * n_samples)

    return {"greedy": share(0.0, 1), "sampled": share(1.0, 4)}


def results_of(  # noqa: PLR0917 - the settings of the study
    seed: int, folder: Path, test: dict[str, str], algorithms: list[str], n_pretraining: int, n_tuning: int
) -> dict[str, Any]:
    """Train and tune the models of a seed on one thread, and return their accuracies."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    runs = folder / f"seed{seed}"
    data = {"data.tokenizer": str(folder / "tok"), "training.seed": seed}
    base = {
        **SHAPE,
        **data,
        "data.train": [str(folder / "texts")],
        "run.folder": str(runs / "base"),
        "training.steps": n_pretraining,
        "training.batch_size": 128,
        "optimizer.learning_rate": 3e-3,
        "data.packing": "documents",
        "run.checkpoint_every": 0,
    }
    train(resolve([("study", base)], n_vocab=258))

    def tuned(method: str, source: str, name: str, **values: Any) -> dict[str, float]:
        init = str(runs / source)
        own = {
            **DEFAULTS[method],
            **data,
            "training.init_from": init,
            "tuning.method": method,
            "training.device": "cpu",
            "run.folder": str(runs / name),
            "run.checkpoint_every": 0,
            **{key.replace("__", "."): value for key, value in values.items()},
        }
        tune(resolve([*initial_layers(init, None), ("study", own)], n_vocab=258))
        return accuracy(runs / name, test)

    found: dict[str, Any] = {
        "seed": seed,
        "sft": tuned(
            *("sft", "base", "sft"),
            data__train=[str(folder / "chats")],
            training__steps=60,
            training__batch_size=32,
            optimizer__learning_rate=3e-4,
        ),
    }
    for algorithm in algorithms:
        found[algorithm] = tuned(
            *("grpo", "sft", algorithm),
            tuning__prompts=[str(folder / "prompts.jsonl")],
            tuning__algorithm=algorithm,
            tuning__max_tokens=6,
            tuning__prompts_per_step=128,
            tuning__group_size=8,
            training__batch_size=1024,
            training__steps=n_tuning,
            schedule__name="cosine",
            schedule__warmup_steps=5,
            optimizer__learning_rate=1e-4,
        )
    found["seconds"] = time.perf_counter() - started
    return found


def study(  # noqa: PLR0917 - the settings of the study
    folder: Path, n_seeds: int, algorithms: list[str], n_pretraining: int, n_tuning: int, n_processes: int
) -> None:
    """Run the study and print its table."""
    folder.mkdir(parents=True)
    test = prepare(folder)
    results: list[dict[str, Any]] = []
    with ProcessPoolExecutor(n_processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [
            pool.submit(results_of, seed, folder, test, algorithms, n_pretraining, n_tuning)
            for seed in range(n_seeds)
        ]
        for job in as_completed(jobs):
            results.append(job.result())
            print(json.dumps(results[-1]), flush=True)
            (folder / "results.json").write_text(json.dumps(results))
    print("| answers | run | accuracy | gain over sft, 95 % interval | p |\n|---|---|---:|---|---:|")
    for kind in ("greedy", "sampled"):
        by_run = {name: np.array([found[name][kind] for found in results]) for name in ("sft", *algorithms)}
        for name, values in by_run.items():
            gain = "| |" if name == "sft" else compared(values, by_run["sft"])
            print(f"| {kind} | {name} | {values.mean():.3f} {gain}")
        if len(algorithms) > 1:
            first, second = algorithms[:2]
            print(f"| {kind} | {second} less {first} | {compared(by_run[second], by_run[first])}")


def compared(after: Any, before: Any) -> str:
    """Return cells with the mean difference of the seeds, its interval and p by the paired t test."""
    result = stats.ttest_rel(after, before)
    low, high = result.confidence_interval(0.95)
    return f"| {(after - before).mean():+.3f} ({low:+.3f} to {high:+.3f}) | {result.pvalue:.2g} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--algorithms", nargs="+", default=["grpo", "dr-grpo"])
    parser.add_argument("--pretraining", type=int, default=1200, help="steps")
    parser.add_argument("--tuning", type=int, default=50, help="steps of each algorithm")
    parser.add_argument("--processes", type=int, default=2, help="seeds at the same time, on one thread each")
    options = parser.parse_args()
    study(
        options.folder,
        options.seeds,
        options.algorithms,
        options.pretraining,
        options.tuning,
        options.processes,
    )
