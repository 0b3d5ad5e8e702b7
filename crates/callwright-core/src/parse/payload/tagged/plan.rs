//! The parsed tags of a format.

use super::near::NearTag;
use crate::format::schema::Types;
use crate::format::{Declaration, Marker, TaggedCall};
use crate::parse::bytes::FlagSets;
use crate::parse::head::HeadPlan;
use std::sync::Arc;

/// State shared by the calls of a format.
#[derive(Debug)]
pub(crate) struct TaggedPlan {
    pub(super) head: Arc<HeadPlan>,
    pub(super) key_start: Vec<u8>,
    /// The text after the key, up to the word for the type if there is one.
    pub(super) key_end: Vec<u8>,
    /// The text at the end of the tag.
    pub(super) tag_end: Vec<u8>,
    /// The words for types; empty if the format has none.
    pub(super) words: Vec<(String, Types)>,
    pub(super) escaped_keys: bool,
    /// Empty if the value comes right after the key.
    pub(super) value_start: Vec<u8>,
    /// The end of a value: the text before the argument's name and, if it contains the name, the text after it.
    pub(super) value_end: (Vec<u8>, Option<Vec<u8>>),
    /// White space around a value that is not part of it.
    pub(super) lead: Vec<u8>,
    pub(super) tail: Vec<u8>,
    /// Whether each argument begins on a line of its own.
    pub(super) lines: bool,
    pub(super) nested: bool,
    /// The tag before an argument with other attributes, if it has attributes.
    pub(super) near: Option<NearTag>,
    /// The end marker, text that may follow it, and the start of the next call, as far as they are literal.
    pub(super) end: Vec<u8>,
    pub(super) section_end: Vec<u8>,
    pub(super) starts: Vec<Vec<u8>>,
    /// The start of a call, without the section around it.
    pub(super) start: Vec<u8>,
    /// Whether none of these tags begins like another one of them.
    tags_are_distinct: bool,
    /// Whether there is no end marker.
    pub(super) open_ended: bool,
    flags: FlagSets,
    /// The first two bytes of every text that may end a value; `None` if one is shorter.
    pairs: Option<Pairs>,
}

/// A set of pairs of bytes.
#[derive(Debug)]
struct Pairs {
    /// A bit for each first byte, and for each second byte the bits of those that come before it.
    first: Box<[u8; 256]>,
    second: Box<[u8; 256]>,
}

impl Pairs {
    /// `None` if there are more than eight different first bytes.
    fn new(pairs: impl Iterator<Item = [u8; 2]>) -> Option<Pairs> {
        let mut set = Pairs { first: Box::new([0; 256]), second: Box::new([0; 256]) };
        let mut bits = (0..u8::BITS).map(|bit| 1 << bit);
        for [first, second] in pairs {
            let bit = &mut set.first[usize::from(first)];
            if *bit == 0 {
                *bit = bits.next()?;
            }
            set.second[usize::from(second)] |= *bit;
        }
        Some(set)
    }

    fn has(&self, first: u8, second: u8) -> bool {
        self.first[usize::from(first)] & self.second[usize::from(second)] != 0
    }
}

/// The byte must be escaped in a JSON string.
pub(super) const ESCAPED: u8 = 1;
/// It may begin the end of a value.
pub(super) const ENDS: u8 = 2;
/// Like `ENDS`, with repairs.
pub(super) const ENDS_ROUGHLY: u8 = 4;
/// It may begin the start or the end of a CDATA section.
pub(super) const CDATA: u8 = 8;
pub(super) const CDATA_END: u8 = 16;
/// It may begin another call.
pub(super) const STARTS: u8 = 32;

