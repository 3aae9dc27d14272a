//! Observations keep their Content-Format (RFC 7641 §4.2), whatever the next value is.

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, ACCEPT, CON, CONTENT_FORMAT, GET, Message, OBSERVE};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{tcp, users};

const NOT_ACCEPTABLE: u8 = 0x86;
const CONTENT: u8 = 0x45;

/// Types that have a number, one that has none, and no type.
const TYPES: [&str; 4] = ["application/json", "text/plain", "image/x-unknown", ""];

/// A notification is a value just when a GET with the same Accept has one in the format of the observation; otherwise
/// it ends that with 4.06.
pub(super) fn kept() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let (address, http) = (gateway.address("coap")?, gateway.address("http")?);
    let put = |topic: &str, content_type: &str, body: &[u8]| -> Result<()> {
        let line = if content_type.is_empty() { String::new() } else { format!("Content-Type: {content_type}\r\n") };
        let status = users::http_with(http, &line, "PUT", &format!("/topics/{topic}"), body)?;
        ensure!(matches!(status, 201 | 204), "PUT is answered {status}");
        Ok(())
    };
    let mut count = 0;
    for first in TYPES {
        for accept in [None, Some(50_u8), Some(0)] {
            for (next, body) in TYPES.into_iter().flat_map(|next| [(next, &b""[..]), (next, b"x")]) {
                let topic = format!("formats/{count}");
                let case = format!("{first:?} then {body:?} of {next:?} with Accept {accept:?}");
                count += 1;
                put(&topic, first, b"{}")?;
                let number = accept.as_slice();
                let accepts: Vec<(u16, &[u8])> = accept.iter().map(|_| (ACCEPT, number)).collect();
                let observes = [&[(OBSERVE, &b""[..])], &*accepts].concat();
                let observer = coap::endpoint(address)?;
                let register = coap::request(CON, GET, 1, b"o", &topic, &observes, b"");
                let begun = Message::of_datagram(&coap::exchange(&observer, &register, b"o")?)?;
                if begun.code != CONTENT {
                    ensure!(begun.code == NOT_ACCEPTABLE, "{case}: {:#x}", begun.code);
                    continue;
                }
                put(&topic, next, body)?;
                let told = coap::receive(&observer, tcp::PATIENCE)?.with_context(|| format!("{case}: nothing"))?;
                let told = Message::of_datagram(&told)?;
                let ask = coap::request(CON, GET, 2, b"g", &topic, &accepts, b"");
                let got = Message::of_datagram(&coap::exchange(&coap::endpoint(address)?, &ask, b"g")?)?;
                let same = got.uint(CONTENT_FORMAT) == begun.uint(CONTENT_FORMAT);
                let expected = if got.code == CONTENT && same { CONTENT } else { NOT_ACCEPTABLE };
                ensure!(told.code == expected, "{case}: told {:#x}, and a GET {:#x}", told.code, got.code);
                let reset = coap::message(coap::RST, 0, told.id, b"", &[], b"");
                observer.send(&reset)?;
            }
        }
    }
    gateway.settle()?;
    Ok(format!("{count} observations"))
}
