//! The end of processes that are measured, at the moment when it comes: one that died answers nothing, and with
//! datagrams nobody else would notice.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Processes that have to last.
#[derive(Debug, Default)]
pub struct Watch(Vec<(u32, AsyncFd<OwnedFd>)>);

impl Watch {
    /// Watches these, by a descriptor each (`pidfd_open`, Linux 5.3). On an older kernel none is watched.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn of(pids: &[u32]) -> io::Result<Self> {
        let mut watched = Vec::new();
        for number in pids {
            let missing = || io::Error::from(io::ErrorKind::NotFound);
            let pid = i32::try_from(*number).ok().and_then(Pid::from_raw).ok_or_else(missing)?;
            match pidfd_open(pid, PidfdFlags::NONBLOCK) {
                Ok(process) => {
                    #[expect(
                        deprecated,
                        reason = "its successor is unsafe; a descriptor that is owned keeps its promise"
                    )]
                    let process = AsyncFd::with_interest(process, Interest::READABLE)?;
                    watched.push((*number, process));
                }
                Err(rustix::io::Errno::NOSYS) => return Ok(Self::default()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self(watched))
    }

    /// Returns the first that ends. Without any it waits for ever.
    pub async fn ended(&self) -> u32 {
        poll_fn(|cx| {
            let ended = self.0.iter().find(|(_, process)| process.poll_read_ready(cx).is_ready());
            ended.map_or(Poll::Pending, |(number, _)| Poll::Ready(*number))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_noticed() {
        let mut one = Command::new("sleep").arg("60").spawn().unwrap();
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let watch = Watch::of(&[one.id(), other.id()]).unwrap();
        assert!(timeout(Duration::ZERO, watch.ended()).await.is_err());
        other.kill().unwrap();
        assert_eq!(timeout(Duration::from_secs(20), watch.ended()).await, Ok(other.id()));
        one.kill().unwrap();
        one.wait().unwrap();
        let gone = other.id();
        other.wait().unwrap();
        assert!(Watch::of(&[gone]).is_err());
    }

    #[tokio::test]
    async fn without_processes_nothing_ends() {
        let watch = Watch::of(&[]).unwrap();
        assert!(timeout(Duration::from_millis(5), watch.ended()).await.is_err());
    }
}
