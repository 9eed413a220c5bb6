//! The character classes that the patterns distinguish.

mod class;

pub(crate) use class::{BitPlanes, bit_planes};
pub use class::{Class, UNICODE_VERSION, class_at, class_of};
