//! The memory that bodies of requests take, of all connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bodies of this size have room together, whatever the limit of one is.
const LEAST: usize = 64 << 20;
/// So many of the largest bodies have room together.
const LARGEST: usize = 4;

/// What all bodies take.
pub(super) struct Bodies {
    held: AtomicUsize,
    most: usize,
}

impl Bodies {
    /// Room for some bodies of at most `largest` bytes.
    pub(super) fn new(largest: usize) -> Arc<Bodies> {
        Arc::new(Bodies { held: AtomicUsize::new(0), most: largest.saturating_mul(LARGEST).max(LEAST) })
    }
}

/// What one body takes, until it is dropped.
pub(super) struct Held {
    bodies: Arc<Bodies>,
    bytes: usize,
}

impl Held {
    pub(super) fn none(bodies: &Arc<Bodies>) -> Held {
        Held { bodies: Arc::clone(bodies), bytes: 0 }
    }

    /// Takes so many bytes more; returns whether there is room for them.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let Bodies { held, most } = &*self.bodies;
        let take = |held: usize| held.checked_add(bytes).filter(|held| held <= most);
        let taken = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.bodies.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_one_budget_and_give_it_back() {
        let bodies = Bodies::new(1);
        let (mut one, mut other) = (Held::none(&bodies), Held::none(&bodies));
        assert!(one.take(LEAST - 10) && !other.take(11) && other.take(10));
        assert!(!one.take(1) && !one.take(usize::MAX));
        drop(other);
        assert!(one.take(10));
        drop(one);
        assert_eq!(bodies.held.load(Ordering::Relaxed), 0);
    }
}
