//! One case: what a misbehaving peer sends, by which clause that is wrong, and what comes back.

/// Our side's answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// It sends a fatal alert, and neither handshake nor session is left.
    Alert(u8),
    /// It sends an alert that is a warning, and goes on.
    Warning(u8),
    /// It ends the session by close_notify.
    Closed,
    /// It ends the session without a word.
    Over,
    /// It says nothing, and goes on as if nothing had come.
    Ignored,
    /// It says nothing, and this handshake comes to nothing.
    Stuck,
    /// The standard has it go on: nothing is refused.
    Accepted,
}

pub(crate) const CLOSE_NOTIFY: u8 = 0;

/// Alerts of RFC 8446 §6 and RFC 5246 §7.2 that are expected somewhere, with the names that the table has.
const ALERTS: &[(u8, &str)] = &[
    (CLOSE_NOTIFY, "close_notify"),
    (10, "unexpected_message"),
    (40, "handshake_failure"),
    (42, "bad_certificate"),
    (47, "illegal_parameter"),
    (48, "unknown_ca"),
    (50, "decode_error"),
    (51, "decrypt_error"),
    (70, "protocol_version"),
    (100, "no_renegotiation"),
    (109, "missing_extension"),
    (110, "unsupported_extension"),
    (116, "certificate_required"),
];

pub(crate) const UNEXPECTED_MESSAGE: Back = Back::Alert(10);
pub(crate) const HANDSHAKE_FAILURE: Back = Back::Alert(40);
pub(crate) const BAD_CERTIFICATE: Back = Back::Alert(42);
pub(crate) const ILLEGAL_PARAMETER: Back = Back::Alert(47);
pub(crate) const UNKNOWN_CA: Back = Back::Alert(48);
pub(crate) const DECODE_ERROR: Back = Back::Alert(50);
pub(crate) const DECRYPT_ERROR: Back = Back::Alert(51);
pub(crate) const PROTOCOL_VERSION: Back = Back::Alert(70);
pub(crate) const MISSING_EXTENSION: Back = Back::Alert(109);
pub(crate) const UNSUPPORTED_EXTENSION: Back = Back::Alert(110);
pub(crate) const CERTIFICATE_REQUIRED: Back = Back::Alert(116);

impl Back {
    /// In the words of the table.
    pub(crate) fn words(self) -> String {
        let name = |alert| ALERTS.iter().find(|(byte, _)| *byte == alert).map(|(_, name)| *name).unwrap();
        match self {
            Self::Alert(alert) => format!("`{}`", name(alert)),
            Self::Warning(alert) => format!("`{}`, a warning", name(alert)),
            Self::Closed => "`close_notify`".to_owned(),
            Self::Over => "nothing: over".to_owned(),
            Self::Ignored => "nothing".to_owned(),
            Self::Stuck => "nothing: no session".to_owned(),
            Self::Accepted => "it goes on".to_owned(),
        }
    }
}

/// A misbehaving peer after it has misbehaved, and our side.
pub(crate) trait Enemy {
    /// The alerts that have come back and were not looked at: level and description.
    fn alerts(&self) -> Vec<(u8, u8)>;

    /// Whether anything else has.
    fn is_answered(&self) -> bool;

    /// Finishes the handshake unless there is a session, and exchanges data both ways.
    fn goes_on(&mut self);

    /// Asserts that nothing of the association is left, and what our side says of its end.
    fn is_over(&mut self, alert: Option<u8>);

    /// Asserts that others are unharmed, and that a proper handshake from the same address makes a session.
    fn begins_again(&mut self);
}

/// A row of a table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) clause: &'static str,
    pub(crate) sent: &'static str,
    pub(crate) back: Back,
    pub(crate) act: fn() -> Box<dyn Enemy>,
}

impl Case {
    /// Runs it.
    pub(crate) fn test(&self) {
        let mut enemy = (self.act)();
        let alerts = enemy.alerts();
        match self.back {
            Back::Alert(alert) => {
                assert_eq!(alerts, [(2, alert)]);
                enemy.is_over(Some(alert));
            }
            Back::Warning(alert) => {
                assert_eq!(alerts, [(1, alert)]);
                enemy.goes_on();
            }
            Back::Closed => {
                assert_eq!(alerts, [(1, CLOSE_NOTIFY)]);
                enemy.is_over(None);
            }
            Back::Over => {
                assert_eq!(alerts, []);
                enemy.is_over(None);
            }
            Back::Ignored => {
                assert_eq!((alerts, enemy.is_answered()), (Vec::new(), false));
                enemy.goes_on();
            }
            Back::Stuck => assert_eq!((alerts, enemy.is_answered()), (Vec::new(), false)),
            Back::Accepted => {
                assert_eq!(alerts, []);
                enemy.goes_on();
            }
        }
        enemy.begins_again();
    }
}

/// A table of cases of one kind of enemy, and a test for each: a name, the clause, what is sent, what comes back, the
/// enemy and what it does.
macro_rules! cases {
    ($($name:ident: $clause:literal, $sent:literal, $back:expr, $enemy:expr, $act:expr;)*) => {
        pub(crate) const CASES: &[crate::case::Case] = &[$(crate::case::Case {
            name: stringify!($name),
            clause: $clause,
            sent: $sent,
            back: $back,
            act: || {
                let mut enemy = $enemy;
                crate::case::act(&mut enemy, $act);
                Box::new(enemy)
            },
        }),*];
        $(#[test]
        fn $name() {
            CASES.iter().find(|case| case.name == stringify!($name)).unwrap().test();
        })*
    };
}

pub(crate) use cases;

/// Runs a closure, so that the compiler knows the type of its argument.
pub(crate) fn act<E>(enemy: &mut E, act: impl FnOnce(&mut E)) {
    act(enemy);
}
