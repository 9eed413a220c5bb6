//! Too little memory as an error instead of the end of the process.

use crate::error::{Error, Result};

/// Checks that `n_bytes` can be allocated now, by allocating them untouched and freeing them.
///
/// A step that allocates in many places asks first for all that it may take. Other threads may still take the memory in
/// between, and systems that promise more than they have refuse only what exceeds a limit.
///
/// # Errors
/// [`Error::Memory`].
pub fn check_available(n_bytes: usize) -> Result<()> {
    Vec::<u8>::new().try_reserve_exact(n_bytes).map_err(|_| Error::Memory { n_bytes })
}
