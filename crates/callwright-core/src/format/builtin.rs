//! The built-in formats: files under `templates/`, each read on first use.

use super::{Format, Marker, Payload, declaration};
use crate::message::{Arguments, ToolCall};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// A built-in format.
#[non_exhaustive]
pub struct Builtin {
    /// Its name for `--format`.
    pub name: &'static str,
    /// Which models write it.
    pub models: &'static str,
    file: &'static str,
    /// The words of the file that differ in this format, and its own: some formats differ in nothing else.
    words: &'static [(&'static str, &'static str)],
    read: OnceLock<Format>,
}

impl Builtin {
    const fn new(
        name: &'static str,
        models: &'static str,
        file: &'static str,
        words: &'static [(&'static str, &'static str)],
    ) -> Builtin {
        Builtin { name, models, file, words, read: OnceLock::new() }
    }

    /// The format, read on first use; its automata are built with its first parser.
    pub fn format(&self) -> &Format {
        let read = || {
            let source = self.words.iter().fold(self.file.to_owned(), |file, (word, own)| file.replace(word, own));
            let declaration = declaration::read(&source).ok().flatten()?;
            Some(Format { declaration, source, headers: std::sync::Arc::default(), machinery: OnceLock::new() })
        };
        self.read.get_or_init(|| read().expect("a test reads the declarations of all that is built in"))
    }

    /// The format in a list of formats, with a call in it.
    pub fn to_json(&self) -> Value {
        let format = self.format();
        let text = |marker: &Option<Marker>| marker.as_ref().and_then(Marker::text).map(str::to_owned);
        json!({
            "name": self.name,
            "payload": format.payload.kind(),
            "start": text(&format.start),
            "end": text(&format.end),
            "models": self.models,
            "sample": format.sample(),
        })
    }
}

impl Payload {
    /// The kind of payload, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Payload::Json(json) if json.array => "json, list",
            Payload::Json(_) => "json",
            Payload::Named(_) => "named",
            Payload::Tagged(_) => "tagged",
            Payload::Python { list: true, .. } => "python, list",
            Payload::Python { list: false, .. } => "python",
        }
    }
}

impl Format {
    /// A call in the format.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn sample(&self) -> String {
        let arguments = Map::from_iter([("city".to_owned(), json!("Oslo")), ("days".to_owned(), json!(2))]);
        let (id, name) = (Some("call00001".to_owned()), "get_weather".to_owned());
        self.write_calls(&[ToolCall { id, name, arguments: Arguments::Object(arguments) }])
    }
}

macro_rules! builtin {
    ($name:literal, $models:literal) => {
        builtin!($name, $models, $name, [])
    };
    // The format of another file, with other words.
    ($name:literal, $models:literal, $file:literal, [$($words:expr),*]) => {
        Builtin::new(
            $name,
            $models,
            include_str!(concat!("../../templates/", $file, ".jinja")),
            &[(concat!("\"", $file, "\""), concat!("\"", $name, "\"")), $($words),*],
        )
    };
}

