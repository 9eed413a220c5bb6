//! What the core needs of the machine: CPU features, memory, hashing, cancellation.

pub mod cpu;
pub mod hash;
pub mod interrupt;
pub(crate) mod memory;
pub mod prefetch;
