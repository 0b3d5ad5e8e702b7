//! What servers have for people: resources and prompts, and questions that they ask.

use super::result;
use super::server::{LIST, PAGES, Server};
use crate::agent::exec::remote::{Offer, Person, Use};
use rmcp::model::{
    ErrorCode, GetPromptRequestParams, PaginatedRequestParams, PromptMessage, ReadResourceRequestParams,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The person whom servers ask, if there is one, and how many questions wait for an answer.
#[derive(Clone, Default)]
pub(super) struct Asking {
    person: Arc<Mutex<Option<Person>>>,
    open: Arc<AtomicUsize>,
}

impl Asking {
    pub(super) fn set(&self, person: Person) {
        *self.person.lock().unwrap_or_else(PoisonError::into_inner) = Some(person);
    }

    /// Whether a question waits for its answer.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// The person's answer to a server's question; none where nobody is there, or the person declines.
    pub(super) async fn ask(&self, server: String, message: String, schema: Value) -> Option<Map<String, Value>> {
        let person = self.person.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        self.open.fetch_add(1, Ordering::Relaxed);
        // A person takes a while, and what the server sends meanwhile has to be read.
        let answer = tokio::task::spawn_blocking(move || person(&server, &message, &schema)).await;
        self.open.fetch_sub(1, Ordering::Relaxed);
        answer.ok().flatten()
    }
}

impl Server {
    /// The resources and prompts that the server lists.
    pub(super) async fn offers(&self) -> Result<Vec<Offer>, String> {
        let both = async {
            let mut offers = self.resources().await?;
            offers.extend(self.prompts().await?);
            Ok(offers)
        };
        match tokio::time::timeout(LIST, both).await {
            Ok(offers) => offers,
            Err(_) => Err(format!("it did not list them within {} s", LIST.as_secs())),
        }
    }

    fn offer(&self, name: String, description: Option<String>, used: Use) -> Offer {
        Offer { server: self.config.name.clone(), name, description: description.unwrap_or_default(), used }
    }

    async fn resources(&self) -> Result<Vec<Offer>, String> {
        let (mut offers, mut next): (Vec<Offer>, _) = (Vec::new(), None);
        for _ in 0..PAGES {
            match self.peer.list_resources(next.take()).await {
                Ok(page) => {
                    let before = offers.len();
                    for resource in page.resources {
                        let used = Use::Resource(resource.uri);
                        if !offers.iter().any(|offer| offer.used == used) {
                            offers.push(self.offer(resource.name, resource.description.or(resource.title), used));
                        }
                    }
                    next = following(page.next_cursor).filter(|_| offers.len() > before);
                }
                Err(error) => self.unless_unknown(error).await?,
            }
            if next.is_none() {
                break;
            }
        }
        Ok(offers)
    }

    async fn prompts(&self) -> Result<Vec<Offer>, String> {
        let (mut offers, mut next): (Vec<Offer>, _) = (Vec::new(), None);
        for _ in 0..PAGES {
            match self.peer.list_prompts(next.take()).await {
                Ok(page) => {
                    let before = offers.len();
                    for prompt in page.prompts {
                        let arguments = prompt.arguments.unwrap_or_default().into_iter();
                        let arguments = arguments.map(|argument| (argument.name, argument.required == Some(true)));
                        let used = Use::Prompt(arguments.collect());
                        if !offers.iter().any(|offer| offer.name == prompt.name) {
                            offers.push(self.offer(prompt.name, prompt.description.or(prompt.title), used));
                        }
                    }
                    next = following(page.next_cursor).filter(|_| offers.len() > before);
                }
                Err(error) => self.unless_unknown(error).await?,
            }
            if next.is_none() {
                break;
            }
        }
        Ok(offers)
    }

    /// A server that does not know such a list has none.
    async fn unless_unknown(&self, error: ServiceError) -> Result<(), String> {
        match error {
            ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok(()),
            error => Err(self.why(error).await),
        }
    }

    /// The text of a resource, or of a prompt with these arguments.
    pub(super) async fn take(&self, offer: &Offer, arguments: Map<String, Value>) -> Result<String, String> {
        let taken = async {
            match &offer.used {
                Use::Resource(uri) => {
                    let read = self.peer.read_resource(ReadResourceRequestParams::new(uri.clone())).await?;
                    Ok(read.contents.iter().map(result::contents).collect::<Vec<_>>().join("\n"))
                }
                Use::Prompt(_) => {
                    let asked = GetPromptRequestParams::new(offer.name.clone()).with_arguments(arguments);
                    let written = self.peer.get_prompt(asked).await?;
                    let text = |message: &PromptMessage| result::block(&message.content);
                    Ok(written.messages.iter().map(text).collect::<Vec<_>>().join("\n\n"))
                }
            }
        };
        match tokio::time::timeout(LIST, taken).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(self.why(error).await),
            Err(_) => Err(format!("it did not answer within {} s", LIST.as_secs())),
        }
    }
}

fn following(cursor: Option<String>) -> Option<PaginatedRequestParams> {
    let cursor = cursor.filter(|cursor| !cursor.is_empty())?;
    Some(PaginatedRequestParams::default().with_cursor(Some(cursor)))
}