/// The first is the default.
pub(crate) static BUILTIN: [Builtin; 56] = [
    builtin!("delimited", "any model; the bundled one"),
    builtin!("hermes", "Hermes 2 to 4, Qwen 2.5 and 3, QwQ, Granite 4, MiMo, EXAONE 4, SmolLM3, Ling, Falcon-H1"),
    builtin!("qwen3-coder", "Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5"),
    builtin!("seed-oss", "Seed-OSS"),
    builtin!("minicpm-5", "MiniCPM5"),
    builtin!("llama3", "Llama 3.1, 3.2 and 3.3"),
    builtin!("llama4", "Llama 4"),
    builtin!("mistral", "Mistral Small 3.2, Ministral 3, Magistral, Devstral"),
    builtin!("mistral-old", "Mistral 7B v0.3, Nemo, Mistral Small 2409 to 3.1"),
    builtin!("deepseek-v3.1", "DeepSeek V3.1"),
    builtin!("deepseek-r1", "DeepSeek R1 and V3, and the models distilled from R1"),
    builtin!("deepseek-v3.2", "DeepSeek V3.2", "deepseek-v4", [("tool_calls", "function_calls")]),
    builtin!("deepseek-v4", "DeepSeek V4"),
    builtin!("deepseek-v4.1", "DeepSeek V4.1", "deepseek-v4", [("｜DSML｜", "｜DSML｜ "), ("tool_calls", "calls")]),
    builtin!("kimi-k2", "Kimi K2"),
    builtin!("kimi-k3", "Kimi K3"),
    builtin!("glm-4", "GLM 4.5 to 4.7"),
    builtin!("glm-5", "GLM 5"),
    builtin!(
        "ling-3",
        "Ling 3.0",
        "glm-4",
        [
            ("payload = \"tagged\"\n", "payload = \"tagged\"\nmarkup  = [\"<|role_end|>\"]\n"),
            ("\nend     = \"", "\nend     = \"\\n"),
            ("value_end   = \"</arg_value>\\n\"", "value_end   = \"</arg_value>\""),
            ("</arg_value>\n<arg_key>", "</arg_value><arg_key>"),
            ("[reasoning]\n", "# Prompts of these models open it.\n[reasoning]\nopen  = true\n")
        ]
    ),
    builtin!("glm-4-0414", "GLM 4 (9B chat and 0414)"),
    builtin!("minimax-m1", "MiniMax M1"),
    builtin!("minimax-m2", "MiniMax M2 and M2.1"),
    builtin!("minimax-m3", "MiniMax M3"),
    builtin!("step-3", "Step-3"),
    builtin!("k2-horizon", "K2 Horizon"),
    builtin!("plamo-3", "PLaMo 3"),
    builtin!("inkling", "Inkling"),
    builtin!("muse-glimmer", "Muse Glimmer"),
    builtin!("longcat", "LongCat Flash and LongCat 2"),
    builtin!("hunyuan-3", "Hy3, Hy4"),
    builtin!("jamba", "Jamba, Apriel, Hunyuan (A13B)"),
    builtin!("nemotron-v2", "Nemotron Nano v2"),
    builtin!("solar-open", "Solar Open"),
    builtin!("solar-open-2", "Solar Open 2"),
    builtin!("ernie-4.5", "ERNIE 4.5"),
    builtin!("command-r", "Command R, Command R+"),
    builtin!("command-r7b", "Command R7B, Command A (Cohere2)"),
    builtin!("apertus", "Apertus"),
    builtin!("olmo-3", "Olmo 3"),
    builtin!("internlm2", "InternLM2, InternLM 2.5 and 3"),
    builtin!("gigachat-3.1", "GigaChat 3.1"),
    builtin!(
        "gigachat-3.5",
        "GigaChat 3.5",
        "deepseek-v4",
        [
            ("DSML", "GCML"),
            (
                "<tool_result>{content}</tool_result>",
                "<function_response name=\\\"{name}\\\">{content}</function_response>"
            )
        ]
    ),
    builtin!("granite", "Granite 3"),
    builtin!("granite-20b", "Granite 20B for function calling"),
    builtin!("hyperclovax", "HyperCLOVA X SEED"),
    builtin!("lfm2", "LFM2 and LFM2.5"),
    builtin!("minicpm-4", "MiniCPM3, MiniCPM4"),
    builtin!("functionary-v2", "Functionary v2"),
    builtin!("functionary-v3.1", "Functionary v3.1"),
    builtin!("functionary-v3.2", "Functionary v3.2"),
    builtin!("phi-4-mini", "Phi-4-mini"),
    builtin!("functools", "Firefunction v2, Phi-4-mini as vLLM prompts it"),
    builtin!("gpt-oss", "gpt-oss (harmony), LLM-jp-4"),
    builtin!("gemma", "Gemma 3"),
    builtin!("gemma-4", "Gemma 4"),
    builtin!("functiongemma", "FunctionGemma"),
];
