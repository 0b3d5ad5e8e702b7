//! What messages advise, by the names that it has where they are read.
//!
//! The library's messages name its own fields and methods. A person at a terminal needs the option of the command line, and a
//! client of the server the field of a request.

use std::borrow::Cow;
use std::fmt;

/// Where a message is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// On the command line.
    Program,
    /// By a client of the server.
    Server,
}

/// Declares the settings, each with its name in Rust, on the command line and in a request to the server. Without a name in a
/// request, it has that of the command line there.
macro_rules! settings {
    ($($(#[$doc:meta])* $setting:ident: $rust:literal, $program:literal $(, $server:literal)?;)*) => {
        /// What a message advises: a setting, or a value of one. It is displayed by its name in Rust.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Setting { $($(#[$doc])* $setting),* }

        impl Setting {
            /// All of them. A name that is within another one comes after it.
            pub const ALL: &[Setting] = &[$(Setting::$setting),*];

            /// Returns the name in Rust.
            pub const fn name(self) -> &'static str {
                match self { $(Setting::$setting => $rust),* }
            }

            /// Returns the name in another place.
            pub const fn name_in(self, front: Front) -> &'static str {
                match (self, front) {
                    $((Setting::$setting, Front::Program) => $program,)*
                    $($((Setting::$setting, Front::Server) => $server,)?)*
                    #[allow(unreachable_patterns)]
                    (_, Front::Server) => self.name_in(Front::Program),
                }
            }
        }
    };
}

settings! {
    ConstrainOff: "set `Options::constrain` to off", "use --constrain off", "set callwright.constrain to \"off\"";
    Constrain: "`Options::constrain`", "--constrain", "callwright.constrain";
    MaxTokens: "`Options::max_tokens`", "--max-tokens", "max_tokens";
    MaxThinking: "`Options::max_thinking`", "--max-thinking", "callwright.max_thinking";
    MaxCalls: "`Options::max_calls`", "--max-calls", "callwright.max_calls";
    SelectTools: "`Options::select_tools`", "--select-tools", "callwright.select_tools";
    Explain: "`Options::explain`", "--explain", "callwright.explain";
    CallThreshold: "`Options::call_threshold`", "--call-threshold", "callwright.call_threshold";
    NoCallBelow: "`Options::no_call_below`", "--no-call-below", "callwright.no_call_below";
    Logprobs: "`Options::logprobs`", "logprobs", "logprobs";
    LogitBias: "`Options::logit_bias`", "logit_bias", "logit_bias";
    Grammar: "`Options::grammar`", "--grammar";
    LoopGuardOff: "`Options::loop_guard` off", "--no-loop-guard", "callwright.loop_guard false";
    Required: "`ToolChoice::Required`", "--tool-choice required", "tool_choice \"required\"";
    RepeatPenalty: "`Sampling::repeat_penalty`", "--repeat-penalty", "repeat_penalty";
    Temperature: "`Sampling::temperature`", "--temp", "temperature";
    MaxTurns: "`Limits::max_turns`", "--max-turns";
    Context: "`LoadOptions::context`", "--ctx", "--ctx";
    GpuLayers: "`LoadOptions::gpu_layers`", "--gpu-layers", "--gpu-layers";
    AnotherFormat: "`ModelBuilder::format` gives another", "--format NAME|FILE gives another", "callwright.format gives another";
    Format: "`ModelBuilder::format`", "--format", "callwright.format";
    Template: "`ModelBuilder::template`", "--template NAME|FILE", "--template";
    Offline: "`Hub::offline`", "--offline", "--offline";
    SomeTools: "`Session::set_tools` gives some", "give some with --tools FILE", "give some in tools";
    Record: "`Session::record`", "--record FILE";
    Question: "pass the question in addition to the conversation", "pass the question in addition to the conversation", "add the question to it";
    GrammarSyntax: "a grammar is written in llguidance's Lark, or in GBNF",
        "it has to be llguidance's Lark, or GBNF; `callwright grammar --grammar FILE --check FILE` tries one";
    Repeat: "`Plan::repeat`", "--repeat";
    Resume: "it can be resumed; another directory starts a new run",
        "--resume goes on with it, --out DIR starts one elsewhere";
    NewDirectory: "a run needs a new directory, or one that a run began in",
        "--out names a new directory, or one that a run began in";
    SameCommand: "a run is resumed by the command that began it", "--resume needs the command that began the run";
    Elsewhere: "start a run in another directory", "start a run elsewhere with --out DIR";
    RunDirectory: "a run's directory has the file run.json", "a run's directory is what `callwright bench --out DIR` wrote";
    SameCases: "only runs of the same suite with the same cases", "only runs of the same suite with the same --limit";
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Setting> for String {
    fn from(setting: Setting) -> String {
        setting.name().to_owned()
    }
}

impl Front {
    /// Returns a message of the library with the names that its settings have here.
    pub fn message(self, text: &str) -> Cow<'_, str> {
        Setting::ALL.iter().fold(Cow::Borrowed(text), |text, setting| match text.contains(setting.name()) {
            true => Cow::Owned(text.replace(setting.name(), setting.name_in(self))),
            false => text,
        })
    }
}
