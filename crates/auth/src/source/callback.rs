//! Users who are kept elsewhere: a name and a password that the users file does not know are asked about over HTTP.
//!
//! Here is what an answer means and how long it holds; the request itself is a [`Remote`], made where there is an HTTP
//! client. Whatever is not a clear yes is a no: an error, a time-out, an answer that is not understood.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{Grant, SourceKind, Variables, Verified, vouched};
use crate::{acl::Door, random::random, refused::Refused, scram::ScramHash, users::Users};

/// Answers remembered at most; the oldest goes first.
const ANSWERS_MAX: usize = 4096;
/// Longest time that a refusal is remembered: a user who was just added should not have to wait.
const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// A question to the other service.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The name.
    pub user: &'a str,
    /// The password; bytes, because MQTT's are.
    pub password: &'a [u8],
    /// The client identifier, where the door has one.
    pub client: &'a str,
    /// The door.
    pub door: Door,
    /// Where from.
    pub address: IpAddr,
}

impl std::fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question").field("user", &self.user).field("door", &self.door).finish_non_exhaustive()
    }
}

/// A clear answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is that user.
    Yes {
        /// Groups beside those of the users file.
        groups: Vec<Arc<str>>,
        /// For `%{name}` in rules.
        variables: Variables,
        /// For how long the login holds, when it ends by itself.
        expires_in: Option<Duration>,
    },
    /// It is not.
    No,
}

/// There is no answer: the other side is away, slow, or does not make sense. The text is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

/// The transport of questions to the other service. Gives up by itself after the configured time.
pub trait Remote: Send + Sync {
    /// Asks.
    fn ask<'a>(&'a self, question: Question<'a>)
    -> Pin<Box<dyn Future<Output = Result<Answer, NoAnswer>> + Send + 'a>>;
}

/// The source that asks a [`Remote`].
pub struct Callback {
    remote: Box<dyn Remote>,
    cache: Duration,
    answers: Mutex<Answers>,
    /// The last question had no answer, which was said.
    silent: AtomicBool,
}

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callback").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// Answers by an HMAC of what was asked, under a key that lives as long as this.
struct Answers {
    key: [u8; 32],
    known: HashMap<[u8; 32], Known>,
    order: VecDeque<[u8; 32]>,
}

struct Known {
    answer: Answer,
    asked_ms: u64,
}

impl Callback {
    /// Asks `remote` and remembers a yes for `cache`, a no for five seconds at most.
    #[must_use]
    pub fn new(remote: Box<dyn Remote>, cache: Duration) -> Self {
        let answers = Answers { key: random(), known: HashMap::new(), order: VecDeque::new() };
        Self { remote, cache, answers: Mutex::new(answers), silent: AtomicBool::new(false) }
    }

