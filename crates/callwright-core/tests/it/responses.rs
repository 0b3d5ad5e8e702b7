//! Responses of servers, pasted whole: each gives the same call, and a stream that was cut off gives none.

use callwright_core::ParserOptions;
use callwright_core::parse::Parsed;
use callwright_core::parse::auto::AutoParser;

fn read(text: &str) -> (Parsed, &'static str) {
    let mut parser = AutoParser::new(None, ParserOptions::default()).unwrap();
    parser.push(text.as_bytes(), &mut |_| ());
    let parsed = parser.finish(&mut |_| ());
    let origin = parsed.origin.unwrap();
    (parsed, origin)
}

/// Responses with the text "So.", the reasoning "Hm.", and the call `clock {"zone": "UTC"}`.
const WHOLE: [(&str, &str); 14] = [
    (
        "chat completion",
        r#"{"choices": [{"message": {"role": "assistant", "content": "So.", "reasoning_content": "Hm.",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "clock", "arguments": "{\"zone\": \"UTC\"}"}}]}}]}"#,
    ),
    (
        "chat completion",
        r#"{"id": "batch_1", "response": {"status_code": 200, "body": {"choices": [{"message": {"content": "So.",
        "reasoning": "Hm.", "function_call": {"name": "clock", "arguments": "{\"zone\": \"UTC\"}"}}}]}}}"#,
    ),
    (
        "chat completion",
        r#"{"choices": [{"message": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "So."}], "tool_calls": [{"function": {"name": "clock", "arguments": {"zone": "UTC"}}}]}}]}"#,
    ),
    (
        "response",
        r#"{"output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, {"type": "message",
        "content": [{"type": "output_text", "text": "So."}]}, {"type": "function_call", "call_id": "x", "name": "clock",
        "arguments": "{\"zone\": \"UTC\"}"}]}"#,
    ),
    (
        "Anthropic message",
        r#"{"type": "message", "role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "So."}, {"type": "tool_use", "id": "x", "name": "clock", "input": {"zone": "UTC"}}]}"#,
    ),
    (
        "chat response",
        r#"{"model": "m", "message": {"role": "assistant", "content": "So.", "thinking": "Hm.",
        "tool_calls": [{"function": {"name": "clock", "arguments": {"zone": "UTC"}}}]}, "done": true}"#,
    ),
    (
        "chat response",
        r#"{"id": "1", "message": {"role": "assistant", "tool_plan": "Hm.", "content": [{"type": "text", "text": "So."}],
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "clock", "arguments": "{\"zone\":\"UTC\"}"}}]}}"#,
    ),
    (
        "completion",
        r#"{"text": "So.", "reasoning": "Hm.", "generation_id": "g", "tool_calls": [{"name": "clock",
        "parameters": {"zone": "UTC"}}]}"#,
    ),
    (
        "Gemini response",
        r#"{"candidates": [{"content": {"role": "model", "parts": [{"text": "Hm.", "thought": true}, {"text": "So."},
        {"functionCall": {"name": "clock", "args": {"zone": "UTC"}}}]}, "finishReason": "STOP"}]}"#,
    ),
    (
        "Gemini response",
        r#"[{"candidates": [{"content": {"parts": [{"text": "Hm.", "thought": true}, {"text": "S"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "o."}, {"functionCall": {"name": "clock", "args": {"zone": "UTC"}}}]}}]}]"#,
    ),
    (
        "Converse response",
        r#"{"output": {"message": {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "Hm."}}},
        {"text": "So."}, {"toolUse": {"toolUseId": "x", "name": "clock", "input": {"zone": "UTC"}}}]}}, "stopReason": "tool_use"}"#,
    ),
    (
        "run",
        r#"{"status": "requires_action", "required_action": {"submit_tool_outputs": {"content": "So.", "reasoning": "Hm.",
        "tool_calls": [{"id": "x", "function": {"name": "clock", "arguments": "{\"zone\": \"UTC\"}"}}]}}}"#,
    ),
    (
        "message",
        r#"[{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "So."},
        {"type": "tool_use", "id": "x", "name": "clock", "input": {"zone": "UTC"}}]"#,
    ),
    (
        "message",
        r#"{"content": "So.", "reasoning": "Hm.", "tool_calls": [{"name": "clock", "arguments": {"zone": "UTC"}}]}"#,
    ),
];

