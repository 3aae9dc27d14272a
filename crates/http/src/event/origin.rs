//! The origin of a message, which an administrator's stream names.

use super::push_json_string;

/// Where a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The door it came in by; `None` for the gateway's own.
    pub door: Option<&'a str>,
    /// The publisher's principal.
    pub publisher: &'a str,
    /// Its client identifier; empty if it has none.
    pub client: &'a str,
}

impl Origin<'_> {
    /// Appends the member `origin` and a comma, to stand between [`push_name`](super::push_name) and
    /// [`encode_rest`](super::Event::encode_rest): what comes behind it is the same on every stream.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"origin\":{");
        if let Some(door) = self.door {
            out.extend_from_slice(b"\"door\":");
            push_json_string(door, out);
            out.push(b',');
        }
        out.extend_from_slice(b"\"publisher\":");
        push_json_string(self.publisher, out);
        if !self.client.is_empty() {
            out.extend_from_slice(b",\"client\":");
            push_json_string(self.client, out);
        }
        out.extend_from_slice(b"},");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_members_are_left_out_and_names_are_escaped() {
        let pushed = |origin: Origin<'_>| {
            let mut out = Vec::new();
            origin.push(&mut out);
            String::from_utf8(out).unwrap()
        };
        let all = Origin { door: Some("coap"), publisher: "al\"ice", client: "c" };
        assert_eq!(pushed(all), r#""origin":{"door":"coap","publisher":"al\"ice","client":"c"},"#);
        let own = Origin { door: None, publisher: "fogmux", client: "" };
        assert_eq!(pushed(own), r#""origin":{"publisher":"fogmux"},"#);
    }
}
