//! What users of llama.cpp type: its options with several letters after one dash, and options under other names.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Options that users of llama.cpp, Ollama and others know under these names.
const SYNONYMS: [(&str, &[&str]); 11] = [
    (
        "max-tokens",
        &["predict", "num-predict", "max-new-tokens", "max-completion-tokens", "max-output-tokens", "max-length"],
    ),
    ("ctx", &["num-ctx", "n-ctx", "context", "context-size", "context-length", "max-model-len"]),
    ("system", &["system-prompt", "sys", "sp", "instructions"]),
    ("repeat-penalty", &["repetition-penalty"]),
    ("threads", &["num-threads", "num-thread", "n-threads"]),
    ("gpu-layers", &["num-gpu", "gpu"]),
    ("stop", &["reverse-prompt", "stop-sequence", "stop-sequences"]),
    ("template", &["chat-template", "chat-template-file"]),
    ("grammar", &["grammar-file"]),
    ("json-schema", &["json-schema-file", "schema", "response-format"]),
    ("messages", &["conversation", "history", "body"]),
];

/// Options that llama.cpp has with several letters after one dash, which clap reads as several options.
pub fn rewrite(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut rewritten = Vec::new();
    let (mut literal, mut repo) = (false, false);
    for arg in args {
        let text = arg.to_str().unwrap_or_default();
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        literal |= text == "--";
        match (name, value) {
            _ if std::mem::take(&mut repo) && !literal => rewritten.push(on_hub(text).into()),
            _ if literal => rewritten.push(arg),
            ("-ngl", None) => rewritten.push("--gpu-layers".into()),
            ("-ngl", Some(layers)) => rewritten.push(format!("--gpu-layers={layers}").into()),
            ("-hf" | "-hfr" | "--hf-repo", None) => {
                repo = true;
                rewritten.push("--model".into());
            }
            ("-hf" | "-hfr" | "--hf-repo", Some(value)) => rewritten.push(format!("--model={}", on_hub(value)).into()),
            _ => rewritten.push(arg),
        }
    }
    rewritten
}

/// A repository of the hub as `--model` takes it.
fn on_hub(repo: &str) -> String {
    if repo.starts_with("hf:") { repo.to_owned() } else { format!("hf:{repo}") }
}

/// Suggests the option that an unknown one means, where `command` has it. What it means comes before what it is spelled
/// like.
pub fn suggest(error: &mut clap::Error, command: &clap::Command, args: &[OsString]) {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return;
    };
    let known = args.iter().fold(command, |command, arg| command.find_subcommand(arg).unwrap_or(command));
    if let Some(meant) = meant(unknown).filter(|meant| known.get_arguments().any(|arg| arg.get_long() == Some(meant))) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{meant}")));
        // That the option could be a value, too.
        error.remove(ContextKind::Suggested);
    }
}

/// The option that another program has under this name.
fn meant(unknown: &str) -> Option<&'static str> {
    let name = unknown.split('=').next()?.trim_start_matches('-').replace('_', "-");
    SYNONYMS
        .iter()
        .find(|(option, others)| *option == name || others.contains(&name.as_str()))
        .map(|(option, _)| *option)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(args: &str) -> String {
        let args: Vec<OsString> = rewrite(args.split(' ').map(OsString::from));
        args.join(OsString::from(" ").as_os_str()).into_string().unwrap()
    }

    #[test]
    fn options_of_several_letters_are_what_they_are_in_llama_cpp() {
        for (typed, expected) in [
            ("run -ngl 99 -c 4096", "run --gpu-layers 99 -c 4096"),
            ("run -ngl=0", "run --gpu-layers=0"),
            ("run -hf org/repo:Q8_0 -p Hi", "run --model hf:org/repo:Q8_0 -p Hi"),
            ("run --hf-repo=org/repo", "run --model=hf:org/repo"),
            ("run -hf hf:org/repo", "run --model hf:org/repo"),
            ("run -hf", "run --model"),
            ("run -hf -- x", "run --model -- x"),
            ("run -- -ngl -hf", "run -- -ngl -hf"),
            ("run -m x -n 5", "run -m x -n 5"),
        ] {
            assert_eq!(rewritten(typed), expected, "{typed}");
        }
    }

    #[test]
    fn an_option_of_another_program_is_known_by_what_it_means() {
        for (typed, expected) in [
            ("--num_predict", Some("max-tokens")),
            ("--max_tokens", Some("max-tokens")),
            ("--num_ctx=5", Some("ctx")),
            ("--system-prompt", Some("system")),
            ("--bogus", None),
        ] {
            assert_eq!(meant(typed), expected, "{typed}");
        }
    }
}
