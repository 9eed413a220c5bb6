//! Cancellation checks at regular intervals of work.

use crate::error::Result;
use crate::sys::interrupt::Interrupt;

/// Calls the interrupt check once per `period` units of work.
pub struct InterruptPeriod<'p> {
    interrupt: Interrupt<'p>,
    period: usize,
    n_left: usize,
}

impl<'p> InterruptPeriod<'p> {
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
