//! One answer of the model: from the conversation to the reply.

use super::constrain;
use super::constrain::Form;
use super::event::{Cut, Event, FinishReason, Note, NoteKind, Reply};
use super::explain::NoCall;
use super::listen::Listener;
use super::prompt::{AnswerRequest, Written};
use super::reader::{Read, Reader};
use super::record::Ended;
use super::repeats::Repeats;
use super::{Options, Session, ToolChoice, decide};
use crate::Result;
use crate::constraint::{Compiler, Constraint, Mode};
use crate::decision::{CallProbability, Decided, Decision, Opening, Thresholds};
use crate::engine::sampler::Sampler;
use crate::engine::{Engine, Prompt, Token};
use crate::format::{Format, Marker};
use crate::generate::{End, Generation, Guides, Limits, Probabilities, Usage, read};
use crate::message::{Message, Role};
use crate::parse::{OtherForms, Parser, ParserOptions, notes};
use crate::tool::Tools;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

impl Session {
    /// Generates and parses one answer; the conversation stays as it is.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn answer(&mut self, request: &AnswerRequest, on_event: &mut dyn FnMut(&Event)) -> Result<Reply> {
        let mut request = request.clone();
        let (written, context) = self.write(&mut request, on_event)?;
        let adapted: Vec<String> =
            written.adapted.iter().filter(|note| self.reported.insert((*note).clone())).cloned().collect();
        adapted.iter().for_each(|message| on_event(&Event::history(message.clone())));

