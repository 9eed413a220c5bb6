//! Encoding files: read, checked and encoded part by part, by several threads.
//!
//! A part is read into memory that stays in the cache of the processor, so that checking and encoding it find it there; and
//! memory does not grow with the size of a file, but for its ids. Files are read, not mapped: the pages of a map cost as much as
//! the copy, and a file that somebody else truncates would end the process with a signal in place of an error.

use crate::cutter::Cutter;
use crate::encode::{Allowed, Encoder, Id};
use crate::error::{Error, Result};
use crate::joined::{Encoded, Joined};
use crate::parallel::{self, map};
use crate::pulse::Pulse;
use crate::special::SpecialTokens;
use crate::utf8::{Malformed, Utf8Stream};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

/// Bytes of a file that a thread takes at a time: a quarter of a second-level cache, and a millisecond of work.
const PART_BYTES: usize = 1 << 18;

/// A part of a file, in memory that is used again.
#[derive(Default)]
struct Part {
    text: String,
    /// How many parts are before it.
    number: usize,
    /// Where in the file it begins.
    offset: usize,
    bytes: Vec<u8>,
}

/// A file that is being read from the front on.
struct Reading {
    /// `None` when all is read.
    file: Option<File>,
    utf8: Utf8Stream,
    /// What was read behind the last part.
    rest: String,
    /// Where in the file that begins.
    offset: usize,
    n_parts: usize,
}

impl Reading {
    fn new(file: File) -> Self {
        Self { file: Some(file), utf8: Utf8Stream::new(Malformed::Refuse), rest: String::new(), offset: 0, n_parts: 0 }
    }

    /// Reads the next part, of about `part_bytes`; false where there is none any more.
    ///
    /// It is more only where nothing may be cut: inside one endless word, or with a pattern that is not cut at all.
    fn next(&mut self, cutter: Cutter, part_bytes: usize, part: &mut Part, pulse: Pulse) -> Result<bool> {
        let Some(file) = &mut self.file else { return Ok(false) };
        let Part { text, bytes, .. } = part;
        text.clear();
        text.push_str(&self.rest);
        self.rest.clear();
        bytes.resize(part_bytes, 0);
        let mut enough = part_bytes;
        loop {
            let n_read = read_full(file, bytes)?;
            // One endless word may be too much.
            text.try_reserve(n_read + 4).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            self.utf8.push(&bytes[..n_read], text)?;
            if n_read < part_bytes {
                self.utf8.finish(text)?;
                self.file = None;
                break;
            }
            if text.len() >= enough {
                if let Some(cut) = cutter.cut_stream(text) {
                    self.rest.push_str(&text[cut..]);
                    text.truncate(cut);
                    break;
                }
                // Looking again is worth while only when there is twice as much.
                enough = 2 * text.len();
            }
            pulse()?;
        }
        part.number = self.n_parts;
        part.offset = self.offset;
        self.n_parts += 1;
        self.offset += part.text.len();
        Ok(true)
    }
}

/// Fills `buffer` unless the file ends before; gives how much was read.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n_read = 0;
    while n_read < buffer.len() {
        match file.read(&mut buffer[n_read..]) {
            Ok(0) => break,
            Ok(n) => n_read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n_read)
}

/// A file at work.
struct Task<T> {
    index: usize,
    reading: Mutex<Reading>,
    joined: Joined<T>,
    /// How many parts there are; `usize::MAX` as long as nobody knows.
    n_parts: AtomicUsize,
}

/// What all threads see.
struct Shared<'e, T> {
    encoder: &'e Encoder,
    paths: &'e [PathBuf],
    sizes: Vec<u64>,
    /// What is looked for to cut and to refuse.
    special: &'e SpecialTokens,
    refuses: bool,
    /// What is recognised in a part.
    allowed: Allowed<'e>,
    part_bytes: usize,
    /// Bytes of text for each thread.
    n_expected: usize,
    next: AtomicUsize,
    /// Files that more than one thread may work on, and that are not read to their end.
    open: Mutex<Vec<Arc<Task<T>>>>,
    done: Mutex<Vec<Option<Vec<T>>>>,
}

