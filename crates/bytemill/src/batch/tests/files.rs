use super::*;
use crate::batch::tests::{encoder, texts};
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A temporary folder.
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn files_have_the_ids_of_their_texts_however_they_are_cut(
        texts in texts(),
        pattern in prop::sample::select(vec![Some("gpt2"), Some("cl100k"), Some("o200k"), Some(r"\w+|\W"), None]),
        n_threads in 1usize..5,
        chunk_bytes in 1usize..200,
    ) {
        let (encoder, folder) = (encoder(pattern), Folder::new());
        let paths: Vec<PathBuf> =
            texts.iter().zip(0..).map(|(text, n)| folder.file(&format!("{n}"), text.as_bytes())).collect();
        let some = encoder.special().subset(|token| token != "<s>").unwrap();
        for allowed in [Allowed::All, Allowed::None, Allowed::These(&some)] {
            let expected: Vec<Vec<u16>> =
                texts.iter().map(|text| encoder.encode_parallel(text, allowed, 1, &no_interrupt).unwrap()).collect();
            let ids: Vec<Vec<u16>> =
                encoder.encode_files_in_chunks(&paths, allowed, n_threads, chunk_bytes, &no_interrupt).unwrap();
            prop_assert_eq!(ids, expected);
        }
    }

    #[test]
    fn the_first_refused_token_of_a_file_is_reported(
        texts in texts(), n_threads in 1usize..5, chunk_bytes in 1usize..200,
    ) {
        let (encoder, folder) = (encoder(Some("cl100k")), Folder::new());
        for (text, n) in texts.iter().zip(0..) {
            let path = folder.file(&format!("{n}"), text.as_bytes());
            let found: Result<Vec<Vec<u32>>> =
                encoder.encode_files_in_chunks(std::slice::from_ref(&path), Allowed::Refused, n_threads, chunk_bytes, &no_interrupt);
            match encoder.refuse_special(text) {
                Ok(()) => prop_assert!(found.is_ok()),
                Err(error) => {
                    prop_assert_eq!(found.unwrap_err().to_string(), format!("{}: {error}", path.display()));
                }
            }
        }
    }

    #[test]
    fn malformed_utf8_is_reported_with_its_offset_in_the_file(
        before in texts(), malformed in prop::sample::select(vec![&b"\xFF"[..], b"\xE4\xB8", b"\xED\xA0\x80", b"\xC0\xAF"]),
        after in texts(), n_threads in 1usize..5, chunk_bytes in 1usize..200,
    ) {
        let folder = Folder::new();
        let content = [before.concat().as_bytes(), malformed, after.concat().as_bytes()].concat();
        let path = folder.file("a", &content);
        let found: Result<Vec<Vec<u32>>> =
            encoder(Some("gpt2")).encode_files_in_chunks(&[path], Allowed::All, n_threads, chunk_bytes, &no_interrupt);
        let expected = std::str::from_utf8(&content).unwrap_err();
        let Err(Error::InFile { error, .. }) = found else { panic!("no error") };
        let Error::Utf8 { start, end, bytes } = *error else { panic!("{error}") };
        prop_assert_eq!(start, expected.valid_up_to());
        prop_assert_eq!(end, start + expected.error_len().unwrap_or(content.len() - start));
        prop_assert_eq!(bytes, &content[start..end]);
    }
}

#[test]
fn missing_files_are_reported_before_anything_is_encoded() {
    let folder = Folder::new();
    let good = folder.file("good", b"the");
    let is_called = std::sync::atomic::AtomicBool::new(false);
    let interrupt = || {
        is_called.store(true, Ordering::Relaxed);
        Ok(())
    };
    for wrong in [folder.0.join("missing"), folder.0.clone(), PathBuf::new()] {
        let found: Result<Vec<Vec<u16>>> =
            encoder(None).encode_files(&[good.clone(), wrong.clone()], Allowed::All, 2, &interrupt);
        let Err(Error::InFile { path, error }) = found else { panic!("no error for {}", wrong.display()) };
        assert_eq!(path, wrong);
        assert!(matches!(*error, Error::Io(_)));
    }
    assert!(!is_called.into_inner());
    let none: Vec<Vec<u16>> = encoder(None).encode_files(&[], Allowed::All, 2, &no_interrupt).unwrap();
    assert!(none.is_empty());
}

#[test]
fn an_interrupt_ends_encoding() {
    let folder = Folder::new();
    let mut text = String::new();
    for number in 0..60_000 {
        write!(text, " the {number}").unwrap();
    }
    let paths = vec![folder.file("a", text.as_bytes()); 3];
    let n_calls = AtomicUsize::new(0);
    let interrupt = || if n_calls.fetch_add(1, Ordering::Relaxed) == 5 { Err(Error::Interrupted) } else { Ok(()) };
    for n_threads in [1, 3] {
        n_calls.store(0, Ordering::Relaxed);
        let found: Result<Vec<Vec<u16>>> =
            encoder(Some("gpt2")).encode_files_in_chunks(&paths, Allowed::All, n_threads, 1 << 12, &interrupt);
        // Workers may finish before the calling thread has called it often enough.
        let is_interrupted = matches!(found, Err(Error::Interrupted));
        assert!(is_interrupted || n_threads > 1 && found.is_ok());
        assert_eq!(is_interrupted, n_calls.load(Ordering::Relaxed) == 6, "no calls after an error");
        assert!(n_calls.load(Ordering::Relaxed) <= 6);
    }
}

#[test]
fn the_first_error_of_the_first_file_is_reported() {
    let folder = Folder::new();
    let filler = " the".repeat(2_000);
    let good = folder.file("good", filler.as_bytes());
    let malformed = folder.file("malformed", &[filler.as_bytes(), b"<s>", filler.as_bytes(), b"\xFF"].concat());
    let refused = folder.file("refused", b"<s>");
    let paths = [good, malformed.clone(), refused];
    for n_threads in 1..4 {
        for chunk_bytes in [10, 100, 1 << 16] {
            let found: Result<Vec<Vec<u16>>> = encoder(Some("gpt2")).encode_files_in_chunks(
                &paths,
                Allowed::Refused,
                n_threads,
                chunk_bytes,
                &no_interrupt,
            );
            let expected = format!("{}: special token \"<s>\" at byte {}", malformed.display(), filler.len());
            assert_eq!(found.unwrap_err().to_string(), expected);
        }
    }
}
