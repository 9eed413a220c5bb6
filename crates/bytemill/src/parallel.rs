//! Encoding on several threads.

use crate::cores::Home;
use crate::cutter::Cutter;
use crate::encode::{Allowed, Encoder, Id, Pulse};
use crate::error::{Error, Result};
use crate::joined::Joined;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use crate::joined::Encoded;

/// One text of more bytes than this is divided.
const MOST_UNDIVIDED: usize = 1 << 20;

/// Most bytes of text that a thread takes at a time, some milliseconds of work: to join what is done costs nothing beside it.
const PART_BYTES: usize = 1 << 19;

/// What is left is taken in no fewer parts than these for each thread, so that all threads end together.
const PARTS_LEFT: usize = 4;

/// The largest part is of so many pieces, the least of one. Between two of them a thread looks whether all before it is done.
const PIECES: usize = 8;

/// Ids to make room for before a text of so many bytes is encoded: one for three bytes, and those that wait for answers beside them.
/// Room that stays empty costs nothing.
pub(crate) fn room_for(n_bytes: usize) -> usize {
    n_bytes / 3 + n_bytes / 24
}

/// Number of threads that the machine runs at once.
#[must_use]
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs `work(index)` for every index below `n`, on up to `n_threads` threads, and gives the results in order.
///
/// `pulse` is asked on the calling thread alone; once it or any work fails, the rest is not begun. Every piece of work
/// gets a pulse to ask now and then.
///
/// # Errors
/// The first error, whichever thread it came from.
pub fn map<R: Send>(
    n: usize,
    n_threads: usize,
    pulse: Pulse,
    work: impl Fn(usize, Pulse) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    if n_threads <= 1 || n <= 1 {
        return (0..n).map(|index| work(index, pulse)).collect();
    }
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let stopped = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
    let run = |pulse: Pulse| {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= n {
                return done;
            }
            match pulse().and_then(|()| work(index, pulse)) {
                Ok(result) => done.push((index, result)),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        // A thread that was told to stop has nothing to add.
                        failure.get_or_insert(error);
                    }
                    return done;
                }
            }
        }
    };
    let n_threads = n_threads.min(n);
    let home = Home::new(n_threads);
    let here = || {
        home.tell();
        stopped()?;
        pulse()
    };
    let help = || {
        let away = home.away();
        run(&|| {
            away.keep();
            stopped()
        })
    };
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(n, || None);
    std::thread::scope(|scope| {
        // Where no more threads are to be had, those there are do the work.
        let start = |_| {
            // Profiles show the name; Linux keeps 15 bytes of it.
            let helper = std::thread::Builder::new().name("bytemill-worker".to_owned());
            helper.spawn_scoped(scope, help).ok()
        };
        let helpers: Vec<_> = (1..n_threads).map_while(start).collect();
        let mut done = run(&here);
        for helper in helpers {
            match helper.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        for (index, result) in done {
            results[index] = Some(result);
        }
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(results.into_iter().flatten().collect()),
    }
}

/// What is encoded in one go.
enum Piece {
    /// Texts that follow each other.
    Texts(Range<usize>),
    /// Bytes of a long text; the last ones of it or not.
    Part { text: usize, bytes: Range<usize>, is_last: bool },
}

impl Piece {
    fn n_bytes(&self, texts: &[&str]) -> usize {
        match self {
            Self::Texts(range) => texts[range.clone()].iter().map(|text| text.len()).sum(),
            Self::Part { bytes, .. } => bytes.len(),
        }
    }
}

/// What a thread takes at a time: pieces, of these sizes, that follow each other. The less is left, the smaller are the parts.
fn parts(sizes: &[usize], n_threads: usize, most_bytes: usize) -> Vec<Range<usize>> {
    let mut n_left: usize = sizes.iter().sum();
    let mut parts = Vec::new();
    let (mut start, mut n_bytes) = (0, 0);
    for (end, size) in (1..).zip(sizes) {
        n_bytes += size;
        if n_bytes >= most_bytes.min(n_left / (PARTS_LEFT * n_threads)) || end == sizes.len() {
            parts.push(start..end);
            n_left -= n_bytes;
            (start, n_bytes) = (end, 0);
        }
    }
    parts
}

impl Encoder {
    /// The ids of `text`, by up to `n_threads` threads.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_parallel<T: Id>(
        &self,
        text: &str,
        allowed: Allowed,
        n_threads: usize,
        pulse: Pulse,
    ) -> Result<Vec<T>> {
        let mut ids = if n_threads <= 1 || text.len() <= MOST_UNDIVIDED {
            let mut ids = Vec::with_capacity(room_for(text.len()));
            self.encode(text, allowed, &mut ids, pulse)?;
            ids
        } else {
            self.encode_batch(&[text], allowed, n_threads, pulse)?.ids
        };
        if ids.len() < ids.capacity() / 2 {
            ids.shrink_to_fit();
        }
        Ok(ids)
    }

    /// The ids of all texts one after the other, by up to `n_threads` threads.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_batch<T: Id>(
        &self,
        texts: &[&str],
        allowed: Allowed,
        n_threads: usize,
        pulse: Pulse,
    ) -> Result<Encoded<T>> {
        self.encode_pieces(texts, allowed, n_threads, PART_BYTES, pulse)
    }

    pub(crate) fn encode_pieces<T: Id>(
        &self,
        texts: &[&str],
        allowed: Allowed,
        n_threads: usize,
        most_bytes: usize,
        pulse: Pulse,
    ) -> Result<Encoded<T>> {
        let n_bytes: usize = texts.iter().map(|text| text.len()).sum();
        let mut all = Encoded { ids: Vec::with_capacity(room_for(n_bytes)), ends: Vec::with_capacity(texts.len()) };
        let n_expected = n_bytes / n_threads.max(1);
        let encode_texts = |texts: &[&str], all: &mut Encoded<T>, pulse: Pulse| -> Result<()> {
            self.session(n_expected, |session| {
                texts.iter().try_for_each(|text| {
                    session.encode(text, allowed, &mut all.ids, pulse)?;
                    all.ends.push(all.ids.len());
                    Ok(())
                })
            })
        };
        if n_threads <= 1 {
            encode_texts(texts, &mut all, pulse)?;
            return Ok(all);
        }
        // In a part of a text nothing is refused any more: `pieces` has looked at the whole.
        let allowed_in_parts = if matches!(allowed, Allowed::Refused) { Allowed::None } else { allowed };
        let pieces = self.pieces(texts, allowed, most_bytes)?;
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.n_bytes(texts)).collect();
        let parts = parts(&sizes, n_threads, most_bytes);
        let joined = Joined::new(all);
        map(parts.len(), n_threads, pulse, |index, pulse| {
            let mut room = joined.room(index);
            for piece in &pieces[parts[index].clone()] {
                joined.come_forward(&mut room, self.tables_have_grown());
                let out = &mut room.encoded;
                match piece {
                    Piece::Texts(range) => encode_texts(&texts[range.clone()], out, pulse)?,
                    Piece::Part { text, bytes, is_last } => {
                        let part = &texts[*text][bytes.clone()];
                        self.session(n_expected, |session| {
                            session.encode(part, allowed_in_parts, &mut out.ids, pulse)
                        })?;
                        if *is_last {
                            out.ends.push(out.ids.len());
                        }
                    }
                }
            }
            joined.add(room, self.tables_have_grown());
            Ok(())
        })?;
        // All parts have been added, or there was an error.
        Ok(joined.take(parts.len()).unwrap_or_default())
    }

    /// Divides a batch: texts go together until they make a piece, and what is longer than `most_bytes`, a part, is cut.
    fn pieces(&self, texts: &[&str], allowed: Allowed, most_bytes: usize) -> Result<Vec<Piece>> {
        let special = match allowed {
            Allowed::All => self.special(),
            Allowed::These(special) => special,
            Allowed::None | Allowed::Refused => self.none(),
        };
        let cutter = Cutter { pattern: self.pattern(), special };
        let piece_bytes = most_bytes.div_ceil(PIECES);
        let mut pieces = Vec::new();
        let (mut start, mut n_bytes) = (0, 0);
        for (index, text) in texts.iter().enumerate() {
            let is_long = text.len() > most_bytes;
            if !is_long {
                n_bytes += text.len();
            }
            let end = index + usize::from(!is_long);
            if start < end && (is_long || n_bytes >= piece_bytes || end == texts.len()) {
                pieces.push(Piece::Texts(start..end));
                (start, n_bytes) = (end, 0);
            }
            if is_long {
                if matches!(allowed, Allowed::Refused) {
                    self.refuse_special(text)?;
                }
                let mut from = 0;
                for to in cutter.cut_whole(text, piece_bytes) {
                    pieces.push(Piece::Part { text: index, bytes: from..to, is_last: to == text.len() });
                    from = to;
                }
                start = index + 1;
            }
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretokenize::Pattern;
    use crate::vocab::Vocab;

    /// The bytes of each part.
    fn sizes(texts: &[&str], n_threads: usize, most_bytes: usize) -> Vec<usize> {
        let bytes = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
        let vocab = Vocab::from_merges(bytes, &[], vec![]).unwrap();
        let encoder = Encoder::new(vocab, Pattern::new(Some("gpt2")).unwrap()).unwrap();
        let pieces = encoder.pieces(texts, Allowed::None, most_bytes).unwrap();
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.n_bytes(texts)).collect();
        let parts = parts(&sizes, n_threads, most_bytes);
        let ends: Vec<usize> = parts.iter().map(|part| part.end).collect();
        assert!(parts.iter().map(|part| part.start).eq([0].iter().chain(&ends[..ends.len() - 1]).copied()));
        assert_eq!(ends.last(), Some(&pieces.len()));
        parts.into_iter().map(|part| sizes[part].iter().sum()).collect()
    }

    #[test]
    fn parts_become_smaller_towards_the_end() {
        let word = "word ".repeat(20_000);
        let documents = ["a document "; 9_000];
        for texts in [&[word.as_str()] as &[_], &documents] {
            let sizes = sizes(texts, 2, 8_000);
            let piece = 1_000 + 20;
            assert!(sizes[..2].iter().all(|size| (8_000..8_000 + piece).contains(size)), "{sizes:?}");
            assert!(sizes.windows(2).all(|two| two[1] < two[0] + piece), "{sizes:?}");
            let behind = &sizes[sizes.len() - 3..];
            assert!(behind.iter().all(|&size| size < piece), "{sizes:?}");
            assert!((15..40).contains(&sizes.len()), "{sizes:?}");
            assert_eq!(sizes.iter().sum::<usize>(), texts.concat().len());
        }
    }
}
