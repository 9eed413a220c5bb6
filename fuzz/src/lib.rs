//! What must hold for any bytes: a function for each part of the core, which panics where it does not.
//!
//! `fuzz_targets/` hands them to libFuzzer, `src/bin/soak.rs` to random bytes. `run SECONDS [TARGET]...` builds and runs
//! either.

mod bytes;
mod encoder;
mod normalizer;
mod pretokenizer;
mod special_tokens;
mod tokenizer_json;

pub use encoder::encoder;
pub use normalizer::normalizer;
pub use pretokenizer::pretokenizer;
pub use special_tokens::special_tokens;
pub use tokenizer_json::tokenizer_json;
