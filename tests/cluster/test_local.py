"""Worker processes that are killed, that fail and that are cancelled."""

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

import bytemill as bm
from bytemill.cluster import UnitProgress, encode_corpus
from bytemill.corpus import Corpus
from bytemill.data.executors.executor import Done, WorkerLostError
from bytemill.data.executors.local import LocalExecutor
from bytemill.errors import CorpusError
from tests.cluster.corpora import files_of

needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="platform: no SIGKILL")


def add(context: int, item: int) -> int:
    print("what tasks print is not a message")
    return context + item


def fail(context: object, item: int) -> None:
    if item == 1:
        raise CorpusError("bad input", hint="mend it")
    raise UnpicklableError(lambda: item)


class UnpicklableError(Exception):
    pass


def die(context: object, item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(context: object, item: float) -> int:
    time.sleep(item)
    return os.getpid()


def wait_for(executor: LocalExecutor, n: int) -> list[Done]:
    done: list[Done] = []
    deadline = time.monotonic() + 30
    while len(done) < n and time.monotonic() < deadline:
        done += executor.wait(0.2)
    return done


def test_tasks_get_the_context_of_their_time() -> None:
    with LocalExecutor(2) as executor:
        executor.set_context(100)
        first = [executor.submit(add, item) for item in range(5)]
        assert {done.handle: done.value for done in wait_for(executor, 5)} == dict(
            zip(first, range(100, 105), strict=True)
        )
        executor.set_context(200)
        executor.submit(add, 1)
        assert [done.value for done in wait_for(executor, 1)] == [201]


@needs_kill
def test_errors_come_back_with_their_hint_and_a_killed_worker_is_replaced() -> None:
    with LocalExecutor(1) as executor:
        executor.set_context(1)
        executor.submit(fail, 1)
        executor.submit(fail, 2)
        first, second = wait_for(executor, 2)
        assert isinstance(first.error, CorpusError)
        assert (str(first.error), first.error.hint) == ("bad input", "mend it")
        assert isinstance(second.error, RuntimeError)
        assert "UnpicklableError" in str(second.error)
        executor.submit(die, 0)
        [done] = wait_for(executor, 1)
        assert isinstance(done.error, WorkerLostError)
        executor.submit(add, 1)
        assert [done.value for done in wait_for(executor, 1)] == [2]


def test_cancelled_tasks_end_at_once_and_leave_no_process() -> None:
    with LocalExecutor(2) as executor:
        executor.set_context(1)
        running, waiting = executor.submit(sleep, 60.0), executor.submit(sleep, 60.0)
        third = executor.submit(add, 5)
        executor.cancel(running)
        executor.cancel(waiting)
        [done] = wait_for(executor, 1)
        assert (done.handle, done.value) == (third, 6)
        ids = executor.process_ids
    for process_id in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(process_id, 0)


@needs_kill
def test_workers_killed_at_random_times_change_nothing(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path
) -> None:
    corpus = Corpus(paths)
    bm.encode_corpus(tok, corpus, tmp_path / "one", shard_tokens=3000)
    random, n_kills = Random(7), 0
    with LocalExecutor(2) as executor:

        def kill_some(_: UnitProgress) -> None:
            nonlocal n_kills
            if n_kills < 10 and executor.process_ids and random.random() < 0.5:
                n_kills += 1
                os.kill(random.choice(executor.process_ids), signal.SIGKILL)

        encode_corpus(
            executor, tok, corpus, tmp_path / "many", unit_bytes=2000, shard_tokens=3000, progress=kill_some
        )
    assert n_kills > 7
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
