//! A complete automaton as a table.

use super::{START, State, StateInfo};
use crate::error::{Error, ErrorKind, Result};
use regex_automata::Input;
use regex_automata::dfa::{Automaton as _, dense};
use regex_automata::util::primitives::StateID;
use std::collections::HashMap;

/// All states of an automaton.
#[derive(Debug)]
pub(crate) struct Table {
    classes: Box<[u8; 256]>,
    class_count: usize,
    next: Vec<State>,
    pub(super) states: Vec<StateInfo>,
}

impl Table {
    /// Finds nothing.
    pub(super) fn nothing() -> Table {
        Table { classes: Box::new([0; 256]), class_count: 1, next: vec![START], states: vec![StateInfo::default()] }
    }

    /// Copies `dfa` into a table whose states show the end of a match at once, not a byte later.
    pub(super) fn take_over(dfa: &dense::DFA<Vec<u32>>) -> Result<Table> {
        let too_many = || Error::new(ErrorKind::Format, "the markers are too complicated: more than 65,535 states");
        let start = dfa.start_state_forward(&Input::new("")).map_err(|e| {
            Error::new(ErrorKind::Format, format!("the markers cannot be searched for: {e}")).caused_by(e)
        })?;
        let mut ids: HashMap<StateID, State> = HashMap::from([(start, START)]);
        let mut order = vec![start];
        // One byte of each byte class.
        let bytes: Vec<u8> = dfa.byte_classes().representatives(..).filter_map(|unit| unit.as_u8()).collect();
        let mut rows: Vec<Vec<State>> = Vec::new();
        while let Some(&state) = order.get(rows.len()) {
            let mut row = Vec::with_capacity(bytes.len());
            for &byte in &bytes {
                let next = dfa.next_state(state, byte);
                let fresh = u16::try_from(order.len()).map_err(|_| too_many())?;
                row.push(*ids.entry(next).or_insert_with(|| {
                    order.push(next);
                    fresh
                }));
            }
            rows.push(row);
        }

        let pattern_of = |state| dfa.is_match_state(state).then(|| dfa.match_pattern(state, 0).as_usize() as u8);
        let mut states: Vec<StateInfo> = order
            .iter()
            .map(|&state| StateInfo {
                matched: pattern_of(dfa.next_state(state, 0)),
                matched_at_end: pattern_of(dfa.next_eoi_state(state)),
                live: false,
            })
            .collect();
        // From the matches back to every state that leads to one.
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
        for (index, row) in rows.iter().enumerate() {
            row.iter().for_each(|&next| before[usize::from(next)].push(index));
        }
        let is_match = |info: &StateInfo| info.matched.is_some() || info.matched_at_end.is_some();
        let mut reached: Vec<usize> = (0..states.len()).filter(|&index| is_match(&states[index])).collect();
        while let Some(index) = reached.pop() {
            for &index in &before[index] {
                if !std::mem::replace(&mut states[index].live, true) {
                    reached.push(index);
                }
            }
        }

        let mut columns: HashMap<Vec<State>, u8> = HashMap::new();
        let column = |column: usize| rows.iter().map(|row| row[column]).collect::<Vec<State>>();
        let merged: Vec<u8> = (0..bytes.len())
            .map(|index| {
                let fresh = columns.len() as u8;
                *columns.entry(column(index)).or_insert(fresh)
            })
            .collect();
        let class_count = columns.len();
        let mut next = vec![0; rows.len() * class_count];
        for (index, row) in rows.iter().enumerate() {
            for (&class, &to) in merged.iter().zip(row) {
                next[index * class_count + usize::from(class)] = to;
            }
        }
        let mut classes = Box::new([0; 256]);
        for byte in 0..=255u8 {
            classes[usize::from(byte)] = merged[usize::from(dfa.byte_classes().get(byte))];
        }
        Ok(Table { classes, class_count, next, states })
    }

    #[inline]
    pub(super) fn step(&self, state: State, byte: u8) -> State {
        self.next[usize::from(state) * self.class_count + usize::from(self.classes[usize::from(byte)])]
    }
}
