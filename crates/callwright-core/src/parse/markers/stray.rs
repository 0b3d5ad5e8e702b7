//! Markup without a call: what is left of calls that were not written out, and ends of turns.
//!
//! Right after a call and at the end of the text it is left out, and reported. Elsewhere it is text, which may be about
//! such markup.

use super::patterns::{escape, literal_start};
use super::{Lookahead, Side, Sign, Signs};
use crate::format::{Declaration, Marker, Payload};

/// Ends of turns, and beginnings of the next one, in the templates of many families.
const TURNS: [&str; 26] = [
    "<|im_end|>",
    "<|im_start|>",
    "<|im_user|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|end_of_role|>",
    "<|endofturn|>",
    "<|endofprompt|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|user|>",
    "<|observation|>",
    "<end_of_turn>",
    "<start_of_turn>",
    "<turn|>",
    "<eos>",
    "</s>",
    "[e~[",
    "<｜end▁of▁sentence｜>",
];

const BLANK: &str = r"[ \t\r\n]*";
/// A tag around calls: `<tool_calls>`, `<｜DSML｜function_calls>`.
const AROUND: &str = r"[^<>\s/]*(?:call|tool|function)[^<>\s/]*>";

/// The patterns that have precedence over the format's own, and those that have not.
pub(super) fn patterns(declaration: &Declaration) -> (Signs, Signs) {
    let text = |marker: &Marker| marker.text().map(str::trim).unwrap_or_default().to_owned();
    let own: Vec<String> = declaration.markers().map(text).collect();
    let mut ends: Vec<String> = declaration.end.iter().map(text).collect();
    if let Payload::Tagged(tagged) = &declaration.payload {
        ends.push(tagged.value_end.trim().to_owned());
    }
    let turns = TURNS.iter().map(|turn| turn.to_string()).filter(|turn| !own.iter().any(|own| own.contains(turn)));
    // Other texts are too common, or have an argument's name in them.
    ends.retain(|end| end.len() > 4 && end.starts_with(['<', '#', '[']) && !end.contains("{key}"));
    let any = |texts: Vec<String>| {
        let escaped: Vec<String> = texts.iter().map(|text| text.bytes().map(escape).collect()).collect();
        escaped.join("|")
    };
    let stray = any(ends.into_iter().chain(turns).collect());
    // These end something, or are always markup, but may be among the others.
    let between = any(own.into_iter().filter(|own| own.starts_with('<')).collect());
    let between = if between.is_empty() { String::new() } else { format!("|{between}") };
    let sign = |side, exact, lookahead| Sign { side, exact, lookahead };
    let at_end = format!(r"(?:{stray})(?:{BLANK}(?:{stray}{between}))*{BLANK}\z");
    let before = vec![(sign(Side::Stray, false, Lookahead::None), at_end)];
    let mut after = vec![
        (sign(Side::Stray, true, Lookahead::None), stray),
        (sign(Side::EmptySection, true, Lookahead::None), format!("<{AROUND}{BLANK}</{AROUND}")),
        (sign(Side::SectionEnd, false, Lookahead::None), format!("</{AROUND}")),
    ];
    let start = literal_start(declaration);
    let first = declaration.start.as_ref().and_then(Marker::text).and_then(|text| text.trim().bytes().next());
    if let (Some(start), Some(first)) = (start, first) {
        let before = u8::from(first == b'<');
        after.push((sign(Side::SectionStart, false, Lookahead::Start(before)), format!("<{AROUND}{BLANK}(?:{start})")));
    }
    (before, after)
}