    /// Asks for the principal. Groups and disabled users of `users` are taken into account.
    pub(crate) async fn check(
        &self,
        question: Question<'_>,
        users: &Users,
        now_ms: u64,
        now_unix_s: u64,
    ) -> Result<Verified, Refused> {
        let key = self.answers().key_of(&question);
        let remembered = self.answers().recall(&key, now_ms, self.cache);
        let (answer, asked_ms) = match remembered {
            Some(known) => known,
            None => {
                let answer = self.remote.ask(question).await.map_err(|error| {
                    if !self.silent.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "the login callback gives no answer; nobody enters by it until it does");
                    }
                    Refused::Busy
                })?;
                if self.silent.swap(false, Ordering::Relaxed) {
                    tracing::info!("the login callback answers again");
                }
                self.answers().remember(key, Known { answer: answer.clone(), asked_ms: now_ms });
                (answer, now_ms)
            }
        };
        let Answer::Yes { groups, variables, expires_in } = answer else { return Err(Refused::Credentials) };
        let variables = Some(variables).filter(|variables| !variables.is_empty()).map(Arc::new);
        let grant = Grant { groups, variables };
        let principal = vouched(users, SourceKind::Callback, question.user, grant).map_err(|_| Refused::Barred)?;
        let passed = Duration::from_millis(now_ms.saturating_sub(asked_ms));
        let left = expires_in.map(|whole| whole.checked_sub(passed).ok_or(Refused::Barred)).transpose()?;
        Ok(Verified { principal, expires_unix_s: left.map(|left| now_unix_s.saturating_add(left.as_secs())) })
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    /// Everything that the other side was told, or its answer might have been another.
    fn key_of(&self, question: &Question<'_>) -> [u8; 32] {
        let length = |text: &[u8]| u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes();
        let address = question.address.to_string();
        let parts = [question.user.as_bytes(), question.client.as_bytes(), address.as_bytes()];
        let mut all: Vec<u8> = Vec::new();
        for part in parts {
            all.extend(length(part));
            all.extend(part);
        }
        let door = question.door.name().as_bytes();
        ScramHash::Sha256.hmac(&self.key, &[&all, door, b"\0", question.password]).bytes()
    }

    fn recall(&self, key: &[u8; 32], now_ms: u64, cache: Duration) -> Option<(Answer, u64)> {
        let known = self.known.get(key)?;
        let lasts = match known.answer {
            Answer::Yes { .. } => cache,
            Answer::No => cache.min(REFUSAL_MAX),
        };
        let age = Duration::from_millis(now_ms.saturating_sub(known.asked_ms));
        (age < lasts).then(|| (known.answer.clone(), known.asked_ms))
    }

    fn remember(&mut self, key: [u8; 32], known: Known) {
        if self.known.insert(key, known).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > ANSWERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::atomic::AtomicUsize,
        task::{Context, Poll, Waker},
    };

    use super::*;

    struct Fake(Arc<AtomicUsize>);

    impl Remote for Fake {
        fn ask<'a>(
            &'a self,
            question: Question<'a>,
        ) -> Pin<Box<dyn Future<Output = Result<Answer, NoAnswer>> + Send + 'a>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let answer = match question.password {
                b"good" => Ok(Answer::Yes {
                    groups: vec!["far".into()],
                    variables: Variables::new(),
                    expires_in: Some(Duration::from_secs(60)),
                }),
                b"bad" => Ok(Answer::No),
                _ => Err(NoAnswer("away".into())),
            };
            Box::pin(async move { answer })
        }
    }

    fn check(callback: &Callback, user: &str, password: &str, now_ms: u64) -> Result<Verified, Refused> {
        let users = Users::parse(Path::new("u"), "[users.bob]\ndisabled = true\n").unwrap();
        let question = Question {
            user,
            password: password.as_bytes(),
            client: "c",
            door: Door::Mqtt,
            address: [192, 0, 2, 1].into(),
        };
        let mut future = std::pin::pin!(callback.check(question, &users, now_ms, 1000));
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("nothing to wait for"),
        }
    }

    #[test]
    fn answers_are_remembered_for_a_while_and_anything_unclear_is_a_no() {
        let asked = Arc::new(AtomicUsize::new(0));
        let callback = Callback::new(Box::new(Fake(Arc::clone(&asked))), Duration::from_secs(30));
        let count = || asked.load(Ordering::Relaxed);
        let alice = check(&callback, "alice", "good", 0).unwrap();
        assert_eq!((&*alice.principal.name, &*alice.principal.groups[0]), ("alice", "far"));
        assert_eq!(alice.expires_unix_s, Some(1060));
        assert_eq!(check(&callback, "alice", "good", 29_000).unwrap().expires_unix_s, Some(1031));
        assert_eq!(count(), 1);
        assert!(check(&callback, "alice", "good", 30_000).is_ok());
        assert_eq!(count(), 2);
        for now_ms in [0, 4_999, 5_000] {
            assert_eq!(check(&callback, "alice", "bad", now_ms), Err(Refused::Credentials));
        }
        assert_eq!(count(), 4, "a no is forgotten sooner");
        for _ in 0..2 {
            assert_eq!(check(&callback, "alice", "other", 0), Err(Refused::Busy));
        }
        assert_eq!(count(), 6, "no answer is not remembered");
        assert_eq!(check(&callback, "bob", "good", 0), Err(Refused::Barred), "disabled here");
        for name in ["anonymous", "al\u{ad}ice", "\u{ff41}lice"] {
            assert_eq!(check(&callback, name, "good", 0), Err(Refused::Barred), "{name:?}");
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let callback = Callback::new(Box::new(Fake(Arc::default())), Duration::from_secs(30));
        for number in 0..ANSWERS_MAX + 10 {
            let _ = check(&callback, &number.to_string(), "bad", 0);
        }
        assert_eq!(callback.answers().known.len(), ANSWERS_MAX);
        assert_eq!(callback.answers().order.len(), ANSWERS_MAX);
    }
}
