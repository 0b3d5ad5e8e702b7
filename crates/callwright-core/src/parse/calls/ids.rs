//! Ids of calls: the model's own where they are unique, generated ones otherwise.

use std::collections::HashSet;

#[derive(Debug)]
pub(super) struct Ids {
    first: usize,
    next: usize,
    /// Ids that were not generated here.
    taken: HashSet<String>,
}

impl Ids {
    /// Generated ids count from `first`, and are none of `taken`.
    pub fn new(first: usize, taken: HashSet<String>) -> Ids {
        Ids { first, next: first, taken }
    }

    /// The number of the next generated id.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Forgets ids that were given since the next number was `next`.
    pub fn rewind(&mut self, next: usize, given: impl Iterator<Item = String>) {
        self.next = next;
        for id in given {
            self.taken.remove(&id);
        }
    }

    /// Takes an id of the model; false if it is not unique.
    pub fn claim(&mut self, id: &str) -> bool {
        let number = id.strip_prefix("call").and_then(|digits| digits.parse().ok());
        let generated = number.is_some_and(|number| (self.first..self.next).contains(&number));
        !generated && self.taken.insert(id.to_owned())
    }

    /// A new id of nine letters and digits, the form that the strictest chat templates require.
    pub fn generate(&mut self) -> String {
        loop {
            let id = format!("call{:05}", self.next);
            self.next += 1;
            if self.taken.is_empty() || !self.taken.contains(&id) {
                return id;
            }
        }
    }
}
