//! Tokenizer files read by the core: `RankFile`, `TokenizerJson`, `CharacterJson`; `StringArray`.

use crate::encoder::{PyEncoder, fallback_of};
use crate::signals::{TokenizerError, to_python};
use crate::special::{self, ShapeArguments, StepArguments, rules, shape_of, specials};

use bytemill::encode::Shape;
use bytemill::formats::{CharacterJson, StringArray, TokenizerJson, read_ranks, read_tekken, read_tokenizer_json};
use bytemill::text::normalize::Normalizer;
use bytemill::vocab::{CompiledVocab, TokenList, Vocab};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyList, PyMapping};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Contents of a file, until an encoder is made of them.
struct Contents<T>(Mutex<Option<T>>);

impl<T> Contents<T> {
    fn new(contents: T) -> Self {
        Self(Mutex::new(Some(contents)))
    }

    fn with<R>(&self, read: impl FnOnce(&T) -> R) -> PyResult<R> {
        let contents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        contents.as_ref().map(read).ok_or_else(taken)
    }

    fn take(&self) -> PyResult<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(taken)
    }
}

fn taken() -> PyErr {
    TokenizerError::new_err("an encoder was made of this file already")
}

/// The tokens of a rank file.
#[pyclass(frozen, name = "RankFile", module = "bytemill._core")]
pub struct PyRankFile {
    tokens: Contents<TokenList>,
}

#[pymethods]
impl PyRankFile {
    #[staticmethod]
    fn read(py: Python<'_>, data: &[u8]) -> Option<Self> {
        let tokens = py.detach(|| {
            let mut tokens = read_ranks(data)?;
            tokens.sort_by_id();
            Some(tokens)
        })?;
        Some(Self { tokens: Contents::new(tokens) })
    }

    #[staticmethod]
    fn read_tekken(py: Python<'_>, data: &[u8]) -> Option<(Self, String)> {
        let (tokens, rest) = py.detach(|| read_tekken(data))?;
        Some((Self { tokens: Contents::new(tokens) }, rest))
    }

    fn tekken_encoder(
        &self,
        py: Python<'_>,
        special_tokens: &Bound<'_, PyMapping>,
        pattern: Option<&str>,
        n_ranks: u32,
        first_id: u32,
    ) -> PyResult<Option<PyEncoder>> {
        let special = specials(special_tokens)?;
        let all = self.tokens.take()?;
        py.detach(|| {
            let counted = all.iter().filter(|(rank, _)| *rank < n_ranks);
            let tokens =
                TokenList::collect(counted.map(|(rank, token)| (first_id + rank, token))).map_err(to_python)?;
            if tokens.len() != n_ranks as usize {
                return Ok(None);
            }
            match Vocab::from_ranked(tokens, special) {
                Ok(vocab) if !vocab.is_ranked() => PyEncoder::build(
                    vocab.with_ignore_merges(true),
                    pattern,
                    &[],
                    Normalizer::default(),
                    Shape::default(),
                )
                .map(Some),
                _ => Ok(None),
            }
        })
    }

    #[getter]
    fn n_ranks(&self) -> PyResult<usize> {
        self.tokens.with(TokenList::len)
    }

    fn token<'py>(&self, py: Python<'py>, rank: u32) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.tokens.with(|tokens| {
            let index = tokens.ids().binary_search(&rank).ok()?;
            Some(PyBytes::new(py, tokens.token(index)))
        })
    }

    fn encoder(
        &self,
        py: Python<'_>,
        special_tokens: &Bound<'_, PyMapping>,
        pattern: Option<&str>,
    ) -> PyResult<PyEncoder> {
        let special = specials(special_tokens)?;
        let tokens = self.tokens.take()?;
        py.detach(|| {
            PyEncoder::build(
                Vocab::from_ranked(tokens, special).map_err(to_python)?,
                pattern,
                &[],
                Normalizer::default(),
                Shape::default(),
            )
        })
    }
}

/// An array of strings in a GGUF file.
#[pyclass(frozen, name = "StringArray", module = "bytemill._core")]
pub struct PyStringArray(StringArray);

