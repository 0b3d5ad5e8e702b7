//! Irregular ends of a value: beyond repair, or cut off.

use super::string::Quoted;
use super::{Cut, Dialect, LITERALS, State, Transducer};
use crate::parse::event::RepairKind;

impl Transducer {
    /// Beyond repair: takes bytes unchanged, up to the value's probable end.
    pub(super) fn loose(&mut self, bytes: &[u8]) -> usize {
        let round = self.dialect == Dialect::PythonCall;
        for (index, &byte) in bytes.iter().enumerate() {
            let State::Loose { mut depth, mut string, mut escape } = self.state else { return index };
            if string {
                // A string ends at a line break, so that unpaired quotes have no effect beyond it.
                string = byte != b'\n' && (escape || byte != b'"');
                escape = !escape && byte == b'\\';
            } else {
                match byte {
                    b'"' => string = true,
                    b'{' | b'[' => depth += 1,
                    b'(' if round => depth += 1,
                    b'}' | b']' | b',' if depth == 0 => {
                        self.end_loose();
                        return index;
                    }
                    b'}' | b']' => depth -= 1,
                    b')' if round => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            self.state = State::Loose { depth, string, escape };
            self.put(byte);
            self.stable = self.out.len();
            if depth == 0 && !string && (matches!(byte, b'}' | b']') || round && byte == b')') {
                self.end_loose();
                return index + 1;
            }
        }
        bytes.len()
    }

    pub(super) fn end_loose(&mut self) {
        self.utf8.end(&mut self.out);
        self.stable = self.out.len();
        self.state = State::Done;
    }

    /// The text ends inside the value or after it.
    pub(crate) fn cut(&mut self, at: usize) -> Cut {
        self.utf8.end(&mut self.out);
        self.at = at;
        match self.state {
            State::Escape(_) | State::Unicode(..) => self.cut_escapes(self.mark),
            State::String(_) => self.cut_escapes(self.out.len()),
            State::Number(number) if number.is_whole() => self.end_value(),
            State::Word { key: false } if LITERALS.contains(&&self.out[self.mark..]) => self.end_word(false, at),
            State::QuoteEnd(quoted) if self.at_call() && !self.out[self.mark + 1..].trim_ascii().is_empty() => {
                // An unfinished word after it, whose meaning is unknown.
                let word = self.out.split_off(self.mark + 1);
                self.end_string(quoted);
                self.out.push_str(&word);
            }
            State::QuoteEnd(quoted) => self.end_string(quoted),
            State::Opening(quoted, 2..) => {
                self.close_quotes(quoted);
                self.end_string(quoted);
            }
            _ => {}
        }
        if self.broken.is_some() {
            self.stable = self.out.len();
            self.state = State::Done;
            return Cut::Broken;
        }
        if self.state == State::Done {
            return Cut::Whole;
        }
        self.reports.push((RepairKind::MissingBrackets, at..at));
        if !self.repair || self.key_shown || (self.stack.is_empty() && !self.in_string()) {
            self.give_up();
            self.state = State::Done;
            return Cut::Broken;
        }
        let string = matches!(
            self.state,
            State::String(Quoted { key: false, .. })
                | State::Escape(Quoted { key: false, .. })
                | State::Unicode(Quoted { key: false, .. }, ..)
                | State::Opening(Quoted { key: false, .. }, _)
                | State::Closing(Quoted { key: false, .. }, _)
                | State::Octal(Quoted { key: false, .. }, ..)
                | State::Hex(Quoted { key: false, .. }, ..)
                | State::OwnClosing(Quoted { key: false, .. }, _)
        );
        let dropped = !self.out[self.stable..].trim_matches([',', ' ', '\t', '\r', '\n']).is_empty();
        self.out.truncate(self.stable);
        if string {
            self.out.push('"');
        }
        self.close_down_to(0);
        self.stable = self.out.len();
        self.state = State::Done;
        if dropped { Cut::Shortened } else { Cut::Closed }
    }
}
