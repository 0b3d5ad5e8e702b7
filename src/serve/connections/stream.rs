//! A client's stream, with what shows whether the client is still there.
//!
//! A client that has closed its half of the stream may wait for its answer, or be gone: TCP does not tell them apart before
//! something is written. So the first bytes of the answer, which are those of every answer, are written at once. A client that
//! is gone then resets the connection, and its answer is ended.

use super::link::Link;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long a client may take to read what is written to it.
const WRITE: Duration = Duration::from_secs(30);
/// How often it is looked whether a client that says nothing more is there.
const LOOK: Duration = Duration::from_millis(200);
/// How long the rest of a request, which has arrived, may take to be read.
const REST: Duration = Duration::from_secs(5);
/// How every answer begins, that to a client of HTTP/1.0 too.
const BEGINNING: &[u8] = b"HTTP/1.";

/// The stream of one client.
pub(super) struct Watched {
    stream: TcpStream,
    link: Arc<Link>,
    /// When a write has taken too long.
    late: Option<Pin<Box<Sleep>>>,
    /// When the client has ended its half.
    half_closed: Option<Instant>,
    /// When to look again whether the client is there.
    look: Option<Pin<Box<Sleep>>>,
    /// How many bytes of the answer were written ahead of it.
    ahead: usize,
    /// The request to which something was written last.
    written: u32,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, link: Arc<Link>) -> Watched {
        Watched { stream, link, late: None, half_closed: None, look: None, ahead: 0, written: 0 }
    }

    /// Returns what comes after the last byte: the end, once the answer is written, or where the request is not whole.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let cut_off = self.half_closed.is_some_and(|since| since.elapsed() > REST);
        if !self.link.is_blocked() && (self.link.is_idle() || cut_off && !self.link.is_answering()) {
            return Poll::Ready(Ok(()));
        }
        // What a client does not read yet belongs to the answer before.
        if self.written < self.link.request() && self.link.is_answering() && !self.link.is_blocked() {
            self.written = self.link.request();
            if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, BEGINNING) {
                self.ahead = written?;
            }
        }
        loop {
            if let Some(error) = self.stream.take_error()? {
                return Poll::Ready(Err(error));
            }
            let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
            if look.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.look = None;
        }
    }

    /// Watches how long a write takes.
    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.late = None;
            self.link.set_blocked(false);
            self.link.move_on();
            return written;
        }
        self.link.set_blocked(true);
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(WRITE)));
        match late.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.half_closed.is_none() {
            let before = buf.filled().len();
            let read = std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
            if read.is_err() || buf.filled().len() > before || buf.remaining() == 0 {
                this.link.move_on();
                return Poll::Ready(read);
            }
            this.half_closed = Some(Instant::now());
        }
        this.poll_end(cx)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.written = this.link.request();
        if this.ahead > 0 && !bytes.is_empty() {
            let first = bytes.len().min(this.ahead);
            this.ahead -= first;
            return Poll::Ready(Ok(first));
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.watch(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.watch(cx, ended)
    }
}