impl<T: Id> Shared<'_, T> {
    /// Works on files as long as there is something to do. A new file comes first, so that each is with one thread mostly; when
    /// all are begun, the threads that are done help with those that are not.
    fn work(&self, pulse: Pulse) -> Result<()> {
        let mut part = Part::default();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let task = if let Some(path) = self.paths.get(index) {
                let file = File::open(path).map_err(|error| in_file(path, error.into()))?;
                let n_bytes = usize::try_from(self.sizes[index]).unwrap_or(usize::MAX);
                let task = Arc::new(Task {
                    index,
                    reading: Mutex::new(Reading::new(file)),
                    joined: Joined::new(Encoded { ids: room_for(n_bytes), ends: Vec::new() }),
                    n_parts: AtomicUsize::new(usize::MAX),
                });
                if n_bytes > self.part_bytes {
                    self.open.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&task));
                }
                task
            } else {
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(task) = open.first() else { return Ok(()) };
                Arc::clone(task)
            };
            self.encode(&task, &mut part, pulse).map_err(|error| in_file(&self.paths[task.index], error))?;
        }
    }

    /// Takes part after part of a file, up to its end.
    fn encode(&self, task: &Arc<Task<T>>, part: &mut Part, pulse: Pulse) -> Result<()> {
        while self.next_part(task, part, pulse)? {
            let mut room = task.joined.room(part.number);
            let out = &mut room.encoded.ids;
            self.encoder.session(self.n_expected, |session| session.encode(&part.text, self.allowed, out, pulse))?;
            task.joined.add(room, self.encoder.tables_have_grown());
            if let Some(all) = task.joined.take(task.n_parts.load(Ordering::Acquire)) {
                let mut ids = all.ids;
                ids.shrink_to_fit();
                self.done.lock().unwrap_or_else(PoisonError::into_inner)[task.index] = Some(ids);
            }
        }
        Ok(())
    }

    /// Reads the next part of a file, and refuses what is to be refused: here, one part after the other, so that the error
    /// names the first place in the file. False where there is none any more.
    fn next_part(&self, task: &Arc<Task<T>>, part: &mut Part, pulse: Pulse) -> Result<bool> {
        let cutter = Cutter { pattern: self.encoder.pattern(), special: self.special };
        let mut reading = loop {
            pulse()?;
            match task.reading.try_lock() {
                Ok(reading) => break reading,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                // Another thread has it for as long as reading a part takes, or one endless word.
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_micros(20)),
            }
        };
        let found = reading.next(cutter, self.part_bytes, part, pulse).and_then(|found| {
            if found && self.refuses {
                self.encoder.refuse_special(&part.text).map_err(|error| behind(part.offset, error))?;
            }
            Ok(found)
        });
        if found.is_err() {
            // Nobody reads on, and finds a second error that might be told first.
            reading.file = None;
        } else if reading.file.is_none() {
            task.n_parts.store(reading.n_parts, Ordering::Release);
            self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, task));
        }
        found
    }
}

/// Room for the ids of a file, if there is so much memory: the size of one with holes may be anything.
fn room_for<T>(n_bytes: usize) -> Vec<T> {
    let mut ids = Vec::new();
    let _ = ids.try_reserve_exact(parallel::room_for(n_bytes));
    ids
}

fn in_file(path: &Path, error: Error) -> Error {
    match error {
        Error::Interrupted => error,
        error => Error::InFile { path: path.to_owned(), error: Box::new(error) },
    }
}

fn behind(n_bytes: usize, error: Error) -> Error {
    match error {
        Error::SpecialToken { token, offset } => Error::SpecialToken { token, offset: n_bytes + offset },
        error => error,
    }
}

/// The size of a file; an error for what is none. To open a pipe may take for ever, and nothing could end it.
fn size_of(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        // The system's own words and number.
        File::open(path)?.read_exact(&mut [0])?;
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this is no regular file").into());
    }
    Ok(metadata.len())
}

impl Encoder {
    /// The ids of each file, by up to `n_threads` threads: its bytes are a text in UTF-8, as they are.
    ///
    /// # Errors
    /// [`Error::InFile`] with [`Error::Io`], before anything is encoded where a file is missing or is none; with
    /// [`Error::Utf8`] and as [`Encoder::encode`], where places count in the file; what `pulse` gives.
    pub fn encode_files<T: Id>(
        &self,
        paths: &[PathBuf],
        allowed: Allowed,
        n_threads: usize,
        pulse: Pulse,
    ) -> Result<Vec<Vec<T>>> {
        self.encode_files_by(paths, allowed, n_threads, PART_BYTES, pulse)
    }

