//! When an answer has made calls enough.

use crate::parse::event::Event;
use crate::setting::Setting;
use std::collections::HashMap;

/// So many times an answer may make the same call, where neither its calls are limited nor repetitions end it.
const SAME: usize = 16;

/// Counts the calls of an answer while it is written.
pub(super) struct CallCount {
    most: usize,
    /// Whether a call that was made before in the answer ends it.
    once: bool,
    begun: usize,
    ended: usize,
    /// The call that is being written: its name and arguments.
    open: String,
    /// How often each call was made.
    made: HashMap<String, usize>,
    /// The events of a call that may become the same as an earlier one.
    held: Option<Vec<Event>>,
    /// The call that was made too often.
    repeated: Option<String>,
}

impl CallCount {
    /// For an answer that may make so many calls, and each of them `once` or several times.
    pub(crate) fn new(most: Option<usize>, once: bool) -> CallCount {
        CallCount {
            most: most.unwrap_or(usize::MAX),
            once,
            begun: 0,
            ended: 0,
            open: String::new(),
            made: HashMap::new(),
            held: None,
            repeated: None,
        }
    }

    /// Takes an event, and returns those that are part of the answer: none where there are calls enough, or where the
    /// call may become the same as an earlier one. Where nothing but the next call shows that the last one has ended,
    /// that is begun in vain.
    pub(crate) fn take(&mut self, event: Event) -> Vec<Event> {
        if self.enough() && !matches!(event, Event::Text { .. } | Event::Reasoning { .. }) {
            return Vec::new();
        }
        self.begun += usize::from(matches!(event, Event::CallStart { .. } | Event::InvalidCall(_)));
        match &event {
            Event::CallStart { name, .. } => {
                self.open = format!("{name} ");
                self.held = self.may_repeat().then(Vec::new);
            }
            Event::CallArguments { delta, .. } => self.open += delta,
            Event::CallEnd { complete, .. } => return self.end(*complete, event),
            _ => {}
        }
        let still = self.may_repeat();
        match &mut self.held {
            Some(held) if still => {
                held.push(event);
                Vec::new()
            }
            _ => self.release(event),
        }
    }

    fn end(&mut self, complete: bool, event: Event) -> Vec<Event> {
        let call = std::mem::take(&mut self.open);
        let times = self.made.entry(call.clone()).or_insert(0);
        if self.once && complete && *times > 0 {
            self.held = None;
            self.begun -= 1;
            self.most = self.ended;
            self.repeated = Some(call);
            return Vec::new();
        }
        self.ended += 1;
        *times += usize::from(complete || !self.once);
        // A model that goes on writing the same call does so until its tokens run out.
        if self.most == usize::MAX && *times >= SAME {
            self.most = self.ended;
            self.repeated = Some(call);
        }
        self.release(event)
    }

    /// Returns what was held back, and the event after it.
    fn release(&mut self, event: Event) -> Vec<Event> {
        let mut events = self.held.take().unwrap_or_default();
        events.push(event);
        events
    }

    /// Returns whether the open call is the beginning of one that was made.
    fn may_repeat(&self) -> bool {
        self.once && self.made.keys().any(|made| made.starts_with(&self.open))
    }

    /// Returns whether there are enough.
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

    /// Returns whether the answer was ended at a call that it had made before, which is not part of it.
    pub(super) fn dropped(&self) -> bool {
        self.once && self.repeated.is_some()
    }

    /// That the answer was ended because it made the same call again and again.
    pub(crate) fn repetition(&self) -> Option<String> {
        let call = self.repeated.as_ref()?;
        Some(match self.once {
            true => format!(
                "the answer was ended where it made the same call again, {call}: it is made once ({} lets \
                 the answer go on)",
                Setting::LoopGuardOff
            ),
            false => format!(
                "the answer was ended after {SAME} times the same call, {call} ({} sets another limit)",
                Setting::MaxCalls
            ),
        })
    }
}
