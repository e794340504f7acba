//! Compiles a loop for several instruction sets and runs the best version supported by the machine.
//!
//! Builds target the oldest machines of an architecture, which have short vectors. The loops are plain
//! Rust: the compiler vectorizes them with whatever length it is allowed to use.
#![expect(unsafe_code, reason = "calls functions compiled for instructions that were just detected")]

/// A loop worth compiling several times.
///
/// `run`, and what it calls in its inner loop, must be `#[inline(always)]` or small: only code inlined
/// into the caller is compiled for the caller's instruction set.
pub(crate) trait Vectorized {
    /// The result of the loop.
    type Output;

    /// The loop.
    fn run(self) -> Self::Output;

    /// Runs the loop on machines without any of the instruction sets.
    fn run_plain(self) -> Self::Output
    where
        Self: Sized,
    {
        self.run()
    }
}

/// Runs the best version of a loop.
#[inline]
pub(crate) fn vectorized<V: Vectorized>(work: V) -> V::Output {
    // SAFETY: the machine supports its best version.
    unsafe { Version::best().run(work) }
}

/// A version of a loop. A machine that supports one supports all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

#[cfg(target_arch = "x86_64")]
impl Version {
    #[inline]
    fn best() -> Self {
        let common = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (common, wide) {
            (true, true) => Self::Avx512,
            (true, false) => Self::Avx2,
            (false, _) => Self::Plain,
        }
    }

    /// # Safety
    /// The machine must support this version.
    #[inline]
    unsafe fn run<V: Vectorized>(self, work: V) -> V::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn avx512<V: Vectorized>(work: V) -> V::Output {
            work.run()
        }

        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn avx2<V: Vectorized>(work: V) -> V::Output {
            work.run()
        }

        match self {
            // SAFETY: according to the caller, the machine has all instruction sets that the function requires.
            Self::Avx512 => unsafe { avx512(work) },
            // SAFETY: as above.
            Self::Avx2 => unsafe { avx2(work) },
            Self::Plain => work.run_plain(),
        }
    }
}

/// On other architectures, vectors need no detection.
#[cfg(not(target_arch = "x86_64"))]
impl Version {
    #[inline]
    fn best() -> Self {
        Self::Plain
    }

    /// # Safety
    /// Every machine supports this version.
    #[inline]
    unsafe fn run<V: Vectorized>(self, work: V) -> V::Output {
        work.run_plain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Sum<'a>(&'a [u8]);

    impl Vectorized for Sum<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self) -> u64 {
            self.0.iter().map(|value| u64::from(*value)).sum()
        }
    }

    #[test]
    fn every_version_gives_the_same() {
        let values: Vec<u8> = (0..1000u32).map(|value| (value % 251) as u8).collect();
        let sum = Sum(&values);
        let versions = [
            Version::Plain,
            #[cfg(target_arch = "x86_64")]
            Version::Avx2,
            #[cfg(target_arch = "x86_64")]
            Version::Avx512,
        ];
        let mut supported = versions.into_iter().filter(|version| *version <= Version::best());
        // SAFETY: the machine supports its best version, and all before it.
        assert!(supported.all(|version| unsafe { version.run(sum) } == sum.run()));
        assert_eq!(vectorized(sum), sum.run());
    }
}
