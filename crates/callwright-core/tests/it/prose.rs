//! Long texts full of brackets and code: calls in other forms in them are found, and nothing else, for all splits. The
//! case files are too short to test skipping text in blocks.

use crate::parse::{Setup, check_splits, parse};
use callwright_core::format::Format;
use callwright_core::tool::Tools;
use std::path::Path;
use std::sync::Arc;

/// Parts of the texts.
const PARTS: [&str; 36] = [
    "The function (see below) returns `None`, if x < 3 [1], or f(x). ",
    "A sentence without any signs, as most of them are in an answer. ",
    "## A heading\n\n",
    "### Another\n",
    "```python\nfor i in range(10):\n    print(values[i], {\"a\": i})\n```\n",
    "```\n",
    "print(values)\n",
    "    get_weather",
    "get_weather(city=\"Oslo\")",
    "\nget_weather(city=\"Oslo\")\n",
    "[get_weather(city=\"Oslo\"), now()]\n",
    "\n[",
    "\n[now",
    "(",
    "()",
    "{",
    "{}",
    "}",
    "call:now{}",
    " call:now",
    "call:get_weather{city: Oslo}",
    "\nAction: now\nAction Input: {}\n",
    "\nAction: now\n",
    "Action Input:",
    "<b>",
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
    "[TOOL_REQUEST]{\"name\": \"now\", \"arguments\": {}}[END_TOOL_REQUEST]",
    "### TOOL_CALL_START ###\n{\"name\": \"now\", \"arguments\": {}}\n### TOOL_CALL_END ###",
    "\n{\"name\": \"now\", \"arguments\": {}}\n",
    "``",
    "##",
    "\n",
    " ",
    "é 🌦 ",
    "now",
    "<think>",
];

fn setup(folder: &str) -> Setup {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse").join(folder);
    let format = Some(Arc::new(Format::from_file(place.join("format.jinja")).unwrap()));
    let tools = Some(Arc::new(Tools::from_file(place.join("tools.json")).unwrap()));
    Setup { format, tools, repair: true, prompt_tail: "" }
}

#[test]
fn long_texts_parse_the_same_in_any_pieces() {
    let mut random = 17usize;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % limit
    };
    let setups = ["forms", "forms_gemma", "forms_bare", "forms_strict"].map(setup);
    let mut calls = 0;
    for round in 0..200 {
        let setup = &setups[round % setups.len()];
        let mut text = String::new();
        while text.len() < 3000 {
            // Mostly prose, so that calls are far from the start of the scanned text.
            text += if below(3) == 0 { PARTS[below(PARTS.len())] } else { PARTS[below(5)] };
        }
        let whole = check_splits(setup, text.as_bytes());
        calls += whole.1.calls.len();
        for length in [500, 700, 1500] {
            let pieces = text.as_bytes().chunks(length + below(100));
            assert_eq!(parse(setup, pieces), whole, "in pieces of {length}: {text}");
        }
    }
    assert!(calls > 40, "only {calls} calls");
}

#[test]
fn a_call_far_into_a_text_is_read_in_every_form() {
    let setup = setup("forms");
    let prose = PARTS[..5].concat().repeat(20);
    for call in [
        "\nget_weather(city=\"Oslo\")",
        "\n[get_weather(city=\"Oslo\")]",
        " call:get_weather{city: Oslo}",
        "\nAction: get_weather\nAction Input: {\"city\": \"Oslo\"}",
        "[TOOL_REQUEST]{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}[END_TOOL_REQUEST]",
        "\n### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n### TOOL_CALL_END ###",
    ] {
        let (_, parsed) = check_splits(&setup, format!("{prose}{call}\n").as_bytes());
        let valid: Vec<&str> = parsed.calls.iter().filter(|call| call.valid).map(|call| &*call.name).collect();
        assert_eq!(valid, ["get_weather"], "{call}");
    }
}
