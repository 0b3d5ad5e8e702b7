//! Names of models, and models.toml.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use callwright::ErrorKind;
use callwright::models::{Hub, Models, Source};

use crate::gguf_builder::GgufBuilder;

fn models_toml(name: &str) -> PathBuf {
    Path::new("tests/cases/models").join(name)
}

#[test]
fn every_built_in_model_is_complete() {
    let models = Models::builtin().unwrap();
    assert!(models.entries().len() >= 10);
    for entry in models.entries() {
        let Source::Hub(file) = &entry.source else { panic!("{} is not on the hub", entry.name) };
        assert_eq!(file.sha256.len(), file.files().len(), "{}", entry.name);
        assert!(entry.size.is_some(), "{}", entry.name);
    }
    let qwen = models.get("qwen3-0.6b").unwrap();
    assert_eq!(qwen.sampling.temperature, Some(0.6));
    assert_eq!(qwen.sampling.min_p, None);
    assert_eq!(qwen.fallbacks, ["qwen3-1.7b", "qwen3-4b"]);
}

#[test]
fn a_models_toml_extends_the_built_in_one() {
    let models = Models::builtin().unwrap();
    let before = models.entries().len();
    let models = models.with_file(models_toml("good.toml")).unwrap();
    assert_eq!(models.entries().len(), before + 2);

    let own = models.get("own").unwrap();
    assert_eq!(own.source, Source::File("tests/cases/models/weights/own.gguf".into()));
    assert_eq!(own.template.as_deref(), Some("tests/cases/models/own.jinja"));
    assert_eq!(own.format.as_deref(), Some("delimited"));
    assert_eq!(own.context, Some(4096));
    assert_eq!(own.call_threshold, Some(0.05));
    assert_eq!(own.no_call_below, Some(0.01));
    assert_eq!(own.sampling.temperature, Some(0.0));
    assert_eq!(own.sampling.top_k, Some(40));
    assert_eq!(own.sampling.min_p, Some(0.05));
    assert_eq!(own.fallbacks, ["qwen3-4b", "sharded"]);

    let Source::Hub(sharded) = &models.get("sharded").unwrap().source else { panic!() };
    assert_eq!(sharded.revision, "v1.0");
    let files: Vec<String> = sharded.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(files, ["q8/m-00001-of-00002.gguf", "q8/m-00002-of-00002.gguf"]);

    // The same name: the later file's entry takes the place of the built-in one.
    let Source::Hub(replaced) = &models.get("qwen3-0.6b").unwrap().source else { panic!() };
    assert_eq!(replaced.repo, "me/Qwen3-0.6B-GGUF");
    assert!(replaced.sha256.is_empty());
}

#[test]
fn mistakes_in_a_models_toml() {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(models_toml("bad")).unwrap().map(|e| e.unwrap().path()).collect();
    cases.sort();
    let mut shown = String::new();
    for path in cases {
        let error = Models::builtin().unwrap().with_file(&path).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config | ErrorKind::Syntax), "{error}");
        assert_eq!(error.location().and_then(|at| at.file.as_ref()), Some(&path), "{error}");
        assert!(error.location().is_some_and(|at| at.line.is_some() && at.column.is_some()), "{error}");
        writeln!(shown, "--- {}\n{error}", path.file_name().unwrap().to_string_lossy()).unwrap();
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn a_models_toml_that_is_not_there() {
    let error = Models::builtin().unwrap().with_file("absent/models.toml").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().starts_with("cannot read absent/models.toml: "), "{error}");
}

#[test]
fn what_a_model_can_be() {
    let models = Models::builtin().unwrap();
    let hub = |text: &str| match models.resolve(text).unwrap().source {
        Source::Hub(file) => file,
        other => panic!("{other:?}"),
    };
    let file = hub("hf:org/repo/dir/file.gguf@v1.2");
    assert_eq!((file.repo.as_str(), file.file.as_str(), file.revision.as_str()), ("org/repo", "dir/file.gguf", "v1.2"));
    assert_eq!(file.to_string(), "hf:org/repo/dir/file.gguf@v1.2");
    assert_eq!(hub("hf:org/repo/file.gguf").revision, "main");
    assert_eq!(hub("hf:org/repo/x-00002-of-00003.gguf").file, "x-00001-of-00003.gguf");
    assert_eq!(hub("qwen3-4b").repo, "Qwen/Qwen3-4B-GGUF");

    // What models.toml knows of a file holds however the file is named.
    let known = models.resolve("hf:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf").unwrap();
    assert_eq!(known.sampling.top_k, Some(20));
    assert!(matches!(known.source, Source::Hub(file) if file.sha256.len() == 1));

    let folder = tempfile::tempdir().unwrap();
    let path = GgufBuilder::tiny().write(folder.path(), "m.gguf");
    let entry = models.resolve(path.to_str().unwrap()).unwrap();
    assert_eq!(entry.source, Source::File(path.clone()));
    assert_eq!(entry.ensure(&Hub::new(folder.path()), &mut ()).unwrap(), path);
}

#[test]
fn a_model_that_is_not_there() {
    let models = Models::builtin().unwrap().with_file(models_toml("good.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    GgufBuilder::tiny().write(folder.path(), "b.gguf");
    GgufBuilder::tiny().write(folder.path(), "a.gguf");
    let mut shown = String::new();
    for (model, kind) in [
        ("qwen3-0.6", ErrorKind::ModelNotFound),
        ("Qwen3-4B", ErrorKind::ModelNotFound),
        ("nonsense", ErrorKind::ModelNotFound),
        ("./weights.gguf", ErrorKind::ModelNotFound),
        ("Qwen3-4B-Q4_K_M.gguf", ErrorKind::ModelNotFound),
        ("Qwen/Qwen3-4B-GGUF", ErrorKind::ModelNotFound),
        ("https://huggingface.co/org/repo/blob/main/x.gguf?download=true", ErrorKind::ModelNotFound),
        ("https://example.com/x.gguf", ErrorKind::ModelNotFound),
        ("hf:org/repo", ErrorKind::Config),
        ("hf:org/repo/../../x.gguf", ErrorKind::Config),
        ("hf:org/repo/x.safetensors", ErrorKind::Config),
        ("hf:org/repo/x.gguf@", ErrorKind::Config),
        ("<folder>", ErrorKind::ModelNotFound),
    ] {
        let path = folder.path().to_str().unwrap();
        let error = models.resolve(&model.replace("<folder>", path)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        writeln!(shown, "--- {model}\n{}", error.to_string().replace(path, "<folder>")).unwrap();
    }
    let hub = Hub::new(folder.path());
    for name in ["own", "qwen3-4b"] {
        let error = models.resolve(name).unwrap().require_local(&hub).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ModelNotFound, "{error}");
        writeln!(shown, "--- {name}\n{error}").unwrap();
    }
    insta::assert_snapshot!(shown);
}

/// The adapter that comes with the source has an entry of its own.
#[test]
fn the_adapter_for_smollm2_is_where_its_entry_says() {
    let models = Models::builtin().unwrap().with_file("models/smollm2-135m-tools.toml").unwrap();
    let (plain, adapted) = (models.get("smollm2-135m").unwrap(), models.get("smollm2-135m-tools").unwrap());
    assert_eq!(plain.source, adapted.source);
    assert_eq!(adapted.call_threshold, adapted.no_call_below);
    assert!(adapted.lora[0].file.exists(), "{:?}", adapted.lora);
}
