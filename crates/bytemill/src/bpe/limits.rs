//! How long is long: every limit on a pre-token's length, in bytes, in one table.
//!
//! | bytes | how it is merged | how its ids are cached |
//! |---|---|---|
//! | 1–15 | in lockstep with others, 16 lanes | up to 4 ids by a packed key, up to 16 like these |
//! | 16–31 | in lockstep with others, 32 lanes | by its bytes |
//! | 32–248 | backtracking if its tables exist; else heap | by its bytes |
//! | 249–65,536 | the same | not |
//! | more | the same, ids written to the output as they become final | not |
//!
//! Before merging, pre-tokens of 16–4,096 bytes with characters outside ASCII are cut at merge barriers. The backtracking
//! tables are built after 128 KiB of pre-tokens of 64 bytes or more.

use crate::sys::hash::PACKED_BYTES;

/// Longest pre-token merged in lockstep, 16 lanes.
pub const MAX_NARROW_LOCKSTEP_BYTES: usize = PACKED_BYTES;

/// Longest pre-token merged in lockstep, 32 lanes. Without these lanes new multilingual text takes 13 % longer.
pub const MAX_LOCKSTEP_BYTES: usize = 31;

/// Longest pre-token that is cached.
pub const MAX_CACHED_BYTES: usize = 248;

/// Longest pre-token cut at merge barriers: the keys of a block must not grow with the text.
pub const MAX_CUT_BYTES: usize = 1 << 12;

/// Longest pre-token whose ids are collected before they are written to the output.
pub const MAX_COLLECTED_BYTES: usize = 1 << 16;

/// Bytes of pre-tokens merged with the heap before the backtracking tables are built. Building them takes 20 ms for
/// cl100k; the heap takes 150 ns a byte and backtracking a tenth of that, so the heap is given up when it has cost as much.
pub const HEAP_BYTES_BEFORE_TABLES: usize = 1 << 17;

/// Shortest pre-token that counts among [`HEAP_BYTES_BEFORE_TABLES`]. Shorter ones are soon in the cache.
pub const MIN_COUNTED_BYTES: usize = 64;

/// Longest pre-token: offsets inside one have 32 bits, and the largest value is reserved.
pub const MAX_PRETOKEN_BYTES: usize = u32::MAX as usize - 1;
