//! Listeners, TLS, QUIC, WebSocket, accept limits and the clock.
