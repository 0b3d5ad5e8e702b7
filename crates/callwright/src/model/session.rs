//! Sessions with a model of that name, or from parts, each with a default.

use super::Model;
use crate::Result;
use crate::engine::Engine;
use crate::format::Format;
use crate::message::Message;
use crate::models::bundled;
use crate::session::{Options, Session};
use crate::template::ChatTemplate;
use crate::tool::Tools;

/// What a [`Session`] is made of; made by [`Session::builder`].
#[derive(Default)]
#[must_use]
pub struct SessionBuilder {
    model: Option<String>,
    engine: Option<Box<dyn Engine>>,
    template: Option<ChatTemplate>,
    format: Option<Format>,
    tools: Option<Tools>,
    messages: Vec<Message>,
    options: Option<Options>,
}

impl SessionBuilder {
    /// The model, by name, path or place on the hub, as for [`Model::open`]; by default the bundled one.
    pub fn model(mut self, name: impl Into<String>) -> SessionBuilder {
        self.model = Some(name.into());
        self
    }

    /// An engine in place of a model's name: a scripted one, or one of a model.
    pub fn engine(mut self, engine: impl Engine + 'static) -> SessionBuilder {
        self.engine = Some(Box::new(engine));
        self
    }

    /// A chat template in place of the model's own.
    pub fn template(mut self, template: ChatTemplate) -> SessionBuilder {
        self.template = Some(template);
        self
    }

    /// A tool-call format in place of the template's.
    pub fn format(mut self, format: Format) -> SessionBuilder {
        self.format = Some(format);
        self
    }

    /// Returns what the model may call; by default nothing.
    pub fn tools(mut self, tools: Tools) -> SessionBuilder {
        self.tools = Some(tools);
        self
    }

    /// The conversation so far; by default it is empty.
    pub fn messages(mut self, messages: Vec<Message>) -> SessionBuilder {
        self.messages = messages;
        self
    }

    /// How answers are generated; by default with the sampling that the model's makers recommend.
    pub fn options(mut self, options: Options) -> SessionBuilder {
        self.options = Some(options);
        self
    }

    /// Opens the model and starts the conversation.
    ///
    /// # Errors
    /// Those of [`Model::open`], of the template and the format, and [`Session::set_messages`].
    pub fn build(self) -> Result<Session> {
        let mut session = match self.engine {
            Some(engine) => Session::new(engine, self.template, self.format)?,
            None => Model::open(self.model.as_deref().unwrap_or(bundled::NAME))?.start(self.template, self.format)?,
        };
        if let Some(options) = self.options {
            *session.options_mut() = options;
        }
        if let Some(tools) = self.tools {
            session.set_tools(tools);
        }
        if !self.messages.is_empty() {
            session.set_messages(self.messages)?;
        }
        Ok(session)
    }
}

impl Session {
    /// Opens a model by name or path and starts a conversation with it; see [`Model::open`].
    ///
    /// # Errors
    /// Those of [`Model::open`]; [`ErrorKind::Template`](crate::ErrorKind::Template) when the chat template does not compile.
    pub fn open(name: impl AsRef<str>) -> Result<Session> {
        Model::open(name.as_ref())?.session()
    }

    /// A conversation from parts, each of which has a default: the bundled model, its own template and format, no tools.
    ///
    #[cfg_attr(feature = "llama", doc = "```")]
    #[cfg_attr(not(feature = "llama"), doc = "```no_run")]
    /// use callwright::{Session, Tools};
    ///
    /// let tools = Tools::from_json(r#"[{"name": "get_date", "description": "Get the date of today"}]"#, "tools")?;
    /// let mut session = Session::builder().model("bundled").tools(tools).build()?;
    /// let reply = session.ask("What is the date today?")?;
    /// assert!(reply.runnable_calls().all(|call| call.name == "get_date"));
    /// # Ok::<(), callwright::Error>(())
    /// ```
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }
}
