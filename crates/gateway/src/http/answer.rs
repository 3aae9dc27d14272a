//! The response to a request, now or later.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use fogmux_http::Problem;
use http::{HeaderValue, Response, header::ALT_SVC};

use super::{
    cors::Cors,
    payload::{Open, Payload},
    respond,
    unread::Reader,
};

/// A response, now or later.
pub(super) struct Answer {
    state: State,
    /// The client that the answer counts for, if it is large.
    reader: Option<Reader>,
    finish: Option<Finish>,
    /// Whether the request is performed to its end if the client gives up.
    goes_on: bool,
}

enum State {
    Now(Option<Response<Payload>>),
    Later(Pin<Box<dyn Future<Output = Response<Payload>>>>),
}

/// The parts that every response gets.
pub(super) struct Finish {
    pub(super) head: bool,
    pub(super) alt_svc: Option<HeaderValue>,
    pub(super) cors: Cors,
    pub(super) open: Option<Open>,
}

impl Answer {
    pub(super) fn now(response: Response<Payload>) -> Self {
        Self { state: State::Now(Some(response)), reader: None, finish: None, goes_on: false }
    }

    pub(super) fn later(future: impl Future<Output = Response<Payload>> + 'static) -> Self {
        Self { state: State::Later(Box::pin(future)), reader: None, finish: None, goes_on: false }
    }

    /// Has the request performed to its end if the client gives up.
    pub(super) fn going_on(mut self, goes_on: bool) -> Self {
        self.goes_on = goes_on;
        self
    }

    /// Counts the answer, if it is large, until the client has taken it.
    pub(super) fn read_by(mut self, reader: Reader) -> Self {
        self.reader = Some(reader);
        self
    }

    pub(super) fn finish(mut self, finish: Finish) -> Self {
        self.finish = Some(finish);
        self
    }
}

impl Future for Answer {
    type Output = Result<Response<Payload>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut self.state {
            State::Now(response) => match response.take() {
                Some(response) => response,
                None => return Poll::Pending,
            },
            State::Later(future) => match future.as_mut().poll(cx) {
                Poll::Ready(response) => {
                    self.state = State::Now(None);
                    response
                }
                Poll::Pending => return Poll::Pending,
            },
        };
        let reader = self.reader.take();
        let count = |response| match reader {
            Some(reader) => reader.count(response),
            None => response,
        };
        let Some(finish) = self.finish.take() else { return Poll::Ready(Ok(count(response))) };
        let mut response = if finish.head { respond::without_body(response) } else { count(response) };
        if let Some(alt_svc) = finish.alt_svc {
            response.headers_mut().insert(ALT_SVC, alt_svc);
        }
        finish.cors.apply(response.headers_mut());
        Poll::Ready(Ok(match finish.open {
            Some(open) => response.map(|payload| payload.holding(open)),
            None => response,
        }))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.goes_on
            && let State::Later(future) = std::mem::replace(&mut self.state, State::Now(None))
        {
            tokio::task::spawn_local(future);
        }
    }
}

pub(super) fn or_problem(result: Result<Response<Payload>, Problem<'static>>) -> Response<Payload> {
    result.unwrap_or_else(|problem| respond::problem(&problem))
}
