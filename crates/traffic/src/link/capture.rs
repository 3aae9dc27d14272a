//! Looks at frames as they pass, and writes them into a file that Wireshark opens.
//!
//! The file is a classic pcap with nanoseconds (magic 0xA1B23C4D, draft-ietf-opsawg-pcap §4). A thread takes the frames
//! from a packet socket, with the kernel's time stamps; it is booked apart from the generator.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use super::LinkError;
use super::background::{Background, Watch};
use super::packet_socket::{FRAME_BYTES_MAX, PacketSocket};
use crate::report::create_private;

/// §4: magic of nanoseconds, version 2.4, two reserved words, the longest frame, LINKTYPE_ETHERNET. Little endian.
const FILE_HEADER: [u8; 24] = [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];

/// A running capture.
#[derive(Debug)]
pub struct Capture<T>(Background<Captured<T>>);

/// The result of a capture.
#[derive(Debug)]
pub struct Captured<T> {
    /// The state of the observer of frames.
    pub state: T,
    /// The number of frames.
    pub frames: u64,
    /// The reason why the file or the capture is incomplete.
    pub problem: Option<io::Error>,
}

impl<T: Send + 'static> Capture<T> {
    /// On a device of the calling thread's namespace.
    pub(super) fn begin(
        device: &str,
        path: Option<&Path>,
        state: T,
        inspect: fn(&mut T, &[u8]),
    ) -> Result<Self, LinkError> {
        let socket = PacketSocket::open(device).map_err(LinkError::kernel("a packet socket"))?;
        let file = path.map(|path| {
            let create = || {
                let mut file = BufWriter::new(create_private(path)?);
                file.write_all(&FILE_HEADER)?;
                Ok(file)
            };
            create().map_err(LinkError::kernel(path.display().to_string()))
        });
        let file = file.transpose()?;
        let captured = Captured { state, frames: 0, problem: None };
        Background::start("link-capture", move |watch| run(watch, &socket, file, captured, inspect))
            .map(Self)
            .map_err(LinkError::kernel("the capture's thread"))
    }

    /// Ends it, with all frames that have passed until now.
    ///
    /// # Errors
    /// Its thread panicked.
    pub fn finish(self) -> Result<Captured<T>, LinkError> {
        let panicked = || LinkError::kernel("the capture")(io::Error::other("its thread panicked"));
        self.0.finish().ok_or_else(panicked)
    }
}

fn run<T>(
    mut watch: Watch,
    socket: &PacketSocket,
    mut file: Option<BufWriter<File>>,
    mut captured: Captured<T>,
    inspect: fn(&mut T, &[u8]),
) -> Captured<T> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let mut drain = |captured: &mut Captured<T>| -> io::Result<()> {
        while let Some((length, stamp)) = socket.receive(&mut buffer)? {
            let frame = buffer.get(..length).unwrap_or_default();
            captured.frames += 1;
            inspect(&mut captured.state, frame);
            if let Some(file) = &mut file {
                record(file, stamp, frame)?;
            }
        }
        Ok(())
    };
    loop {
        let go_on = watch.wait([socket.as_fd()], None);
        if let Err(error) = drain(&mut captured) {
            captured.problem = Some(error);
            break;
        }
        if !go_on {
            break;
        }
    }
    if let Some(Err(error)) = file.map(|mut file| file.flush()) {
        captured.problem.get_or_insert(error);
    }
    captured
}

/// §5: seconds, nanoseconds, the length that is here and the length that was.
fn record(file: &mut impl Write, stamp: Duration, frame: &[u8]) -> io::Result<()> {
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    // §5: unsigned, until 2106.
    let seconds = u32::try_from(stamp.as_secs()).unwrap_or(u32::MAX);
    for word in [seconds, stamp.subsec_nanos(), length, length] {
        file.write_all(&word.to_le_bytes())?;
    }
    file.write_all(frame)
}
