"""Scores of benchmarks beside lm-evaluation-harness, item by item."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import harness
from benchmarks.harness import option

if TYPE_CHECKING:
    import argparse

SIZES: dict[str, Any] = {"d_model": 48, "num_layers": 2, "num_heads": 4, "d_ff": 96}
MEASURES = {"sum": "acc", "characters": "acc_norm"}
FORMS = {"strict": "strict-match", "flexible": "flexible-extract"}


@harness.case(
    option("files", nargs="+", metavar="TASK=FILE", help="items, as for `bytemill lm eval --task`"),
    option("--shots-from", action="append", default=[], metavar="TASK=FILE", help="examples, repeatable"),
    option("--tokenizer", type=Path, required=True, help="tokenizer of the model, with <|endoftext|>"),
    option("--shots", type=int, default=0, help="examples before each item (%(default)s)"),
    option("--items", type=int, default=40, help="items of each task (%(default)s)"),
    option("--context", type=int, default=2048, help="context length of the model (%(default)s)"),
    option("--max-tokens", type=int, default=48, help="tokens of a generated answer (%(default)s)"),
    option("--chat", action="store_true", help="with a chat template"),
)
def lm_eval(options: argparse.Namespace) -> int:
    """Score a small random model here and, exported to a folder of transformers, in lm-evaluation-harness.

        python -m benchmarks lm-eval hellaswag=items.txt mmlu=mmlu gsm8k=test.jsonl --shots 5 \\
            --shots-from gsm8k=train.jsonl --tokenizer gpt2.json

    Compared are the log-likelihoods of all choices, which items are right, generated answers, and what is found in
    them. Both read the same items. The exit status is 1 if something differs. Needs the package `lm_eval`.
    """
    harness.require("lm_eval")
    import bytemill
    from bytemill.lm import ModelConfig, TransformerLM
    from bytemill.lm.interchange.export_model import export_model
    from bytemill.lm.training.saved_model import load_trained, write_model_folder

    tokenizer = bytemill.Tokenizer.load(options.tokenizer)
    if options.chat:
        tokenizer.chat_template = (
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}"
        )
    config = ModelConfig(vocab_size=tokenizer.n_vocab, context_length=options.context, **SIZES)
    model = TransformerLM(config, seed=3).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_model_folder(
            folder / "ours", config, dict(model.named_parameters()), tokenizer, source="benchmark"
        )
        export_model(folder / "ours", folder / "theirs")
        trained = load_trained(folder / "ours", "cpu")
        n_different = 0
        for entry in options.files:
            rows = _compare(trained, folder, entry, options)
            print(harness.format_table(["", "items", "equal", "largest difference"], rows))
            n_different += sum(row[1] != row[2] for row in rows)
    return int(n_different > 0)


def _compare(trained: Any, folder: Path, entry: str, options: argparse.Namespace) -> list[list[str]]:
    from bytemill.lm.benchmarks.answers import AnswerOptions, evaluate_answers
    from bytemill.lm.benchmarks.tasks import TASKS, load_items
    from bytemill.lm.multiple_choice import evaluate_multiple_choice

    name, file = entry.split("=", 1)
    examples = dict(own.split("=", 1) for own in options.shots_from).get(name)
    task = TASKS[name]
    items = load_items(name, file, shots=options.shots, examples=examples, limit=options.items)
    results = folder / f"{name}.jsonl"
    common: dict[str, Any] = {"results": results, "task": name, "bos_id": trained.bos_id}
    if task.forms is None:
        score: Any = evaluate_multiple_choice(
            trained.model, trained.tokenizer, items, chat=options.chat, **common
        )
    else:
        answers = AnswerOptions(max_tokens=options.max_tokens, stop=task.stop, chat=options.chat)
        score = evaluate_answers(trained.model, trained.tokenizer, items, task.forms, answers, **common)
    ours = {
        line["item"]: line for line in map(json.loads, results.read_text().splitlines()) if "item" in line
    }
    samples = _harness_samples(folder, name, _rows_of(name, file, examples, options), options)
    if task.forms is None:
        pairs = [(ours[n]["log_likelihoods"], samples["none"][n]) for n in range(len(items))]
        theirs = [[float(own[0][0]) for own in sample["resps"]] for _, sample in pairs]
        differences = [
            max(abs(a - b) for a, b in zip(own, other, strict=True))
            for (own, _), other in zip(pairs, theirs, strict=True)
        ]
        rows = [
            [
                f"{name}: log-likelihoods",
                str(len(items)),
                str(sum(difference < 1e-3 for difference in differences)),
                f"{max(differences):.1e}",
            ]
        ]
        for ours_name, theirs_name in MEASURES.items():
            n_equal = sum(
                right == sample[theirs_name]
                for right, (_, sample) in zip(score.correct[ours_name], pairs, strict=True)
                if theirs_name in sample
            )
            if theirs_name in samples["none"][0]:
                rows.append([f"{name}: {theirs_name}", str(len(items)), str(n_equal), ""])
        return rows
    rows = []
    for form, theirs_name in FORMS.items():
        found = samples[theirs_name]
        n_text = sum(ours[n]["answers"][0] == found[n]["resps"][0][0] for n in range(len(items)))
        extracted = [task.forms[form].find(ours[n]["answers"][0]) or "[invalid]" for n in range(len(items))]
        n_extracted = sum(own == found[n]["filtered_resps"][0] for n, own in enumerate(extracted))
        n_right = sum(own == found[n]["exact_match"] for n, own in enumerate(score.correct[form]))
        for what, n in (("text", n_text), ("found", n_extracted), ("exact_match", n_right)):
            rows.append([f"{name}: {form} {what}", str(len(items)), str(n), ""])
    return rows


def _as_text(loader: Any, node: Any) -> str:
    return loader.construct_scalar(node)


def _harness_samples(
    folder: Path, name: str, rows_of: tuple[list[str], list[Any], list[Any]], options: argparse.Namespace
) -> dict[str, dict[int, Any]]:
    """Samples of lm-evaluation-harness by filter and number of item, with the task files that it comes with."""
    import yaml

    tasks = Path(harness.require("lm_eval").__file__).parent / "tasks"
    own, rows, shown = rows_of
    config: dict[str, Any] = {}
    for path in own:

        class Loader(yaml.SafeLoader):
            """Reads `!function`, which is replaced below."""

        Loader.add_constructor("!function", _as_text)
        config |= yaml.load((tasks / path).read_text(), Loader)  # noqa: S506 - a SafeLoader
    for key in ("include", "tag", "group", "process_docs", "task_alias", "dataset_name"):
        config.pop(key, None)
    if name == "hellaswag":
        config["process_docs"] = harness.require("lm_eval.tasks.hellaswag.utils").process_docs
    files = {"test": str(folder / f"{name}-test.json"), "dev": str(folder / f"{name}-dev.json")}
    Path(files["test"]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path(files["dev"]).write_text("".join(json.dumps(row) + "\n" for row in shown or rows[:1]))
    config |= {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "training_split": None,
        "validation_split": None,
        "test_split": "test",
        "fewshot_split": "dev",
        "fewshot_config": {"sampler": "first_n"},
        "num_fewshot": options.shots,
    }
    if "generation_kwargs" in config:
        config["generation_kwargs"]["max_gen_toks"] = options.max_tokens
    language_model = harness.require("lm_eval.models.huggingface").HFLM(
        pretrained=str(folder / "theirs"), device="cpu", batch_size=1, max_length=options.context
    )
    task = harness.require("lm_eval.api.task").ConfigurableTask(config=config)
    outcome: Any = harness.require("lm_eval.evaluator").evaluate(
        language_model, {name: task}, apply_chat_template=options.chat, bootstrap_iters=0, log_samples=True
    )
    by_filter: dict[str, dict[int, Any]] = {}
    for sample in outcome["samples"][name]:
        by_filter.setdefault(sample["filter"], {})[sample["doc_id"]] = sample
    return by_filter


def _rows_of(
    name: str, file: str, examples: str | None, options: argparse.Namespace
) -> tuple[list[str], list[Any], list[Any]]:
    """The harness's task files, and the items and examples in the fields that it reads."""
    from bytemill.lm.benchmarks.tasks import TASKS, load_items, questions

    task = TASKS[name]
    plain = load_items(name, file, limit=options.items)
    files = [Path(examples)] if examples else task.examples(Path(file))
    shown = [item for path in files for item in task.read(path)]
    if name == "hellaswag":
        rows = []
        for item in plain:
            activity, _, context = item.context.partition(": ")
            row = {"activity_label": activity, "ctx_a": context, "ctx_b": ""}
            rows.append(row | {"endings": item.endings, "label": str(item.label)})
        return ["hellaswag/hellaswag.yaml"], rows, []
    if name == "arc":
        rows = [
            {
                "question": _question(item),
                "choices": {"text": item.endings, "label": [str(n) for n in range(len(item.endings))]},
                "answerKey": str(item.label),
            }
            for item in plain
        ]
        return ["arc/arc_easy.yaml"], rows, []
    if name == "mmlu":
        questions, own_shown = (
            [
                {"question": own.question, "choices": own.choices, "answer": own.label}
                for path in paths
                for own in questions(path)
            ]
            for paths in ([Path(file)], files)
        )
        subject = plain[0].group
        names = ["mmlu/default/_default_template_yaml", f"mmlu/default/mmlu_{subject}.yaml"]
        return names, questions[: options.items], own_shown

    solved, own_shown = (
        [{"question": _question(item), "answer": item.answer} for item in own] for own in (plain, shown)
    )
    return ["gsm8k/gsm8k.yaml"], solved, own_shown


def _question(item: Any) -> str:
    return item.context.removeprefix("Question: ").removesuffix("\nAnswer:")
