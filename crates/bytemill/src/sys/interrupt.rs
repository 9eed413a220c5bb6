//! Cancellation of long work.

use crate::error::Result;

/// Called regularly during long work; an error ends the work.
pub type Interrupt<'i> = &'i (dyn Fn() -> Result<()> + Sync);

/// An interrupt that never ends the work.
///
/// # Errors
/// Never.
pub fn no_interrupt() -> Result<()> {
    Ok(())
}