impl TaggedPlan {
    pub(crate) fn new(declaration: &Declaration, call: &TaggedCall) -> TaggedPlan {
        let bytes = |text: &str| text.trim().as_bytes().to_vec();
        let marker = |marker: Option<&Marker>| bytes(marker.and_then(Marker::text).unwrap_or_default());
        let before_value = format!("{}{}", call.key_end, call.value_start);
        let blank = |text: &str| text.as_bytes().to_vec();
        let value_end = match call.value_end.trim().split_once("{key}") {
            Some((before, after)) => (before.as_bytes().to_vec(), Some(after.as_bytes().to_vec())),
            None => (bytes(&call.value_end), None),
        };
        let section = declaration.section.as_ref();
        let (key_end, tag_end) = call.around_type().unwrap_or((&call.key_end, &call.key_end));
        let starts = [marker(section.map(|section| &section.start)), marker(declaration.start.as_ref())];
        let mut plan = TaggedPlan {
            head: Arc::new(HeadPlan::new(&call.head, &[call.key_start.trim(), "{"])),
            key_start: bytes(&call.key_start),
            key_end: bytes(key_end),
            tag_end: bytes(tag_end),
            words: if call.types.is_empty() { Vec::new() } else { call.words() },
            escaped_keys: call.escaped_keys,
            value_start: bytes(&call.value_start),
            value_end,
            lead: blank(&before_value[before_value.trim_end().len()..]),
            tail: blank(&call.value_end[..call.value_end.len() - call.value_end.trim_start().len()]),
            lines: call.value_end.trim_end().len() < call.value_end.len(),
            nested: call.nested,
            near: NearTag::new(call),
            end: marker(declaration.end.as_ref()),
            section_end: marker(section.map(|section| &section.end)),
            start: marker(declaration.start.as_ref()),
            starts: starts.into_iter().filter(|start| !start.is_empty()).collect(),
            tags_are_distinct: false,
            open_ended: declaration.end.is_none(),
            flags: FlagSets::new(Box::new([0; 256]), 0),
            pairs: None,
        };
        plan.compare_tags();
        plan.set_flags();
        plan
    }

    /// Finds out whether a tag can be taken for another one.
    fn compare_tags(&mut self) {
        let (end, key_start, section_end) = (&self.end, &self.key_start, &self.section_end);
        let starts_alike = self.starts.iter().any(|start| {
            [key_start, end, &self.value_start, section_end, &self.tail].into_iter().any(|tag| alike(start, tag))
        });
        self.tags_are_distinct =
            !(starts_alike || alike(end, key_start) || alike(end, section_end) || alike(key_start, section_end));
    }

    /// Returns whether neither this closing tag, with the tag `before` its value, nor any other tag can be taken for
    /// another one.
    pub(super) fn is_distinct(&self, closing: &[u8], before: &[u8]) -> bool {
        let fixed = [&self.key_start, &self.end, &self.section_end].into_iter().chain(&self.starts);
        let mut others = fixed.map(Vec::as_slice).chain([before, self.last_sign()]);
        self.tags_are_distinct && !closing.is_empty() && !others.any(|tag| alike(closing, tag))
    }

    fn set_flags(&mut self) {
        let mut flags = Box::new([0u8; 256]);
        for byte in [b'"', b'\\'].into_iter().chain(0..0x20) {
            flags[usize::from(byte)] |= ESCAPED;
        }
        let mut mark = |text: &[u8], flag: u8| {
            if let Some(&byte) = text.first() {
                flags[usize::from(byte)] |= flag;
            }
        };
        mark(&self.tail, ENDS);
        mark(&self.value_end.0, ENDS);
        mark(&self.value_start, ENDS);
        mark(&self.key_start, ENDS_ROUGHLY);
        mark(&self.end, ENDS_ROUGHLY);
        mark(b"\n", ENDS_ROUGHLY);
        mark(b"<", CDATA);
        mark(b"]", CDATA_END);
        mark(&self.section_end, ENDS_ROUGHLY);
        self.starts.iter().for_each(|start| mark(start, STARTS | ENDS_ROUGHLY));
        if self.nested {
            mark(&self.key_start, ENDS);
        }
        if self.value_end.0.is_empty() {
            flags.iter_mut().for_each(|flag| *flag |= ENDS);
        }
        self.flags = FlagSets::new(flags, 6);
        let tags = [&self.value_end.0, &self.key_start, &self.value_start, &self.end, &self.section_end];
        let tags = tags.into_iter().chain(&self.starts).filter(|tag| !tag.is_empty());
        let pair = |tag: &Vec<u8>| [[b'\n', tag[0]], [tag[0], *tag.get(1).unwrap_or(&0)]];
        let plain = (self.tail.is_empty() || self.tail == b"\n") && !self.value_end.0.is_empty();
        if plain && tags.clone().all(|tag| tag.len() > 1) {
            self.pairs = Pairs::new(tags.flat_map(pair));
        }
    }

