//! Asking the caller whether to go on.

use crate::error::Result;

/// Asked now and then during long work; an error ends it.
pub type Pulse<'p> = &'p (dyn Fn() -> Result<()> + Sync);

/// A pulse that never ends the work.
///
/// # Errors
/// Never.
pub fn no_pulse() -> Result<()> {
    Ok(())
}