#[pymethods]
impl PyStringArray {
    #[new]
    fn new(texts: Vec<PyBackedStr>) -> Self {
        let mut strings = StringArray::default();
        texts.iter().for_each(|text| strings.push(text));
        Self(strings)
    }

    #[staticmethod]
    fn read(py: Python<'_>, block: &[u8], n: usize, is_big_endian: bool) -> Option<(Self, usize)> {
        let (strings, n_bytes) = py.detach(|| StringArray::read(block, n, is_big_endian))?;
        Some((Self(strings), n_bytes))
    }

    #[getter]
    fn n_strings(&self) -> usize {
        self.0.len()
    }

    fn texts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.iter())
    }

    fn results_among(&self, texts: Vec<PyBackedStr>) -> HashSet<String> {
        self.0.results_among(texts.iter().map(|text| &**text)).into_iter().map(str::to_owned).collect()
    }
}

/// The tokens and merges of a tokenizer.json, read from the file or from a block that was compiled of it.
enum Model {
    File(Box<TokenizerJson>),
    Compiled(Box<CompiledVocab>),
}

impl Model {
    fn id(&self, text: &str) -> Option<u32> {
        match self {
            Self::File(file) => file.id(text),
            Self::Compiled(compiled) => compiled.id(text),
        }
    }

    fn into_vocab(self, special: Vec<(String, u32)>, ignore_merges: bool) -> Option<Vocab> {
        match self {
            Self::File(file) => file.into_vocab(special, ignore_merges),
            Self::Compiled(compiled) => {
                let vocab = compiled.vocab;
                (vocab.special() == special && vocab.ignore_merges() == ignore_merges).then_some(vocab)
            }
        }
    }
}

/// The tokens and merges of a tokenizer.json.
#[pyclass(frozen, name = "TokenizerJson", module = "bytemill._core")]
pub struct PyTokenizerJson {
    model: Contents<Model>,
    #[pyo3(get)]
    n_entries: usize,
    #[pyo3(get)]
    n_merges: usize,
    #[pyo3(get)]
    missing_byte: Option<u8>,
}

impl PyTokenizerJson {
    fn of_file(file: TokenizerJson) -> Self {
        let (n_entries, n_merges, missing_byte) = (file.n_entries(), file.n_merges(), file.missing_byte());
        Self { model: Contents::new(Model::File(Box::new(file))), n_entries, n_merges, missing_byte }
    }
}

#[pymethods]
impl PyTokenizerJson {
    #[staticmethod]
    fn read(py: Python<'_>, data: &[u8]) -> Option<(Self, String)> {
        let (file, rest) = py.detach(|| read_tokenizer_json::<TokenizerJson>(data))?;
        Some((Self::of_file(file), rest))
    }

    #[staticmethod]
    fn of_strings(
        py: Python<'_>,
        tokens: &PyStringArray,
        merges: &PyStringArray,
        left_out: HashSet<u32>,
    ) -> Option<Self> {
        let left_out = left_out.into_iter().collect();
        let file = py.detach(|| TokenizerJson::of_strings(&tokens.0, &merges.0, &left_out))?;
        Some(Self::of_file(file))
    }