    /// Writes the closing tag of that argument, and the tag that it closes.
    pub(super) fn around(&self, key: &str, opening: &mut Vec<u8>, closing: &mut Vec<u8>) {
        closing.clear();
        closing.extend_from_slice(&self.value_end.0);
        opening.clear();
        opening.extend_from_slice(if self.value_start.is_empty() { &self.key_start } else { &self.value_start });
        if let Some(after) = &self.value_end.1 {
            closing.extend_from_slice(key.as_bytes());
            closing.extend_from_slice(after);
            if self.value_start.is_empty() {
                opening.extend_from_slice(key.as_bytes());
                opening.extend_from_slice(&self.key_end);
            }
        }
    }

    /// Writes the tag right before the value of that argument, which models write twice. `whole` is the argument's tag,
    /// if it has more than the name.
    pub(super) fn before(&self, key: &str, whole: &[u8], tag: &mut Vec<u8>) {
        tag.clear();
        if !self.value_start.is_empty() {
            tag.extend_from_slice(&self.value_start);
        } else if !whole.is_empty() {
            tag.extend_from_slice(whole);
        } else if self.words.is_empty() && !self.nested {
            tag.extend_from_slice(&self.key_start);
            tag.extend_from_slice(key.as_bytes());
            tag.extend_from_slice(&self.key_end);
        }
    }

    /// The last `<…>` of the text before a value, if there is more before it: models write it twice.
    pub(super) fn last_sign(&self) -> &[u8] {
        let end = if self.value_start.is_empty() { &self.tag_end } else { &self.value_start };
        match end.iter().rposition(|byte| *byte == b'<') {
            Some(at) if at > 0 && end.ends_with(b">") => &end[at..],
            _ => &[],
        }
    }

    /// Returns whether a value ends with a part of its closing tag, which is then broken: its beginning, or its end.
    pub(super) fn is_broken_closing(&self, value: &str, closing: &str) -> bool {
        const LEAST: usize = 4;
        let value = value.trim_end();
        let end = &value.as_bytes()[value.len().saturating_sub(closing.len())..];
        if !end.iter().any(|byte| *byte == b'<' || closing.as_bytes().first() == Some(byte)) {
            return false;
        }
        (LEAST..closing.len()).filter(|&length| closing.is_char_boundary(length)).any(|length| {
            value.ends_with(&closing[..length])
                || closing.is_char_boundary(closing.len() - length)
                    && closing[closing.len() - length..].contains('<')
                    && value.ends_with(&closing[closing.len() - length..])
        })
    }

    /// The types that this word means.
    pub(super) fn word(&self, word: &str) -> Option<Types> {
        let known = |(known, _): &&(String, Types)| known.eq_ignore_ascii_case(word.trim());
        self.words.iter().find(known).map(|(_, types)| *types)
    }

    /// Returns whether the end of a value can begin with these two bytes.
    pub(super) fn may_end(&self, byte: u8, next: u8) -> bool {
        self.pairs.as_ref().is_none_or(|pairs| pairs.has(byte, next))
    }

    /// Returns whether another call can begin with these two bytes.
    pub(super) fn may_start(&self, byte: u8, next: u8) -> bool {
        let begins =
            |start: &Vec<u8>| start.first() == Some(&byte) && start.get(1).is_none_or(|&second| second == next);
        self.starts.iter().any(begins)
    }

    /// Returns whether the byte begins one of the tags between values.
    pub(super) fn is_markup(&self, byte: u8) -> bool {
        let tags = [&self.key_start, &self.end, &self.section_end].into_iter().chain(&self.starts);
        tags.into_iter().any(|tag| tag.first() == Some(&byte))
    }

    /// Number of bytes at the beginning that have none of the flags in `mask`.
    pub(super) fn run(&self, bytes: &[u8], mask: u8) -> usize {
        self.flags.run(bytes, mask)
    }
}

/// Returns whether one of two tags begins with the other one, which is there.
fn alike(one: &[u8], other: &[u8]) -> bool {
    !other.is_empty() && (one.starts_with(other) || other.starts_with(one))
}
