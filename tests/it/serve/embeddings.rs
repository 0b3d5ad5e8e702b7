//! Embeddings, as clients get them, of small models with random weights.

use super::api::{Server, with};
use crate::gguf_builder::GgufBuilder;
use serde_json::{Value, json};

/// A server of this model, beside the bundled one.
fn server(model: &GgufBuilder) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let path = model.write(folder.path(), "embedder.gguf");
    let server = Server::start(&["-m", path.to_str().unwrap(), "-m", "bundled"]);
    (folder, server)
}

fn embed(server: &Server, input: &Value) -> Vec<Vec<f32>> {
    let answer = server.post("/v1/embeddings", &json!({"model": "embedder", "input": input})).json();
    let numbers = |item: &Value| serde_json::from_value(item["embedding"].clone()).unwrap();
    answer["data"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(numbers).collect()
}

fn likeness(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[test]
fn embeddings_of_texts_and_tokens_in_all_their_forms() {
    let (_folder, server) = server(&GgufBuilder::bert());
    let body = json!({"model": "embedder", "input": ["a b c", "x y", "a b c"], "user": "me", "truncate_dim": 3});
    let answer = server.post("/v1/embeddings", &body).json();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("embedder")));
    // With the tokens that are put around each text.
    assert_eq!(answer["usage"], json!({"prompt_tokens": 14, "total_tokens": 14}));
    assert!(answer["callwright"].to_string().contains("truncate_dim"), "{answer}");
    let indices: Vec<&Value> = answer["data"].as_array().unwrap().iter().map(|item| &item["index"]).collect();
    assert_eq!(indices, [0, 1, 2]);

    let all = embed(&server, &body["input"]);
    assert!(all.iter().all(|one| one.len() == 64 && (likeness(one, one) - 1.0).abs() < 1e-5), "{all:?}");
    assert!(all[0] == all[2] && all[0] != all[1], "{all:?}");
    // What else is in the request does not change a text's embedding, nor does the form.
    let alone = [json!("a b c"), json!([2, 4, 6, 8, 3]), json!([[2, 4, 6, 8, 3]])];
    alone.iter().for_each(|input| assert_eq!(embed(&server, input), [all[0].clone()], "{input}"));
    // Nothing in a text is a special token.
    assert_ne!(embed(&server, &json!("a [SEP] b")), embed(&server, &json!([2, 4, 3, 6, 3])));

    let encoded = json!({"model": "embedder", "input": "a b c", "encoding_format": "base64", "dimensions": 64});
    let encoded = server.post("/v1/embeddings", &encoded).json();
    let bytes: Vec<u8> = all[0].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(encoded["data"][0]["embedding"], base64(&bytes));
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |part: &[u8]| -> String {
        let bits = part.iter().chain([0, 0].iter()).take(3).fold(0usize, |bits, byte| bits << 8 | usize::from(*byte));
        let letter = |index: usize| char::from(LETTERS[bits >> (18 - 6 * index) & 63]);
        (0..4).map(|index| if index <= part.len() { letter(index) } else { '=' }).collect()
    };
    bytes.chunks(3).map(group).collect()
}

#[test]
fn ollamas_forms_of_embeddings() {
    let (_folder, server) = server(&GgufBuilder::bert());
    let expected = embed(&server, &json!("a b c"));
    let answer = server.post("/api/embed", &json!({"model": "embedder:latest", "input": ["a b c"]})).json();
    assert_eq!((&answer["embeddings"], &answer["prompt_eval_count"]), (&json!(as_json(&expected)), &json!(5)));
    let older = server.post("/api/embeddings", &json!({"model": "embedder", "prompt": "a b c"})).json();
    assert_eq!(older["embedding"], as_json(&expected)[0]);

    // The end of a long text is left out unless the request says otherwise. The last token stays.
    let long = "a ".repeat(200);
    let answer = server.post("/api/embed", &json!({"model": "embedder", "input": long})).json();
    let fitting = embed(&server, &json!("a ".repeat(94)));
    assert_eq!((&answer["embeddings"], &answer["prompt_eval_count"]), (&json!(as_json(&fitting)), &json!(96)));
    let refused = server.post("/api/embed", &json!({"model": "embedder", "input": long, "truncate": false}));
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"].as_str().unwrap().contains("96 tokens"), "{}", refused.text);

    let shown = server.post("/api/show", &json!({"model": "embedder"})).json();
    assert_eq!(
        (&shown["capabilities"], &shown["model_info"]["bert.context_length"]),
        (&json!(["embedding"]), &json!(96))
    );
    assert_eq!(server.get("/api/v0/models/embedder").json()["type"], "embeddings");
}

fn as_json(embeddings: &[Vec<f32>]) -> Value {
    serde_json::from_str(&serde_json::to_string(embeddings).unwrap()).unwrap()
}

#[test]
fn what_is_wrong_with_a_request_for_embeddings_is_said() {
    let (_folder, server) = server(&GgufBuilder::bert());
    let long = "a ".repeat(200);
    let cases = [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": {"text": "a"}}), "input"),
        (json!({"input": ["a", 1.5]}), "item 1"),
        (json!({"input": vec!["a"; 2049]}), "2049 texts"),
        (json!({"input": ["a", [2, 999, 3]]}), "text 1: token 999"),
        (json!({"input": "a", "encoding_format": "int8"}), "encoding_format"),
        (json!({"input": "a", "dimensions": 32}), "dimensions is 32; the embeddings of this model have 64 numbers"),
        (json!({"input": "a", "dimensions": "all"}), "dimensions"),
        (json!({"input": long}), "maximum context length is 96 tokens"),
        (json!({"input": "a", "model": "bundled"}), "generates text and makes no embeddings"),
    ];
    for (mut body, expected) in cases {
        if body.get("model").is_none() {
            body["model"] = json!("embedder");
        }
        let answer = server.post("/v1/embeddings", &body);
        let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 && message.contains(expected), "{expected}: {} {}", answer.status, answer.text);
    }
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for (path, more) in [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 5})),
        ("/v1/responses", json!({"input": "Hi"})),
        ("/v1/completions", json!({"prompt": "Hi"})),
        ("/api/chat", json!({"messages": messages})),
    ] {
        let body = with(&more, json!({"model": "embedder"}));
        let answer = server.post(path, &body);
        assert!(
            answer.status == 400 && answer.text.contains("makes embeddings"),
            "{path}: {} {}",
            answer.status,
            answer.text
        );
    }
}

/// A model that reads from left to right is read in parts, and the last token has seen all of them.
#[test]
fn long_texts_of_a_model_that_reads_from_left_to_right() {
    let model = GgufBuilder::random("llama").set("llama.pooling_type", 3);
    let (_folder, server) = server(&model);
    let [mut long, mut other] = [vec![3; 1300], vec![3; 1300]];
    (long[0], other[0]) = (1, 2);
    let before = embed(&server, &json!([1, 2, 3]));
    let (one, another) = (embed(&server, &json!(long)), embed(&server, &json!(other)));
    assert!(likeness(&one[0], &another[0]) < 0.999_999, "the beginning of a long text has no part in it");
    // In a larger context, and after another text.
    assert!(likeness(&before[0], &embed(&server, &json!([1, 2, 3]))[0]) > 0.9999);
}
