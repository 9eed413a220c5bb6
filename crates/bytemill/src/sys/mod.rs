//! What the core needs of the machine: CPU features, memory, hashing, cancellation.

pub mod cpu;
pub mod hash;
pub(crate) mod huge_pages;
pub mod interrupt;
pub(crate) mod memory;
pub mod prefetch;
