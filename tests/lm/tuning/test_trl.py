"""Tuning against TRL: losses, and whole runs of its trainers."""

from __future__ import annotations

import json
from collections import defaultdict
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill.data.encode import encode_conversations
from bytemill.lm.batches import PackedBatches
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.tuning.policy_gradient import PolicyGradient, aggregate_losses, policy_gradient_losses
from bytemill.lm.tuning.tune import tune
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import Resolved

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

MOST_TOKENS = 9


@pytest.mark.parametrize(
    ("loss_type", "level", "how"),
    [
        ("grpo", "token", PolicyGradient(ratio="grpo", aggregation="sequence")),
        ("bnpo", "token", PolicyGradient(ratio="grpo", aggregation="token")),
        ("dr_grpo", "token", PolicyGradient(ratio="grpo", aggregation="constant")),
        ("grpo", "sequence", PolicyGradient(ratio="gspo", aggregation="sequence")),
    ],
)
def test_policy_gradient_losses_are_those_of_trl(loss_type: str, level: str, how: PolicyGradient) -> None:
    from trl.trainer.grpo_trainer import GRPOTrainer

    generator = torch.Generator().manual_seed(3)
    n, length = 6, 7
    log_probs = (-3 * torch.rand(n, length, generator=generator)).requires_grad_()
    old = log_probs.detach() + 0.4 * torch.randn(n, length, generator=generator)
    mask = (torch.arange(length) < torch.tensor([7, 1, 3, 5, 2, 7])[:, None]).long()
    advantages = torch.randn(n, generator=generator)
    accelerator = SimpleNamespace(
        gather=lambda x: x,
        reduce=lambda x, reduction: x,  # noqa: ARG005
        num_processes=1,
        sync_gradients=True,
    )
    trainer = SimpleNamespace(
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=0.0,
        loss_type=loss_type,
        use_vllm=False,
        epsilon_low=0.2,
        epsilon_high=0.2,
        args=SimpleNamespace(delta=None),
        current_gradient_accumulation_steps=1,
        max_completion_length=MOST_TOKENS,
        _entropy_bonus_enabled=False,
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, torch.ones(n, length), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(n, 2).long(),
        "prompt_mask": torch.ones(n, 2).long(),
        "completion_ids": torch.zeros(n, length).long(),
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": old,
    }
    compute: Any = GRPOTrainer._compute_loss
    theirs = compute(trainer, None, inputs)
    (their_gradient,) = torch.autograd.grad(theirs, log_probs)
    losses, _ = policy_gradient_losses(advantages, log_probs, old, mask, how)
    ours = aggregate_losses(losses, mask, how.aggregation, n * MOST_TOKENS)
    (our_gradient,) = torch.autograd.grad(ours, log_probs)
    assert float(ours) == pytest.approx(float(theirs), abs=1e-6)
    torch.testing.assert_close(our_gradient, their_gradient, rtol=1e-5, atol=1e-7)


TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}Q{{ m.content }}<|endoftext|>{% else %}A"
    "{% generation %}{{ m.content }}<|endoftext|>{% endgeneration %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}A{% endif %}"
)
CHATS = [("1+1", "2"), ("2", "3", "4+4", "8"), ("0+3", "3"), ("1", "seven"), ("4", "44")]
PAIRS = [("1+1", "2", "7"), ("2+2", "4", "five"), ("0+4", "4", "40"), ("3+0", "3", "x")]
STEPS = 4


def chat(*turns: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": turn} for n, turn in enumerate(turns)]


@pytest.mark.parametrize(
    ("method", "options"),
    [("sft", {}), ("dpo", {}), ("dpo", {"beta": 0.5})],
    ids=["sft", "dpo", "dpo-0.5"],
)
def test_a_run_is_that_of_trls_trainer(
    sums: Path, settings: Callable[..., Resolved], tmp_path: Path, method: str, options: dict[str, float]
) -> None:
    """From conversations to weights: the same losses in each step, and the same weights at the end."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    from datasets import Dataset

    trl: Any = import_module("trl")

    tok = Tokenizer.load(sums / "tok.json")
    tok.chat_template = TEMPLATE
    if method == "sft":
        rows: list[dict[str, Any]] = [{"messages": chat(*turns)} for turns in CHATS]
    else:
        rows = [
            {"prompt": chat(prompt), "chosen": chat(prompt, good)[1:], "rejected": chat(prompt, bad)[1:]}
            for prompt, good, bad in PAIRS
        ]
    ours = [
        {name: row["prompt"] + row[name] for name in ("chosen", "rejected")} if "prompt" in row else row
        for row in rows
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ours))
    encode_conversations(tok, [tmp_path / "rows.jsonl"], tmp_path / "shards")
    export_model(sums / "base", tmp_path / "exported")
    theirs = LlamaForCausalLM.from_pretrained(tmp_path / "exported", dtype=torch.float32)
    their_tok = AutoTokenizer.from_pretrained(tmp_path / "exported")
    their_tok.chat_template = TEMPLATE
    their_tok.pad_token = their_tok.eos_token = "<|endoftext|>"

    rate = 1e-3
    common: dict[str, Any] = {
        "output_dir": str(tmp_path / "trl"),
        "max_steps": STEPS,
        "per_device_train_batch_size": len(rows),
        "learning_rate": rate,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "adam_epsilon": 1e-8,
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "optim": "adamw_torch",
        "disable_tqdm": True,
        "max_length": 16,
    }
    data = Dataset.from_list(rows)
    if method == "sft":
        arguments: Any = trl.SFTConfig(**common, assistant_only_loss=True)
        trainer: Any = trl.SFTTrainer(theirs, arguments, train_dataset=data, processing_class=their_tok)
    else:
        arguments = trl.DPOConfig(**common, **options)
        trainer = trl.DPOTrainer(theirs, args=arguments, train_dataset=data, processing_class=their_tok)
    trainer.train()
    their_losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]

    size = len(rows)
    if method == "sft":
        size = PackedBatches([tmp_path / "shards"], 16, None).n_windows
    tune(
        settings(
            method,
            data__train=[str(tmp_path / "shards")],
            training__steps=STEPS,
            training__batch_size=size,
            run__log_every=1,
            run__checkpoint_every=0,
            optimizer__learning_rate=rate,
            optimizer__weight_decay=0.0,
            optimizer__beta1=0.9,
            optimizer__beta2=0.95,
            optimizer__eps=1e-8,
            optimizer__clip=0.0,
            optimizer__spike_loss=0.0,
            schedule__name="constant",
            schedule__warmup_steps=0,
            **{f"tuning__{name}": value for name, value in options.items()},
        )
    )
    our_losses = [record["loss"] for record in read_metrics(tmp_path / "run" / "metrics.jsonl", "step")]
    assert len(our_losses) == STEPS
    assert our_losses == pytest.approx(their_losses, abs=1e-5)
    export_model(tmp_path / "run", tmp_path / "tuned")
    tuned = LlamaForCausalLM.from_pretrained(tmp_path / "tuned", dtype=torch.float32).state_dict()
    their_weights = theirs.state_dict()
    moved = max(float((tuned[name] - value).abs().max()) for name, value in their_weights.items())
    assert moved < 1e-5
