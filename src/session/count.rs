//! When an answer has made calls enough.

use crate::parse::event::Event;
use std::collections::HashMap;

/// So many times an answer may make the same call, where nothing limits its calls.
const SAME: usize = 16;

/// Counts the calls of an answer while it is written.
pub(super) struct CallCount {
    most: usize,
    begun: usize,
    ended: usize,
    /// The call that is being written: its name and arguments.
    open: String,
    /// How often each call was made.
    made: HashMap<String, usize>,
    /// The call that was made too often.
    repeated: Option<String>,
}

impl CallCount {
    /// For an answer that may make so many calls.
    pub(crate) fn new(most: Option<usize>) -> CallCount {
        CallCount {
            most: most.unwrap_or(usize::MAX),
            begun: 0,
            ended: 0,
            open: String::new(),
            made: HashMap::new(),
            repeated: None,
        }
    }

    /// Takes note of an event; whether it is still part of the answer. Where nothing but the next call shows that the last
    /// one has ended, that is begun in vain.
    pub(crate) fn take(&mut self, event: &Event) -> bool {
        let taken = !self.enough() || matches!(event, Event::Text { .. } | Event::Reasoning { .. });
        let begins = matches!(event, Event::CallStart { .. } | Event::InvalidCall(_));
        self.begun += usize::from(taken && begins);
        match event {
            _ if !taken => {}
            Event::CallStart { name, .. } => self.open = format!("{name} "),
            Event::CallArguments { delta, .. } => self.open += delta,
            Event::CallEnd { .. } => {
                self.ended += 1;
                let call = std::mem::take(&mut self.open);
                let times = self.made.entry(call.clone()).or_insert(0);
                *times += 1;
                // A model that goes on writing the same call does so until its tokens run out.
                if self.most == usize::MAX && *times >= SAME {
                    self.most = self.ended;
                    self.repeated = Some(call);
                }
            }
            _ => {}
        }
        taken
    }

    /// Whether there are enough.
    pub(crate) fn enough(&self) -> bool {
        self.ended >= self.most
    }

    /// How many have begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// How many calls the answer has at most.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// That the answer was ended because it made the same call again and again.
    pub(crate) fn repetition(&self) -> Option<String> {
        let call = self.repeated.as_ref()?;
        Some(format!(
            "the answer was ended after {SAME} times the same call, {call} (`Options::max_calls` sets another limit)"
        ))
    }
}
