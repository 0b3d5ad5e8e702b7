//! Names that a model can write in every format.
//!
//! In formats with unquoted names, a name ends at a space, and a slash or a bracket looks like markup. Such a tool is
//! offered to the model under an alias, and parsed calls have the tool's own name again.

/// Maximum length of a name that a model writes.
const LONGEST: usize = 64;

/// The model's name for the tool; `None` if it is the tool's own. Dots are kept, because every format can write them.
pub(super) fn for_model(name: &str, is_taken: impl Fn(&str) -> bool) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.chars().all(plain) && name.chars().count() <= LONGEST {
        return None;
    }
    let mapped: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let mapped = mapped.trim_matches('_');
    free(if mapped.is_empty() { "tool" } else { mapped }, is_taken)
}

/// A similar name that is short enough and not taken.
pub(super) fn free(name: &str, is_taken: impl Fn(&str) -> bool) -> Option<String> {
    let first = shortened(name, LONGEST);
    if !is_taken(&first) {
        return Some(first);
    }
    (2_usize..).map(|number| format!("{}_{number}", shortened(name, LONGEST - 8))).find(|name| !is_taken(name))
}

/// The beginning and the end of a long name: the distinguishing part may be in either.
fn shortened(name: &str, room: usize) -> String {
    let count = name.chars().count();
    if count <= room {
        return name.to_owned();
    }
    let (head, tail) = (room / 2, room - room / 2 - 1);
    let start: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(count - tail).collect();
    format!("{start}_{end}")
}
