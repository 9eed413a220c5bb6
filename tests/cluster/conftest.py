"""A tokenizer, a corpus of many formats, and Ray clusters of several nodes on this machine."""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.corpora import mixed_corpus, tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import bytemill as bm

    StartCluster = Callable[[int], Any]


@pytest.fixture(scope="session")
def tok() -> bm.Tokenizer:
    return tokenizer()


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return mixed_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def start_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[StartCluster]:
    """Return a function that starts a Ray cluster of this many nodes with a core each."""
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_health_check_timeout_ms", "1000")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "3")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
    utilities: Any = importlib.import_module("ray.cluster_utils")
    ray: Any = importlib.import_module("ray")
    clusters: list[Any] = []

    def start(n_nodes: int) -> Any:
        arguments: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20}
        # Ray replaces 127.0.0.1 by the address of the network, on which nothing shall listen.
        head = {**arguments, "node_ip_address": "127.0.0.2", "include_dashboard": False}
        cluster = utilities.Cluster(initialize_head=True, head_node_args=head)
        clusters.append(cluster)
        for number in range(1, n_nodes):
            cluster.add_node(**arguments, node_ip_address=f"127.0.0.{number + 2}")
        cluster.wait_for_nodes()
        return cluster

    yield start
    ray.shutdown()
    for cluster in clusters:
        with contextlib.suppress(Exception):
            cluster.shutdown()
