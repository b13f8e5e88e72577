//! Bugs on purpose, to see that they are found. One at a time can be planted in a thread, with the feature `planted`,
//! which nothing but the simulator's own tests turns on. Without it, nothing of this is left.

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// This bug is in all that runs in this thread from now on, and no other; none, if it has no name.
#[cfg(feature = "planted")]
pub fn plant(bug: &'static str) {
    PLANTED.set(bug);
}

/// Whether this bug is to be met here.
#[inline(always)]
pub fn planted(bug: &str) -> bool {
    #[cfg(feature = "planted")]
    return PLANTED.get() == bug;
    #[cfg(not(feature = "planted"))]
    {
        let _ = bug;
        false
    }
}
