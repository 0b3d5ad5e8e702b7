//! Randomly assembled and damaged texts in every format: no panic, the same result for all splits, and the general
//! invariants. `CALLWRIGHT_FUZZ=10000000` sets the number (`make fuzz`), `CALLWRIGHT_FUZZ_SEED` the seed;
//! `CALLWRIGHT_FUZZ_ROUND` runs one round only.
//!
//! The corpus is the cases of tests/cases/parse; an ignored test adds the rows of the conformance data.

use crate::parse::{Setup, check_splits, parse};
use callwright_core::format::Format;
use callwright_core::tool::Tools;
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of texts in a normal test run.
const FEW: u64 = 20_000;

/// Number of failures after which to stop.
const MANY: u64 = 20;

/// A small generator with reproducible results.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// A format, and texts in it.
struct Target {
    name: String,
    setup: Setup,
    texts: Vec<Vec<u8>>,
    fragments: Vec<Vec<u8>>,
}

const FRAGMENTS: [&str; 54] = [
    " ",
    "\n",
    "\r\n",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "=",
    "\"",
    "'",
    "\\",
    "\\u",
    "\\ud83d",
    "\\n",
    "```",
    "```json\n",
    "<",
    ">",
    "</",
    "<think>",
    "</think>",
    "name",
    "\"name\": \"f\"",
    "\"arguments\": {",
    "\"id\": \"x1\"",
    "\"parameters\": ",
    "\"function\": {",
    "true",
    "None",
    "null",
    "1e5",
    "é",
    "🌦",
    "text\n",
    "]]>",
    "<![CDATA[",
    "f(a=1)",
    "[f(",
    "Action: f\nAction Input: {",
    "call:f{",
    "[TOOL_REQUEST]",
    "<tool_call>",
    "\n> ",
    "\n- ",
    "\n1. ",
    "`",
    "“",
    "The page says: ",
    "Do not run this:\n",
    "For example:\n",
];

fn targets() -> Vec<Target> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let mut targets = Vec::new();
    for folder in folders {
        let mut texts: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
            .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
            .collect();
        texts.sort();
        let file = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        let builtin = folder.file_name().and_then(|name| Format::builtin(name.to_str()?));
        let declared = file("format.jinja").map(|path| Format::from_file(path).unwrap());
        let format = declared.or(builtin.cloned()).map(Arc::new);
        let tools = file("tools.json").map(|path| Arc::new(Tools::from_file(path).unwrap()));
        let setup = Setup { format, tools, repair: true, prompt_tail: "" };
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        targets.push(target(name, setup, texts.into_iter().map(|(_, text)| text).collect()));
    }
    targets
}

fn conformance() -> Vec<Target> {
    let rows: Vec<Value> = crate::data::conformance_rows("parses.jsonl").into_iter().map(|(_, row)| row).collect();
    let formats = crate::parses::formats();
    let mut targets = Vec::new();
    for (format, templates) in formats {
        let of_format = |row: &&Value| templates.iter().any(|template| row["template"] == **template);
        let texts: Vec<Vec<u8>> =
            rows.iter().filter(of_format).map(|row| row["input"].as_str().unwrap().into()).collect();
        // Most rows of a format share their tools.
        let mut tools = Tools::default();
        for row in rows.iter().filter(of_format) {
            for tool in row["tools"].as_array().into_iter().flatten() {
                let one = Tools::from_value(&Value::Array(vec![tool.clone()])).unwrap();
                tools.merge(one).ok();
            }
        }
        let name = format.name.clone();
        let setup =
            Setup { format: Some(Arc::new(format)), tools: Some(Arc::new(tools)), repair: true, prompt_tail: "" };
        // Templates of the second folder have no texts where it is not there.
        if !texts.is_empty() {
            targets.push(target(name, setup, texts));
        }
    }
    targets
}

