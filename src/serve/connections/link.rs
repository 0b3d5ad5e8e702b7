//! What the server knows of its connections: which of them it waits for, and since when.

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// It waits for a request, or reads its headers.
const IDLE: u8 = 0;
/// It reads a body.
const READING: u8 = 1;
/// It answers, or waits for its turn.
const ANSWERING: u8 = 2;

/// How often it is looked for a place.
const LOOK: Duration = Duration::from_millis(20);

/// One connection.
pub(super) struct Link {
    id: u64,
    state: AtomicU8,
    /// Whether the client does not read what is written to it.
    blocked: AtomicBool,
    /// When something came or went last, in milliseconds since the server began.
    moved: AtomicU64,
    /// How many requests there were.
    requests: AtomicU32,
    began: Instant,
    dismissed: Notify,
    is_dismissed: AtomicBool,
}

impl Link {
    /// Returns whether no request is being read or answered.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IDLE
    }

    /// Returns whether the server has to do the next step.
    pub(super) fn is_answering(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ANSWERING
    }

    /// The number of the request.
    pub(super) fn request(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Notes that something came or went.
    pub(super) fn move_on(&self) {
        self.moved.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Notes whether the client reads.
    pub(super) fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// Returns whether the client does not read what is written to it.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Returns once its place is needed for another.
    pub(super) async fn dismissed(&self) {
        self.dismissed.notified().await;
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
        self.move_on();
    }
}

/// All connections.
pub(super) struct Links {
    open: Mutex<Vec<Arc<Link>>>,
    next: AtomicU64,
    began: Instant,
    most: usize,
    /// One has ended.
    freed: Notify,
}

impl Links {
    /// Room for so many.
    pub(super) fn new(most: usize) -> Links {
        Links { open: Mutex::default(), next: AtomicU64::new(0), began: Instant::now(), most, freed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new one.
    pub(super) fn add(&self) -> Arc<Link> {
        let link = Arc::new(Link {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            state: AtomicU8::new(IDLE),
            blocked: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            began: self.began,
            dismissed: Notify::new(),
            is_dismissed: AtomicBool::new(false),
        });
        link.move_on();
        self.lock().push(Arc::clone(&link));
        link
    }

    pub(super) fn remove(&self, link: &Link) {
        self.lock().retain(|open| open.id != link.id);
        self.freed.notify_one();
    }

    /// Waits until there is a place for one more.
    pub(super) async fn make_room(&self) {
        let is_full = || self.lock().len() >= self.most;
        while is_full() {
            self.dismiss_one();
            // A client may begin to keep the server waiting at any time.
            let _ = tokio::time::timeout(LOOK, self.freed.notified()).await;
        }
    }

    /// Ends the connection that has waited for its client the longest, if one does and none is ending.
    pub(super) fn dismiss_one(&self) {
        let open = self.lock();
        if open.iter().any(|link| link.is_dismissed.load(Ordering::Relaxed)) {
            return;
        }
        let waits = |link: &&Arc<Link>| !link.is_answering() || link.is_blocked();
        if let Some(link) = open.iter().filter(waits).min_by_key(|link| link.moved.load(Ordering::Relaxed)) {
            link.is_dismissed.store(true, Ordering::Relaxed);
            link.dismissed.notify_one();
        }
    }

    /// Waits until all have ended.
    pub(super) async fn are_gone(&self) {
        while !self.lock().is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// One request of a connection, from its headers to the end of its answer.
pub(super) struct Answering(Arc<Link>);

impl Answering {
    pub(super) fn begin(link: &Arc<Link>) -> Answering {
        link.requests.fetch_add(1, Ordering::Relaxed);
        link.set(READING);
        Answering(Arc::clone(link))
    }

    /// The body of the request. Once it is read, or not wanted, the server answers.
    pub(super) fn reads(&self, body: Incoming) -> Body {
        if body.is_end_stream() {
            self.0.set(ANSWERING);
        }
        Body::new(Request { body, link: Arc::clone(&self.0) })
    }

    /// The body of the answer. Once it is written, the connection waits for the next request.
    pub(super) fn writes(self, body: Body) -> Body {
        Body::new(Response { body, _answering: self })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set(IDLE);
    }
}

struct Request {
    body: Incoming,
    link: Arc<Link>,
}

impl HttpBody for Request {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if self.body.is_end_stream() || matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.link.set(ANSWERING);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.link.state.load(Ordering::Relaxed) == READING {
            self.link.set(ANSWERING);
        }
    }
}

struct Response {
    body: Body,
    _answering: Answering,
}

impl HttpBody for Response {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
