//! Credentials to a principal, rules to a decision, and the SASL core.
