//! The bus across doors: order of one topic, shared subscriptions, memory of subscribers that have gone.

mod fan_out;
mod full;
mod held;
mod limits;
mod memory;
mod neighbours;
mod order;
mod shared;
mod shares;
pub(crate) mod strangers;
mod tight;
mod turns;
mod weights;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::{coap, tcp, tls, xmpp};

pub(crate) const CASES: &[Case] = &[
    Case { name: "bus readers of every door agree with the retained value about the order", run: order::readers_agree },
    Case { name: "bus MQTT subscribers that do not read leave no memory", run: memory::mqtt_readers },
    Case { name: "bus XMPP subscribers that do not read leave no memory", run: memory::xmpp_readers },
    Case { name: "bus event streams that are closed leave no memory", run: memory::event_streams },
    Case { name: "bus what subscribers have read is held no more", run: held::after_reading },
    Case { name: "bus a large fan-out lets its neighbours in between", run: fan_out::neighbours },
    Case { name: "bus a publisher waits until its subscribers are awake", run: fan_out::no_loss },
    Case { name: "bus messages to absent sessions let neighbours in between", run: turns::absent_subscribers },
    Case {
        name: "bus CoAP requests to absent sessions let neighbours in between",
        run: turns::absent_subscribers_of_coap,
    },
    Case {
        name: "bus XMPP requests of many items to absent sessions let neighbours in between",
        run: turns::absent_subscribers_of_xmpp,
    },
    Case {
        name: "bus messages that thousands of filters match let neighbours in between",
        run: turns::filters_that_match,
    },
    Case { name: "bus one XMPP request of many items lets neighbours in between", run: turns::one_request_of_xmpp },
    Case { name: "bus a batch that takes many turns keeps its order", run: turns::order },
    Case { name: "bus a clean start over a large session lets neighbours in between", run: turns::clean_start },
    Case { name: "bus a large session that expires lets neighbours in between", run: turns::large_session },
    Case { name: "bus a deaf member of a shared subscription starves nobody", run: shared::deaf_member },
    Case { name: "bus a member that unsubscribes hands its queue on", run: shared::unsubscribing_member },
    Case {
        name: "bus a session that expires hands on what it had of a shared subscription",
        run: shared::expired_session,
    },
    Case { name: "bus what waits for a member at another door is handed on", run: shared::other_doors },
    Case { name: "bus absent members of a shared subscription crowd out nobody", run: shared::absent_members },
    Case { name: "bus a subscription is replaced at the limit", run: limits::replaced },
    Case { name: "bus a message behind a refused one on its topic is delivered", run: limits::refused },
    Case { name: "bus all fields of a message count: a connected MQTT client", run: weights::mqtt_connected },
    Case { name: "bus all fields of a message count: an absent MQTT session", run: weights::mqtt_absent },
    Case { name: "bus all fields of a message count: an XMPP session", run: weights::xmpp_session },
    Case { name: "bus all fields of a message count: event streams", run: weights::event_streams },
    Case { name: "bus all fields of a message count: a CoAP observer", run: weights::coap_observer },
    Case { name: "bus absent sessions that hold all memory stop no publisher", run: shares::absent_sessions },
    Case { name: "bus readers that never acknowledge stop no publisher", run: shares::silent_readers },
    Case { name: "bus deaf subscribers of one user stop no publisher of another", run: neighbours::deaf_subscribers },
    Case { name: "bus event streams of one user stop no publisher of another", run: neighbours::event_streams },
    Case { name: "bus XMPP sessions of one user stop no publisher of another", run: neighbours::xmpp_sessions },
    Case { name: "bus readers of another user's large messages stay connected", run: tight::fresh_readers },
    Case { name: "bus XMPP sessions are read when they owe acknowledgements", run: tight::stream_management },
    Case { name: "bus deaf clients without a name stop no neighbour", run: tight::nameless_neighbours },
    Case { name: "bus streams without window stop publishers for seconds only", run: tight::streams_without_window },
    Case { name: "bus filters that match nothing let neighbours in between", run: shares::filters_without_match },
    Case { name: "bus a flood of CoAP lists is told to come again", run: shares::lists_without_match },
    Case { name: "bus large filters are bounded by their bytes", run: shares::large_filters },
    Case { name: "bus all filters together are bounded by their bytes", run: shares::all_filters },
    Case { name: "bus leaving thousands of groups is quick", run: shares::shared_subscriptions_left },
    Case { name: "bus wills are bounded by their bytes", run: shares::wills },
    Case { name: "bus a full table of retained messages keeps no QoS 0 message from subscribers", run: full::qos_0 },
    Case { name: "bus a full table of retained messages keeps no will from subscribers", run: full::wills },
    Case { name: "bus a publisher writes no line of the log", run: full::lines },
    Case { name: "bus status messages take no places of retained messages", run: full::status_messages },
    Case { name: "bus logins that never end cost no absent session a message", run: strangers::logins },
    Case { name: "bus uploads that never end cost no absent session a message", run: strangers::uploads },
    Case { name: "bus logins above their bound end, the oldest first", run: strangers::too_many_logins },
];