        let mut request = self.prompts.writer.limited(&request);
        let form = constrain::respond_in_format(self.format(), &request.tools, &mut request.options)?;
        let options = &request.options;
        let prompt_tail = self.prompts.writer.prompt_tail(&request, &written);
        let stops = self.stops(options);
        let mut reader = self.reader(&request, &prompt_tail, &stops, on_event)?;
        // What the prompt opened is the beginning of what the model says.
        reader.push(written.prefill.as_bytes());
        let (generation, ended) = self.generate(&request, &written, form, &mut reader)?;
        let is_closed = generation.closed_from.is_some();
        if matches!(ended.end, End::Length | End::Late | End::Cancelled) || reader.is_looped() && !is_closed {
            reader.cut_off();
        }
        let read = reader.finish();
        let answered = Answered { written, generation, ended, read, options, prompt_tail, adapted, context };
        let mut reply = answered.reply(&*self.engine, on_event);
        if let Some(message) = self.no_call(&request, &reply) {
            reply.notes.push(Note::plain(NoteKind::NoCall, message));
        }
        log(&request, &reply);
        Ok(reply)
    }

    /// Writes the prompt of an answer, and reports what was done about the context.
    fn write(
        &mut self,
        request: &mut AnswerRequest,
        on_event: &mut dyn FnMut(&Event),
    ) -> Result<(Written, Vec<String>)> {
        let Session { prompts, engine, recording, tools, .. } = self;
        let (written, mut notes) = prompts.fit(&**engine, recording, request, tools)?;
        notes.extend(prompts.rewritten(&**engine, request, &written));
        if let Some(selected) = self.selector.report(&request.tools, &self.tools, &self.options) {
            on_event(&Event::Selected(selected));
        }
        notes.extend(prompts.large_tools(&**engine, recording, request, &written)?);
        notes.iter().for_each(|message| on_event(&Event::context(message.clone())));
        Ok((written, notes))
    }

    /// Generates an answer of a form, which `reader` reads meanwhile.
    fn generate(
        &mut self,
        request: &AnswerRequest,
        written: &Written,
        form: Form,
        reader: &mut Reader<'_>,
    ) -> Result<(Generation, Ended)> {
        let options = &request.options;
        let Session { engine, prompts, compiling, deciding, .. } = self;
        let format = &prompts.writer.format;
        let begun = (written.prefill.as_bytes(), written.thinking);
        let unavailable = constrain::unavailable(&**engine, options);
        if let Some(server) = engine.server_mut() {
            server.prepare(&written.prompt.pieces, options, request.until);
        }
        let question = match engine.server() {
            None => question(&**engine, written, &request.messages),
            Some(_) => 0,
        };
        // What is wrong with a grammar shows before a long prompt is read, unless the compiler is being made meanwhile.
        let after_result = request.messages.last().is_some_and(|message| message.role == Role::Tool);
        let json = form.json.filter(|_| after_result && !written.thinking && engine.server().is_none());
        let constraint = match compiling.is_coming() || json.is_some() {
            true => None,
            false => Some(constrain::begin(compiling, &**engine, format, request, begun)?),
        };
        let read = read(
            &mut **engine,
            Prompt { tokens: &written.tokens, question },
            Sampler::new(options.sampling).biased(&options.logit_bias),
            Limits { max_tokens: options.max_tokens, cancel: &options.cancel, until: request.until },
            decide::ahead(format, request),
            &mut *self.on_prompt,
        )?;
        let mut request = Cow::Borrowed(request);
        let (mut constraint, notices) = match constraint {
            Some(begun) => begun,
            None => {
                // A grammar of calls and JSON has no place for text: a model that would have written text may call again and again.
                let vocabulary = compiling.made.as_ref().map(Compiler::vocabulary);
                if let Some(json) = json.filter(|_| deciding.prefers_text(vocabulary, read.engine(), format)) {
                    request.to_mut().options.grammar = Some(json);
                }
                constrain::begin(compiling, read.engine(), format, &request, begun)?
            }
        };
        let request = &*request;
        let options = &request.options;
        let mut notices: Vec<String> = form.unenforced.into_iter().chain(notices).collect();
        notices.extend(unavailable.into_iter().filter(|note| self.reported.insert(note.clone())));
        let vocabulary = constraint.as_ref().map(Constraint::vocabulary);
        let opening = deciding.opening(vocabulary, read.engine(), format, request);
        let mut decision = opening.map(|opening| decide::decision(opening, request, written.thinking));

        // A repeated answer is not constrained, and ends where it ended when it was recorded.
        let repeated = self.recording.next_end();
        let closed_from = repeated.as_ref().and_then(|ended| ended.closed_from);
        let decided = decision.as_ref().map(Decision::watched).unwrap_or_default();
        decided.set(repeated.as_ref().and_then(|ended| ended.decided));
        let mut count = 0;
        // JSON that a schema demands is closed where it repeats itself, and not cut off.
        let is_json = is_whole(options) && options.grammar.as_ref().is_some_and(|grammar| grammar.schema.is_some());
        let closer = constraint.as_ref().filter(|_| is_json).map(Constraint::closer);
        let probabilities = options.logprobs.map(Probabilities::new);
        let mut generation = read.write(
            Guides {
                constraint: constraint.as_mut(),
                decision: decision.as_mut(),
                probabilities: probabilities.as_ref(),
                no_drafts: !options.draft,
            },
            &mut |bytes, closing| {
                if closing || closed_from.is_some_and(|from| from <= count) {
                    reader.closing();
                }
                count += 1;
                probabilities
                    .iter()
                    .flat_map(Probabilities::take)
                    .for_each(|token| reader.report(&Event::Token(token)));
                if decided.get() == Some(Decided::Text) {
                    reader.forbid_calls();
                }
                let is_over = reader.token(bytes);
                let closes = || closer.as_ref().is_some_and(|closer| closing || !closer.replace(true));
                if is_over && !(reader.is_looped() && closes()) {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        )?;
        generation.usage.cost = cost(self.prices, &generation.usage);
        if let Some(marker) = constrain::end_marker(&**engine, format, &mut generation) {
            reader.push(marker.as_bytes());
        }
        let context_is_limit = engine.context_limit().saturating_sub(written.tokens.len()) < options.max_tokens;
        let (more, shortage) = constrain::end(constraint.as_ref(), &mut self.unenforced, context_is_limit);
        notices.extend(more);
        let ended = Ended {
            end: generation.end,
            closed_from: generation.closed_from,
            shortage,
            notices,
            call_probability: decision.as_ref().and_then(Decision::found),
            decided: decision.as_ref().and_then(Decision::decided),
        };
        self.recording.answered(&**engine, written, &options.sampling, &generation, &ended)?;
        Ok((generation, repeated.unwrap_or(ended)))
    }

    /// The texts that end an answer. One would cut an answer that has to fit a grammar as a whole.
    fn stops(&self, options: &Options) -> Vec<String> {
        if is_whole(options) { Vec::new() } else { [&options.stop[..], &self.turn_markers].concat() }
    }

    /// Returns what reads an answer while it is generated.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn reader<'a>(
        &self,
        request: &'a AnswerRequest,
        prompt_tail: &str,
        stops: &'a [String],
        on_event: &'a mut dyn FnMut(&Event),
    ) -> Result<Reader<'a>> {
        let options = &request.options;
        // Also tools that are not in the prompt: a call of one still has to fit it.
        let tools = (!request.tools.is_empty()).then(|| Arc::clone(&request.tools));
        let parses = parser_options(options, &request.messages, &request.tools, prompt_tail).with(|set| {
            set.session.earlier_calls += request.dropped.len();
            set.session.taken_ids.extend(request.dropped.iter().cloned());
        });
        let parser = Parser::new(self.format(), tools, parses)?;
        let text_after_calls = options.text_after_calls || self.format().text_after_calls;
        let ends_after_calls = request.shown_tools().is_some() && options.constrain != Mode::Off && !text_after_calls;
        let listener = Listener::new(stops, options, repeats(request), ends_after_calls);
        let control = marker_tokens(&*self.engine, self.format());
        Ok(Reader::new(parser, listener, on_event).with_control_tokens(control))
    }

    /// The note on an answer that has no call, although there are tools: in full where that is asked for.
    fn no_call(&mut self, request: &AnswerRequest, reply: &Reply) -> Option<String> {
        let why = NoCall::of(self.format(), self.base, request, reply)?;
        if request.options.explain {
            return Some(why.in_full(&self.prompts, &*self.engine, request, reply));
        }
        let note = why.in_short(&self.engine.model().name, request, reply)?;
        // What the model is need not be said of each answer.
        (!self.base || self.reported.insert(note.clone())).then_some(note)
    }

    /// How likely the next answer begins with a call, without generating it: the prompt is decoded, and the start marker.
    /// `None` where the model does not decide, the format does not say how calls begin, or the answer begins with reasoning
    /// (see [`Reply::call_probability`]).
    ///
    /// # Errors
    /// Those of [`Session::respond`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn call_probability(&mut self) -> Result<Option<CallProbability>> {
        let mut request = self.request()?;
        let Session { prompts, engine, recording, compiling, deciding, tools, .. } = self;
        let (written, _) = prompts.fit(&**engine, recording, &mut request, tools)?;
        let format = &prompts.writer.format;
        compiling.wait();
        let vocabulary = compiling.made.as_ref().map(Compiler::vocabulary);
        let Some(opening) = deciding.opening(vocabulary, &**engine, format, &request) else { return Ok(None) };
        let limits = Limits { max_tokens: 0, cancel: &request.options.cancel, until: request.until };
        let ahead = Opening::most_tokens(format);
        let sampler = Sampler::new(request.options.sampling);
        let read = read(&mut **engine, written.tokens.as_slice().into(), sampler, limits, ahead, &mut *self.on_prompt)?;
        let asked = (true, decide::reads_others(&request.options));
        let mut decision = Decision::new(opening, asked, Thresholds::default(), written.thinking);
        let guides = Guides { decision: Some(&mut decision), ..Guides::default() };
        read.write(guides, &mut |_: &[u8], _: bool| ControlFlow::Continue(()))?;
        Ok(decision.found().filter(|_| !decision.is_open()))
    }
}

