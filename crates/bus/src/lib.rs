//! Topics, messages, subscriptions, routing, mailboxes, sessions and retained messages; knows no protocol and does no I/O.