    fn encode_files_by<T: Id>(
        &self,
        paths: &[PathBuf],
        allowed: Allowed,
        n_threads: usize,
        part_bytes: usize,
        pulse: Pulse,
    ) -> Result<Vec<Vec<T>>> {
        let size = |path: &PathBuf| size_of(path).map_err(|error| in_file(path, error));
        let sizes = paths.iter().map(size).collect::<Result<Vec<u64>>>()?;
        // For a quarter of a part, one more thread is worth its start.
        let n_bytes = sizes.iter().fold(0_u64, |all, &size| all.saturating_add(size));
        let n_useful = 1 + n_bytes.saturating_mul(4) / part_bytes as u64;
        let n_threads = n_threads.min(usize::try_from(n_useful).unwrap_or(usize::MAX));
        let shared = Shared {
            encoder: self,
            paths,
            sizes,
            special: match allowed {
                Allowed::All | Allowed::Refused => self.special(),
                Allowed::These(special) => special,
                Allowed::None => self.none(),
            },
            refuses: matches!(allowed, Allowed::Refused),
            allowed: if matches!(allowed, Allowed::Refused) { Allowed::None } else { allowed },
            part_bytes,
            n_expected: usize::try_from(n_bytes).unwrap_or(usize::MAX) / n_threads.max(1),
            next: AtomicUsize::new(0),
            open: Mutex::default(),
            done: Mutex::new(paths.iter().map(|_| None).collect()),
        };
        map(n_threads, n_threads, pulse, |_, pulse| shared.work(pulse))?;
        let done = shared.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(done.into_iter().map(Option::unwrap_or_default).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretokenize::Pattern;
    use crate::pulse::no_pulse;
    use crate::vocab::Vocab;
    use proptest::prelude::*;
    use std::fmt::Write;

    const SPECIAL: [(&str, u32); 3] = [("<s>", 1000), ("<s><e>", 1001), ("a b", 1002)];

    fn encoder(pattern: Option<&str>) -> Encoder {
        let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
        tokens.extend([
            (256, b"th".to_vec()),
            (257, b"the".to_vec()),
            (258, b" the".to_vec()),
            (259, vec![0xE4, 0xB8]),
        ]);
        let merges: [(&[u8], &[u8]); 4] = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (&[0xE4], &[0xB8])];
        let merges: Vec<(Vec<u8>, Vec<u8>)> = merges.iter().map(|(l, r)| (l.to_vec(), r.to_vec())).collect();
        let special = SPECIAL.iter().map(|&(text, id)| (text.to_owned(), id)).collect();
        Encoder::new(Vocab::from_merges(tokens, &merges, special).unwrap(), Pattern::new(pattern).unwrap()).unwrap()
    }

    /// A folder that is removed with its files.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("bytemill-files-{}-{number}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, content).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const PIECES: [&str; 14] =
        ["the", " the", "then", " 12", "\r\n", "\n\n", "é", "一丁", "😀", "<s>", "<s><e>", "a b", "'s", "\u{FEFF}"];

    fn texts() -> impl Strategy<Value = Vec<String>> {
        let text = prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..120);
        prop::collection::vec(text.prop_map(|pieces| pieces.concat()), 0..6)
    }

