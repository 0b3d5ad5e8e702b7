//! What a run puts after a tool's result, for the model; a result that is shortened keeps it.

/// For a call that was made before.
pub(crate) const REPEATED: &str =
    "[This call was made before and gave the same result. Do not make it again: answer with what is known.]";
/// For a call that had changed something before, and was not executed again.
pub(crate) const ALREADY_DONE: &str =
    "[This was done before, and not again. Do not call it again: do what is left, or say that it is done.]";
/// For a call of a tool that fails however it is called.
pub(crate) const UNAVAILABLE: &str = "[No other call of this tool would do better. Do not call it again: answer with what is known, or say what is missing.]";
/// What is put after a result where it may not be all.
pub(crate) const HELD: &str = "\n[this may not be all: a process that the tool left running holds its output]";
/// What is put after a result that was no UTF-8.
pub(crate) const REPLACED: &str = "\n[some bytes of this were not UTF-8 and were replaced]";
/// The beginning of what is put after a result that was cut.
pub(crate) const CUT: &str = "\n[cut: these are the first ";

/// A result without the remarks that the tool's output got, and the remarks.
pub(crate) fn without_marks(result: &str) -> (&str, &str) {
    let mut end = result.len();
    while let Some(at) = result[..end].rfind('\n')
        && [HELD, REPLACED, CUT].iter().any(|mark| result[at..end].starts_with(mark))
    {
        end = at;
    }
    result.split_at(end)
}

/// A result without the advice after it, and the advice.
pub(crate) fn without_advice(content: &str) -> (&str, &str) {
    let at = [REPEATED, ALREADY_DONE, UNAVAILABLE]
        .iter()
        .find_map(|advice| content.strip_suffix(advice)?.strip_suffix('\n'));
    content.split_at(at.map_or(content.len(), str::len))
}