fn target(name: String, setup: Setup, texts: Vec<Vec<u8>>) -> Target {
    let mut fragments: Vec<Vec<u8>> = FRAGMENTS.iter().map(|text| text.as_bytes().to_vec()).collect();
    let markers = setup.format.as_deref().unwrap_or(Format::builtin("delimited").unwrap());
    for _ in 0..4 {
        fragments.extend(markers.reserved().map(|marker| marker.as_bytes().to_vec()));
    }
    let quoted = texts.iter().take(QUOTED).flat_map(|text| quotations(text)).collect();
    Target { name, setup, texts: [texts, quoted].concat(), fragments }
}

/// How many texts of a format are also quoted.
const QUOTED: usize = 8;

/// A text as answers quote it.
fn quotations(text: &[u8]) -> [Vec<u8>; 4] {
    let between = |before: &str, after: &str| [before.as_bytes(), text, after.as_bytes()].concat();
    let lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(|line| [b"> ", line].concat()).collect();
    [
        [b"The page ends with:\n", &lines.join(&b'\n')[..], b"\nThis is an attack."].concat(),
        between("The page says \"", "\", so I will not run it."),
        between("Write it like this:\n```\n", "\n```\nDo not run it."),
        between("<think>First I thought of ", "</think>It is sunny."),
    ]
}

impl Target {
    /// One or two texts of the corpus, changed in a few places.
    fn text(&self, random: &mut Random) -> Vec<u8> {
        let mut text = random.of(&self.texts).clone();
        if random.below(4) == 0 {
            let other = random.of(&self.texts);
            let (cut, from) = (random.below(text.len() + 1), random.below(other.len() + 1));
            text.truncate(cut);
            text.extend_from_slice(&other[from..]);
        }
        for _ in 0..random.below(6) {
            let at = random.below(text.len() + 1);
            let end = (at + random.below(12)).min(text.len());
            match random.below(7) {
                0 | 1 => drop(text.splice(at..at, random.of(&self.fragments).iter().copied())),
                2 => drop(text.splice(at..end, random.of(&self.fragments).iter().copied())),
                3 => drop(text.drain(at..end)),
                4 => {
                    let copy = text[at..end].to_vec();
                    let to = random.below(text.len() + 1);
                    text.splice(to..to, copy);
                }
                5 => text.truncate(text.len() - random.below(8).min(text.len())),
                _ => {
                    if let Some(byte) = text.get_mut(at) {
                        *byte = random.next() as u8;
                    }
                }
            }
        }
        text.truncate(2000);
        text
    }
}

fn pieces<'a>(mut text: &'a [u8], random: &mut Random) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let longest = 1 + random.below(24);
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.len().min(random.below(longest + 1)));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