/// Says in the log how an answer came about; nothing of what was written.
fn log(request: &AnswerRequest, reply: &Reply) {
    let (usage, options) = (&reply.usage, &request.options);
    let seconds = usage.prompt_time.as_secs_f64();
    tracing::info!(
        "prompt: {} tokens, {} of them from the cache, {seconds:.2} s; {} tools",
        usage.prompt_tokens,
        usage.cached_tokens,
        request.shown_tools().map_or(0, |tools| tools.len())
    );
    if let Some(found) = &reply.call_probability {
        let threshold = options.call_threshold.map_or("no threshold".to_owned(), |least| format!("threshold {least}"));
        let decided = match reply.decided {
            Some(Decided::Call) => "it has to be a call",
            Some(Decided::Text) => "it has to be text",
            None => "the model chooses",
        };
        tracing::info!("decision: a call has the probability {:.3}; {threshold}; {decided}", found.value());
    }
    let (tokens, seconds) = (usage.completion_tokens, usage.completion_time.as_secs_f64());
    let speed = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    let ended = serde_json::json!(reply.finish_reason);
    tracing::info!(
        "answer: {tokens} tokens, {seconds:.2} s, {speed:.0} tokens a second; calls: {}; finish_reason {}",
        reply.calls.len(),
        ended.as_str().unwrap_or_default()
    );
}

