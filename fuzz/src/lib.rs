//! What must hold for any bytes: a function for each part of the core, which panics where it does not.
//!
//! `fuzz_targets/` hands them to libFuzzer (`cargo +nightly fuzz run encoder`), `src/bin/soak.rs` to random bytes on a
//! stable compiler (`cargo run --release --no-default-features -- encoder 120`).

mod bytes;
mod encoder;
mod pretokenizer;
mod special_tokens;
mod tokenizer_json;

pub use encoder::encoder;
pub use pretokenizer::pretokenizer;
pub use special_tokens::special_tokens;
pub use tokenizer_json::tokenizer_json;
