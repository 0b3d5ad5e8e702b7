//! Determines which parts of a recursive grammar may be read as one terminal each.
//!
//! The grammar engine takes the longest terminal, where GBNF would also try shorter ones. Both agree if no terminal can
//! continue with what may follow it and no two begin alike: there is then never a choice. Reading a JSON string as one
//! terminal instead of characters is a thousand times faster.

use super::{Alternatives, Part, Rule, What};
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, MatchKind};
use std::collections::HashMap;

/// Maximum length of a regular expression in bytes, and maximum number of its states.
const LONGEST: usize = 20_000;
const STATES: usize = 4_000;

/// A set of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bytes([u64; 4]);

impl Bytes {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn unite(&mut self, other: &Bytes) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }

    fn meets(&self, other: &Bytes) -> bool {
        self.0.iter().zip(other.0).any(|(own, other)| own & other != 0)
    }
}

/// A part that is read as one terminal.
#[derive(Debug, Default)]
pub(super) struct Unit {
    pub number: usize,
    /// Whether it may be empty.
    pub nullable: bool,
    /// Possible first bytes.
    first: Bytes,
    /// Bytes that may continue it where it could also end.
    more: Bytes,
    /// Whether it is always one byte.
    single: bool,
    /// Bytes that may follow it.
    follow: Bytes,
}

impl Unit {
    pub(super) fn name(&self) -> String {
        format!("U{}", self.number)
    }
}

/// The terminals of a grammar, by their regular expressions.
pub(super) type Units = HashMap<String, Unit>;

/// The grammar of the parts.
pub(super) struct Parts<'a> {
    pub rules: &'a [Rule],
    pub numbers: &'a HashMap<&'a str, usize>,
    /// Rules without recursion.
    pub flat: &'a [bool],
}

impl Parts<'_> {
    /// Returns whether a part is free of recursion.
    pub(super) fn is_flat(&self, part: &Part) -> bool {
        match &part.what {
            What::Text(_) | What::Class(_) => true,
            What::Rule(name, _) => self.flat[self.numbers[name.as_str()]],
            What::Group(inner) => inner.iter().flatten().all(|part| self.is_flat(part)),
        }
    }

    /// The regular expression of a part without recursion; `None` if it is too long.
    pub(super) fn regex(&self, part: &Part) -> Option<String> {
        let what = match &part.what {
            What::Text(text) => text.chars().map(|c| format!("\\x{{{:x}}}", u32::from(c))).collect(),
            What::Class(class) => class.clone(),
            What::Rule(name, _) => self.regex_of(&self.rules[self.numbers[name.as_str()]].body)?,
            What::Group(inner) => self.regex_of(inner)?,
        };
        let times = match (part.least, part.most) {
            (1, Some(1)) => String::new(),
            (least, None) => format!("{{{least},}}"),
            (least, Some(most)) => format!("{{{least},{most}}}"),
        };
        Some(format!("(?:{what}){times}")).filter(|regex| regex.len() <= LONGEST)
    }

    fn regex_of(&self, body: &Alternatives) -> Option<String> {
        let options = body.iter().map(|parts| parts.iter().map(|part| self.regex(part)).collect::<Option<String>>());
        Some(options.collect::<Option<Vec<_>>>()?.join("|")).filter(|regex| regex.len() <= LONGEST)
    }

    /// The terminals of the used rules; `None` if reading them as terminals could miss a text.
    pub(super) fn units(&self, used: &[bool]) -> Option<Units> {
        let recursive = || (0..self.rules.len()).filter(|index| used[*index] && !self.flat[*index]);
        let mut units = Units::new();
        for index in recursive() {
            self.collect(&self.rules[index].body, &mut units)?;
        }
        let mut state = vec![(Bytes::default(), false); self.rules.len()];
        let mut follow = vec![Bytes::default(); self.rules.len()];
        loop {
            let before = (state.clone(), follow.clone());
            for index in recursive() {
                let body = &self.rules[index].body;
                state[index] = self.first_of(body, &units, &state);
                let following = follow[index];
                for parts in body {
                    self.follow(parts, following, &mut units, &state, &mut follow);
                }
            }
            if before == (state.clone(), follow.clone()) {
                break;
            }
        }
        let all: Vec<&Unit> = units.values().collect();
        let apart = |(index, one): (usize, &&Unit)| {
            all[index + 1..].iter().all(|other| one.single && other.single || !one.first.meets(&other.first))
        };
        let settled = all.iter().all(|unit| !unit.more.meets(&unit.follow)) && all.iter().enumerate().all(apart);
        settled.then_some(units)
    }

    fn collect(&self, body: &Alternatives, units: &mut Units) -> Option<()> {
        for part in body.iter().flatten() {
            if self.is_flat(part) {
                let regex = self.regex(part)?;
                if !units.contains_key(&regex) {
                    let unit = Unit { number: units.len(), ..unit(&regex)? };
                    units.insert(regex, unit);
                }
            } else if let What::Group(inner) = &part.what {
                self.collect(inner, units)?;
            }
        }
        Some(())
    }

    /// The possible first bytes of a body, and whether it may be empty.
    fn first_of(&self, body: &Alternatives, units: &Units, state: &[(Bytes, bool)]) -> (Bytes, bool) {
        let (mut first, mut nullable) = (Bytes::default(), false);
        for parts in body {
            let mut empty = true;
            for part in parts {
                let (begins, may_be_empty) = self.first(part, units, state);
                first.unite(&begins);
                empty = may_be_empty;
                if !empty {
                    break;
                }
            }
            nullable |= empty;
        }
        (first, nullable)
    }

    fn first(&self, part: &Part, units: &Units, state: &[(Bytes, bool)]) -> (Bytes, bool) {
        if let Some(unit) = self.unit(part, units) {
            return (unit.first, unit.nullable);
        }
        let (first, nullable) = match &part.what {
            What::Rule(name, _) => state[self.numbers[name.as_str()]],
            What::Group(inner) => self.first_of(inner, units, state),
            What::Text(_) | What::Class(_) => (Bytes::default(), false),
        };
        (first, nullable || part.least == 0)
    }

    fn unit<'u>(&self, part: &Part, units: &'u Units) -> Option<&'u Unit> {
        if self.is_flat(part) { units.get(&self.regex(part)?) } else { None }
    }

    /// Records, for each part of a sequence, which bytes may follow it.
    fn follow(
        &self,
        parts: &[Part],
        following: Bytes,
        units: &mut Units,
        state: &[(Bytes, bool)],
        follow: &mut [Bytes],
    ) {
        let mut following = following;
        for part in parts.iter().rev() {
            let (first, nullable) = self.first(part, units, state);
            if self.is_flat(part) {
                if let Some(unit) = self.regex(part).and_then(|regex| units.get_mut(&regex)) {
                    unit.follow.unite(&following);
                }
            } else {
                let mut after = following;
                if part.most != Some(1) {
                    after.unite(&first);
                }
                match &part.what {
                    What::Rule(name, _) => follow[self.numbers[name.as_str()]].unite(&after),
                    What::Group(inner) => {
                        inner.iter().for_each(|parts| self.follow(parts, after, units, state, follow));
                    }
                    What::Text(_) | What::Class(_) => {}
                }
            }
            let mut before = first;
            if nullable {
                before.unite(&following);
            }
            following = before;
        }
    }
}

