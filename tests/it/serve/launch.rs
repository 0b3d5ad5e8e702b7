//! `callwright launch`.

use super::api::Server;
use crate::program::{callwright, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A program with this name, which writes what it was started with and ends with status 3.
fn fake(home: &Path, name: &str) {
    let path = home.join(name);
    std::fs::write(&path, "#!/bin/sh\necho \"$ANTHROPIC_BASE_URL $ANTHROPIC_AUTH_TOKEN $*\"\nexit 3\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn settings_name_the_server_and_its_model() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&["--ctx", "1024"]));
    let url = format!("http://{}", server.at);
    let launch =
        |agent: &str| run(callwright(home.path()).args(["launch", agent, "--print", "--url", &format!("{url}/v1/")]));
    for agent in
        ["aider", "claude", "cline", "codex", "continue", "goose", "home-assistant", "open-webui", "opencode", "zed"]
    {
        let ran = launch(agent);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains(&url) && ran.out.contains("bundled"), "{}", ran.out);
        for left in ["{url}", "{model}", "{key}", "{context}"] {
            assert!(!ran.out.contains(left), "{}", ran.out);
        }
    }
    let codex = launch("codex");
    assert!(codex.out.contains("model_context_window=1024"), "{}", codex.out);
    assert!(codex.err.contains("a request of Codex has 10000 tokens or more, and bundled takes 1024"), "{}", codex.err);

    let other = run(callwright(home.path()).args(["launch", "codex", "--url", &url, "-m", "other"]));
    assert!(other.code == 2 && other.err.contains("has no model \"other\"\nhint: it has: bundled"), "{other:?}");
}

#[test]
fn an_agent_is_started_with_a_running_server_or_a_new_one() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let path = format!("{}:{}", home.path().display(), std::env::var("PATH").unwrap());
    let launch = |more: &[&str]| {
        let mut command = callwright(home.path());
        run(command.env("PATH", &path).env_remove("CALLWRIGHT_API_KEY").args(["launch", "claude"]).args(more))
    };
    let url = format!("http://{}", server.at);
    fake(home.path(), "claude");
    let ran = launch(&["--url", &url, "--", "-p", "Hello there"]);
    assert_eq!((ran.code, ran.out), (3, format!("{url} none --model bundled -p Hello there\n")));

    let ran = launch(&["--ctx", "512"]);
    let new = ran.out.split(' ').next().unwrap();
    let address = new.strip_prefix("http://").unwrap_or_else(|| panic!("{ran:?}"));
    assert!(ran.code == 3 && std::net::TcpStream::connect(address).is_err(), "the server has ended: {ran:?}");
    let ran = launch(&["-m", "no-such-model"]);
    assert!(ran.code == 2 && ran.err.contains("no-such-model"), "{ran:?}");

    std::fs::remove_file(home.path().join("claude")).unwrap();
    let mut command = callwright(home.path());
    let ran = run(command.env("PATH", home.path()).args(["launch", "claude", "--url", &url]));
    assert!(ran.code == 2 && ran.err.contains("install it with: npm install -g @anthropic-ai/claude-code"), "{ran:?}");
}
