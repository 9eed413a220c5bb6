//! `Encoder`: [`bytemill::encode::Encoder`] for Python, with what only Python needs: shared ints and a table for decoding.
//!
//! In reading order: how one is made (`from_merges`, `from_characters`, `from_ranks`), what it says about its vocabulary, and what it
//! does. Each method that encodes reads its arguments (`convert`), chooses the type of the ids (`with_id_type`), calls the core
//! without the GIL, and makes a list (`lists`) or an array of the ids. Batches and files are in `batch`, text that arrives in chunks
//! in `stream`, decoding in `decoding`.

use crate::buffers::reserved;
use crate::convert::with_id_type;
use crate::lists::{IntCache, ids_of_list};
use crate::signals::{CancellationCheck, UnknownTokenError, to_python};
use crate::special::{self, ShapeArguments, StepArguments, arguments_of, id_of, rules, shape_of, specials, steps_of};
use crate::stream::{PyStreamEncoder, PyTokenIterator};
use crate::{batch, convert, decoding};
use bytemill::decode::Decoder;
use bytemill::encode::cutter::Cutter;
use bytemill::encode::{END, Encoder, Shape, no_interrupt};
use bytemill::formats::{merged_in_any_order, piece_merges};
use bytemill::pretokenize::{Pattern, Spaces};
use bytemill::special::{Rules, Segment};
use bytemill::text::normalize::Normalizer;
use bytemill::vocab::{Fallback, MergedTokens, TokenList, Vocab};
use numpy::{PyArray1, PyArray2};
use once_cell::race::OnceBox;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};
use std::collections::HashMap;
use std::sync::Arc;

/// Below this many bytes the work is done before another thread could take the GIL over.
const SHORT_TEXT: usize = 1 << 12;

/// A vocabulary ready to encode and decode. Immutable; several threads may use one.
#[pyclass(frozen, name = "Encoder", module = "bytemill._core")]
pub struct PyEncoder {
    encoder: Arc<Encoder>,
    ints: IntCache,
    /// Built by the first call that decodes.
    decoder: OnceBox<Decoder>,
    /// The symbol of each id or `u32::MAX`, built by the first call of `merge_of`.
    symbols: OnceBox<Vec<u32>>,
}

/// An encoder from its parts.
fn encoder_of(
    vocab: Vocab,
    pattern: Option<&str>,
    drops_unmatched: bool,
    rules: &[(String, Rules)],
    normalizer: Normalizer,
    shape: Shape,
) -> PyResult<Encoder> {
    let pattern = Pattern::new(pattern).map_err(to_python)?.dropping_unmatched(drops_unmatched);
    let encoder = Encoder::new(vocab, pattern).map_err(to_python)?.with_shape(shape);
    if rules.is_empty() && normalizer.is_identity() {
        return Ok(encoder);
    }
    encoder.with_rules(rules, normalizer).map_err(to_python)
}

impl PyEncoder {
    pub fn build(
        vocab: Vocab,
        pattern: Option<&str>,
        rules: &[(String, Rules)],
        normalizer: Normalizer,
        shape: Shape,
    ) -> PyResult<Self> {
        Self::new(encoder_of(vocab, pattern, false, rules, normalizer, shape)?)
    }

    /// An encoder of a vocabulary of characters. Without a pattern, texts are split where no token crosses.
    pub fn build_characters(
        vocab: Vocab,
        pattern: Option<&str>,
        rules: &[(String, Rules)],
        normalizer: Normalizer,
        shape: Shape,
    ) -> PyResult<Self> {
        let spaces = Spaces::of_tokens(vocab.tokens().map(|(token, _)| token)).map(Spaces::expression);
        // What stands around a space that vanishes may merge.
        let spaces = spaces.filter(|_| !shape.drops_unknown);
        Self::build(vocab, pattern.or(spaces), rules, normalizer, shape)
    }

    fn new(encoder: Encoder) -> PyResult<Self> {
        let ints = IntCache::new(encoder.vocab().n_ids())?;
        Ok(Self { encoder: Arc::new(encoder), ints, decoder: OnceBox::new(), symbols: OnceBox::new() })
    }