/// Analyses a regular expression's automaton; `None` if it is too large.
fn unit(regex: &str) -> Option<Unit> {
    let config = dense::Config::new()
        .start_kind(StartKind::Anchored)
        .match_kind(MatchKind::All)
        .dfa_size_limit(Some(1 << 23))
        .determinize_size_limit(Some(1 << 23));
    let dfa = dense::Builder::new()
        .configure(config)
        .thompson(thompson::Config::new().nfa_size_limit(Some(1 << 22)))
        .build(regex)
        .ok()?;
    let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::Yes)).ok()?;
    let mut numbers: HashMap<StateID, usize> = HashMap::from([(start, 0)]);
    let (mut states, mut next, mut entered) = (vec![start], Vec::<Vec<usize>>::new(), vec![false]);
    while next.len() < states.len() {
        let state = states[next.len()];
        let mut row = Vec::with_capacity(256);
        for byte in 0..=255 {
            let target = dfa.next_state(state, byte);
            let number = *numbers.entry(target).or_insert(states.len());
            if number == states.len() {
                states.push(target);
                entered.push(false);
            }
            entered[number] = true;
            row.push(number);
        }
        next.push(row);
        if states.len() > STATES {
            return None;
        }
    }
    let accepts: Vec<bool> = states.iter().map(|state| dfa.is_match_state(dfa.next_eoi_state(*state))).collect();
    // The states from which a text can still end.
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); states.len()];
    for (from, row) in next.iter().enumerate() {
        row.iter().for_each(|to| before[*to].push(from));
    }
    let mut alive = accepts.clone();
    let mut open: Vec<usize> = (0..states.len()).filter(|state| alive[*state]).collect();
    while let Some(state) = open.pop() {
        for from in std::mem::take(&mut before[state]) {
            if !std::mem::replace(&mut alive[from], true) {
                open.push(from);
            }
        }
    }
    let goes_on = |state: usize| {
        let mut bytes = Bytes::default();
        (0..=255u8).filter(|byte| alive[next[state][usize::from(*byte)]]).for_each(|byte| bytes.add(byte));
        bytes
    };
    let mut unit = Unit { nullable: accepts[0], first: goes_on(0), ..Unit::default() };
    for state in (0..states.len()).filter(|state| accepts[*state] && entered[*state]) {
        unit.more.unite(&goes_on(state));
    }
    let begun = next[0].iter().filter(|state| alive[**state]);
    unit.single = begun.clone().all(|state| accepts[*state] && goes_on(*state) == Bytes::default());
    Some(unit)
}