/// The same in chunks.
const STREAMED: [(&str, &str); 6] = [
    (
        "chat completion",
        r#"data: {"choices": [{"delta": {"reasoning_content": "Hm."}}]}
data: {"choices": [{"delta": {"content": "So."}}]}
data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "clock", "arguments": ""}}]}}]}
data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"zone\": \"U"}}]}}]}
data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "TC\"}"}}]}, "finish_reason": "tool_calls"}]}
data: [DONE]"#,
    ),
    (
        "Anthropic message",
        r#"event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}}
data: {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "So."}}
data: {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "x", "name": "clock"}}
data: {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"zone\": "}}
data: {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "\"UTC\"}"}}
data: {"type": "message_stop"}"#,
    ),
    (
        "response",
        r#"data: {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm."}
data: {"type": "response.output_text.delta", "output_index": 1, "delta": "So."}
data: {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "call_id": "x", "name": "clock"}}
data: {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"zone\": \"UT"}
data: {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "C\"}"}
data: {"type": "response.output_item.done", "output_index": 2}"#,
    ),
    (
        "chat response",
        r#"data: {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "Hm."}}}
data: {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "So."}}}}
data: {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"id": "x", "function": {"name": "clock", "arguments": ""}}}}}
data: {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": "{\"zone\""}}}}}
data: {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": ": \"UTC\"}"}}}}}
data: {"type": "message-end"}"#,
    ),
    (
        "Converse response",
        r#"{"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Hm."}}}}
{"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "So."}}}
{"contentBlockStart": {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "x", "name": "clock"}}}}
{"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": "{\"zone\": \"UT"}}}}
{"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": "C\"}"}}}}
{"messageStop": {"stopReason": "tool_use"}}"#,
    ),
    (
        "chat response",
        r#"{"message": {"role": "assistant", "content": "", "thinking": "Hm."}, "done": false}
{"message": {"role": "assistant", "content": "So."}, "done": false}
{"message": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "clock", "arguments": {"zone": "UTC"}}}]}, "done": true}"#,
    ),
];

#[test]
fn responses_of_the_known_servers() {
    for (kind, text) in WHOLE.into_iter().chain(STREAMED) {
        let (parsed, origin) = read(text);
        let calls: Vec<_> =
            parsed.calls.iter().map(|call| (&*call.name, call.arguments.to_text(), call.valid)).collect();
        assert_eq!((origin, &*parsed.content, parsed.reasoning.as_deref()), (kind, "So.", Some("Hm.")), "{text}");
        assert_eq!(calls, [("clock", r#"{"zone":"UTC"}"#.to_owned(), true)], "{text}");
    }
}

#[test]
fn a_response_that_was_cut_off_has_no_whole_call() {
    for (kind, text) in STREAMED {
        for (end, _) in text.char_indices().filter(|(end, _)| *end > 0) {
            let (parsed, _) = read(&text[..end]);
            // The arguments are whole before the stream is.
            let whole = text[..end].contains("C\\\"}\"") || text[..end].contains("\\\"UTC\\\"}\"");
            for call in &parsed.calls {
                assert!(!call.is_whole() || whole, "{kind}: {}", &text[..end]);
                assert!(
                    !call.is_whole() || call.arguments.to_text() == r#"{"zone":"UTC"}"#,
                    "{kind}: {}",
                    &text[..end]
                );
            }
        }
    }
    let cut = r#"{"choices": [{"finish_reason": "length", "message": {"content": null, "tool_calls": [{"id": "x",
        "function": {"name": "clock", "arguments": "{\"zone\": \"U"}}]}}]}"#;
    let (parsed, _) = read(cut);
    assert!(!parsed.calls[0].complete && parsed.to_json()["tool_calls"].is_null(), "{parsed:?}");
}

#[test]
fn other_json_is_the_text_that_it_is() {
    for text in [
        r#"{"message": {"title": "So."}}"#,
        r#"{"data": {"response": {"result": 1}}}"#,
        r#"{"output": ["a"]}"#,
        r#"[{"text": "a"}]"#,
        r#"{"text": "a"}"#,
        r#"{"type": "a-b"}"#,
        r#"{"candidates": ["a", "b"]}"#,
        ": a",
    ] {
        let (parsed, origin) = read(text);
        assert_eq!((parsed.content.as_str(), parsed.calls.len(), origin), (text, 0, "delimited"), "{text}");
    }
}