    #[staticmethod]
    fn read_compiled<'py>(py: Python<'py>, block: &[u8]) -> PyResult<Option<(Bound<'py, PyAny>, String)>> {
        let Some(mut compiled) = py.detach(|| CompiledVocab::read(block)) else { return Ok(None) };
        let (rest, n_entries, n_merges) = (std::mem::take(&mut compiled.rest), compiled.n_entries, compiled.n_merges);
        let file = if compiled.vocab.leftovers().is_some() {
            let model = Contents::new(CharacterModel::Compiled(Box::new(compiled.vocab)));
            Bound::new(py, PyCharacterJson { model, n_entries, n_merges })?.into_any()
        } else {
            let missing_byte = compiled.vocab.missing_byte();
            let model = Contents::new(Model::Compiled(Box::new(compiled)));
            Bound::new(py, Self { model, n_entries, n_merges, missing_byte })?.into_any()
        };
        Ok(Some((file, rest)))
    }

    fn id_of(&self, text: &str) -> PyResult<Option<u32>> {
        self.model.with(|model| model.id(text))
    }

    #[expect(clippy::too_many_arguments, reason = "what a tokenizer is made of")]
    #[pyo3(signature = (special_tokens, pattern, ignore_merges, special_rules=None, normalizer=vec![], shape=ShapeArguments::default()))]
    fn encoder(
        &self,
        py: Python<'_>,
        special_tokens: &Bound<'_, PyMapping>,
        pattern: Option<&str>,
        ignore_merges: bool,
        special_rules: Option<&Bound<'_, PyMapping>>,
        normalizer: Vec<StepArguments>,
        shape: ShapeArguments,
    ) -> PyResult<Option<PyEncoder>> {
        let shape = shape_of(shape);
        let (special, rules, normalizer) =
            (specials(special_tokens)?, rules(special_rules)?, special::normalizer(&normalizer)?);
        let model = self.model.take()?;
        py.detach(|| {
            let vocab = model.into_vocab(special, ignore_merges);
            // Nothing stands for a missing byte.
            let vocab = vocab.filter(|vocab| shape.drops_unknown || vocab.missing_byte().is_none());
            let Some(vocab) = vocab else { return Ok(None) };
            PyEncoder::build(vocab, pattern, &rules, normalizer, shape).map(Some)
        })
    }
}

/// The tokens and merges of a tokenizer.json of BPE over characters.
enum CharacterModel {
    File(Box<CharacterJson>),
    Compiled(Box<Vocab>),
}

/// The tokens and merges of a tokenizer.json of BPE over characters.
#[pyclass(frozen, name = "CharacterJson", module = "bytemill._core")]
pub struct PyCharacterJson {
    model: Contents<CharacterModel>,
    #[pyo3(get)]
    n_entries: usize,
    #[pyo3(get)]
    n_merges: usize,
}

#[pymethods]
impl PyCharacterJson {
    #[staticmethod]
    fn read(py: Python<'_>, data: &[u8]) -> Option<(Self, String)> {
        let (file, rest) = py.detach(|| read_tokenizer_json::<CharacterJson>(data))?;
        let (n_entries, n_merges) = (file.n_entries(), file.n_merges());
        Some((Self { model: Contents::new(CharacterModel::File(Box::new(file))), n_entries, n_merges }, rest))
    }

    fn id_of(&self, text: &str) -> PyResult<Option<u32>> {
        self.model.with(|model| match model {
            CharacterModel::File(file) => file.id(text),
            CharacterModel::Compiled(_) => None,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "what a tokenizer is made of")]
    #[pyo3(signature = (special_tokens, pattern, ignore_merges, has_meta, unknown, special_rules=None, normalizer=vec![], shape=ShapeArguments::default()))]
    fn encoder(
        &self,
        py: Python<'_>,
        special_tokens: &Bound<'_, PyMapping>,
        pattern: Option<&str>,
        ignore_merges: bool,
        has_meta: bool,
        unknown: Option<(u32, bool)>,
        special_rules: Option<&Bound<'_, PyMapping>>,
        normalizer: Vec<StepArguments>,
        shape: ShapeArguments,
    ) -> PyResult<Option<PyEncoder>> {
        let shape = shape_of(shape);
        let (special, rules, normalizer) =
            (specials(special_tokens)?, rules(special_rules)?, special::normalizer(&normalizer)?);
        let fallback = fallback_of(unknown, &shape);
        let model = self.model.take()?;
        py.detach(|| {
            let vocab = match model {
                CharacterModel::File(file) => file.into_vocab(special, ignore_merges, has_meta, fallback),
                CharacterModel::Compiled(vocab) => {
                    let is_same = vocab.special() == special
                        && vocab.ignore_merges() == ignore_merges
                        && vocab.leftovers().is_some_and(|leftovers| leftovers.fallback() == fallback);
                    is_same.then_some(*vocab)
                }
            };
            let Some(vocab) = vocab else { return Ok(None) };
            PyEncoder::build_characters(vocab, pattern, &rules, normalizer, shape).map(Some)
        })
    }
}
