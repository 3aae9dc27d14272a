//! Threads come when there is work, and go when there is none.

use std::time::Instant;

use fogmux_auth::{AnonymousPolicy, Authority, Rules, Users};
use tokio::task::JoinSet;

use super::*;

fn authority() -> Arc<Authority> {
    let mut users = Users::default();
    users.set_password("alice", b"wonderland").unwrap();
    Arc::new(Authority::new(Rules::new(users, None, AnonymousPolicy::Never)))
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn all_are_answered_by_few_threads_which_end() {
    run(async {
        let (authority, verifiers) = (authority(), Verifiers::default());
        verifiers.configure(VerifierConfig { threads_max: 2, ..VerifierConfig::default() });
        let mut tries = JoinSet::new();
        for number in 0..12 {
            let password: &[u8] = if number % 2 == 0 { b"wonderland" } else { b"x" };
            let check = PasswordCheck::new(&authority, "alice", password);
            let verifiers = verifiers.clone();
            tries.spawn(async move { verifiers.verify([192, 0, 2, number].into(), check).await.is_ok() });
        }
        let answers = tries.join_all().await;
        assert_eq!(answers.iter().filter(|ok| **ok).count(), 6);
        assert!(verifiers.0.lock().threads <= 2);
        let deadline = Instant::now() + Duration::from_secs(30);
        while verifiers.0.lock().threads > 0 {
            assert!(Instant::now() < deadline, "threads that stay");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let check = PasswordCheck::new(&authority, "alice", b"y");
        assert_eq!(verifiers.verify([192, 0, 2, 1].into(), check).await, Err(Refused::Credentials), "and come again");
    });
}

#[test]
fn a_login_that_waits_too_long_is_refused_as_busy() {
    run(async {
        let (authority, verifiers) = (authority(), Verifiers::default());
        let wait_max = Duration::ZERO;
        verifiers.configure(VerifierConfig { threads_max: 1, wait_max, ..VerifierConfig::default() });
        let check = PasswordCheck::new(&authority, "alice", b"wonderland");
        assert_eq!(verifiers.verify([192, 0, 2, 1].into(), check).await, Err(Refused::Busy));
        assert_eq!(verifiers.refused(), 1);
    });
}

#[test]
fn without_room_a_login_is_refused_as_busy() {
    run(async {
        let (authority, verifiers) = (authority(), Verifiers::default());
        let queue = QueueConfig { waiting_max: 0, known_max: 0 };
        verifiers.configure(VerifierConfig { threads_max: 1, queue, ..VerifierConfig::default() });
        let check = PasswordCheck::new(&authority, "alice", b"wonderland");
        assert_eq!(verifiers.verify([192, 0, 2, 1].into(), check).await, Err(Refused::Busy));
        assert_eq!((verifiers.refused(), verifiers.waiting()), (1, 0));
    });
}
