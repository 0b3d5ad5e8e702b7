//! Memory that the parser holds for a hostile text beyond its output: at most 64 KiB, in every payload kind.
//!
//! The allocator of this program counts. While ten megabytes stream in and the events are dropped, blocks of less than
//! 8 KiB are summed up. Every larger block must be a buffer of the output (the text, the open call's raw text, its
//! arguments), with at most twice the necessary capacity. Automata belong to a format, not a text, and are built
//! before.

use callwright_core::format::Format;
use callwright_core::parse::event::Event;
use callwright_core::parse::{Parser, ParserOptions};
use callwright_core::tool::Tools;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const LARGE: usize = 8 << 10;
const MOST: usize = 64 << 10;
const INPUT: usize = 10 << 20;

static COUNTING: AtomicBool = AtomicBool::new(false);
static SMALL: AtomicUsize = AtomicUsize::new(0);
static LARGEST: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

struct Counting;

/// Counts an allocation (`from` 0), a deallocation (`to` 0), or a change of size.
fn count(from: usize, to: usize) {
    if !COUNTING.load(Relaxed) {
        return;
    }
    for (size, comes) in [(from, false), (to, true)] {
        if size < LARGE {
            if comes {
                SMALL.fetch_add(size, Relaxed)
            } else {
                SMALL.fetch_sub(size, Relaxed)
            };
        } else {
            let (place, new) = if comes { (0, size) } else { (size, 0) };
            let found = LARGEST.iter().any(|slot| slot.compare_exchange(place, new, Relaxed, Relaxed).is_ok());
            // Must not unwind from here.
            if !found {
                SMALL.fetch_add(if comes { size } else { 0 }, Relaxed);
            }
        }
    }
}

// SAFETY: everything is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), size);
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An endless text in a format.
struct Case<'a> {
    format: &'a Format,
    tools: Option<Arc<Tools>>,
    before: &'a str,
    filler: &'a str,
    length: usize,
}

/// The maximum held beyond the output.
fn held(case: &Case) -> usize {
    let piece = case.filler.repeat(4096usize.div_ceil(case.filler.len()));
    SMALL.store(1 << 40, Relaxed);
    LARGEST.iter().for_each(|slot| slot.store(0, Relaxed));
    COUNTING.store(true, Relaxed);
    let mut parser = Parser::new(case.format, case.tools.clone(), ParserOptions::default()).unwrap();
    let (mut text, mut arguments, mut fed, mut most) = (0, 0, 0, 0);
    let mut pieces = std::iter::once(case.before).chain(std::iter::repeat(piece.as_str()));
    while let Some(piece) = pieces.next().filter(|_| fed < case.length) {
        parser.push(piece.as_bytes(), &mut |event| match event {
            Event::Text { delta } => text += delta.len(),
            Event::CallArguments { delta, .. } => arguments += delta.len(),
            _ => {}
        });
        fed += piece.len();
        // The open call's raw text is everything that was fed. Arguments before the call's name are sent once it is
        // known; an escape takes six bytes for one.
        // A call without markers is held until it is clear that it is one: its arguments, the text to read again, and what
        // follows.
        let doubtful = case.format.start.is_none() && case.format.section.is_none() && !case.before.is_empty();
        let late = doubtful || case.before.contains("{\"input\": {");
        let arguments = if late { 6 * fed } else { arguments };
        let mut outputs = vec![if case.before.is_empty() { 0 } else { fed }, arguments, text];
        outputs.extend([arguments, fed, fed].into_iter().filter(|_| doubtful));
        let mut blocks = LARGEST.each_ref().map(|slot| slot.load(Relaxed));
        outputs.sort_unstable_by(|a, b| b.cmp(a));
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        let beyond = |(at, &block): (usize, &usize)| match outputs.get(at) {
            Some(&output) if block <= 2 * output + LARGE => 0,
            _ => block,
        };
        let beyond: usize = blocks.iter().enumerate().map(beyond).sum();
        most = most.max(SMALL.load(Relaxed).saturating_sub(1 << 40) + beyond);
    }
    COUNTING.store(false, Relaxed);
    drop(parser);
    most
}

