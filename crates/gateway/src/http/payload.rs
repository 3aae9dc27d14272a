//! The body of a response, whatever version carries it.

use std::{
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{
    follow::Follow,
    io::Progress,
    unread::{SMALL_BYTES, Step, Unread},
};
use crate::{administration::Download, unfinished::Waiter};

/// The body of a response: empty, bytes, or a stream of events.
pub(super) struct Payload {
    kind: Kind,
    /// Counts the request as open until its answer is out.
    open: Option<Open>,
}

/// The end of a body that is not complete: the connection or the stream is broken off, so that the client sees it.
#[derive(Debug, thiserror::Error)]
#[error("the file is incomplete")]
pub(super) struct Incomplete;

enum Kind {
    Empty,
    /// The body of the response to HEAD on a stream.
    Unsized,
    Full(Option<Bytes>),
    /// Bytes that are counted until the client has taken them.
    Unread(Box<Unread>),
    Events(Box<Follow>),
    /// A file that is sent while it is made.
    Download(Box<Download>),
    /// A stream that is written without hyper.
    Elsewhere(Rc<Progress>),
}

impl Payload {
    pub(super) fn empty() -> Self {
        Self { kind: Kind::Empty, open: None }
    }

    /// An empty body without a length.
    pub(super) fn unsized_empty() -> Self {
        Self { kind: Kind::Unsized, open: None }
    }

    pub(super) fn full(bytes: Bytes) -> Self {
        let kind = if bytes.is_empty() { Kind::Empty } else { Kind::Full(Some(bytes)) };
        Self { kind, open: None }
    }

    pub(super) fn unread(unread: Unread) -> Self {
        Self { kind: Kind::Unread(Box::new(unread)), open: None }
    }

    pub(super) fn events(follow: Follow) -> Self {
        Self { kind: Kind::Events(Box::new(follow)), open: None }
    }

    pub(super) fn download(download: Download) -> Self {
        Self { kind: Kind::Download(Box::new(download)), open: None }
    }

    /// The placeholder of a stream that takes over the connection once the head of the response is written.
    pub(super) fn elsewhere(progress: &Rc<Progress>) -> Self {
        Self { kind: Kind::Elsewhere(Rc::clone(progress)), open: None }
    }

    pub(super) fn holding(mut self, open: Open) -> Self {
        self.open = Some(open);
        self
    }

    /// The bytes, if it is no stream.
    pub(super) fn known(&self) -> Option<Bytes> {
        match &self.kind {
            Kind::Empty => Some(Bytes::new()),
            Kind::Full(bytes) => bytes.clone(),
            Kind::Unread(unread) => Some(unread.rest().clone()),
            Kind::Unsized | Kind::Events(_) | Kind::Download(_) | Kind::Elsewhere(_) => None,
        }
    }

    /// The bytes, if they are so many that they have to be counted until the client has taken them.
    pub(super) fn large(&self) -> Option<Bytes> {
        match &self.kind {
            Kind::Full(Some(bytes)) if bytes.len() > SMALL_BYTES => Some(bytes.clone()),
            Kind::Full(_)
            | Kind::Empty
            | Kind::Unsized
            | Kind::Unread(_)
            | Kind::Events(_)
            | Kind::Download(_)
            | Kind::Elsewhere(_) => None,
        }
    }

    /// The place among the unread answers, if it is counted.
    pub(super) fn waiter(&self) -> Option<&Arc<Waiter>> {
        match &self.kind {
            Kind::Unread(unread) => Some(unread.waiter()),
            Kind::Full(_) | Kind::Empty | Kind::Unsized | Kind::Events(_) | Kind::Download(_) | Kind::Elsewhere(_) => {
                None
            }
        }
    }

    /// Tells the task of the stream what the body did.
    fn note(&self, step: Step) {
        if let Some(open) = &self.open {
            open.progress.step.replace(step);
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        match &mut self.kind {
            Kind::Empty | Kind::Unsized => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = bytes.take();
                self.note(if bytes.is_some() { Step::Gave(None) } else { Step::Empty });
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Unread(unread) => {
                let polled = unread.poll_piece(cx);
                if let Poll::Ready(Some(_)) = &polled {
                    let waiter = Arc::clone(unread.waiter());
                    self.note(Step::Gave(Some(waiter)));
                }
                polled.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Elsewhere(progress) => {
                progress.hand_over();
                Poll::Pending
            }
            Kind::Events(follow) => {
                let polled = follow.poll_chunk(cx);
                self.note(if let Poll::Ready(Some(_)) = &polled { Step::Gave(None) } else { Step::Empty });
                polled.map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Download(download) => {
                let polled = download.pieces.poll_recv(cx);
                self.note(if let Poll::Ready(Some(_)) = &polled { Step::Gave(None) } else { Step::Empty });
                polled.map(|piece| match piece {
                    Some(piece) if piece.is_empty() => None,
                    Some(piece) => Some(Ok(Frame::data(piece))),
                    None => Some(Err(Incomplete)),
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty | Kind::Unsized => true,
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Unread(unread) => unread.is_end(),
            Kind::Events(_) | Kind::Download(_) | Kind::Elsewhere(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Unread(unread) => SizeHint::with_exact(unread.rest().len() as u64),
            Kind::Unsized | Kind::Events(_) | Kind::Download(_) | Kind::Elsewhere(_) => SizeHint::default(),
        }
    }
}

/// A request that is being answered.
pub(super) struct Open {
    progress: Rc<Progress>,
}

impl Open {
    pub(super) fn new(progress: &Rc<Progress>) -> Self {
        progress.open.set(progress.open.get() + 1);
        progress.head_since.set(None);
        Self { progress: Rc::clone(progress) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.progress.open.set(self.progress.open.get().saturating_sub(1));
    }
}
