//! Options that users of llama.cpp type: several letters after one dash, and other names.

use callwright::{Error, ErrorKind};
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind};
use std::ffi::OsString;

/// Options that users of llama.cpp, Ollama and others know under these names.
const SYNONYMS: [(&str, &[&str]); 12] = [
    (
        "max-tokens",
        &["predict", "num-predict", "max-new-tokens", "max-completion-tokens", "max-output-tokens", "max-length"],
    ),
    ("ctx", &["num-ctx", "n-ctx", "context", "context-size", "context-length", "max-model-len"]),
    ("system", &["system-prompt", "sys", "sp", "instructions"]),
    ("repeat-penalty", &["repetition-penalty"]),
    ("threads", &["num-threads", "num-thread", "n-threads"]),
    ("gpu-layers", &["num-gpu", "gpu"]),
    ("lora", &["lora-scaled", "adapter"]),
    ("stop", &["reverse-prompt", "stop-sequence", "stop-sequences"]),
    ("template", &["chat-template", "chat-template-file"]),
    ("grammar", &["grammar-file"]),
    ("json-schema", &["json-schema-file", "schema", "response-format"]),
    ("messages", &["conversation", "history", "body"]),
];

/// The meaning here of llama.cpp's option with several letters after one dash.
#[derive(Clone, Copy)]
enum Short {
    /// The same as this option.
    Is(&'static str),
    /// The same as this option, which is on without a value.
    Switch(&'static str),
    /// It changes only how fast or where something is done: ignored with a note.
    Ignored(Value),
    /// Advice on what to do instead.
    Instead(&'static str),
}

/// Whether an option of llama.cpp has a value.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    None,
    Needed,
}

/// The values of a switch.
const SWITCHES: [&str; 7] = ["on", "off", "auto", "0", "1", "true", "false"];

/// llama.cpp's options with several letters after one dash, which clap would read as several options.
const SHORT: [(&str, Short); 45] = [
    ("-ngl", Short::Is("--gpu-layers")),
    ("-sys", Short::Is("--system")),
    ("-jf", Short::Is("--json-schema")),
    ("-fa", Short::Switch("--flash-attn")),
    ("-fit", Short::Switch("--fit")),
    ("-np", Short::Ignored(Value::Needed)),
    ("-ub", Short::Is("--ubatch-size")),
    ("-tb", Short::Is("--threads-batch")),
    ("-sm", Short::Ignored(Value::Needed)),
    ("-ts", Short::Ignored(Value::Needed)),
    ("-mg", Short::Ignored(Value::Needed)),
    ("-dev", Short::Ignored(Value::Needed)),
    ("-ctk", Short::Is("--cache-type-k")),
    ("-ctv", Short::Is("--cache-type-v")),
    ("-ncmoe", Short::Ignored(Value::Needed)),
    ("-ot", Short::Ignored(Value::Needed)),
    ("-to", Short::Ignored(Value::Needed)),
    ("-lv", Short::Ignored(Value::Needed)),
    ("-cb", Short::Ignored(Value::None)),
    ("-nocb", Short::Ignored(Value::None)),
    ("-kvo", Short::Ignored(Value::None)),
    ("-nkvo", Short::Ignored(Value::None)),
    ("-kvu", Short::Ignored(Value::None)),
    ("-cmoe", Short::Ignored(Value::None)),
    ("-dio", Short::Ignored(Value::None)),
    ("-co", Short::Ignored(Value::None)),
    ("-st", Short::Ignored(Value::None)),
    ("-no-cnv", Short::Ignored(Value::None)),
    ("-cnv", Short::Instead("callwright chat is a conversation at the terminal")),
    ("-mli", Short::Instead("a line of callwright chat that ends with \\ goes on in the next one")),
    ("-sysf", Short::Instead("give the text itself: --system \"$(cat FILE)\"")),
    ("-bf", Short::Instead("give the file on standard input: callwright run < FILE")),
    ("-hff", Short::Instead("name the file in the model: -m hf:ORG/REPO/FILE.gguf")),
    ("-hft", Short::Instead("set the variable HF_TOKEN")),
    ("-mu", Short::Instead("download the file, and give its path to -m")),
    ("-dr", Short::Instead("models are fetched from Hugging Face only: -hf ORG/REPO")),
    ("-md", Short::Instead("there is no draft model; calls are drafted from the conversation")),
    ("-hfd", Short::Instead("there is no draft model; calls are drafted from the conversation")),
    ("-ngld", Short::Ignored(Value::Needed)),
    ("-mm", Short::Instead("only text is read; --images says what becomes of images")),
    ("-mmu", Short::Instead("only text is read; --images says what becomes of images")),
    ("-sp", Short::Instead("special tokens are not shown; --output events shows what was read of an answer")),
    ("-lcs", Short::Instead("there is no lookup cache; calls are drafted from the conversation")),
    ("-lcd", Short::Instead("there is no lookup cache; calls are drafted from the conversation")),
    ("-if", Short::Instead("callwright chat is a conversation at the terminal")),
];

/// A command line that clap can read.
#[derive(Debug, Default)]
pub struct Rewritten {
    pub args: Vec<OsString>,
    /// llama.cpp's options that have no effect here.
    pub ignored: Vec<String>,
}

impl Rewritten {
    /// The note about the options that have no effect here.
    pub fn note(&self) -> Option<String> {
        let (are, they) = if self.ignored.len() == 1 { ("is an option", "it") } else { ("are options", "they") };
        (!self.ignored.is_empty()).then(|| {
            format!("{} {are} of llama.cpp without a counterpart here; {they} would not change the answer, and nothing is done", self.ignored.join(", "))
        })
    }
}

/// Reads llama.cpp's options with several letters after one dash.
///
/// # Errors
/// [`ErrorKind::Config`] for one that has no counterpart and must not be ignored.
pub fn rewrite(args: impl Iterator<Item = OsString>) -> Result<Rewritten, Error> {
    let mut rewritten = Vec::new();
    let mut ignored = Vec::new();
    let (mut literal, mut repo) = (false, false);
    let mut value = Value::None;
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let text = arg.to_str().unwrap_or_default();
        match std::mem::replace(&mut value, Value::None) {
            Value::Needed if text != "--" => continue,
            _ => {}
        }
        let (name, given) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        literal |= text == "--";
        let short = SHORT.iter().find(|(short, _)| *short == name).map(|(_, short)| *short);
        match (name, given) {
            _ if std::mem::take(&mut repo) && !literal => rewritten.push(on_hub(text).into()),
            _ if literal => rewritten.push(arg),
            ("-hf" | "-hfr" | "--hf-repo", None) => {
                repo = true;
                rewritten.push("--model".into());
            }
            ("-hf" | "-hfr" | "--hf-repo", Some(value)) => rewritten.push(format!("--model={}", on_hub(value)).into()),
            _ => match (short, given) {
                (None, _) => rewritten.push(arg),
                (Some(Short::Is(option)), None) => rewritten.push(option.into()),
                (Some(Short::Switch(option)), None) => {
                    let given = args.next_if(|next| next.to_str().is_some_and(|next| SWITCHES.contains(&next)));
                    let given = given.unwrap_or_else(|| "on".into());
                    rewritten.extend([option.into(), given]);
                }
                (Some(Short::Is(option) | Short::Switch(option)), Some(given)) => {
                    rewritten.push(format!("{option}={given}").into());
                }
                (Some(Short::Ignored(has)), given) => {
                    ignored.push(name.to_owned());
                    value = if given.is_some() { Value::None } else { has };
                }
                (Some(Short::Instead(hint)), _) => {
                    let message = format!("{name} is an option of llama.cpp that has no counterpart here");
                    return Err(Error::new(ErrorKind::Config, message).hint(hint));
                }
            },
        }
    }
    Ok(Rewritten { args: rewritten, ignored })
}

/// A repository of the hub in the form of `--model`.
fn on_hub(repo: &str) -> String {
    if repo.starts_with("hf:") { repo.to_owned() } else { format!("hf:{repo}") }
}

/// Suggests an option of `command` for an unknown one: first by meaning, then by spelling.
pub fn suggest(error: &mut clap::Error, command: &clap::Command, args: &[OsString]) {
    let (ClapErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return;
    };
    let known = args.iter().fold(command, |command, arg| command.find_subcommand(arg).unwrap_or(command));
    if let Some(meant) = meant(unknown).filter(|meant| known.get_arguments().any(|arg| arg.get_long() == Some(meant))) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{meant}")));
    }
    // clap suggests passing the option as a value, which is hardly ever meant.
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let useful: Vec<_> = tips.into_iter().filter(|tip| !tip.to_string().contains("as a value, use")).collect();
        if !useful.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(useful));
        }
    }
}

/// Our option for another program's option.
pub fn meant(unknown: &str) -> Option<&'static str> {
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
        let args: Vec<OsString> = rewrite(args.split(' ').map(OsString::from)).unwrap().args;
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
            ("run -sys Brief. -p Hi", "run --system Brief. -p Hi"),
            ("run -np 4 -fa on -cb -p Hi", "run --flash-attn on -p Hi"),
            ("run -fa -p -fa=off", "run --flash-attn on -p --flash-attn=off"),
            ("run -ub=512 -np -- x", "run --ubatch-size=512 -- x"),
            ("run -tb 2 -ctk q8_0 -ctv f16", "run --threads-batch 2 --cache-type-k q8_0 --cache-type-v f16"),
            ("run -- -np -cnv", "run -- -np -cnv"),
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