    #[test]
    fn tables_grow_at_once_where_files_are_long() {
        let has_grown = |n_words: u32| {
            let (encoder, folder) = (encoder(Some("gpt2")), Folder::new());
            // 600 words, again and again.
            let letter = |number: u32| char::from_u32(u32::from('a') + number).unwrap();
            let text: String = (0..n_words).flat_map(|n| [' ', letter(n % 25), letter(n / 25 % 24), 'z']).collect();
            let paths = ["a", "b"].map(|name| folder.file(name, text.as_bytes()));
            encoder.encode_files::<u32>(&paths, Allowed::None, 2, &no_pulse).unwrap();
            encoder.tables_have_grown()
        };
        // 16 MB for 4.2 MB and more on a thread.
        assert!(!has_grown(1_000_000));
        assert!(has_grown(1_100_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn files_have_the_ids_of_their_texts_however_they_are_divided(
            texts in texts(),
            pattern in prop::sample::select(vec![Some("gpt2"), Some("cl100k"), Some("o200k"), Some(r"\w+|\W"), None]),
            n_threads in 1usize..5,
            part_bytes in 1usize..200,
        ) {
            let (encoder, folder) = (encoder(pattern), Folder::new());
            let paths: Vec<PathBuf> =
                texts.iter().zip(0..).map(|(text, n)| folder.file(&format!("{n}"), text.as_bytes())).collect();
            let some = encoder.special().subset(|token| token != "<s>").unwrap();
            for allowed in [Allowed::All, Allowed::None, Allowed::These(&some)] {
                let expected: Vec<Vec<u16>> =
                    texts.iter().map(|text| encoder.encode_parallel(text, allowed, 1, &no_pulse).unwrap()).collect();
                let ids: Vec<Vec<u16>> =
                    encoder.encode_files_by(&paths, allowed, n_threads, part_bytes, &no_pulse).unwrap();
                prop_assert_eq!(ids, expected);
            }
        }

        #[test]
        fn the_first_token_that_is_refused_in_a_file_is_named(
            texts in texts(), n_threads in 1usize..5, part_bytes in 1usize..200,
        ) {
            let (encoder, folder) = (encoder(Some("cl100k")), Folder::new());
            for (text, n) in texts.iter().zip(0..) {
                let path = folder.file(&format!("{n}"), text.as_bytes());
                let found: Result<Vec<Vec<u32>>> =
                    encoder.encode_files_by(std::slice::from_ref(&path), Allowed::Refused, n_threads, part_bytes, &no_pulse);
                match encoder.refuse_special(text) {
                    Ok(()) => prop_assert!(found.is_ok()),
                    Err(error) => {
                        prop_assert_eq!(found.unwrap_err().to_string(), format!("{}: {error}", path.display()));
                    }
                }
            }
        }

        #[test]
        fn what_is_not_utf8_is_named_by_its_place_in_the_file(
            before in texts(), malformed in prop::sample::select(vec![&b"\xFF"[..], b"\xE4\xB8", b"\xED\xA0\x80", b"\xC0\xAF"]),
            after in texts(), n_threads in 1usize..5, part_bytes in 1usize..200,
        ) {
            let folder = Folder::new();
            let content = [before.concat().as_bytes(), malformed, after.concat().as_bytes()].concat();
            let path = folder.file("a", &content);
            let found: Result<Vec<Vec<u32>>> =
                encoder(Some("gpt2")).encode_files_by(&[path], Allowed::All, n_threads, part_bytes, &no_pulse);
            let expected = std::str::from_utf8(&content).unwrap_err();
            let Err(Error::InFile { error, .. }) = found else { panic!("no error") };
            let Error::Utf8 { start, end, bytes } = *error else { panic!("{error}") };
            prop_assert_eq!(start, expected.valid_up_to());
            prop_assert_eq!(end, start + expected.error_len().unwrap_or(content.len() - start));
            prop_assert_eq!(bytes, &content[start..end]);
        }

        #[test]
        fn batches_have_the_ids_of_their_texts_however_they_are_divided(
            texts in texts(), pattern in prop::sample::select(vec![Some("cl100k"), Some(r"\w+|\W")]),
            n_threads in 1usize..5, most_bytes in 1usize..400,
        ) {
            let encoder = encoder(pattern);
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut expected = Encoded::<u16>::default();
            for text in &texts {
                encoder.encode(text, Allowed::All, &mut expected.ids, &no_pulse).unwrap();
                expected.ends.push(expected.ids.len());
            }
            let batch = encoder.encode_pieces(&texts, Allowed::All, n_threads, most_bytes, &no_pulse).unwrap();
            prop_assert_eq!(batch, expected);
            let refused = texts.iter().any(|text| encoder.refuse_special(text).is_err());
            let batch: Result<Encoded<u16>> =
                encoder.encode_pieces(&texts, Allowed::Refused, n_threads, most_bytes, &no_pulse);
            prop_assert_eq!(batch.is_err(), refused);
        }
    }

    #[test]
    fn what_is_no_file_is_named_before_anything_is_encoded() {
        let folder = Folder::new();
        let good = folder.file("good", b"the");
        let asked = std::sync::atomic::AtomicBool::new(false);
        let pulse = || {
            asked.store(true, Ordering::Relaxed);
            Ok(())
        };
        for wrong in [folder.0.join("missing"), folder.0.clone(), PathBuf::new()] {
            let found: Result<Vec<Vec<u16>>> =
                encoder(None).encode_files(&[good.clone(), wrong.clone()], Allowed::All, 2, &pulse);
            let Err(Error::InFile { path, error }) = found else { panic!("no error for {}", wrong.display()) };
            assert_eq!(path, wrong);
            assert!(matches!(*error, Error::Io(_)));
        }
        assert!(!asked.into_inner());
        let none: Vec<Vec<u16>> = encoder(None).encode_files(&[], Allowed::All, 2, &no_pulse).unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn files_are_read_in_parts_whatever_their_number_and_an_interruption_ends_that() {
        let folder = Folder::new();
        let mut text = String::new();
        for number in 0..60_000 {
            write!(text, " the {number}").unwrap();
        }
        let paths = vec![folder.file("a", text.as_bytes()); 3];
        let n_asked = AtomicUsize::new(0);
        let pulse = || if n_asked.fetch_add(1, Ordering::Relaxed) == 5 { Err(Error::Interrupted) } else { Ok(()) };
        for n_threads in [1, 3] {
            n_asked.store(0, Ordering::Relaxed);
            let found: Result<Vec<Vec<u16>>> =
                encoder(Some("gpt2")).encode_files_by(&paths, Allowed::All, n_threads, 1 << 12, &pulse);
            // On threads, others may have done all the work before the one that asks has done its share.
            let is_interrupted = matches!(found, Err(Error::Interrupted));
            assert!(is_interrupted || n_threads > 1 && found.is_ok());
            assert_eq!(is_interrupted, n_asked.load(Ordering::Relaxed) == 6, "nothing is asked afterwards");
            assert!(n_asked.load(Ordering::Relaxed) <= 6);
        }
    }
}
