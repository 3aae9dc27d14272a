//! One module per door: drives a protocol machine over a connection and translates to and from messages.