/// For a format of each payload kind, the beginnings of a call: up to where an argument is expected, in a key, in a
/// value.
const FORMATS: [(&str, [&str; 3]); 9] = [
    ("array", ["<calls>[{\"name\": \"f\", \"arguments\": {", "\"k", "\"a\": \""]),
    ("bare", ["{\"name\": \"f\", \"parameters\": {", "\"k", "\"a\": \""]),
    ("ids", ["[CALLS][{\"name\": \"f\", \"arguments\": {", "\"k", "\"a\": \""]),
    ("named", ["[CALL]f[ARGS]{", "\"k", "\"a\": \""]),
    ("dialect", ["<|tool>call:f{", "k", "a:<|'|>"]),
    ("tagged", ["<function=f>\n", "<parameter=k", "<parameter=a>\n"]),
    ("glm", ["<tool_call>f", "<arg_key>k", "<arg_key>a</arg_key><arg_value>"]),
    ("nested", ["~<invoke name=\"f\">", "~<k", "~<a>"]),
    ("python", ["<|call|>[f(", "k", "a=\""]),
];

/// Text to repeat endlessly.
const FILLERS: [&str; 20] = [
    "word ", "k", " ", "\n", "1", "1, ", "[", "{\"k\": ", "~<k>", "\\", "\\u00e9", "'", "é", "}]", "<|", "</too",
    "</para", "\n</arg_", "# ", "\u{0}",
];

#[test]
fn memory_beyond_the_output_is_bounded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse");
    let read = |name: &str| Format::from_file(folder.join(name).join("format.jinja")).unwrap();
    let mut worst = (0, String::new());
    let mut report = Vec::new();
    let mut check = |case: Case, name: &str| {
        // The automata are built on first use.
        let mut parser = Parser::new(case.format, None, ParserOptions::default()).unwrap();
        parser.push(case.before.as_bytes(), &mut |_| ());
        parser.push(case.filler.as_bytes(), &mut |_| ());
        parser.finish(&mut |_| ());
        let most = held(&case);
        let what = format!("{most} bytes: {name}: {:?}, then {:?}", case.before, case.filler);
        if most > MOST {
            report.push(what.clone());
        }
        if most > worst.0 {
            worst = (most, what);
        }
    };
    for (name, [call, key, value]) in FORMATS {
        let format = &read(name);
        let (key, value) = (format!("{call}{key}"), format!("{call}{value}"));
        for before in ["", call, &key, &value] {
            for filler in FILLERS {
                let named =
                    [(value.as_str(), "word "), (key.as_str(), "k"), (call, "\n"), ("", "word "), ("", "</too")];
                let length = if named.contains(&(before, filler)) { INPUT } else { INPUT / 80 };
                check(Case { format, tools: None, before, filler, length }, name);
            }
        }
    }
    let format = &read("array");
    for before in [
        "<calls>[{\"",
        "<calls>[{\"name\": \"",
        "<calls>[{\"id\": \"",
        "<calls>[{\"other\": \"",
        "<calls>[{\"tool\": \"",
        "<calls>[{\"name\": \"f\", \"input\": \"",
        "<calls>[{\"input\": {\"a\": \"",
        "<calls>[",
        "<calls>text",
    ] {
        for filler in FILLERS {
            check(Case { format, tools: None, before, filler, length: INPUT / 80 }, "array");
        }
    }
    // Each of these values is coerced.
    let list = r#"[{"name": "f", "parameters": {"properties": {"a": {"items": {"type": "integer"}}}}}]"#;
    let tools = Some(Arc::new(Tools::from_json(list, "list.json").unwrap()));
    let before = "<calls>[{\"name\": \"f\", \"arguments\": {\"a\": [";
    check(Case { format, tools, before, filler: "\"5\", ", length: INPUT }, "array");
    println!("at most {}", worst.1);
    assert!(report.is_empty(), "more than {MOST} bytes held:\n{}", report.join("\n"));
}
