"""Figures have one definition, and values that no figure can be computed from are refused by name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bytemill.studio.library import Library
from bytemill.studio.server import listen, running
from tests.studio.conftest import id_of


@pytest.fixture
def path(client: httpx.Client) -> str:
    return f"/models/{id_of(client, 'runs/first', 'models')}"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", ["1e-300", "0.009", "-1", "100.1", "NaN", "Infinity", "1e999"]),
        ("top_p", ["0", "-0.1", "1.1", "NaN", "Infinity"]),
        ("min_p", ["-1", "1.1", "NaN"]),
        ("repetition_penalty", ["0", "1e-300", "-1", "11", "NaN", "Infinity"]),
        ("top_k", ["-1", "1.5", "NaN", "1e30", "99999999999999999999"]),
        ("no_repeat_ngram", ["-1", "65"]),
        ("seed", ["-1", "1.5", "NaN", "4611686018427387904"]),
        ("max_tokens", ["0", "NaN", "2049"]),
    ],
)
def test_values_out_of_range_are_refused_by_name(
    client: httpx.Client, path: str, name: str, values: list[str]
):
    is_sampling = name not in {"seed", "max_tokens"}
    for value in values:
        change = f'"sampling": {{"{name}": {value}}}' if is_sampling else f'"{name}": {value}'
        for route in ("generate", "sampling") if is_sampling else ("generate",):
            body = f'{{"ids": [1], {change}}}'
            answer = client.post(
                f"{path}/{route}", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 422, (route, name, value)
            field = f"sampling.{name}: " if is_sampling else f"{name}: "
            assert answer.json()["detail"].startswith(field), answer.text
            assert "Value error" not in answer.json()["detail"]


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.01}, {"temperature": 0}, {"temperature": 100}, {"top_p": 1e-300}, {"min_p": 1e-300},
        {"min_p": 1}, {"repetition_penalty": 0.01}, {"repetition_penalty": 10}, {"top_k": 1},
        {"temperature": 0.01, "top_p": 1e-300, "min_p": 1, "repetition_penalty": 10, "no_repeat_ngram": 1},
    ],
)  # fmt: skip
def test_values_at_the_ends_of_their_ranges_give_probabilities(
    client: httpx.Client, path: str, sampling: dict[str, float]
):
    ids = client.post(f"{path}/prompt", json={"text": "The cat saw the dog."}).json()["ids"]
    body = {"ids": ids, "sampling": sampling, "n_tokens": 50}
    found = client.post(f"{path}/sampling", json=body).json()
    for stage in found["stages"]:
        assert stage["n_kept"] >= 1
        assert 0 <= stage["entropy_bits"] < 10
        assert all(0 <= p <= 1 for p in stage["probabilities"])
    answer = client.post(
        f"{path}/generate", json={"ids": ids, "sampling": sampling, "max_tokens": 3, "seed": 1}
    )
    assert "NaN" not in answer.text
    tokens = [
        json.loads(block.split("data: ", 1)[1])
        for block in answer.text.split("\n\n")
        if block.startswith("event: token")
    ]
    assert tokens[0]["sampled"] > 0
    if sampling.get("temperature") == 0:
        assert tokens[0]["id"] == found["tokens"][0]["id"]


@pytest.fixture(scope="module")
def odd_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that have finished, that have not, and with numbers that JSON lacks."""
    root = tmp_path_factory.mktemp("runs")
    for name, config, step in (
        ("finished", "[training]\nsteps = 6\n", 6),
        ("stopped", "[training]\nsteps = 7\n", 6),
        ("odd", "[training]\nsteps = nan\nrate = inf\n", 6),
        ("without", "", 6),
    ):
        folder = root / name
        (folder / "checkpoints" / f"step_{step:08d}").mkdir(parents=True)
        (folder / "config.toml").write_text(config)
        (folder / "metrics.jsonl").write_text(
            '{"kind": "step", "step": 1, "loss": NaN}\n'
            '{"kind": "validation", "step": 1, "bits_per_byte": Infinity, "classes": {"a": {"loss": -Infinity}}}\n'
        )
    return root


@pytest.fixture(scope="module")
def odd(odd_root: Path) -> Iterator[httpx.Client]:
    with (
        running(Library(odd_root), listen(port=0)) as address,
        httpx.Client(base_url=f"{address}api/v1", timeout=60, trust_env=False) as own,
    ):
        yield own


def test_a_run_is_finished_when_the_checkpoint_of_its_last_step_is_there(odd: httpx.Client):
    runs = {run["name"]: run["is_finished"] for run in odd.get("/runs").json()["runs"]}
    assert runs == {"finished": True, "stopped": False, "odd": False, "without": False}


def test_numbers_that_json_lacks_are_null(odd: httpx.Client):
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    answer = odd.get("/runs")
    (run,) = (run for run in json.loads(answer.text, parse_constant=refuse)["runs"] if run["name"] == "odd")
    assert run["config"] == {"training.steps": None, "training.rate": None}
    metrics = json.loads(odd.get(f"/runs/{run['id']}/metrics").text, parse_constant=refuse)
    (validation,) = metrics["others"]["validation"]
    assert validation == {
        "kind": "validation",
        "step": 1,
        "bits_per_byte": None,
        "classes": {"a": {"loss": None}},
    }
