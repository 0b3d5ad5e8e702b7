//! The markers of a format with other bars: `<‖DSML‖invoke` for `<｜DSML｜invoke`.
//!
//! A model that was not trained on such characters writes similar ones, in the same way in all markers of a call. So the
//! start marker shows how the others are written.

use super::machinery::Machinery;
use super::markers::patterns::BARS;
use crate::format::{Declaration, Format, Head, Marker, Payload};
use std::sync::Arc;

/// What models write for `▁`.
const LOWS: [&str; 5] = ["▁", "_", " ", "-", ""];

/// Returns whether a marker can be written in another way.
pub(super) fn varies(declaration: &Declaration) -> bool {
    matches!(&declaration.start, Some(Marker::Literal(text)) if text.contains(BARS))
        && matches!(declaration.payload, Payload::Named(_) | Payload::Tagged(_))
}

/// The automata for the format with the bars of a start marker that is a near miss. `None` if bars are not the mistake.
pub(super) fn machinery(declaration: &Declaration, written: &[u8]) -> Option<Arc<Machinery>> {
    let written = str::from_utf8(written).ok()?;
    let start = declaration.start.as_ref()?.text()?.trim();
    let bars = BARS.iter().flat_map(|bar| [String::from(*bar), format!("{bar}{bar}")]).chain([String::new()]);
    let spellings = bars.flat_map(|bars| LOWS.map(|low| Spelling { bars: bars.clone(), low }));
    let spelling = spellings.into_iter().find(|spelling| spelling.of(start).eq_ignore_ascii_case(written))?;
    if spelling.of(start) == start {
        return None;
    }
    Format::unchecked(spelling.of_all(declaration)).machinery().ok()
}

struct Spelling {
    bars: String,
    low: &'static str,
}

impl Spelling {
    fn of(&self, text: &str) -> String {
        let mut spelled = String::with_capacity(text.len());
        let mut last = ' ';
        for c in text.chars() {
            match c {
                '▁' => spelled.push_str(self.low),
                c if !BARS.contains(&c) => spelled.push(c),
                c if c != last => spelled.push_str(&self.bars),
                _ => {}
            }
            last = c;
        }
        spelled
    }

    fn of_all(&self, declaration: &Declaration) -> Declaration {
        let mut spelled = declaration.clone();
        let change = |text: &mut String| *text = self.of(text);
        let marker = |marker: &mut Marker| match marker {
            Marker::Literal(text) => change(text),
            Marker::Pattern { .. } => {}
        };
        let head = |head: &mut Head| head.forms.iter_mut().for_each(change);
        spelled.start.iter_mut().chain(&mut spelled.end).for_each(marker);
        spelled.section.iter_mut().flat_map(|section| [&mut section.start, &mut section.end]).for_each(marker);
        match &mut spelled.payload {
            Payload::Named(named) => {
                head(&mut named.head);
                change(&mut named.tail);
            }
            Payload::Tagged(tagged) => {
                head(&mut tagged.head);
                let tags = [&mut tagged.key_start, &mut tagged.key_end, &mut tagged.value_start, &mut tagged.value_end];
                tags.into_iter().for_each(change);
            }
            Payload::Json(_) | Payload::Python { .. } => {}
        }
        spelled
    }
}
