//! A second thread while a vocabulary is read.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, scope};

type Job<'e> = Box<dyn FnOnce() + Send + 'e>;

/// A thread that does one job after the other.
///
/// It is there before there is anything to do, and stays: a thread that has just been made may stand behind its maker on one
/// core while another idles. On a machine that keeps threads together, two jobs of 6 ms took 1.7 times as long as one with a
/// new thread for the second, and 1.02 times as long with one that waited for it.
pub(crate) struct Helper<'e> {
    jobs: Sender<Job<'e>>,
}

/// What a [`Helper`] has been asked for.
pub(crate) struct Asked<R>(Receiver<R>);

/// Does `work` with a helper, for jobs of data that live longer than that.
pub(crate) fn with_helper<'e, R>(work: impl FnOnce(&Helper<'e>) -> R) -> R {
    let (jobs, waiting) = channel::<Job<'e>>();
    scope(|scope| {
        // Where no thread is to be had, nobody receives jobs any more.
        let _ = Builder::new().spawn_scoped(scope, || waiting.into_iter().for_each(|job| job()));
        work(&Helper { jobs })
    })
}

impl<'e> Helper<'e> {
    /// Has a job done beside what follows; here and now where there is no second thread.
    pub(crate) fn ask<R: Send + 'e>(&self, job: impl FnOnce() -> R + Send + 'e) -> Asked<R> {
        let (sender, receiver) = channel();
        let job = move || {
            let done = job();
            // Nobody may want it any more.
            let _ = sender.send(done);
        };
        if let Err(refused) = self.jobs.send(Box::new(job)) {
            refused.0();
        }
        Asked(receiver)
    }
}

impl<R> Asked<R> {
    /// Waits for the job to be done.
    ///
    /// # Panics
    /// Where it has.
    pub(crate) fn wait(self) -> R {
        self.0.recv().expect("a job that does not panic gives its result")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn jobs_are_done_in_order_and_give_what_they_made() {
        let text = "some text".to_owned();
        let sum = with_helper(|helper| {
            let asked: Vec<_> = text.split(' ').map(|word| helper.ask(move || word.len())).collect();
            drop(helper.ask(|| text.len()));
            asked.into_iter().map(Asked::wait).sum::<usize>()
        });
        assert_eq!(sum, 8);
    }

    #[test]
    fn without_a_thread_jobs_are_done_at_once() {
        let (jobs, _) = channel();
        assert_eq!(Helper { jobs }.ask(|| 5).wait(), 5);
    }

    #[test]
    fn a_panic_of_a_job_is_one_of_who_waits_for_it() {
        let result = catch_unwind(|| with_helper(|helper| helper.ask(|| -> u32 { panic!("as it should") }).wait()));
        assert!(result.is_err());
    }
}
