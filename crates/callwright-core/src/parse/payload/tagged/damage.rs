//! Tags with a wrong, missing or extra character, of which a value then contains the text.
//!
//! Values are not escaped, so text that only resembles a tag may be meant. It counts as a damaged tag only in a place
//! where the call lacks that tag, or where the call would continue after it.

use super::plan::TaggedPlan;
use crate::parse::nearly::{LEAST, begins_nearly, ends_nearly};

impl TaggedPlan {
    /// Returns whether a value without closing tag ends with a damaged one, or contains the tag of another argument.
    pub(super) fn ends_with_damaged_closing(&self, value: &[u8], closing: &[u8]) -> bool {
        ends_nearly(value.trim_ascii_end(), closing) || contains(value, &self.key_start)
    }

    /// Returns whether a value before which a tag is missing begins with a damaged one.
    pub(super) fn begins_with_damaged_opening(&self, value: &[u8]) -> bool {
        let value = value.trim_ascii_start();
        let tags = [&self.key_end[..], &self.tag_end, &self.value_start, self.last_sign()];
        tags.into_iter().any(|tag| begins_nearly(value, tag)) || contains(value, &self.value_start)
    }

    /// Returns whether a key without end ends with a damaged one.
    pub(super) fn ends_with_damaged_key_end(&self, key: &[u8]) -> bool {
        self.key_end.len() >= 8 && ends_nearly(key, &self.key_end)
    }

    /// Returns whether a damaged closing tag is in a value, right before the tag that opens another one of its name.
    /// Tags without names are common in text.
    pub(super) fn closes_before(&self, value: &[u8], opening: &[u8], closing: &[u8]) -> bool {
        let named = self.value_end.1.is_some();
        let mut from = 0;
        while let Some(at) = position(&value[from..], opening).filter(|_| named) {
            let before = value[..from + at].trim_ascii_end();
            if !before.ends_with(closing) && ends_nearly(before, closing) {
                return true;
            }
            from += at + opening.len();
        }
        false
    }

    /// Returns whether a closing tag in a value is followed by a damaged tag, after which the call would continue.
    pub(super) fn goes_on_after_damage(&self, value: &[u8], closing: &[u8]) -> bool {
        let mut rest = value;
        while let Some(at) = position(rest, closing) {
            rest = &rest[at + closing.len()..];
            let after = rest.trim_ascii_start();
            if self.is_argument_after_end(after) {
                return true;
            }
            let tags = || [&self.key_start, &self.end, &self.section_end].into_iter().chain(&self.starts);
            let whole = tags().any(|tag| !tag.is_empty() && after.starts_with(tag));
            if !whole && tags().any(|tag| tag.len() > LEAST && begins_nearly(after, tag)) {
                return true;
            }
        }
        false
    }

    /// Returns whether an argument follows the end marker: the beginning of another call is missing.
    fn is_argument_after_end(&self, text: &[u8]) -> bool {
        let Some(mut after) = text.strip_prefix(&self.end[..]).filter(|_| !self.end.is_empty()) else { return false };
        after = after.trim_ascii_start();
        if let Some(rest) = after.strip_prefix(&self.section_end[..]) {
            after = rest.trim_ascii_start();
        }
        !self.key_start.is_empty() && after.starts_with(&self.key_start)
    }

    /// Returns whether text between arguments is an argument with a damaged beginning.
    pub(super) fn is_damaged_argument(&self, text: &[u8]) -> bool {
        let mut text = text.trim_ascii();
        let (closing, _) = &self.value_end;
        // A closing tag that was written twice.
        while let Some(rest) = text.strip_prefix(&closing[..]).filter(|_| !closing.is_empty()) {
            text = rest.trim_ascii_start();
        }
        // White space between arguments was skipped, that in a tag as well.
        let solid = |text: &[u8]| text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<u8>>();
        let text_only = solid(text);
        let has = |tag: &[u8]| contains(&text_only, &solid(tag));
        let near = self.near.as_ref().is_some_and(|near| near.is_in(text));
        near || has(closing) || has(&self.value_start) || begins_nearly(text, &self.key_start)
    }

    /// Returns whether what was read as a tool's name contains the tags before a value.
    pub(super) fn is_argument_in_name(&self, name: &str) -> bool {
        [&self.value_start, &self.key_end].into_iter().any(|tag| contains(name.as_bytes(), tag))
    }
}

fn contains(text: &[u8], tag: &[u8]) -> bool {
    tag.len() >= LEAST && position(text, tag).is_some()
}

fn position(text: &[u8], tag: &[u8]) -> Option<usize> {
    if tag.is_empty() { None } else { memchr::memmem::find(text, tag) }
}
