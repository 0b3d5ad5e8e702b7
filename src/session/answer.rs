//! One answer of the model: from the messages to what was parsed of its text.

use super::constrain::{self, Shortage};
use super::count::CallCount;
use super::event::{Cut, Event, Note, Reply, notes};
use super::record::{Beside, Ended};
use super::stop::Stops;
use super::{Options, Session, ToolChoice, decide};
use crate::Result;
use crate::agent::turn::FinishReason;
use crate::constraint::Mode;
use crate::decision::{Decided, Decision};
use crate::engine::Token;
use crate::engine::sampler::Sampler;
use crate::generate::{End, Guides, Limits, generate_with};
use crate::message::{Message, Placed, complete};
use crate::parse::event::Event as ParserEvent;
use crate::parse::{OtherForms, Parser, ParserOptions};
use crate::template::{Adapted, Overlay, Piece, Prompt, RenderRequest};
use crate::tool::Tools;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// What the model is asked for one answer.
#[derive(Clone)]
pub(crate) struct Ask {
    pub messages: Vec<Message>,
    /// Which messages of the conversation they are, where some are left out.
    pub places: Vec<usize>,
    pub tools: Arc<Tools>,
    pub options: Options,
    /// When the answer is ended, if it has not by then.
    pub until: Option<Instant>,
}

impl Ask {
    pub fn new(messages: Vec<Message>, tools: Arc<Tools>, options: Options) -> Ask {
        Ask { messages, places: Vec::new(), tools, options, until: None }
    }

    /// The messages with their places.
    fn placed(&self) -> Vec<Placed> {
        let messages = self.messages.iter().cloned().enumerate();
        messages.map(|(index, message)| Placed::new(*self.places.get(index).unwrap_or(&index), message)).collect()
    }

    /// The tools in the prompt.
    pub fn shown_tools(&self) -> Option<&Arc<Tools>> {
        (!self.tools.is_empty() && self.options.tool_choice != ToolChoice::None).then_some(&self.tools)
    }
}

/// A prompt as it is sent.
pub(crate) struct Written {
    pub prompt: Prompt,
    pub tokens: Vec<Token>,
    /// The messages as the chat template was given them.
    messages: Vec<Message>,
    /// How the conversation was adapted for the chat template.
    pub adapted: Vec<String>,
    /// The prompt's text, with the beginning of the answer.
    pub text: String,
    /// The beginning of an answer that the tool choice leaves no doubt about.
    prefill: String,
    /// Whether the answer begins in reasoning.
    pub thinking: bool,
}

impl Written {
    /// The prompt's text without the beginning of the answer.
    fn before(&self) -> &str {
        &self.text[..self.text.len() - self.prefill.len()]
    }
}

