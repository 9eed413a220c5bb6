//! Memory in large pages.
//!
//! Tables are read and written all over. With pages of 4 kB the processor spends as long on finding where they are as the
//! work on them takes; pages of 2 MB are asked for where the system gives them (Linux), and nothing depends on it.
//!
//! Results grow into large pages too, as long as that is quick: 100 MB take 11 ms, in small pages 45 to 90. But where the host
//! of a virtual machine has taken free memory back, which it does in large pages, the first touch of one costs up to 8 ms, 400 ms
//! for 100 MB. Small pages that are taken together, not one by one as each is first written to, take 45 to 60 ms for 100 MB.

use memmap2::MmapMut;
use std::alloc::{Layout, handle_alloc_error};
use std::hint;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a large page.
pub const LARGE_PAGE: usize = 1 << 21;

/// Types that may be all zeros, in memory that any bits may fill.
///
/// # Safety
/// Every pattern of bits must be a value of the type, and it must need no drop and no more than [`LARGE_PAGE`] alignment.
pub unsafe trait Plain: Copy {}

/// `N` values that begin as zeros. Memory is taken as they fill.
///
/// Their number is part of the type, so that an index of as many bits needs no check.
pub struct HugeArray<T, const N: usize> {
    start: NonNull<[T; N]>,
    /// Owns the memory.
    _map: MmapMut,
}

// SAFETY: it owns its memory, and hands it out by the rules of borrowing.
unsafe impl<T: Plain + Send, const N: usize> Send for HugeArray<T, N> {}
// SAFETY: as above.
unsafe impl<T: Plain + Sync, const N: usize> Sync for HugeArray<T, N> {}

impl<T: Plain, const N: usize> HugeArray<T, N> {
    /// Zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        let n_bytes = size_of::<[T; N]>();
        let Ok(mut map) = MmapMut::map_anon(n_bytes + LARGE_PAGE) else {
            handle_alloc_error(Layout::new::<[T; N]>());
        };
        let offset = map.as_ptr().align_offset(LARGE_PAGE);
        let start = NonNull::from(&mut map[offset..offset + n_bytes]).cast();
        Self { start, _map: map }
    }

    /// Takes the memory of some of the values at once. Where they fill large pages it is in these, as long as they come quickly.
    /// Nothing of what is in the memory changes.
    ///
    /// Small pages come from memory that is still there. Not one by one: a page that is read before it is written to is given
    /// twice, and with two threads at it that was 9 µs each time in place of 3.
    pub fn take_memory(&mut self, range: Range<usize>) {
        let n_in_page = LARGE_PAGE / size_of::<T>();
        let fills_pages = LARGE_PAGE.is_multiple_of(size_of::<T>())
            && range.start.is_multiple_of(n_in_page)
            && range.len().is_multiple_of(n_in_page);
        let some = &mut self[range];
        if !fills_pages {
            // Nothing is said of part of a page: what has been told two things in its life is never joined.
            advise(some, Advice::Take);
            return;
        }
        // Two words for all of them: each waits until no other thread is taking memory.
        advise(some, Advice::Small);
        for page in some.chunks_exact_mut(n_in_page) {
            if !take_large(page, touch) {
                advise(page, Advice::Take);
            }
        }
        // The system may join the small ones later.
        advise(some, Advice::Large);
    }

    /// Takes the first page anew as a large one, if the array has so much and large ones come quickly, and keeps the first `n_kept`
    /// values; behind them there must be zeros in it. Gives how many values the page holds, or `None` if it did nothing: also where
    /// memory is so short that there is none to keep them in meanwhile.
    pub fn take_first_large(&mut self, n_kept: usize) -> Option<usize> {
        let mut kept = Vec::new();
        kept.try_reserve_exact(n_kept).ok()?;
        let trial = PACE.trial()?;
        let n_in_page = (LARGE_PAGE / size_of::<T>()).min(N);
        let page = &mut self[..n_in_page];
        kept.extend_from_slice(&page[..n_kept]);
        // A large page comes only where there are no small ones. What is given back is zeros when it is read again.
        advise(page, Advice::GiveBack);
        trial.take(page, touch);
        page[..n_kept].copy_from_slice(&kept);
        Some(n_in_page)
    }
}

impl<T: Plain, const N: usize> Deref for HugeArray<T, N> {
    type Target = [T; N];

