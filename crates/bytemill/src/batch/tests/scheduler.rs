use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn no_threads<'scope>(_: &'scope Scope<'scope, '_>, _: &'scope (dyn Fn() + Sync)) -> bool {
    false
}

/// Starts two workers at most.
fn few_threads<'scope>(scope: &'scope Scope<'scope, '_>, worker: &'scope (dyn Fn() + Sync)) -> bool {
    thread_local!(static STARTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });
    let n_started = STARTED.replace(STARTED.get() + 1);
    n_started % 3 != 2 && spawn(scope, worker)
}

/// Squares numbers, with a pause now and then, so that items overtake each other.
fn squares(n: usize, n_threads: usize, max_items: usize, spawn: Spawn) -> Result<Vec<usize>> {
    let mut numbers = 0..n;
    let mut results = Vec::new();
    run(
        n_threads,
        max_items,
        spawn,
        &no_interrupt,
        |item: &mut usize, _| Ok(numbers.next().map(|number| *item = number).is_some()),
        |item, _| {
            if *item % 7 == 0 {
                thread::sleep(Duration::from_micros(300));
            }
            *item *= *item;
            Ok(())
        },
        |item| {
            results.push(*item);
            Ok(())
        },
    )?;
    Ok(results)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn results_come_in_order_however_many_threads_start(
        n in 0usize..60, n_threads in 0usize..6, max_items in 1usize..9, start in 0usize..3,
    ) {
        let start = [spawn as Spawn, few_threads, no_threads][start];
        let results = squares(n, n_threads, max_items, start).unwrap();
        prop_assert_eq!(results, (0..n).map(|number| number * number).collect::<Vec<_>>());
    }

    #[test]
    fn the_error_of_the_first_failing_item_is_reported(
        failing in prop::collection::vec(any::<bool>(), 1..40), n_threads in 1usize..5,
    ) {
        let result = map(failing.len(), n_threads, &no_interrupt, |index, _| {
            if index % 5 == 0 {
                thread::sleep(Duration::from_micros(300));
            }
            if failing[index] { Err(Error::UnknownId(i64::try_from(index).unwrap())) } else { Ok(index) }
        });
        match (result, failing.iter().position(|&fails| fails)) {
            (Ok(results), None) => prop_assert!(results.into_iter().eq(0..failing.len())),
            (Err(Error::UnknownId(id)), Some(first)) => prop_assert_eq!(usize::try_from(id).unwrap(), first),
            (result, first) => prop_assert!(false, "{result:?} for {first:?}"),
        }
    }
}

#[test]
fn without_further_threads_the_calling_thread_does_everything() {
    let caller = thread::current().id();
    let mut n_left = 10;
    run(
        4,
        2,
        no_threads,
        &no_interrupt,
        |(): &mut (), _| {
            n_left -= 1;
            Ok(n_left >= 0)
        },
        |(), _| {
            assert_eq!(thread::current().id(), caller);
            Ok(())
        },
        |()| Ok(()),
    )
    .unwrap();
    assert_eq!(n_left, -1);
}

#[test]
fn buffers_are_reused_and_bounded() {
    static N_BUFFERS: AtomicUsize = AtomicUsize::new(0);
    struct Buffer;
    impl Default for Buffer {
        fn default() -> Self {
            N_BUFFERS.fetch_add(1, Ordering::Relaxed);
            Self
        }
    }
    let n_read = AtomicUsize::new(0);
    let is_first = AtomicBool::new(true);
    run(
        3,
        5,
        spawn,
        &no_interrupt,
        |_: &mut Buffer, _| Ok(n_read.fetch_add(1, Ordering::Relaxed) < 1000),
        |_, _| {
            // The others must not run ahead of a slow item.
            if is_first.swap(false, Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(30));
                assert!(n_read.load(Ordering::Relaxed) <= 5);
            }
            Ok(())
        },
        |_| Ok(()),
    )
    .unwrap();
    assert!(N_BUFFERS.load(Ordering::Relaxed) <= 5);
}

#[test]
fn a_panic_in_any_stage_is_propagated_after_all_threads_have_ended() {
    for stage in 0..4 {
        let at_work = AtomicUsize::new(0);
        let n_read = AtomicUsize::new(0);
        let n_panics = AtomicUsize::new(0);
        let fail = || -> ! {
            n_panics.fetch_add(1, Ordering::Relaxed);
            panic!("in stage {stage}");
        };
        let interrupt = || if stage == 3 && n_read.load(Ordering::Relaxed) > 5 { fail() } else { Ok(()) };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pipeline(
                3,
                &interrupt,
                |item: &mut usize, _| {
                    *item = n_read.fetch_add(1, Ordering::Relaxed);
                    if stage == 0 && *item == 10 { fail() } else { Ok(*item < 100) }
                },
                |item, _| {
                    at_work.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(1));
                    at_work.fetch_sub(1, Ordering::Relaxed);
                    if stage == 1 && *item == 10 { fail() } else { Ok(()) }
                },
                |item| if stage == 2 && *item == 10 { fail() } else { Ok(()) },
            )
        }));
        assert_eq!(*outcome.unwrap_err().downcast::<String>().unwrap(), format!("in stage {stage}"));
        assert_eq!(at_work.into_inner(), 0);
        assert_eq!(n_panics.into_inner(), 1);
        assert!(n_read.into_inner() < 100);
    }
}

#[test]
fn an_interrupt_ends_the_work_while_the_calling_thread_waits() {
    let started = Instant::now();
    let is_taken = AtomicBool::new(false);
    let caller = thread::current().id();
    let n_calls = AtomicUsize::new(0);
    let interrupt = || {
        assert_eq!(thread::current().id(), caller);
        n_calls.fetch_add(1, Ordering::Relaxed);
        if is_taken.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    };
    // A worker takes one of the two items and does not end by itself.
    let result = map(2, 2, &interrupt, |_, interrupt| {
        while thread::current().id() != caller {
            is_taken.store(true, Ordering::Relaxed);
            interrupt()?;
            thread::yield_now();
        }
        // The calling thread leaves an item to the worker.
        while !is_taken.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        Ok(())
    });
    assert!(matches!(result, Err(Error::Interrupted)));
    assert!(n_calls.into_inner() >= 1);
}
