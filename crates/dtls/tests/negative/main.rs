//! Peers that misbehave, by clause: both versions, both roles. The tables here are those of `docs/security.md`, and a
//! test holds each to the other. `cargo test -p fogmux-dtls --test negative` runs all, with a name behind `--` one.

#[cfg(test)]
mod case;
#[cfg(test)]
mod client_12;
#[cfg(test)]
mod client_13;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod server_12;
#[cfg(test)]
mod server_13;
#[cfg(test)]
mod tables;