/// Reads to the next PUBLISH with the topic; gives first byte, topic, what follows the topic.
fn next_publish(connection: &mut Connection) -> Result<(u8, String, Vec<u8>)> {
    loop {
        let (first, body) = connection.read()?;
        if first & 0xf0 == 0x30 {
            let (topic, rest) = mqtt_topic(&body)?;
            return Ok((first, topic, rest));
        }
    }
}

fn mqtt_topic(body: &[u8]) -> Result<(String, Vec<u8>)> {
    let length = body.first_chunk::<2>().map(|bytes| usize::from(u16::from_be_bytes(*bytes))).context("no topic")?;
    let topic = body.get(2..2 + length).context("a topic cut short")?;
    Ok((String::from_utf8_lossy(topic).into_owned(), body.get(2 + length..).unwrap_or_default().to_vec()))
}

/// Each door takes a publication: PUBACK, 201, 2.04 or 2.01, an IQ result.
fn all_doors_take(gateway: &Gateway) -> Result<()> {
    use std::io::Write;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "taker")?;
    publisher.stream.write_all(&mqtt::publish(V4, b"taken/mqtt", b"x", 1, true, 7))?;
    let (first, _) = publisher.read()?;
    ensure!(first == 0x40, "{first:#x} instead of PUBACK");
    let put = b"PUT /topics/taken/http HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
    let answer = tcp::ask(gateway.address("http")?, put)?;
    ensure!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer));
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let answer = coap::exchange(&socket, &coap::request(coap::CON, coap::PUT, 1, b"t", "taken/coap", &[], b"x"), b"t")?;
    ensure!(coap::dotted(&answer).starts_with("2."), "{}", coap::dotted(&answer));
    let mut session = xmpp::Session::anonymous(&tls::config(gateway.ca())?, gateway.address("xmpps")?)?;
    session.send(
        "<iq type='set' id='take' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
         <publish node='taken/xmpp'><item><x xmlns='urn:example'/></item></publish></pubsub></iq>",
    )?;
    let answer = session.until(">")?;
    ensure!(answer.contains("type='result'") || answer.contains("type=\"result\""), "{answer}");
    Ok(())
}

/// As [`Gateway::settle`] and the conservation of messages, where CoAP's peers, which are remembered for a while, had a
/// part.
fn settle_beside_coap(gateway: &mut Gateway) -> Result<()> {
    gateway.check_alive()?;
    for gauge in [
        "fogmux_bus_mailbox_bytes",
        "fogmux_bus_mailbox_messages",
        "fogmux_bus_subscriptions",
        "fogmux_door_connections{door=\"mqtt\"}",
        "fogmux_door_connections{door=\"xmpp\"}",
    ] {
        if gateway.metrics()?.contains_key(gauge) {
            gateway.wait_metric(gauge, tcp::PATIENCE, |value| value == 0.0)?;
        }
    }
    gateway.check_conservation()
}
