//! The choice of an instruction set at run time.

use super::classifier::Classify;
use super::portable::Portable;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::sys::cpu;

/// Work on blocks. It is compiled for each instruction set, so that nothing is called through a pointer and the arithmetic on masks
/// uses the processor's bit instructions.
pub trait Work {
    type Output;

    /// Runs the work. Mark implementations `#[inline(always)]`: only code inlined here is compiled for the instruction set.
    fn run(self, classify: impl Classify) -> Self::Output;
}

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug)]
pub enum InstructionSet {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(cpu::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(cpu::Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(cpu::Neon),
}

impl InstructionSet {
    /// The fastest on this processor.
    pub fn best() -> Self {
        Self::available().next_back().unwrap_or(Self::Portable(Portable))
    }

    /// All that this processor has, the slowest first.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        let all = [
            Some(Self::Portable(Portable)),
            #[cfg(target_arch = "x86_64")]
            cpu::Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            cpu::Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "aarch64")]
            cpu::Neon::detect().map(Self::Neon),
        ];
        all.into_iter().flatten()
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "NEON",
        }
    }

    /// Whether eight blocks at once are faster than one after the other. Without wide registers they take a tenth longer.
    pub fn is_wide(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return !matches!(self, Self::Portable(_));
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Runs the work with the instructions of this set.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Portable(portable) => work.run(portable),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(cpu) => cpu.run(Compiled(work)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(cpu) => cpu.run(Compiled(work)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(cpu) => cpu.run(Compiled(work)),
        }
    }
}

/// [`Work`] as a kernel for any CPU that can classify.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct Compiled<W>(W);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<W: Work, C: Classify> cpu::Kernel<C> for Compiled<W> {
    type Output = W::Output;

    #[inline(always)]
    fn run(self, cpu: C) -> W::Output {
        self.0.run(cpu)
    }
}