impl Session {
    /// Generates and parses one answer; the conversation stays as it is.
    pub(crate) fn answer(&mut self, ask: &Ask, on_event: &mut dyn FnMut(&Event)) -> Result<Reply> {
        let (shown, written, mut fitting) = self.fit(ask)?;
        fitting.iter().for_each(|message| on_event(&Event::context(message.clone())));
        if let Some(rewritten) = self.rewritten(ask, &written) {
            on_event(&Event::context(rewritten.clone()));
            fitting.push(rewritten);
        }
        let adapted: Vec<String> =
            written.adapted.iter().filter(|note| self.told_once.insert((*note).clone())).cloned().collect();
        adapted.iter().for_each(|message| on_event(&Event::history(message.clone())));
        let mut ask = self.held(ask);
        let not_enforced = constrain::respond_in_format(&self.format, &ask.tools, &mut ask.options)?;
        let (ask, options) = (&ask, &ask.options);
        let taken_ids: Vec<String> =
            ask.messages.iter().flat_map(|m| &m.tool_calls).filter_map(|call| call.id.clone()).collect();
        let parser_options = ParserOptions {
            repair: options.repair,
            coerce: options.coerce,
            normalize_names: options.normalize_names,
            first_call: taken_ids.len() + 1,
            taken_ids,
            prompt_tail: self.prompt_tail(&shown, &written),
            forbidden: options.tool_choice == ToolChoice::None,
            // Without tools, or where the answer is to be JSON, it is what it looks like.
            other_forms: match ask.tools.is_empty() || options.grammar.is_some() || options.response_format.is_some() {
                true => OtherForms::Off,
                false => options.other_forms,
            },
            ..ParserOptions::default()
        };
        let prompt_tail = parser_options.prompt_tail.clone();
        // Also tools that are not in the prompt: a call of one still has to fit it.
        let tools = (!ask.tools.is_empty()).then(|| Arc::clone(&ask.tools));
        let mut parser = Parser::new(&self.format, tools, parser_options)?;
        let mut calls = CallCount::new(options.max_calls);
        // Where a grammar holds the whole answer, a stop text would cut what has to be whole.
        let whole = options.grammar.is_some() && options.constrain != Mode::Off;
        let mut stops = Stops::new(if whole { &[] } else { &options.stop });
        // Returns whether the answer ends here.
        let mut emit = |event: ParserEvent| {
            if let ParserEvent::Text { delta } = &event {
                let delta = stops.push(delta);
                if !delta.is_empty() {
                    on_event(&Event::Parsed(ParserEvent::Text { delta }));
                }
            } else if !stops.found() && calls.take(&event) {
                let held = if matches!(event, ParserEvent::Repair(_)) { String::new() } else { stops.release() };
                if !held.is_empty() {
                    on_event(&Event::Parsed(ParserEvent::Text { delta: held }));
                }
                on_event(&Event::Parsed(event));
            }
            calls.enough() || stops.found()
        };
        // What the prompt opened is the beginning of what the model says.
        parser.push(written.prefill.as_bytes(), &mut |event| {
            emit(event);
        });
        let opening = decide::opening(&self.opening, self.compiler.as_ref(), &*self.engine, &self.format, ask);
        let mut decision = opening.map(|opening| decide::decision(opening, ask, written.thinking));
        let (mut constraint, told_of_it) = constrain::begin(
            &mut self.compiler,
            &*self.engine,
            &self.format,
            &ask.tools,
            options,
            (written.prefill.as_bytes(), written.thinking),
        )?;
        let mut told: Vec<String> = not_enforced.into_iter().chain(told_of_it).collect();
        told.extend(
            constrain::unknown_tokens(&*self.engine, options).filter(|note| self.told_once.insert(note.clone())),
        );
        // Nothing is constrained, cancelled or late when it is repeated.
        let repeated = self.replayed.pop_front();
        let closed_from = repeated.as_ref().and_then(|ended| ended.closed_from);
        let decided = decision.as_ref().map(Decision::watched).unwrap_or_default();
        decided.set(repeated.as_ref().and_then(|ended| ended.decided));
        let mut count = 0;
        let limits = Limits { max_tokens: options.max_tokens, cancel: &options.cancel, until: ask.until };
        let room = self.engine.context_limit().saturating_sub(written.tokens.len());
        let context_is_limit = room < options.max_tokens;
        let mut unwatched: super::OnPrompt = Box::new(|_, _| ());
        let mut generation = generate_with(
            &mut *self.engine,
            &written.tokens,
            Sampler::new(options.sampling).biased(&options.logit_bias),
            limits,
            Guides { constraint: constraint.as_mut(), decision: decision.as_mut() },
            self.on_prompt.as_mut().unwrap_or(&mut unwatched),
            &mut |bytes, closing| {
                let mut ended = false;
                if closing || closed_from.is_some_and(|from| from <= count) {
                    parser.closing();
                }
                count += 1;
                if decided.get() == Some(Decided::Text) {
                    parser.forbid_calls();
                }
                parser.push(bytes, &mut |event| ended = emit(event));
                if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )?;
        if let Some(marker) = constrain::end_marker(&*self.engine, &self.format, &mut generation) {
            parser.push(marker.as_bytes(), &mut |event| {
                emit(event);
            });
        }
        let mut shortage = Shortage::default();
        if let Some(constraint) = &constraint {
            let (more, found) = constrain::end(constraint, &mut self.told, context_is_limit);
            told.extend(more);
            shortage = found;
        }
        let ended = Ended {
            end: generation.end,
            closed_from: generation.closed_from,
            shortage,
            told,
            call_probability: decision.as_ref().and_then(Decision::found),
            decided: decision.as_ref().and_then(Decision::decided),
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.beside(&Beside::Ended(ended.clone()))?;
            recorder.record(&*self.engine, &written.text, &written.tokens, &options.sampling, &generation)?;
        }
        let ended = repeated.unwrap_or(ended);
        if matches!(ended.end, End::Length | End::Late | End::Cancelled) {
            parser.cut_off();
        }
        let mut parsed = parser.finish(&mut |event| {
            emit(event);
        });
        parsed.keep_calls(calls.most());
        let repetition = calls.repetition();
        let stopped = stops.found();
        if stopped {
            parsed.content.truncate(stops.shown());
            parsed.calls.truncate(calls.begun());
        } else {
            let held = stops.release();
            if !held.is_empty() {
                on_event(&Event::Parsed(ParserEvent::Text { delta: held }));
            }
        }
        let finish_reason = match ended.end {
            // The last tokens may hold a stop text that shows only where the text has ended.
            End::Length | End::Late if stopped && parsed.calls.is_empty() => FinishReason::Stop,
            End::Length | End::Late if stopped => FinishReason::ToolCalls,
            End::Cancelled => FinishReason::Cancelled,
            End::Length | End::Late => FinishReason::Length,
            _ if ended.closed_from.is_some() || ended.shortage.no_room && parsed.calls.is_empty() => {
                FinishReason::Length
            }
            End::EndOfTurn | End::Stopped if parsed.calls.is_empty() => FinishReason::Stop,
            End::EndOfTurn | End::Stopped => FinishReason::ToolCalls,
        };
        let cut = match finish_reason {
            FinishReason::Length if ended.closed_from.is_some() || ended.shortage.tells() => Some(Cut::Constraint),
            FinishReason::Length if ended.end == End::Late => Some(Cut::Time),
            FinishReason::Length if generation.tokens.len() >= options.max_tokens => Some(Cut::MaxTokens),
            FinishReason::Length => Some(Cut::Context),
            _ => None,
        };
        ended.told.iter().for_each(|message| on_event(&Event::constraint(message.clone())));
        on_event(&Event::answered(generation.usage, ended.call_probability, ended.decided));
        let mut raw = written.prefill.clone().into_bytes();
        let mut closed_from = None;
        for (index, token) in generation.tokens.iter().enumerate() {
            if ended.closed_from == Some(index) {
                closed_from = Some(raw.len());
            }
            raw.extend_from_slice(self.engine.token_bytes(*token));
        }
        let misfits = match finish_reason {
            FinishReason::Cancelled => Vec::new(),
            // Calls are what an answer may be in place of JSON.
            _ if !parsed.calls.is_empty() && options.response_format.is_some() => Vec::new(),
            _ if written.thinking || stopped => constrain::misfits(options, parsed.content.as_bytes(), &ended.shortage),
            _ => constrain::misfits(options, &raw, &ended.shortage),
        };
        misfits.iter().for_each(|message| on_event(&Event::constraint(message.clone())));
        let mut notes = notes(&parsed);
        notes.extend(repetition.map(|message| Note::plain("answer", message)));
        notes.extend(adapted.into_iter().map(|message| Note::plain("history", message)));
        notes.extend(misfits.into_iter().map(|message| Note::plain("problem", message)));
        notes.extend(fitting.into_iter().map(|message| Note::plain("context", message)));
        notes.extend(ended.told.iter().map(|message| Note::plain("constraint", message.clone())));
        let (message, calls) = (parsed.message(), parsed.calls);
        let (usage, tokens) = (generation.usage, generation.tokens);
        let Ended { call_probability, decided, .. } = ended;
        Ok(Reply {
            message,
            calls,
            finish_reason,
            cut,
            usage,
            notes,
            raw,
            closed_from,
            tokens,
            prompt_tail,
            call_probability,
            decided,
        })
    }

    /// Writes the prompt of an answer.
    pub(crate) fn write(&self, ask: &Ask) -> Result<Written> {
        let tools = ask.shown_tools();
        let template = self.templates.choose(tools.is_some());
        let (placed, mut adapted) = complete(ask.placed());
        let Adapted { mut prompt, messages, notes } = template.render_adapted(&self.request(ask), placed)?;
        adapted.extend(notes);
        let mut text = prompt.text();
        let opened = self.opens_reasoning(&text);
        let prefill = self.prefill(&ask.options, opened);
        if !prefill.is_empty() {
            text.push_str(&prefill);
            prompt.pieces.push(Piece { text: prefill.clone(), literal: false });
        }
        let tokens = self.engine.tokenize(&prompt.pieces)?;
        Ok(Written { prompt, tokens, messages, adapted, text, thinking: opened && prefill.is_empty(), prefill })
    }

    /// What is asked, held to one call where the chat template writes one call a turn.
    fn held(&self, ask: &Ask) -> Ask {
        let mut held = ask.clone();
        if self.one_call(ask) {
            held.options.max_calls = Some(held.options.max_calls.unwrap_or(1).min(1));
        }
        held
    }

    /// Whether the chat template writes one call a turn, and calls may be made.
    pub(crate) fn one_call(&self, ask: &Ask) -> bool {
        let template = self.templates.choose(ask.shown_tools().is_some());
        self.section.is_none() && ask.shown_tools().is_some() && template.writes_one_call(&self.request(ask))
    }

    /// Whether the chat template writes such a prompt at all.
    pub(crate) fn renders(&self, ask: &Ask) -> bool {
        self.templates.choose(ask.shown_tools().is_some()).render(&self.request(ask)).is_ok()
    }

    pub(crate) fn request<'a>(&'a self, ask: &'a Ask) -> RenderRequest<'a> {
        let model = self.engine.model();
        RenderRequest {
            messages: &ask.messages,
            tools: ask.shown_tools().map(|tools| &**tools),
            bos_token: &model.bos,
            eos_token: &model.eos,
            now: ask.options.now,
            reserved: Some(&self.reserved),
            overlay: (self.section.is_some() || self.calls_as_text)
                .then(|| Overlay { section: self.section.as_ref(), history: &*self.format }),
            variables: self.variables.clone(),
            ..RenderRequest::default()
        }
    }

    /// What the prompt writes of the answer: the head of the assistant's turn, and reasoning that it opens.
    fn prompt_tail(&self, ask: &Ask, written: &Written) -> String {
        if self.format.reasoning.is_none() {
            return String::new();
        }
        let request = RenderRequest { add_generation_prompt: false, messages: &written.messages, ..self.request(ask) };
        let template = self.templates.choose(request.tools.is_some());
        let Ok(without) = template.render(&request) else { return String::new() };
        let without = without.text();
        let text = written.before();
        let same = text.char_indices().zip(without.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
        let tail = &text[same.unwrap_or(without.len().min(text.len()))..];
        if !tail.is_empty() {
            return tail.to_owned();
        }
        // A template that takes no notice of what is asked for may always write the head after the last message.
        let last = written.messages.last().map_or("", |message| message.content.trim());
        let behind = text.rsplit_once(last).filter(|_| !last.is_empty());
        behind.map_or_else(String::new, |(_, tail)| tail.to_owned())
    }

    /// The beginning of an answer that the tool choice leaves no doubt about.
    ///
    /// Where the model may reason or talk first, the constraint writes it when the time has come.
    fn prefill(&self, options: &Options, reasoning: bool) -> String {
        let constrained = options.constrain != Mode::Off;
        if constrained && (options.max_preamble > 0 || reasoning) {
            return String::new();
        }
        match &options.tool_choice {
            ToolChoice::Auto | ToolChoice::None => String::new(),
            ToolChoice::Required => self.format.opening(None),
            ToolChoice::Tool(name) => self.format.opening(Some(name)),
        }
    }

    /// Whether a prompt ends where reasoning has just begun.
    fn opens_reasoning(&self, prompt: &str) -> bool {
        let start = self.format.reasoning.as_ref().and_then(|around| around.start.text()).unwrap_or_default().trim();
        !start.is_empty() && prompt.trim_end().ends_with(start)
    }
}