/// An answer that was generated and read.
struct Answered<'a> {
    written: Written,
    generation: Generation,
    ended: Ended,
    read: Read,
    options: &'a Options,
    prompt_tail: String,
    /// How the conversation was adapted for the chat template.
    adapted: Vec<String>,
    /// What was done about the context.
    context: Vec<String>,
}

impl Answered<'_> {
    /// Reports how the answer ended, and collects what is known of it.
    fn reply(self, engine: &dyn Engine, on_event: &mut dyn FnMut(&Event)) -> Reply {
        let Answered { written, generation, ended, read, options, prompt_tail, adapted, context } = self;
        let Read { parsed, stopped, looped, repetition, dropped_from } = read;
        let finish_reason = match ended.end {
            End::Stopped if looped.is_some() => FinishReason::Loop,
            _ => finish_reason(&ended, stopped, parsed.calls.is_empty()),
        };
        let cut = (finish_reason == FinishReason::Length).then(|| cut(engine, &ended, &generation, options));
        ended.notices.iter().for_each(|message| on_event(&Event::constraint(message.clone())));
        on_event(&Event::answered(generation.usage, ended.call_probability, ended.decided));
        let (raw, closed_from) = raw(engine, &written.prefill, &generation, ended.closed_from);
        let misfits = match finish_reason {
            FinishReason::Cancelled => Vec::new(),
            // Calls are what an answer may be in place of JSON.
            _ if !parsed.calls.is_empty() && options.response_format.is_some() => Vec::new(),
            _ if written.thinking || stopped => constrain::misfits(options, parsed.content.as_bytes(), &ended.shortage),
            _ => constrain::misfits(options, &raw, &ended.shortage),
        };
        misfits.iter().for_each(|message| on_event(&Event::constraint(message.clone())));
        let mut notes = notes(&parsed);
        let plain = |kind| move |message| Note::plain(kind, message);
        notes.extend(looped.map(plain(NoteKind::Loop)));
        notes.extend(repetition.map(plain(NoteKind::Answer)));
        notes.extend(adapted.into_iter().map(plain(NoteKind::History)));
        notes.extend(misfits.into_iter().map(plain(NoteKind::Problem)));
        notes.extend(context.into_iter().map(plain(NoteKind::Context)));
        notes.extend(ended.notices.iter().cloned().map(plain(NoteKind::Constraint)));
        Reply {
            message: parsed.message(),
            calls: parsed.calls,
            finish_reason,
            cut,
            usage: generation.usage,
            notes,
            prompt: written.text,
            raw,
            closed_from,
            dropped_from,
            tokens: generation.tokens,
            forced: generation.forced,
            prompt_tail,
            call_probability: ended.call_probability,
            decided: ended.decided,
        }
    }
}

