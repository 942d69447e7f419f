//! Embeddable log-structured storage engine.
