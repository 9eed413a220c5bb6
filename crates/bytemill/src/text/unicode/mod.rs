//! The character classes that the patterns distinguish.

mod class;
mod set;

pub(crate) use class::{BitPlanes, bit_planes};
pub use class::{Class, UNICODE_VERSION, char_at, class_at, class_of};
pub(crate) use set::CharSet;
