//! CPU feature detection, in one place for the whole core.
//!
//! Each type below stands for a set of CPU features and proves that the processor has them: only `detect` creates a value, after
//! checking every feature in the list. Code that needs the features takes a value of the type (it has no size) and can be compiled for
//! them in two ways:
//!
//! - `token.run(kernel)` compiles a [`Kernel`] for exactly the features that `detect` checks. It needs no `unsafe`.
//! - A function marked `#[target_feature(enable = "…")]` may enable any of the features in the list. Calling it is `unsafe` and
//!   justified by the token.
//!
//! Both the check and `run` are generated from one list. A test scans the crate's sources and fails if a function enables a
//! feature that the token named in the same file does not check.

/// Work that is compiled once for each set of CPU features it runs with.
pub trait Kernel<Cpu> {
    /// The result.
    type Output;

    /// Runs the work. Mark implementations `#[inline(always)]`: only code inlined here is compiled for the features of `cpu`.
    fn run(self, cpu: Cpu) -> Self::Output;
}

macro_rules! feature_sets {
    ($($(#[$doc:meta])* $arch:literal $detected:ident $name:ident: [$($feature:tt),+];)+) => {$(
        $(#[$doc])*
        #[cfg(target_arch = $arch)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name(());

        #[cfg(target_arch = $arch)]
        impl $name {
            /// Returns a token if the processor has all the features.
            pub fn detect() -> Option<Self> {
                let has_all = $(std::arch::$detected!($feature))&&+;
                has_all.then_some(Self(()))
            }

            /// Runs `kernel`, compiled for these features.
            pub fn run<K: Kernel<Self>>(self, kernel: K) -> K::Output {
                #[target_feature($(enable = $feature),+)]
                fn compiled<K: Kernel<$name>>(cpu: $name, kernel: K) -> K::Output {
                    kernel.run(cpu)
                }
                // SAFETY: `self` exists, so `detect` has found each of the enabled features.
                unsafe { compiled(self, kernel) }
            }
        }
    )+

    /// Name and features of each token, for any architecture.
    #[cfg(test)]
    const FEATURE_SETS: &[(&str, &[&str])] = &[$((stringify!($name), &[$($feature),+])),+];
    };
}

feature_sets! {
    /// 256-bit integer vectors and the bit instructions that come with them (Haswell, Zen and later).
    "x86_64" is_x86_feature_detected Avx2: ["avx2", "bmi1", "bmi2", "lzcnt", "popcnt"];

    /// 512-bit vectors with byte permutations and Galois-field instructions (Ice Lake, Zen 4 and later).
    "x86_64" is_x86_feature_detected Avx512: ["avx512f", "avx512bw", "avx512vbmi", "avx512vbmi2", "gfni", "bmi1", "bmi2", "lzcnt", "popcnt"];

    /// 256-bit floating-point vectors with fused multiply-add (Haswell, Zen and later).
    "x86_64" is_x86_feature_detected Fma: ["avx2", "fma"];

    /// AES rounds on 128-bit vectors.
    "x86_64" is_x86_feature_detected Aes: ["aes", "avx"];

    /// 128-bit vectors, part of every 64-bit ARM.
    "aarch64" is_aarch64_feature_detected Neon: ["neon"];
}

#[cfg(test)]
mod tests;
