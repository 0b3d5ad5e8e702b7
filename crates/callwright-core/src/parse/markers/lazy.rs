//! An automaton whose states are created when a text first reaches them.
//!
//! A format's markers have hundreds of states, which take milliseconds to create, and all other forms together thousands; a
//! text reaches a few dozen.

use super::patterns::syntax_config;
use super::{START, State, StateInfo, thompson_config};
use crate::error::{Error, ErrorKind, Result};
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::{Input, MatchKind};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum memory of the states. Beyond it, and beyond their maximum number, held bytes count as text. Markers that
/// `Scanner::check` does not refuse stay below it.
const BYTES: usize = 32 << 20;

/// Placeholder for an unknown state.
const UNKNOWN: State = State::MAX;

#[derive(Debug)]
pub(crate) struct Lazy {
    dfa: DFA,
    /// Number of byte classes of the automaton.
    classes: usize,
    made: Mutex<Made>,
}

/// The states created so far.
#[derive(Debug)]
pub(crate) struct Made {
    /// Maximum number of states.
    most: usize,
    cache: Cache,
    numbers: HashMap<LazyStateID, State>,
    ids: Vec<LazyStateID>,
    next: Vec<State>,
    states: Vec<StateInfo>,
    live: Vec<Option<bool>>,
}

impl Lazy {
    pub(super) fn new(patterns: &[String], most: usize) -> Result<Lazy> {
        let config = Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .cache_capacity(BYTES)
            // State numbers stay valid because the cache is never cleared.
            .minimum_cache_clear_count(Some(0));
        let mut builder = DFA::builder();
        builder.configure(config).syntax(syntax_config()).thompson(thompson_config());
        let dfa = builder
            .build_many(patterns)
            .map_err(|e| Error::new(ErrorKind::Format, format!("the markers are too complicated: {e}")).caused_by(e))?;
        let mut cache = dfa.create_cache();
        let start = dfa.start_state_forward(&mut cache, &Input::new("")).map_err(|e| {
            Error::new(ErrorKind::Format, format!("the markers cannot be searched for: {e}")).caused_by(e)
        })?;
        let classes = dfa.byte_classes().alphabet_len();
        let mut made = Made {
            most,
            cache,
            numbers: HashMap::new(),
            ids: Vec::new(),
            next: Vec::new(),
            states: Vec::new(),
            live: Vec::new(),
        };
        made.add(&dfa, classes, start);
        Ok(Lazy { dfa, classes, made: Mutex::new(made) })
    }

    pub(super) fn made(&self) -> MutexGuard<'_, Made> {
        // A state is added completely or not at all.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn step(&self, made: &mut Made, state: State, byte: u8) -> State {
        let place = usize::from(state) * self.classes + usize::from(self.dfa.byte_classes().get(byte));
        match made.next[place] {
            UNKNOWN => self.make(made, state, byte, place),
            next => next,
        }
    }

    #[cold]
    fn make(&self, made: &mut Made, state: State, byte: u8, place: usize) -> State {
        let next = made.follow(&self.dfa, self.classes, state, byte).unwrap_or(START);
        made.next[place] = next;
        next
    }

    /// Returns whether a match with precedence over those seen is still possible.
    pub(super) fn can_go_on(&self, made: &mut Made, state: State) -> bool {
        if let Some(live) = made.live[usize::from(state)] {
            return live;
        }
        let bytes: Vec<u8> = self.dfa.byte_classes().representatives(..).filter_map(|unit| unit.as_u8()).collect();
        let alive = |made: &mut Made, id| {
            bytes.iter().any(|&byte| made.id_after(&self.dfa, id, byte).is_some_and(|next| !next.is_dead()))
        };
        let id = made.ids[usize::from(state)];
        let mut seen = Vec::new();
        let live = bytes.iter().any(|&byte| {
            let Some(next) = made.id_after(&self.dfa, id, byte) else { return false };
            if next.is_dead() || seen.contains(&next) {
                return false;
            }
            seen.push(next);
            alive(made, next)
        });
        made.live[usize::from(state)] = Some(live);
        live
    }
}

impl Made {
    #[inline]
    pub(super) fn info(&self, state: State) -> StateInfo {
        self.states[usize::from(state)]
    }

    fn id_after(&mut self, dfa: &DFA, id: LazyStateID, byte: u8) -> Option<LazyStateID> {
        dfa.next_state(&mut self.cache, id, byte).ok()
    }

    fn follow(&mut self, dfa: &DFA, classes: usize, state: State, byte: u8) -> Option<State> {
        let next = self.id_after(dfa, self.ids[usize::from(state)], byte)?;
        match self.numbers.get(&next) {
            Some(&number) => Some(number),
            None => self.add(dfa, classes, next),
        }
    }

    /// Numbers a state. regex-automata reports a match one byte late, so a match that ends in a state appears in the
    /// next one.
    fn add(&mut self, dfa: &DFA, classes: usize, id: LazyStateID) -> Option<State> {
        let number = State::try_from(self.ids.len()).ok().filter(|_| self.ids.len() < self.most)?;
        let next = self.id_after(dfa, id, 0)?;
        let end = dfa.next_eoi_state(&mut self.cache, id).ok()?;
        let pattern = |id: LazyStateID| id.is_match().then(|| dfa.match_pattern(&self.cache, id, 0).as_usize() as u8);
        self.states.push(StateInfo { matched: pattern(next), matched_at_end: pattern(end) });
        self.live.push(None);
        self.next.resize(self.next.len() + classes, UNKNOWN);
        self.ids.push(id);
        self.numbers.insert(id, number);
        Some(number)
    }
}