/// How an answer to these messages is parsed, where these tools may be called.
pub fn parser_options(options: &Options, messages: &[Message], tools: &Tools, prompt_tail: &str) -> ParserOptions {
    let calls = messages.iter().flat_map(|message| &message.tool_calls);
    let taken_ids: Vec<String> = calls.filter_map(|call| call.id.clone()).collect();
    // Without tools, or where the answer is to be JSON, text that looks like a call is text.
    let only_text = tools.is_empty() || options.grammar.is_some() || options.response_format.is_some();
    ParserOptions::default()
        .with(|set| {
            set.repair = options.repair;
            set.coerce = options.coerce;
            set.normalize_names = options.normalize_names;
            set.session.earlier_calls = taken_ids.len();
            set.session.taken_ids = taken_ids;
            set.prompt_tail = prompt_tail.to_owned();
            set.session.forbidden = options.tool_choice == ToolChoice::None;
            set.other_forms = if only_text { OtherForms::Off } else { options.other_forms };
            // Then the grammar leaves no room for anything but calls.
            let required = matches!(options.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
            set.session.constrained = options.constrain != Mode::Off;
            set.session.trusted = required && set.session.constrained;
        })
        .answering(messages)
}

/// The control tokens of the model that are in the format's markers.
fn marker_tokens(engine: &dyn Engine, format: &Format) -> Vec<String> {
    let in_marker = |token: &&String| {
        let mut texts = format.markers().filter_map(Marker::text);
        !token.is_empty() && texts.any(|text| text.contains(token.as_str()))
    };
    engine.model().control_tokens.iter().filter(in_marker).cloned().collect()
}

/// The number of tokens before the last question of a prompt; 0 if the prompt has it in other words.
fn question(engine: &dyn Engine, written: &Written, messages: &[Message]) -> usize {
    let question = messages.iter().rev().find(|message| message.role == Role::User);
    let place = question
        .filter(|question| !question.content.is_empty())
        .and_then(|question| written.text.rfind(&question.content));
    let Some(place) = place else { return 0 };
    let mut bytes = 0;
    let is_before = |token: &&Token| {
        bytes += engine.token_bytes(**token).len();
        bytes <= place
    };
    written.tokens.iter().take_while(is_before).count()
}

/// Returns whether a grammar holds the answer as a whole.
fn is_whole(options: &Options) -> bool {
    options.grammar.is_some() && options.constrain != Mode::Off
}

/// Returns what looks for repetitions in an answer; none where nothing is looked for.
fn repeats(request: &AnswerRequest) -> Option<Repeats<'_>> {
    let options = &request.options;
    let response = || options.response_format.as_ref().map(|wanted| &wanted.schema);
    let schema = options.grammar.as_ref().and_then(|grammar| grammar.schema.as_ref()).or_else(response);
    // A user's grammar may ask for anything.
    let unknown = is_whole(options) && schema.is_none();
    (options.loop_guard && !unknown).then(|| Repeats::new(&request.tools, schema))
}

/// Returns what an answer cost by the prices of a million tokens, if there are any.
fn cost(prices: Option<(f64, f64)>, usage: &Usage) -> f64 {
    let (prompt, answer) = prices.unwrap_or_default();
    (usage.prompt_tokens as f64 * prompt + usage.completion_tokens as f64 * answer) / 1e6
}

/// Why an answer ended.
fn finish_reason(ended: &Ended, stopped: bool, no_calls: bool) -> FinishReason {
    match ended.end {
        // The last tokens may hold a stop text that shows only where the text has ended.
        End::Length | End::Late if stopped && no_calls => FinishReason::Stop,
        End::Length | End::Late if stopped => FinishReason::ToolCalls,
        End::Cancelled => FinishReason::Cancelled,
        End::Length | End::Late => FinishReason::Length,
        _ if ended.closed_from.is_some() || ended.shortage.no_room && no_calls => FinishReason::Length,
        End::EndOfTurn | End::Stopped if no_calls => FinishReason::Stop,
        End::EndOfTurn | End::Stopped => FinishReason::ToolCalls,
    }
}

/// Returns what cut an answer off.
fn cut(engine: &dyn Engine, ended: &Ended, generation: &Generation, options: &Options) -> Cut {
    match ended.end {
        _ if ended.closed_from.is_some() || ended.shortage.is_reported() => Cut::Constraint,
        End::Late => Cut::Time,
        _ if generation.tokens.len() >= options.max_tokens => Cut::MaxTokens,
        _ if engine.server().is_some() => Cut::Server,
        _ => Cut::Context,
    }
}

/// The bytes of an answer, and from which byte on the grammar closed it if the token `closed_from` was its first.
fn raw(
    engine: &dyn Engine,
    prefill: &str,
    generation: &Generation,
    closed_from: Option<usize>,
) -> (Vec<u8>, Option<usize>) {
    let mut raw = prefill.as_bytes().to_vec();
    let mut closed = None;
    for (index, token) in generation.tokens.iter().enumerate() {
        if closed_from == Some(index) {
            closed = Some(raw.len());
        }
        raw.extend_from_slice(engine.token_bytes(*token));
    }
    (raw, closed)
}