    /// Gives what `encode` puts into a vector with room for `n_ids`; without the GIL where the work is long.
    fn ids_of<T: Send>(
        py: Python<'_>,
        n_bytes: usize,
        n_ids: usize,
        encode: impl FnOnce(&mut Vec<T>, bytemill::encode::Interrupt<'_>) -> bytemill::Result<()> + Send,
    ) -> PyResult<Vec<T>> {
        let mut ids = reserved(n_ids)?;
        if n_bytes <= SHORT_TEXT {
            encode(&mut ids, &no_interrupt).map_err(to_python)?;
        } else {
            let check = CancellationCheck::new(None);
            py.detach(|| encode(&mut ids, &|| check.poll(0))).map_err(|error| check.raise(error))?;
        }
        Ok(ids)
    }

    fn list<'py>(&self, py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyList>> {
        self.ints.list(py, ids)
    }

    fn decoder(&self) -> PyResult<&Decoder> {
        self.decoder.get_or_try_init(|| Ok(Box::new(Decoder::new(self.encoder.vocab()).map_err(to_python)?)))
    }

    /// Where the parts of a pre-token start before any merge: its bytes, or in a vocabulary of characters those.
    fn starts_of_parts(&self, pretoken: &[u8]) -> Vec<usize> {
        let vocab = self.encoder.vocab();
        let (Some(leftovers), Ok(text)) = (vocab.leftovers(), std::str::from_utf8(pretoken)) else {
            return (0..pretoken.len()).collect();
        };
        let parts = |(start, character): (usize, char)| {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            let is_part = leftovers.fallback() != Fallback::Bytes || vocab.id(bytes).is_some() || leftovers.has(bytes);
            start..start + if is_part { 1 } else { character.len_utf8() }
        };
        text.char_indices().flat_map(parts).collect()
    }

    /// Number of merges with the end of a word, which no file lists.
    fn n_ends(&self) -> usize {
        let merges = self.encoder.vocab().merges();
        let is_end = |&(_, right): &(u32, u32)| right == u32::from(END);
        if self.encoder.shape().suffix.is_some() { merges.iter().take_while(|merge| is_end(merge)).count() } else { 0 }
    }

    /// The encoder of the core.
    pub fn core(&self) -> &Arc<Encoder> {
        &self.encoder
    }

    /// True where all ids fit 16 bits.
    pub fn narrow(&self) -> bool {
        self.encoder.vocab().n_ids() <= 1 << 16
    }
}

/// True for the bytes of one character or a part of it.
fn is_within_character(token: &[u8]) -> bool {
    std::str::from_utf8(token).map_or(true, |token| token.chars().nth(1).is_none())
}

/// What unknown characters become.
pub fn fallback_of(unknown: Option<(u32, bool)>, shape: &Shape) -> Fallback {
    match unknown {
        Some((id, fused)) => Fallback::Unknown { id, fused },
        None if shape.drops_unknown => Fallback::Nothing,
        None => Fallback::Bytes,
    }
}

/// Tokens from a mapping of id to bytes.
pub fn token_list(vocab: &Bound<'_, PyMapping>) -> PyResult<TokenList> {
    let mut tokens = TokenList::default();
    let mut push = |id: &Bound<'_, PyAny>, token: &Bound<'_, PyAny>| {
        tokens.push(id_of(id, token)?, token.cast::<PyBytes>()?.as_bytes()).map_err(to_python)
    };
    // The items of other mappings are a list of tuples, which the garbage collector visits.
    if let Ok(vocab) = vocab.cast::<PyDict>() {
        vocab.iter().try_for_each(|(id, token)| push(&id, &token))?;
    } else {
        for item in vocab.items()? {
            let (id, token): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            push(&id, &token)?;
        }
    }
    Ok(tokens)
}

