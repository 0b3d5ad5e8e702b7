//! The agents: a row for each.

use serde_json::Value;

/// The context of a server that does not say how long it is.
pub(super) const CONTEXT: u64 = 32_768;

/// What an agent needs. Texts have `{url}`, `{key}`, `{model}`, `{context}` and `{output}` (tokens of an answer) in place of those of
/// the server.
pub(super) struct Agent {
    pub name: &'static str,
    pub title: &'static str,
    /// The program that is started; empty if settings are made by hand.
    pub program: &'static str,
    /// What installs it.
    pub install: &'static str,
    pub args: &'static [&'static str],
    pub environment: &'static [(&'static str, &'static str)],
    /// What is to be done by hand.
    pub settings: &'static str,
    /// About the tokens of its shortest request; 0 if that is not known.
    pub prompt: u64,
}

/// What is not known of an agent, and not needed.
const NONE: Agent =
    Agent { name: "", title: "", program: "", install: "", args: &[], environment: &[], settings: "", prompt: 0 };

pub(super) const AGENTS: &[Agent] = &[
    Agent {
        name: "claude",
        title: "Claude Code",
        program: "claude",
        install: "npm install -g @anthropic-ai/claude-code",
        args: &["--model", "{model}"],
        environment: &[
            ("ANTHROPIC_BASE_URL", "{url}"),
            ("ANTHROPIC_AUTH_TOKEN", "{key}"),
            // Titles and subagents have models of their own otherwise.
            ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_SONNET_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_OPUS_MODEL", "{model}"),
            ("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "{context}"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            // A local model may read a long prompt for minutes.
            ("API_TIMEOUT_MS", "1800000"),
        ],
        prompt: 20_000,
        ..NONE
    },
    Agent {
        name: "codex",
        title: "Codex",
        program: "codex",
        install: "npm install -g @openai/codex",
        // A provider of its own needs no login.
        args: &[
            "-c",
            "model_provider=\"callwright\"",
            "-c",
            "model_providers.callwright={name=\"callwright\", base_url=\"{url}/v1\", env_key=\"CALLWRIGHT_API_KEY\", wire_api=\"responses\", stream_idle_timeout_ms=1800000}",
            "-c",
            "model_context_window={context}",
            "-m",
            "{model}",
        ],
        environment: &[("CALLWRIGHT_API_KEY", "{key}")],
        prompt: 10_000,
        ..NONE
    },
    Agent {
        name: "opencode",
        title: "OpenCode",
        program: "opencode",
        install: "npm install -g opencode-ai",
        environment: &[(
            "OPENCODE_CONFIG_CONTENT",
            r#"{"model": "callwright/{model}", "small_model": "callwright/{model}", "provider": {"callwright": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "{url}/v1", "apiKey": "{env:CALLWRIGHT_API_KEY}"}, "models": {"{model}": {"tool_call": true, "limit": {"context": {context}, "output": {output}}}}}}}"#,
        )],
        prompt: 8_000,
        ..NONE
    },
    Agent {
        name: "goose",
        title: "Goose",
        program: "goose",
        install: "the instructions of its makers",
        environment: &[
            ("GOOSE_PROVIDER", "openai"),
            ("OPENAI_HOST", "{url}"),
            ("OPENAI_API_KEY", "{key}"),
            ("GOOSE_MODEL", "{model}"),
            ("GOOSE_CONTEXT_LIMIT", "{context}"),
        ],
        ..NONE
    },
    Agent {
        name: "aider",
        title: "aider",
        program: "aider",
        install: "pip install aider-chat",
        args: &["--model", "openai/{model}"],
        environment: &[("OPENAI_API_BASE", "{url}/v1"), ("OPENAI_API_KEY", "{key}")],
        ..NONE
    },
    Agent {
        name: "cline",
        title: "Cline",
        settings: r#"In the settings of Cline:
  API Provider         OpenAI Compatible
  Base URL             {url}/v1
  API Key              {key}
  Model ID             {model}
  Context Window Size  {context}"#,
        ..NONE
    },
    Agent {
        name: "continue",
        title: "Continue",
        settings: r#"In ~/.continue/config.yaml:
models:
  - name: "{model}"
    provider: openai
    model: "{model}"
    apiBase: "{url}/v1"
    apiKey: "{key}"
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: {context}"#,
        ..NONE
    },
    Agent {
        name: "zed",
        title: "Zed",
        settings: r#"In Zed's settings.json; the variable CALLWRIGHT_API_KEY of its environment has the key: {key}
"language_models": {
  "openai_compatible": {
    "callwright": {
      "api_url": "{url}/v1",
      "available_models": [
        {"name": "{model}", "max_tokens": {context}, "capabilities": {"tools": true, "images": false, "parallel_tool_calls": true, "prompt_cache_key": false}}
      ]
    }
  }
}"#,
        ..NONE
    },
    Agent {
        name: "open-webui",
        title: "Open WebUI",
        settings: r#"In Open WebUI, Admin Settings, Connections, a connection of OpenAI's API:
  URL    {url}/v1
  Key    {key}
  Model  {model}
Set Function Calling of the model to Native. In a container, 127.0.0.1 is the container: start the server with --host and a key."#,
        ..NONE
    },
    Agent {
        name: "home-assistant",
        title: "Home Assistant",
        settings: r#"In Home Assistant, Devices & services, add the integration Ollama:
  URL    {url}
  Model  {model}
Let it control Home Assistant with Assist, and expose few entities. On another machine, start the server with --host; this integration may send no key, and --no-auth serves everybody."#,
        ..NONE
    },
];

/// What a server is and has.
pub(super) struct Values {
    pub url: String,
    pub key: String,
    pub model: String,
    pub context: u64,
}

impl Values {
    /// A text with the values in it. Within quotation marks they are escaped, as JSON, TOML and YAML have it.
    pub(super) fn put_into(&self, text: &str) -> String {
        let own = |value: &str| match text.contains('"') {
            true => Value::from(value).to_string().trim_matches('"').to_owned(),
            false => value.to_owned(),
        };
        text.replace("{url}", &own(&self.url))
            .replace("{context}", &self.context.to_string())
            .replace("{output}", &(self.context / 2).min(4096).to_string())
            .replace("{key}", &own(&self.key))
            .replace("{model}", &own(&self.model))
    }
}

impl Agent {
    /// What people do to have this agent: lines for a shell, or settings to make.
    pub(super) fn settings(&self, values: &Values) -> String {
        if self.program.is_empty() {
            return values.put_into(self.settings);
        }
        let put = |text: &&str| in_shell(&values.put_into(text));
        let exports = self.environment.iter().map(|(name, text)| format!("export {name}={}\n", put(text)));
        let command: Vec<String> = [self.program.to_owned()].into_iter().chain(self.args.iter().map(put)).collect();
        exports.collect::<String>() + &command.join(" ")
    }
}

/// A word for a shell. The key stays the name of its variable.
fn in_shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=$@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