    #[inline]
    fn deref(&self) -> &[T; N] {
        // SAFETY: `N` values lie within the map, which lives as long as `self`, is at a multiple of `LARGE_PAGE`, and is zeros
        // or what was written since; any bits are a `T`.
        unsafe { self.start.as_ref() }
    }
}

impl<T: Plain, const N: usize> DerefMut for HugeArray<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T; N] {
        // SAFETY: as in `deref`; `self` is borrowed for as long as the array.
        unsafe { self.start.as_mut() }
    }
}

/// What the 512 small pages in place of a large one cost, 2 µs each.
const SLOW: Duration = Duration::from_millis(1);

/// A large page that comes quickly has come after this; it takes 0.1 ms. Threads that share a text see their tables grow at the same
/// time, and to wait for another's page is less than what small ones take.
const QUICK: Duration = Duration::from_micros(500);

/// After a slow page so many stay small. Where one is slow, so are those that come next: what the host has left is given out first.
/// A slow one takes what 4 to 10 do that are small, so that a fifteenth of the time that memory takes may be lost.
const PAGES_TO_SKIP: u32 = 128;

/// How quickly large pages come, as far as this process has seen, whoever asked for them.
static PACE: Pace = Pace::new();

struct Pace {
    n_to_skip: AtomicU32,
    /// Whether the last one came quickly: then any number of threads may take some at the same time. One after the other those of two
    /// threads whose tables grow to their size at once took 1.5 to 2 ms each, and those of more would have stayed small.
    is_quick: AtomicBool,
    /// Whether some thread is taking one without knowing that: until it has come, nobody does.
    is_tried: AtomicBool,
}

impl Pace {
    const fn new() -> Self {
        Self { n_to_skip: AtomicU32::new(0), is_quick: AtomicBool::new(false), is_tried: AtomicBool::new(false) }
    }

    /// Leave to take a large page, unless those before were slow or another thread is at one that does not come quickly.
    fn trial(&self) -> Option<Trial<'_>> {
        let begun = Instant::now();
        let mut trial = Trial { pace: self, is_alone: false };
        while !self.is_quick.load(Relaxed) {
            if !self.is_tried.swap(true, Relaxed) {
                trial.is_alone = true;
                break;
            }
            if begun.elapsed() > QUICK {
                return None;
            }
            hint::spin_loop();
        }
        self.n_to_skip.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err().then_some(trial)
    }

    fn note(&self, took: Duration) {
        let is_slow = took > SLOW;
        self.is_quick.store(!is_slow, Relaxed);
        if is_slow {
            self.n_to_skip.store(PAGES_TO_SKIP, Relaxed);
        }
    }
}

/// Taking a large page. Others keep to small pages as long as it lasts, where it is alone.
struct Trial<'p> {
    pace: &'p Pace,
    is_alone: bool,
}

impl Trial<'_> {
    /// Takes a large page, where there is one, and notes how long it takes. `touch` has to write to it.
    fn take<T>(self, page: &mut [T], touch: impl FnOnce(&mut [T])) {
        advise(page, Advice::Large);
        let begun = Instant::now();
        // What is written to is given while other threads may change the list of what memory there is; to take it holds them up.
        touch(page);
        // Small ones, where there is no large one.
        advise(page, Advice::Take);
        self.pace.note(begun.elapsed());
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.is_alone {
            self.pace.is_tried.store(false, Relaxed);
        }
    }
}

/// Takes the memory of a page as a large one, if it is likely to come quickly; false if it did nothing. `touch` has to write to it.
fn take_large<T>(page: &mut [T], touch: impl FnOnce(&mut [T])) -> bool {
    PACE.trial().map(|trial| trial.take(page, touch)).is_some()
}

/// Writes to memory that is zeros so far, if it is, and changes nothing.
fn touch<T: Plain>(page: &mut [T]) {
    if size_of_val(page) > 0 {
        // SAFETY: its first byte is ours alone, and, as any byte of what is plain, some number.
        let byte = unsafe { AtomicU8::from_ptr(page.as_mut_ptr().cast()) };
        // Nothing that only might write: a page that is read is given twice, and of `fetch_or(0)` the compiler makes a reading.
        let _ = byte.compare_exchange(0, 0, Relaxed, Relaxed);
    }
}

