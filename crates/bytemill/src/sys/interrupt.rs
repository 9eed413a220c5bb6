//! Cancellation of long work, and checks for it at regular intervals.

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

/// Calls the interrupt check once per `period` units of work.
pub struct InterruptPeriod<'p> {
    interrupt: Interrupt<'p>,
    period: usize,
    n_left: usize,
}

impl<'p> InterruptPeriod<'p> {
    /// Checks after every `period` units.
    pub fn new(interrupt: Interrupt<'p>, period: usize) -> Self {
        Self { interrupt, period, n_left: period }
    }

    /// Records `n_units` of work.
    ///
    /// # Errors
    /// Errors of the interrupt check.
    #[inline]
    pub fn advance(&mut self, n_units: usize) -> Result<()> {
        if n_units < self.n_left {
            self.n_left -= n_units;
            return Ok(());
        }
        self.n_left = self.period;
        (self.interrupt)()
    }
}
