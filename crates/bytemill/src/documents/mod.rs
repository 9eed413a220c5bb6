//! Documents out of raw bytes: valid UTF-8 text, one document after another, with the offsets where they end.
//!
//! A corpus is read in blocks. Each function takes one block and returns its documents. Reading order:
//! - `block`: the result, [`Documents`], and what makes a document broken; a block of one long document; replacing or dropping
//!   malformed bytes
//! - `split`: plain text split at line ends or separators
//! - `packed`: documents whose ends are known, such as those of an Arrow column
//! - `jsonl`: one string field of each JSON line: finding the field, and what Python's `json` accepts and `serde_json` does not

mod block;
mod jsonl;
mod packed;
mod split;

pub use crate::text::utf8::Malformed;
pub use block::{Broken, Documents, Reason, clean_block};
pub use jsonl::JsonLines;
pub use packed::{check_packed, select};
pub use split::{Ends, Splitter};