/// Has what is appended to vectors go to pages that are taken ahead.
#[derive(Default)]
pub struct Pages {
    /// Where the vector begins, and up to where its pages have been seen to; addresses.
    vector: usize,
    until: usize,
}

impl Pages {
    /// To be called before another vector, which may be where one was that is gone.
    pub fn begin(&mut self) {
        (self.vector, self.until) = (0, 0);
    }

    /// To be called before up to `n_more` values are appended. They go to small pages alone, or to `large` ones too.
    #[inline]
    pub fn take<T: Copy + Default>(&mut self, values: &mut Vec<T>, n_more: usize, large: bool) {
        if values.as_ptr().addr() != self.vector {
            (self.vector, self.until) = (values.as_ptr().addr(), 0);
        }
        self.take_spare(values.spare_capacity_mut(), n_more, large);
    }

    /// As [`Pages::take`], for memory that is filled from the front on: `spare` is what is still empty.
    #[inline]
    pub fn take_spare<T: Copy + Default>(&mut self, spare: &mut [MaybeUninit<T>], n_more: usize, large: bool) {
        let end = spare.as_ptr().addr() + size_of::<T>() * n_more;
        if end > self.until {
            self.take_up_to(end, spare, large);
        }
    }

    #[cold]
    fn take_up_to<T: Copy + Default>(&mut self, end: usize, spare: &mut [MaybeUninit<T>], large: bool) {
        let start = spare.as_ptr().addr();
        let mut page = self.until.max(start).next_multiple_of(LARGE_PAGE);
        while page < end {
            let place = (page - start) / size_of::<T>();
            let Some(place) = spare.get_mut(place..place + LARGE_PAGE / size_of::<T>()) else { break };
            let touch = |place: &mut [MaybeUninit<T>]| {
                if let Some(first) = place.first_mut() {
                    first.write(T::default());
                }
            };
            if !(large && take_large(place, touch)) {
                advise(place, Advice::Take);
            }
            page += LARGE_PAGE;
        }
        self.until = page.max(end);
    }
}

