//! Links with a name, and the sources of their figures.

/// A named link. Figures that are not from the source are marked as fogmux's choice.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The conditions, in their text form.
    pub conditions: &'static str,
    /// The source of the figures.
    pub source: &'static str,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "lan",
        conditions: "rate=100mbit,delay=100us",
        source: "100BASE-TX (IEEE 802.3 clause 25), as in a Raspberry Pi 3; the delay of two switches is our choice",
    },
    Preset {
        name: "wifi",
        conditions: "air_client=300mbit,air_errors=1%",
        source: "a model (air.rs): IEEE 802.11n, 40 MHz, two streams, the client at 300 Mbit/s, the gateway wired to the \
                 access point; the share of damaged frames is our choice",
    },
    Preset {
        name: "802.15.4",
        conditions: "rate=250kbit,delay=5ms,jitter=3ms,loss=1%",
        source: "IEEE 802.15.4 O-QPSK at 2.4 GHz: 250 kbit/s in the air; no fragmentation to 127 B is done, delay and loss \
                 are our choice",
    },
    Preset {
        name: "nb-iot",
        conditions: "rate_up=62kbit,rate_down=26kbit,delay=400ms,jitter=100ms,loss=1%",
        source: "3GPP Release 13, Cat-NB1, multi-tone: peaks of 62 kbit/s up and 26 kbit/s down; delay and loss are our \
                 choice",
    },
    Preset {
        name: "lte",
        conditions: "rate_up=6mbit,rate_down=13mbit,delay=35ms,jitter=10ms",
        source: "Huang et al., A Close Examination of Performance and Power Characteristics of 4G LTE Networks, MobiSys 2012: \
                 medians of 6 and 13 Mbit/s and of a 70 ms round trip; the jitter is our choice",
    },
    Preset {
        name: "geo",
        conditions: "rate=10mbit,delay=279ms",
        source: "RFC 2488 section 2: 279.0 ms for one hop over a geostationary satellite at the edge of its view; the rate is \
                 our choice",
    },
    Preset {
        name: "karamina2024",
        conditions: "air_client=650mbit,delay=5480us",
        source: "calibrated on the document: with 650 Mbit/s (802.11ac, 80 MHz, two streams, MCS 7) the model moves as much \
                 up and down at once as its greatest speed at a steady pace (table 15: 28.173 messages of 1 000 000 bytes, \
                 225 Mbit/s); the delay makes up for the 11.3 ms that Wi-Fi adds to an exchange in tables 19 to 17 and 25 \
                 to 21. Who was on Wi-Fi is not said: publisher and subscriber here",
    },
    Preset {
        name: "mladek2022",
        conditions: "air_gateway=867mbit,delay=1626us",
        source: "§3.1.1: the servers on a computer at 867 Mbit/s, the client wired; the delay makes up for the 3.6 ms of a \
                 round trip, derived from the 3.65 ms of an exchange in table 4.2",
    },
    Preset {
        name: "mladek2022-esp32",
        conditions: "air_client=300mbit,air_gateway=867mbit,delay=12760us",
        source: "§3.1.1: the ESP32 at the 300 Mbit/s of the 2.4 GHz band, and the computer of mladek2022; here one channel for \
                 both bands. The delay makes up for the 26.19 ms of an exchange in table 4.4 (CoAP, confirmable), most of \
                 which is the ESP32's",
    },
    Preset {
        name: "seoane2021",
        conditions: "delay=1430us",
        source: "one Ethernet switch (§4.1); the round trip of 2.86 ms is derived from figure 20's 8.6 ms of MQTT QoS 0, which \
                 are three of them",
    },
    Preset {
        name: "cui2017",
        conditions: "air_client=65mbit",
        source: "§3.1, §3.2: Raspberry Pi 3 B, one stream of IEEE 802.11n at 20 MHz, and the access point on the common gateway; \
                 nothing is printed that the rate could be calibrated on",
    },
    Preset {
        name: "wiss2016",
        conditions: "air=65mbit",
        source: "§IV.A: both Raspberry Pis by dongles at an access point at 2.4 GHz: one stream of IEEE 802.11n at 20 MHz, our \
                 choice, as the dongles' rate is not given; no round-trip time is printed either",
    },
];
