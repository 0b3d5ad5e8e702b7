//! Strings in the dialect's own quotes, several bytes long, between which nothing is escaped.

use super::string::{Quote, Quoted};
use super::{Dialect, State, Transducer};
use std::sync::Arc;

impl Transducer {
    pub(super) fn begins_quote(&self, byte: u8) -> bool {
        matches!(&self.dialect, Dialect::Own { quote: Some(quote), .. } if quote.first() == Some(&byte))
    }

    fn own_quote(&self) -> Arc<[u8]> {
        match &self.dialect {
            Dialect::Own { quote: Some(quote), .. } => Arc::clone(quote),
            _ => Arc::from([]),
        }
    }

    pub(super) fn begin_own(&mut self, key: bool) -> bool {
        let quoted = Quoted { quote: Quote::Own, key };
        self.state = State::OwnOpening(quoted, 1);
        self.own_opened(quoted, 1);
        true
    }

    pub(super) fn own_opening(&mut self, quoted: Quoted, count: usize, byte: u8) -> bool {
        if self.own_quote().get(count) != Some(&byte) {
            return self.refuse();
        }
        self.state = State::OwnOpening(quoted, count + 1);
        self.own_opened(quoted, count + 1);
        true
    }

    /// Begins the string if `count` bytes are the whole quote.
    fn own_opened(&mut self, quoted: Quoted, count: usize) {
        if count == self.own_quote().len() {
            self.put(b'"');
            self.state = State::String(quoted);
            self.settle_string(quoted);
        }
    }

    /// A byte of such a string that may end it, or that JSON requires to be escaped.
    pub(super) fn own_special(&mut self, quoted: Quoted, byte: u8) -> bool {
        if self.begins_quote(byte) {
            self.utf8.end(&mut self.out);
            return self.own_closing(quoted, 0, byte);
        }
        self.own_text(byte);
        self.settle_string(quoted);
        true
    }

    /// After `count` bytes that may end the string.
    pub(super) fn own_closing(&mut self, quoted: Quoted, mut count: usize, byte: u8) -> bool {
        let quote = self.own_quote();
        while quote.get(count) != Some(&byte) {
            self.state = State::String(quoted);
            if count == 0 {
                self.settle_string(quoted);
                return false;
            }
            // The part of these bytes that may still begin the quote.
            let kept = (0..count).rev().find(|&kept| quote[..count].ends_with(&quote[..kept])).unwrap_or(0);
            quote[..count - kept].iter().for_each(|&byte| self.own_text(byte));
            self.settle_string(quoted);
            count = kept;
        }
        if count + 1 == quote.len() {
            self.utf8.end(&mut self.out);
            self.put(b'"');
            self.end_string(quoted);
        } else {
            self.state = State::OwnClosing(quoted, count + 1);
        }
        true
    }

    fn own_text(&mut self, byte: u8) {
        match byte {
            b'"' | b'\\' => {
                self.utf8.end(&mut self.out);
                self.out.push('\\');
                self.out.push(char::from(byte));
            }
            0..0x20 => self.escape_control(byte),
            _ => self.put(byte),
        }
    }
}