/// Scores, ids and texts of the tokens that have scores.
pub fn pieces<'t>(tokens: &'t TokenList, scores: &HashMap<u32, f64>) -> Vec<(f64, u32, &'t str)> {
    let piece = |(id, token): (u32, &'t [u8])| Some((*scores.get(&id)?, id, std::str::from_utf8(token).ok()?));
    tokens.iter().filter_map(piece).collect()
}

#[pymethods]
impl PyEncoder {
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "what a tokenizer is made of")]
    #[pyo3(signature = (vocab, merges, special_tokens, pattern, ignore_merges, special_rules=None, normalizer=vec![], in_any_order=false, shape=ShapeArguments::default()))]
    fn from_merges(
        py: Python<'_>,
        vocab: &Bound<'_, PyMapping>,
        merges: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)>,
        special_tokens: &Bound<'_, PyMapping>,
        pattern: Option<&str>,
        ignore_merges: bool,
        special_rules: Option<&Bound<'_, PyMapping>>,
        normalizer: Vec<StepArguments>,
        in_any_order: bool,
        shape: ShapeArguments,
    ) -> PyResult<Self> {
        let shape = shape_of(shape);
        let tokens = token_list(vocab)?;
        let (special, rules, normalizer) =
            (specials(special_tokens)?, rules(special_rules)?, special::normalizer(&normalizer)?);
        let merges: Vec<_> = merges.iter().map(|(left, right)| (left.as_bytes(), right.as_bytes())).collect();
        let in_order = |tokens| -> bytemill::error::Result<MergedTokens> {
            let mut merged = if shape.drops_unknown {
                MergedTokens::with_any_bytes(tokens, "id")?
            } else {
                MergedTokens::new(tokens, "id")?
            };
            if let Some(suffix) = &shape.suffix {
                merged.add_ends(suffix, END)?;
            }
            merges.iter().try_for_each(|(left, right)| merged.add(&[*left, right].concat(), left.len()))?;
            Ok(merged)
        };
        let merged = match in_order(tokens) {
            Ok(merged) => merged,
            Err(error) => {
                let merged = if in_any_order { merged_in_any_order(token_list(vocab)?, &merges) } else { None };
                merged.ok_or_else(|| to_python(error))?
            }
        };
        py.detach(|| {
            let vocab = merged.finish(&[], special).map_err(to_python)?;
            Self::build(vocab.with_ignore_merges(ignore_merges), pattern, &rules, normalizer, shape)
        })
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "what a tokenizer is made of")]
    #[pyo3(signature = (vocab, aliases, merges, special_tokens, pattern, ignore_merges, unknown, special_rules=None, normalizer=vec![], ranks=None, scores=None, shape=ShapeArguments::default()))]
    fn from_characters(
        py: Python<'_>,
        vocab: &Bound<'_, PyMapping>,
        aliases: &Bound<'_, PyMapping>,
        merges: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)>,
        special_tokens: &Bound<'_, PyMapping>,
        pattern: Option<&str>,
        ignore_merges: bool,
        unknown: Option<(u32, bool)>,
        special_rules: Option<&Bound<'_, PyMapping>>,
        normalizer: Vec<StepArguments>,
        ranks: Option<Vec<u32>>,
        scores: Option<HashMap<u32, f64>>,
        shape: ShapeArguments,
    ) -> PyResult<Self> {
        let shape = shape_of(shape);
        let (tokens, aliases) = (token_list(vocab)?, token_list(aliases)?);
        let (special, rules, normalizer) =
            (specials(special_tokens)?, rules(special_rules)?, special::normalizer(&normalizer)?);
        let merges: Vec<_> = merges.iter().map(|(left, right)| (left.as_bytes(), right.as_bytes())).collect();
        py.detach(|| {
            let fallback = fallback_of(unknown, &shape);
            let aliases = aliases.iter().map(|(id, token)| (id, token.to_owned())).collect();
            let (merges, ranks) = match scores {
                None => (merges, ranks),
                Some(scores) => piece_merges(pieces(&tokens, &scores)),
            };
            let vocab = Vocab::from_characters(&tokens, aliases, &merges, ranks.as_deref(), special, fallback)
                .map_err(to_python)?;
            Self::build_characters(vocab.with_ignore_merges(ignore_merges), pattern, &rules, normalizer, shape)
        })
    }

    #[staticmethod]
    #[pyo3(signature = (ranks, special_tokens, pattern, special_rules=None, normalizer=vec![], drops_unmatched=false))]
    fn from_ranks(
        py: Python<'_>,
        ranks: &Bound<'_, PyMapping>,
        special_tokens: &Bound<'_, PyMapping>,
        pattern: Option<&str>,
        special_rules: Option<&Bound<'_, PyMapping>>,
        normalizer: Vec<StepArguments>,
        drops_unmatched: bool,
    ) -> PyResult<Self> {
        let mut tokens = TokenList::default();
        for item in ranks.items()? {
            let (token, rank): (Bound<'_, PyBytes>, Bound<'_, PyAny>) = item.extract()?;
            tokens.push(id_of(&rank, token.as_any())?, token.as_bytes()).map_err(to_python)?;
        }
        let (mut special, rules, normalizer) =
            (specials(special_tokens)?, rules(special_rules)?, special::normalizer(&normalizer)?);
        // In tiktoken, several special tokens may have one id.
        let aliases = if drops_unmatched { special::take_aliases(&mut special) } else { Vec::new() };
        py.detach(|| {
            let vocab = Vocab::from_ranked(tokens, special).map_err(to_python)?;
            let encoder = encoder_of(vocab, pattern, drops_unmatched, &rules, normalizer, Shape::default())?;
            Self::new(if aliases.is_empty() {
                encoder
            } else {
                encoder.with_special_aliases(aliases).map_err(to_python)?
            })
        })
    }

    #[getter]
    fn n_vocab(&self) -> usize {
        self.encoder.vocab().n_ids()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        if self.narrow() { "uint16" } else { "uint32" }
    }

    #[getter]
    fn pattern(&self) -> Option<&str> {
        self.encoder.pattern().expression()
    }

    #[getter]
    fn ignore_merges(&self) -> bool {
        self.encoder.vocab().ignore_merges()
    }

    #[getter]
    fn normalizer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let steps = steps_of(self.encoder.special().normalizer());
        let steps = steps.into_iter().map(|step| PyTuple::new(py, step)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, steps)
    }

    #[getter]
    fn fallback(&self) -> Option<(&'static str, Option<u32>, bool)> {
        Some(match self.encoder.vocab().leftovers()?.fallback() {
            Fallback::Bytes => ("bytes", None, false),
            Fallback::Nothing => ("nothing", None, false),
            Fallback::Unknown { id, fused } => ("unknown", Some(id), fused),
        })
    }

    #[getter]
    fn shape(&self) -> Option<ShapeArguments> {
        let shape = self.encoder.shape();
        (!shape.is_plain()).then(|| arguments_of(shape))
    }

    #[getter]
    fn ranked(&self) -> bool {
        self.encoder.vocab().is_ranked()
    }

    #[getter]
    fn special_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (token, id) in self.encoder.special().tokens() {
            all.set_item(token, id)?;
        }
        Ok(all)
    }

    fn vocab<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut tokens: Vec<_> = self.encoder.vocab().tokens().collect();
        tokens.sort_unstable_by_key(|(_, id)| *id);
        let all = PyDict::new(py);
        for (token, id) in tokens {
            all.set_item(id, PyBytes::new(py, token))?;
        }
        Ok(all)
    }

    fn sorted_tokens<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let vocab = self.encoder.vocab();
        let bytes = |id: &u32| PyBytes::new(py, vocab.token(*id).unwrap_or_default());
        self.encoder.sorted_tokens().ids().iter().map(bytes).collect()
    }

    fn tokens_beginning_with<'py>(&self, py: Python<'py>, prefix: &[u8]) -> Vec<(Bound<'py, PyBytes>, u32)> {
        let vocab = self.encoder.vocab();
        let token = |&id: &u32| (PyBytes::new(py, vocab.token(id).unwrap_or_default()), id);
        self.encoder.sorted_tokens().beginning_with(vocab, prefix).iter().map(token).collect()
    }

    #[getter]
    fn longest_token(&self) -> usize {
        self.encoder.sorted_tokens().longest()
    }

    fn merges<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let vocab = self.encoder.vocab();
        let bytes = |symbol| PyBytes::new(py, vocab.symbol(symbol));
        let is_shown =
            |(_, symbol): &(_, u32)| vocab.leftovers().is_none() || !is_within_character(vocab.symbol(*symbol));
        let merges = vocab.merges().iter().zip(256..).skip(self.n_ends()).filter(is_shown);
        merges.map(|(&(left, right), _)| (bytes(left), bytes(right))).collect()
    }

    fn compiled<'py>(&self, py: Python<'py>, rest: &str, n_entries: usize, n_merges: usize) -> Bound<'py, PyBytes> {
        let block = py.detach(|| self.encoder.compiled(rest, n_entries, n_merges));
        PyBytes::new(py, &block)
    }

    fn safe_cut(&self, window: &str, allowed_special: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            let cutter = Cutter { pattern: self.encoder.pattern(), special: self.encoder.kept_whole(allowed) };
            Ok(cutter.cut_within(window))
        })
    }

    fn canonical_form<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let form = py.detach(|| self.encoder.canonical_form());
        PyBytes::new(py, &form)
    }

    fn token_bytes<'py>(&self, py: Python<'py>, token_id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let id = convert::one_id(token_id)?;
        match self.encoder.vocab().token(id) {
            Some(token) => Ok(PyBytes::new(py, token)),
            None => Err(UnknownTokenError::new_err(id)),
        }
    }

    fn bytes_to_id(&self, token: &[u8]) -> Option<u32> {
        self.encoder.vocab().id(token)
    }

    fn parts(&self, pretoken: &[u8]) -> Vec<usize> {
        self.starts_of_parts(pretoken)
    }

    fn merge_steps<'py>(
        &self,
        py: Python<'py>,
        pretoken: &[u8],
    ) -> Vec<(u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize)> {
        let vocab = self.encoder.vocab();
        let bytes = |symbol| PyBytes::new(py, vocab.symbol(symbol));
        let mut starts = self.starts_of_parts(pretoken);
        // In a vocabulary of characters, those that make a character of bytes are none of its own merges.
        let is_shown = |symbol: u32| vocab.leftovers().is_none() || !is_within_character(vocab.symbol(symbol));
        let mut shown = Vec::new();
        for step in bytemill::bpe::steps(vocab.pairs(), pretoken) {
            if is_shown(step.symbol) {
                let index = starts.partition_point(|&start| start < step.offset);
                starts.remove(index + 1);
                shown.push((step.symbol - 256, bytes(step.left), bytes(step.right), index));
            }
        }
        shown
    }

    fn segments(
        &self,
        text: &Bound<'_, PyString>,
        allowed_special: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<(String, Option<u32>)>> {
        let text = convert::text(text)?;
        let allowed = convert::allowed(&self.encoder, allowed_special)?;
        let recognized = self.encoder.recognized(allowed.as_allowed());
        let mut all = Vec::new();
        recognized
            .segments(&text, true, &no_interrupt, |segment| {
                all.push(match segment {
                    Segment::Text(text) => (text.to_owned(), None),
                    Segment::Special(id) => {
                        let token = recognized.tokens().iter().find(|token| token.1 == id);
                        (token.map(|token| token.0.clone()).unwrap_or_default(), Some(id))
                    }
                });
                Ok(())
            })
            .map_err(to_python)?;
        Ok(all)
    }

    fn merge_of(&self, token_id: &Bound<'_, PyAny>) -> PyResult<Option<(u32, u32, u32)>> {
        let id = convert::one_id(token_id)?;
        let vocab = self.encoder.vocab();
        let ids = vocab.symbol_ids();
        let symbols = self.symbols.get_or_try_init(|| -> PyResult<_> {
            let mut symbols = reserved(vocab.n_ids())?;
            symbols.resize(vocab.n_ids(), u32::MAX);
            for (&id, symbol) in ids.iter().zip(0..) {
                if let Some(entry) = symbols.get_mut(id as usize) {
                    *entry = symbol;
                }
            }
            Ok(Box::new(symbols))
        })?;
        let Some(&symbol) = symbols.get(id as usize).filter(|&&symbol| symbol != u32::MAX) else { return Ok(None) };
        let parts = bytemill::bpe::live_merges::parts(vocab, symbol);
        let is_character = vocab.leftovers().is_some() && is_within_character(vocab.symbol(symbol));
        let parts = parts.filter(|_| !is_character);
        // A character that is no token has no id.
        let ids = parts.map(|(left, right)| (ids[left as usize], ids[right as usize]));
        let ids = ids.filter(|&(left, right)| vocab.token(left).is_some() && vocab.token(right).is_some());
        let rank = (symbol - 256).checked_sub(self.n_ends() as u32);
        Ok(ids.and_then(|(left, right)| Some((rank?, left, right))))
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyString>,
        allowed_special: &Bound<'py, PyAny>,
        num_threads: Option<i64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let text = convert::text(text)?;
        let n_threads = convert::threads_for(num_threads, text.len())?;
        let ids = convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            Self::ids_of(py, text.len(), if n_threads > 1 { 0 } else { text.len() / 3 + 1 }, |ids, interrupt| {
                if n_threads > 1 {
                    *ids = self.encoder.encode_parallel(&text, allowed, n_threads, interrupt)?;
                    Ok(())
                } else {
                    self.encoder.encode(&text, allowed, ids, interrupt)
                }
            })
        })?;
        self.list(py, &ids)
    }

    fn append<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyList>,
        text: &Bound<'py, PyString>,
        allowed_special: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(usize, Bound<'py, PyList>)>> {
        let (ids, text) = (ids_of_list(ids)?, convert::text(text)?);
        let check = CancellationCheck::new(None);
        let appended = convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            if ids.len() + text.len() <= SHORT_TEXT {
                return self.encoder.append(&ids, &text, allowed, &no_interrupt).map_err(to_python);
            }
            py.detach(|| self.encoder.append(&ids, &text, allowed, &|| check.poll(0)))
                .map_err(|error| check.raise(error))
        })?;
        appended.map(|appended| Ok((appended.n_kept, self.list(py, &appended.ids)?))).transpose()
    }

    fn encode_beginning<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyString>,
        is_start: bool,
        allowed_special: &Bound<'py, PyAny>,
    ) -> PyResult<(usize, Bound<'py, PyList>, Bound<'py, PyList>)> {
        let text = convert::text(text)?;
        let check = CancellationCheck::new(None);
        let found = convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            py.detach(|| self.encoder.encode_beginning(&text, is_start, allowed, &|| check.poll(0)))
                .map_err(|error| check.raise(error))
        })?;
        let n_characters = text[..found.end].chars().count();
        Ok((n_characters, self.list(py, &found.ids)?, self.list(py, &found.rest)?))
    }

    fn encode_with_dropout<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyString>,
        allowed_special: &Bound<'py, PyAny>,
        probability: f64,
        seed: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let text = convert::text(text)?;
        let ids = convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            Self::ids_of(py, text.len(), 0, |ids, interrupt| {
                self.encoder.encode_with_dropout(&text, allowed, probability, seed, ids, interrupt)
            })
        })?;
        self.list(py, &ids)
    }

    fn last_pretoken<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyString>,
        allowed_special: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let text = convert::text(text)?;
        let last = convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            py.detach(|| self.encoder.last_pretoken(&text, allowed)).map_err(to_python)
        })?;
        Ok(last.map(|pretoken| PyBytes::new(py, &pretoken)))
    }

    #[pyo3(signature = (data, *, look_up))]
    fn encode_pretoken<'py>(&self, py: Python<'py>, data: &[u8], look_up: bool) -> PyResult<Bound<'py, PyList>> {
        let ids = Self::ids_of(py, data.len(), 0, |ids, interrupt| {
            if look_up {
                self.encoder.encode_pretoken(data, &mut Vec::new(), ids, interrupt)
            } else {
                self.encoder.merge_pretoken(data, &mut Vec::new(), ids, interrupt)
            }
        })?;
        self.list(py, &ids)
    }

    fn encode_bytes<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let ids = Self::ids_of(py, data.len(), 0, |ids, interrupt| self.encoder.encode_bytes(data, ids, interrupt))?;
        self.list(py, &ids)
    }

    fn encode_batch<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        allowed_special: &Bound<'py, PyAny>,
        num_threads: Option<i64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let texts = convert::strings(texts)?;
        let texts = convert::texts(&texts)?;
        let n_threads = convert::threads_for(num_threads, texts.iter().map(|text| text.len()).sum())?;
        convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            batch::lists(py, &self.encoder, &texts, allowed, n_threads, |py, ids| self.list(py, ids))
        })
    }

    fn encode_to_numpy<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyString>,
        allowed_special: &Bound<'py, PyAny>,
        num_threads: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        convert::arrays_ready(py)?;
        let text = convert::text(text)?;
        let n_threads = convert::threads_for(num_threads, text.len())?;
        let check = CancellationCheck::new(None);
        let interrupt = || check.poll(0);
        convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            with_id_type!(self.narrow(), Id => {
                let ids = py.detach(|| self.encoder.encode_parallel::<Id>(&text, allowed, n_threads, &interrupt));
                Ok(PyArray1::from_vec(py, ids.map_err(|error| check.raise(error))?).into_any())
            })
        })
    }

    fn encode_batch_to_numpy<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        allowed_special: &Bound<'py, PyAny>,
        num_threads: Option<i64>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray1<i64>>)> {
        let texts = convert::strings(texts)?;
        let texts = convert::texts(&texts)?;
        let n_threads = convert::threads_for(num_threads, texts.iter().map(|text| text.len()).sum())?;
        convert::with_allowed(
            &self.encoder,
            allowed_special,
            |allowed| with_id_type!(self.narrow(), Id => batch::array::<Id>(py, &self.encoder, &texts, allowed, n_threads)),
        )
    }

    fn encode_files<'py>(
        &self,
        py: Python<'py>,
        paths: &Bound<'py, PyAny>,
        allowed_special: &Bound<'py, PyAny>,
        num_threads: Option<i64>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let paths = convert::paths(paths)?;
        let n_threads = convert::threads(num_threads)?;
        convert::with_allowed(
            &self.encoder,
            allowed_special,
            |allowed| with_id_type!(self.narrow(), Id => batch::files::<Id>(py, &self.encoder, &paths, allowed, n_threads)),
        )
    }

    fn encode_with_spans<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyString>,
        allowed_special: &Bound<'py, PyAny>,
        num_threads: Option<i64>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray2<i64>>)> {
        convert::arrays_ready(py)?;
        let text = convert::text(text)?;
        let n_threads = convert::threads_for(num_threads, text.len())?;
        convert::with_allowed(
            &self.encoder,
            allowed_special,
            |allowed| with_id_type!(self.narrow(), Id => self.ids_and_spans::<Id>(py, &text, allowed, n_threads)),
        )
    }

    fn count(&self, py: Python<'_>, text: &Bound<'_, PyString>, allowed_special: &Bound<'_, PyAny>) -> PyResult<usize> {
        let text = convert::text(text)?;
        if self.encoder.vocab().fused_id().is_some() {
            // Which ids become one depends on their values.
            let ids: Vec<u32> = convert::with_allowed(&self.encoder, allowed_special, |allowed| {
                Self::ids_of(py, text.len(), 0, |ids, interrupt| self.encoder.encode(&text, allowed, ids, interrupt))
            })?;
            return Ok(ids.len());
        }
        let ids: Vec<()> = convert::with_allowed(&self.encoder, allowed_special, |allowed| {
            Self::ids_of(py, text.len(), 0, |ids, interrupt| self.encoder.encode(&text, allowed, ids, interrupt))
        })?;
        Ok(ids.len())
    }

    fn encode_iterable(
        &self,
        chunks: &Bound<'_, PyAny>,
        allowed_special: &Bound<'_, PyAny>,
    ) -> PyResult<PyTokenIterator> {
        let chunks = convert::several(chunks)?;
        let allowed = convert::allowed(&self.encoder, allowed_special)?;
        Ok(PyTokenIterator::new(Arc::clone(&self.encoder), allowed, chunks.unbind()))
    }

    fn stream(
        &self,
        allowed_special: &Bound<'_, PyAny>,
        errors: &str,
        num_threads: Option<i64>,
    ) -> PyResult<PyStreamEncoder> {
        let allowed = convert::allowed(&self.encoder, allowed_special)?;
        let (malformed, n_threads) = (convert::malformed(errors)?, convert::threads(num_threads)?);
        Ok(PyStreamEncoder::new(Arc::clone(&self.encoder), allowed, malformed, n_threads, self.narrow()))
    }

    fn decode<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        errors: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyString>> {
        decoding::text(py, self.decoder()?, ids, &convert::handler(errors)?)
    }

    fn decode_bytes<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        decoding::bytes(py, self.decoder()?, ids)
    }

    fn decode_batch<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
        errors: &Bound<'py, PyString>,
    ) -> PyResult<Vec<Bound<'py, PyString>>> {
        batch.try_iter()?.map(|ids| self.decode(py, &ids?, errors)).collect()
    }
}