/// To be called before a vector grows: its pages, of which some may be large, become one piece for the system again.
///
/// Only one piece can be moved without being copied. Linux refuses to move pages that were told different things (`mremap` gives
/// `EFAULT`), and then the allocator copies them all to fresh ones.
pub fn unite<T>(values: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    if size_of::<T>() * values.capacity() >= LARGE_PAGE {
        let data: *mut u8 = values.as_mut_ptr().cast();
        // SAFETY: asks for a constant of the system.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(LARGE_PAGE);
        // From the page on in which it begins, which the allocator's own note in front of it shares.
        let before = data.addr() % page;
        let n_bytes = (before + size_of::<T>() * values.capacity()).next_multiple_of(page);
        // SAFETY: the advice changes nothing of what is in memory, whoever it belongs to.
        unsafe { libc::madvise(data.wrapping_sub(before).cast(), n_bytes, libc::MADV_NOHUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = values;
}

/// What the system is told about pages.
#[derive(Clone, Copy)]
enum Advice {
    Large,
    Small,
    /// To give them now.
    Take,
    /// That what is in them is needed no more.
    GiveBack,
}

/// Tells the system about pages; false where it does not listen. Then it is the same memory, only slower.
fn advise<T>(pages: &mut [T], advice: Advice) -> bool {
    #[cfg(target_os = "linux")]
    {
        let advice = match advice {
            Advice::Large => libc::MADV_HUGEPAGE,
            Advice::Small => libc::MADV_NOHUGEPAGE,
            Advice::Take => libc::MADV_POPULATE_WRITE,
            Advice::GiveBack => libc::MADV_DONTNEED,
        };
        // SAFETY: the pages are memory that is ours, and the advice changes nothing of what is in them, nor in what else is in the
        // last of them; but for what is given back, which is whole pages of a map of our own: they become zeros, and any bits are a
        // value of `T` there.
        unsafe { libc::madvise(pages.as_mut_ptr().cast(), size_of_val(pages), advice) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (pages, advice);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: any bits are an array of numbers.
    unsafe impl Plain for [u64; 8] {}

    #[test]
    fn an_array_begins_as_zeros_and_keeps_what_is_written() {
        let mut array = HugeArray::<[u64; 8], 100_000>::zeroed();
        assert!(array.iter().all(|element| *element == [0; 8]));
        array[70_000] = [7; 8];
        array.take_memory(0..100_000);
        for n_to_skip in [PAGES_TO_SKIP, 0] {
            PACE.n_to_skip.store(n_to_skip, Relaxed);
            array.take_memory(LARGE_PAGE / 64..3 * LARGE_PAGE / 64);
        }
        array[9] = [9; 8];
        // Another test may find a page slow in between.
        let n_in_page = (0..1_000).find_map(|_| {
            PACE.n_to_skip.store(0, Relaxed);
            array.take_first_large(10)
        });
        assert_eq!(n_in_page, Some(LARGE_PAGE / 64));
        assert_eq!(std::mem::take(&mut array[9]), [9; 8]);
        assert!(array.iter().enumerate().all(|(index, element)| *element == [if index == 70_000 { 7 } else { 0 }; 8]));
        for (index, element) in (0..).zip(array.iter_mut()) {
            *element = [index; 8];
        }
        assert!((0..).zip(array.iter()).all(|(index, element)| *element == [index; 8]));
        assert!(HugeArray::<[u64; 8], 0>::zeroed().is_empty());
    }

    #[test]
    fn after_a_slow_page_many_are_small() {
        let pace = Pace::new();
        let n_skipped = || (0..).take_while(|_| pace.trial().is_none()).count();
        pace.note(SLOW);
        assert_eq!(n_skipped(), 0);
        for _ in 0..2 {
            pace.note(2 * SLOW);
            assert_eq!(n_skipped(), PAGES_TO_SKIP as usize);
            assert!(pace.trial().is_some());
        }
    }

    #[test]
    fn one_large_page_is_tried_at_a_time_until_one_came_quickly() {
        let pace = Pace::new();
        for _ in 0..2 {
            let trial = pace.trial();
            assert!(trial.is_some());
            let begun = Instant::now();
            assert!(pace.trial().is_none());
            assert!(begun.elapsed() > QUICK, "it may come any moment");
            drop(trial);
            assert!(pace.trial().is_some());
            pace.note(SLOW / 2);
            let many: Vec<Option<Trial>> = (0..9).map(|_| pace.trial()).collect();
            assert!(many.iter().all(Option::is_some));
            pace.note(2 * SLOW);
            drop(many);
            assert!((0..=PAGES_TO_SKIP).any(|_| pace.trial().is_some()));
        }
    }

    #[test]
    fn a_vector_keeps_its_values_as_it_grows_into_large_pages() {
        let mut pages = Pages::default();
        let mut values: Vec<u16> = Vec::with_capacity(3 * LARGE_PAGE);
        let mut expected = Vec::new();
        for number in 0..400u32 {
            let some: Vec<u16> = (0..20_000).map(|k| (number * 31 + k) as u16).collect();
            pages.take(&mut values, some.len(), number % 3 != 0);
            // It moves to other places once its room is full.
            values.extend_from_slice(&some);
            expected.extend_from_slice(&some);
        }
        assert!(values == expected);
        // No room at all, and more than there is.
        Pages::default().take(&mut Vec::<u32>::new(), 0, true);
        Pages::default().take(&mut Vec::<u32>::new(), LARGE_PAGE, true);
    }

    #[test]
    fn a_vector_is_one_piece_again_before_it_grows() {
        let n = 4 * LARGE_PAGE;
        let mut values: Vec<u32> = Vec::with_capacity(n);
        let mut pages = Pages::default();
        for number in 0..700_000 {
            pages.take(&mut values, 1, true);
            values.push(number);
        }
        unite(&mut values);
        #[cfg(target_os = "linux")]
        {
            let first = values.as_ptr().addr();
            let pieces = std::fs::read_to_string("/proc/self/maps").unwrap();
            let mut pieces = pieces.lines().map(|line| {
                let (start, rest) = line.split_once('-').unwrap();
                let end = rest.split_once(' ').unwrap().0;
                usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
            });
            let piece = pieces.find(|piece| piece.contains(&first)).unwrap();
            assert!(piece.contains(&(first + 4 * n - 1)), "{first:x} in {piece:x?}");
        }
        values.reserve(2 * n);
        assert!(values.iter().copied().eq(0..700_000));
        unite(&mut Vec::<u32>::new());
    }
}