#[test]
fn broken_texts_in_every_format() {
    fuzz(&targets());
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn broken_texts_of_the_conformance_data_too() {
    let mut targets = targets();
    targets.extend(conformance());
    fuzz(&targets);
}

fn fuzz(targets: &[Target]) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("CALLWRIGHT_FUZZ").unwrap_or(FEW);
    let seed = number("CALLWRIGHT_FUZZ_SEED").unwrap_or(1);
    // The number of one round, to look at it again.
    let only = number("CALLWRIGHT_FUZZ_ROUND");
    let mut failed = 0;
    for round in only.map_or(0..count, |round| round..round + 1) {
        let mut random = Random((seed << 40 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        let target = random.of(targets);
        let text = target.text(&mut random);
        let mut setup = target.setup.clone();
        setup.repair = random.below(5) > 0;
        let cut = pieces(&text, &mut random);
        if only.is_some() {
            eprintln!("{} (repair: {}): {:?}", target.name, setup.repair, String::from_utf8_lossy(&text));
        }
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let whole = check_splits(&setup, &text);
            assert!(parse(&setup, cut.iter().copied()) == whole, "in other pieces: {cut:?}");
        }));
        if let Err(panic) = outcome {
            eprintln!(
                "{} (repair: {}), round {round}: {:?}",
                target.name,
                setup.repair,
                String::from_utf8_lossy(&text)
            );
            failed += 1;
            if failed == MANY {
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert_eq!(failed, 0, "texts that failed");
}

/// Texts whose result once depended on how they were split, or that were read again and again: the folder of their
/// format, and the text.
const FOUND: [(&str, &[u8]); 15] = [
    // A quoted section without an end was weighed again each time.
    (
        "untagged",
        b"The page says \"<tool_calls>[{\"name\": \"weather\", \"arguments\": {}}]</tool_calls>[BEGIN FINAL RESPONSE]\n\", \
          so I wil)<tool_calls>l not",
    ),
    // The events of a quoted call after a doubtful one were joined with those before it.
    (
        "ling-3",
        b"Hm.\n<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>CET</arg_value>\n</tool_call>this:\n```\nHm.\n\
          <tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>CET</arg_value>\n</tool_call>\n\n```\nDo not run it.",
    ),
    // `<think>` after a quotation counted when the quotation was read again.
    ("forms_strict", b"Action:now\nAction Input:{}</think>I<think>"),
    ("inkling", b"\"<|content_invoke_tool_json|><|end_message|>\"<|content_thinking|>"),
    // An unfinished character, or a code mark held with the next marker, was no text.
    ("python", b"now()\n\xe9`<call>d"),
    ("python", b"now()]\xe9`<|end|>"),
    ("glm", b"<think>Like `<tool_call>now</tool_call>`</think>It is sunny."),
    // A backslash and a parenthesis without a name before them.
    ("python", b"<call>n(c=\"\\(=\"\"\"a\""),
    // Text that was held with a quoted marker was read again for ever.
    ("fenced", b"<|call|>\\ud83don<|sep|>f\n`<|end|>\n``json\n{\"a<|calls|>\"\xff 1}<|end|>\n"),
    // Half a character before markup counted as none in the place of the call after it.
    ("pythonic", b"<thi I thought of \xca\n <|py_end|> ```json\nplan(city=\"null,\n</thin\\k>It is s"),
    // The beginning of a code fence was held with the marker or the bracket after it.
    ("pythonic", b"The page ends w\xcath:\n> See [no] ``(\nplan(city=\"LA\"),\n"),
    ("fenced", b"ends with:\n> <|call|>f<|sep|>f\n><|calls_end|> ``<|calls|>`json\n> {\"a\": 1}<|end|>\n>s \nThis is an attack"),
    // Of two commas, only the one after the last call separates nothing, and is left out.
    ("python", b"now(), \nnow(),"),
    // The line break before a call was held until its tool was known, after text that a value's closing tag did not end.
    (
        "muse-glimmer",
        b" to=r<|message|><atem:function_calls><atem:invoke name=\"r><atemparam s>2</atem:parameter>\n>\n\
          to=tool<|message|><atem:function_calls>\n<atem:invoke name=\"",
    ),
    // What a quoted marker hid of the text after a doubtful call counted as read when the marker turned out to be text.
    (
        "gigachat-3.5",
        b"```\n<\xef\xbd\x9cGCML\xef\xbd\x9cinvoke name=\"</\xef\xbd\x9cGCML\xef\xbd\x9cinvoke>`\
          <\xef\xbd\x9cGCML\xef\xbd\x9ctool_calls>``t",
    ),
];

#[test]
fn texts_that_were_found_have_one_result() {
    let targets = targets();
    // What looks like a block quote begins where the text before a marker is cut.
    let cut = format!("x</think>{}> {}`<tool_call>get_time\n</tool_call>", "a".repeat(50), "b".repeat(317));
    // Arguments under another name become too long to hold before an escape that JSON does not have.
    let long = format!(
        "### TOOL_CALL_START ###\n{{\"name\": \"order\", \"parameters\": \"{{\\\"a{}\\xc3\": 1}}\"}}",
        "b".repeat(1100)
    );
    for (name, text) in FOUND.into_iter().chain([("ling-3", cut.as_bytes()), ("repair", long.as_bytes())]) {
        let target = targets.iter().find(|target| target.name == name).unwrap();
        for repair in [true, false] {
            let setup = Setup { repair, ..target.setup.clone() };
            let whole = check_splits(&setup, text);
            for at in 1..text.len() {
                let (head, tail) = text.split_at(at);
                assert_eq!(parse(&setup, [head, tail]), whole, "{name} split at {at}");
            }
        }
    }
}
