//! GBNF: what its grammars accept, here and in llama.cpp, and what is said of one that is broken.

use callwright::constraint::Compiler;
use callwright::engine::vocabulary::Vocabulary;
use callwright::format::Format;
use callwright::grammar::Grammar;

const JSON: &str = include_str!("../../cases/grammar/json.gbnf");
const LIST: &str = include_str!("../../cases/grammar/list.gbnf");

/// Grammars, texts that they accept, and texts that they do not.
const CASES: &[(&str, &[&str], &[&str])] = &[
    (
        JSON,
        &["{}", r#"{"a": [1, -2.5e+3, "x\n\u00e9\"", {"b": null}], "b": {"c": true}}"#, "{\n  \"a\":\n \"ü€\"}\n"],
        &["", "[]", "{\"a\": 1", "{\"a\": 01}", "{\"a\"  : 1}", "{\"a\": \"\t\"}", "{\"a\": tru}", "{}x"],
    ),
    (
        LIST,
        &["# Title\n", "- one\n", "- one two\n1. drei vier!\n12. ß\n", "- a b c d\n.\n"],
        &["# \n", "Title", "- one", "- a b c d e\n", "0. a\n", "- x!!!\n", "- a\n..\n", "- a\n.\n.\n"],
    ),
    // What a lexer that takes the longest match would get wrong.
    ("root ::= [a-z]* \"a\"", &["a", "ba", "aaa"], &["", "b", "ab"]),
    ("root ::= \"a\" x | [a-z] y\nx ::= \"b\" x?\ny ::= \"c\"", &["ab", "abb", "ac", "zc"], &["zb", "abc", "a"]),
    (
        "root ::= \"(\" root \")\" | word\nword ::= \"if\" | [a-z]+ \"f\"",
        &["if", "((if))", "(xif)"],
        &["(if", "if)", "i"],
    ),
    (
        "root ::= (\"ab\"{2} [xyz]{1,}){0,2}? \".\"",
        &[".", "ababx.", "ababxyzababz."],
        &["abx.", "abab.", "ababxababxababx."],
    ),
    (
        "root ::= \"[\" item (\",\" item)* \"]\" | \"<\" root\nitem ::= [a-z]+ | \"a1\"",
        &["[a]", "<[ab,a1]"],
        &["[a1b]", "[,]"],
    ),
    ("root ::= [a-z]+ \"a\" root | \".\"", &["ba.", "aababaa.", "."], &["a.", "bab."]),
    (
        "root ::= s root? e\ns ::= \"\\\"\" [^\"]* \"\\\"\" w\nw ::= \" \"*\ne ::= [;,]",
        &["\"a\";", "\"\"  \"b;\" ;,"],
        &["\"a", "\"a\";,"],
    ),
    // Left recursion, a name that is used before it is there, an empty rule, and nothing at all.
    ("root ::= root \"+\" n | n\nn ::= [0-9] e\ne ::=", &["1", "1+2+3"], &["", "1+", "+1"]),
    ("root ::= \"\" | . .", &["", "ab", "\n€"], &["a", "abc"]),
    ("root ::= \"\\x41\\u00e9\\U0001F600\\t\\\\\\\"\\[\\]\"", &["Aé😀\t\\\"[]"], &["A"]),
    ("root ::= [\\]\\-a^] [^a-] [a-]", &["]b-", "-ca", "^]-"], &["bb-", "]a-", "a--"]),
];

fn accepts(compiler: &mut Compiler, grammar: &str, text: &str) -> bool {
    compiler.check(&Grammar::from_text(grammar).unwrap().lark, text).unwrap().is_none()
}

#[test]
fn grammars_accept_and_reject_what_they_should() {
    let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), Format::delimited()).unwrap();
    let mut wrong = Vec::new();
    for (grammar, good, bad) in CASES {
        let name = grammar.lines().next().unwrap_or_default();
        let odd = |texts: &[&str], accept: bool, compiler: &mut Compiler| -> Vec<String> {
            let odd = texts.iter().filter(|text| accepts(compiler, grammar, text) != accept);
            odd.map(|text| format!("{name}: {text:?} accepted: {}", !accept)).collect()
        };
        wrong.extend(odd(good, true, &mut compiler));
        wrong.extend(odd(bad, false, &mut compiler));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_can_be_read_in_one_piece_is() {
    let lark = Grammar::from_text(JSON).unwrap().lark;
    insta::assert_snapshot!(lark);
    // Each character by itself, where a piece could take too much.
    for grammar in ["root ::= [a-z]+ \"a\" root | \".\"", "root ::= \"in\" root | \"int\" root | \".\""] {
        let lark = Grammar::from_text(grammar).unwrap().lark;
        assert!(!lark.contains("U0"), "{lark}");
    }
}

#[test]
fn an_error_in_a_grammar_names_its_place() {
    let broken = [
        "root ::= item\nitems ::= \"a\"",
        "item ::= \"a\"",
        "root ::= \"a\n\"",
        "root ::= [a-z",
        "root ::= [z-a]",
        "root ::= []",
        "root ::= \"a\\q\"",
        "root ::= \"\\uD800\"",
        "root ::= (\"a\" | \"b\"",
        "root ::= * \"a\"",
        "root ::= \"a\"{2,1}",
        "root ::= \"a\"{x}",
        "root ::= \"a\"{99999}",
        "root ::= \"a\" ) \"b\"",
        "root ::= \"a\"\nroot ::= \"b\"",
        "root ::= \"a\"\n  next = \"b\"",
        "root ::= <think> .*",
        "root ::= \"a\" root",
        "root ::= \"a\" \"é\" ; \"b\"",
        "\nroot",
    ];
    let mut said = Vec::new();
    for grammar in broken {
        let error = match Grammar::from_text(grammar) {
            Err(error) => error.to_string(),
            // Without `::=` at its beginning it would be Lark: a file's name says that it is not.
            Ok(_) => {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("broken.gbnf");
                std::fs::write(&path, grammar).unwrap();
                let error = Grammar::from_file(&path).unwrap_err().to_string();
                error.replace(&format!("{}/", folder.path().display()), "")
            }
        };
        said.push(format!("{grammar:?}\n{error}\n"));
    }
    insta::assert_snapshot!(said.join("\n"));
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(10_000), ")".repeat(10_000));
    let error = Grammar::from_text(&deep).unwrap_err().to_string();
    assert!(error.contains("nested more than"), "{error}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn the_program_takes_gbnf_and_lark() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        name.to_owned()
    };
    let strings = write("strings", "\"yes\"\n\"yea\"\n");
    for (name, grammar) in [
        ("a.gbnf", "root ::= \"yes\" | \"no\""),
        ("b.lark", "start: \"yes\" | \"no\""),
        ("c.txt", "# a comment\nroot ::= \"yes\" | \"no\""),
        ("d.txt", "// a comment\nstart: \"yes\" | \"no\""),
    ] {
        let grammar = write(name, grammar);
        let mut program = crate::program::callwright(folder.path());
        let program = program.current_dir(folder.path());
        let output = program.args(["grammar", "--grammar", &grammar, "--check", &strings]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, "accepted\nbyte 2: \"a\" does not fit\n", "{name}");
        assert_eq!(output.status.code(), Some(3));
    }
    let mut program = crate::program::callwright(folder.path());
    let program = program.current_dir(folder.path());
    let output = program.args(["run", "Well?", "--grammar", "a.gbnf", "--max-tokens", "8"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(["yes", "no"].contains(&text.trim()), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

/// llama.cpp's own reading of the grammars.
#[cfg(feature = "llama")]
mod llama {
    use super::*;
    use callwright::Model;
    use callwright::engine::Token;
    use llama_cpp_2::llama_backend::LlamaBackend;
    use llama_cpp_2::model::LlamaModel;
    use llama_cpp_2::model::params::LlamaModelParams;
    use llama_cpp_2::sampling::LlamaSampler;
    use llama_cpp_2::token::LlamaToken;
    use llama_cpp_2::token::data::LlamaTokenData;
    use llama_cpp_2::token::data_array::LlamaTokenDataArray;
    use std::mem::ManuallyDrop;

    /// Whether llama.cpp's own sampler lets a text through, token by token, and then its end.
    fn llama_accepts(model: &LlamaModel, vocabulary: &Vocabulary, grammar: &str, text: &str) -> Option<bool> {
        let mut sampler = LlamaSampler::grammar(model, grammar, "root").ok()?;
        let count = i32::try_from(vocabulary.words.len()).unwrap();
        let allowed = |sampler: &mut LlamaSampler, wanted: &dyn Fn(usize) -> bool| {
            let all = (0..count).map(|id| LlamaTokenData::new(LlamaToken(id), 0.0, 0.0));
            let mut array = LlamaTokenDataArray::new(all.collect(), false);
            sampler.apply(&mut array);
            let index = |data: &LlamaTokenData| usize::try_from(data.id().0).unwrap();
            array.data.iter().any(|data| data.logit() > f32::NEG_INFINITY && wanted(index(data)))
        };
        for token in vocabulary.tokenize(text.as_bytes()) {
            if !allowed(&mut sampler, &|index| Token(i32::try_from(index).unwrap()) == token) {
                return Some(false);
            }
            // What it has not allowed it must not be given: it would end the process.
            sampler.accept(LlamaToken(token.0));
        }
        Some(allowed(&mut sampler, &|index| vocabulary.words[index].end))
    }

    #[test]
    fn llama_cpp_says_the_same() {
        let model = Model::open("bundled").unwrap();
        let engine = model.engine();
        let vocabulary = engine.vocabulary().unwrap()();
        // The engine has started llama.cpp; this only says so, and must not stop it.
        let backend = ManuallyDrop::new(LlamaBackend {});
        let params = LlamaModelParams::default().with_vocab_only(true);
        let model = LlamaModel::load_from_file(&backend, model.path(), &params).unwrap();
        let mut compared = 0;
        for (grammar, good, bad) in CASES {
            for text in good.iter().chain(*bad) {
                // It refuses left recursion, and the escape of a hyphen in some versions.
                let Some(theirs) = llama_accepts(&model, &vocabulary, grammar, text) else { continue };
                compared += 1;
                assert_eq!(theirs, good.contains(text), "{grammar}: {text:?}");
            }
        }
        assert!(compared > 40, "{compared}");
    }
}
