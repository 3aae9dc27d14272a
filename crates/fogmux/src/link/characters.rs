//! Characters that a receiver may end the connection for (§1.5.4): one message with such a one would be sent again and
//! again, and none behind it would arrive.

use fogmux_mqtt::{Properties, Property};

/// Whether a receiver may refuse a message because of its topic or a text among its properties.
pub(super) fn may_be_refused(topic: &str, properties: Properties<'_>) -> bool {
    let has_refusable_text = |property: Property<'_>| {
        if let Property::ContentType(text) | Property::ResponseTopic(text) = property {
            return has_refusable(text);
        }
        let Property::UserProperty(name, value) = property else { return false };
        has_refusable(name) || has_refusable(value)
    };
    has_refusable(topic) || properties.iter().any(has_refusable_text)
}

fn has_refusable(text: &str) -> bool {
    text.contains(|char: char| char.is_control() || is_noncharacter(char))
}

/// Code points that Unicode gives to no character (The Unicode Standard, 23.7).
fn is_noncharacter(char: char) -> bool {
    matches!(char, '\u{fdd0}'..='\u{fdef}') || u32::from(char) & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use fogmux_mqtt::PropertyBuffer;

    use super::*;

    #[test]
    fn any_text_counts() {
        for bad in
            ["\u{1}", "\u{1f}", "\u{7f}", "\u{9f}", "\u{fdd0}", "\u{fdef}", "\u{fffe}", "\u{1ffff}", "\u{10ffff}"]
        {
            let text = format!("a/{bad}");
            assert!(may_be_refused(&text, Properties::NONE), "{text:?}");
            for property in [
                Property::ContentType(&text),
                Property::ResponseTopic(&text),
                Property::UserProperty(&text, ""),
                Property::UserProperty("", &text),
            ] {
                let mut list = PropertyBuffer::new();
                list.push(property).unwrap();
                assert!(may_be_refused("a", list.properties()), "{property:?}");
            }
        }
        let mut list = PropertyBuffer::new();
        list.push(Property::CorrelationData(b"\x01")).unwrap();
        list.push(Property::UserProperty("Zürich", "東京 \u{1f321}\u{fdf0}\u{fffd}\u{a0}")).unwrap();
        assert!(!may_be_refused("a/ü/\u{feff}", list.properties()));
    }
}
