//! The format's markup in the values of a call.
//!
//! Text from outside may have come into a value, with tags in it that begin a call. Where a value ends is then a matter
//! of layout and quotes, so such a call is marked, and an agent can ask before it is executed.

use crate::format::{Declaration, Marker, Payload};

/// Minimum length of a tag that is not ordinary text.
const LEAST: usize = 4;

/// The beginnings of a format's tags.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    tags: Vec<Vec<u8>>,
    /// Their first bytes.
    first: [u8; 3],
}

impl Marks {
    pub(crate) fn of(declaration: &Declaration) -> Marks {
        let section = declaration.section.iter().flat_map(|section| [&section.start, &section.end]);
        let markers = section.chain(&declaration.start).chain(&declaration.end).filter_map(Marker::text);
        let mut texts: Vec<&str> = markers.collect();
        if let Payload::Tagged(tagged) = &declaration.payload {
            texts.extend([&*tagged.key_start, &*tagged.value_start, &*tagged.value_end]);
        }
        let mut tags: Vec<Vec<u8>> = Vec::new();
        for text in texts {
            // JSON escapes what follows.
            let tag = text.trim().split(['"', '\n', '\\', '{']).next().unwrap_or_default();
            let signs = |c: char| !c.is_alphanumeric() && c != '`' && !c.is_whitespace();
            if tag.len() >= LEAST && tag.contains(signs) && tag.contains(char::is_alphanumeric) {
                tags.push(tag.into());
            }
        }
        let mut first: Vec<u8> = tags.iter().map(|tag| tag[0]).collect();
        first.sort_unstable();
        first.dedup();
        let Some(&one) = first.first() else { return Marks::default() };
        first.resize(3, one);
        tags.retain(|tag| first[..3].contains(&tag[0]));
        Marks { tags, first: [first[0], first[1], first[2]] }
    }

    /// Returns whether the text has such a tag in it.
    pub(super) fn are_in(&self, text: &[u8]) -> bool {
        let [one, two, three] = self.first;
        !self.tags.is_empty()
            && memchr::memchr3_iter(one, two, three, text)
                .any(|at| self.tags.iter().any(|tag| text[at..].starts_with(tag)))
    }
}
