//! Tags with a suffix that each model of a family has its own: `<tool_call:opensource>`, `<tool_call:6124c78e>`.
//!
//! A chat template shows its suffix, a name of a format does not. Then the first marker of an answer shows it, and the
//! format with that suffix reads the rest.

use super::machinery::Machinery;
use super::markers::patterns::escape;
use crate::format::{Declaration, Format, Marker};
use std::sync::Arc;

/// Maximum length of a suffix.
const LONGEST: usize = 32;

/// The suffix of a format's tags.
#[derive(Debug)]
pub(crate) struct Suffix {
    declaration: Box<Declaration>,
}

impl Suffix {
    pub(super) fn of(declaration: &Declaration) -> Option<Suffix> {
        declaration.suffix.is_some().then(|| Suffix { declaration: Box::new(declaration.clone()) })
    }

    /// The automata for the suffix of this marker, if it is not the declared one.
    pub(super) fn machinery_for(&self, marker: &[u8]) -> Option<Arc<Machinery>> {
        let declared = self.declaration.suffix.as_deref()?;
        let marker = std::str::from_utf8(marker).ok()?.trim();
        let tag = &marker[marker.rfind('<').unwrap_or(0)..];
        let found = self.declaration.markers().filter_map(Marker::text).find_map(|text| {
            let (before, after) = text.trim().split_once(declared)?;
            tag.strip_prefix(before)?.strip_suffix(after).filter(|found| is_suffix(found, declared))
        })?;
        let other = Some(found).filter(|found| *found != declared)?;
        Format::unchecked(self.declaration.with_suffix(other)?).machinery().ok()
    }
}

/// Returns whether this is no suffix, or one like the declared one.
fn is_suffix(text: &str, declared: &str) -> bool {
    let word = text.strip_prefix(&declared[..1]).unwrap_or(text);
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    text.is_empty() || word.len() < text.len() && !word.is_empty() && plain
}

/// A marker with any suffix, as a regular expression; `None` if it has none.
pub(super) fn any(declaration: &Declaration, marker: &Marker) -> Option<String> {
    let declared = declaration.suffix.as_deref()?;
    let (before, after) = marker.text()?.trim().split_once(declared)?;
    let escaped = |text: &str| text.bytes().map(escape).collect::<String>();
    let sign = escaped(&declared[..1]);
    Some(format!("{}(?:{sign}[A-Za-z0-9_-]{{1,{LONGEST}}})?{}", escaped(before), escaped(after)))
}
