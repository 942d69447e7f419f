//! The codecs, through their public interface.
//!
//! One program for all files: linking one for each would take longer than running them.

mod fuzz_smoke;
mod pedrokv;
mod resp_document;
mod resp_replies;
mod resp_requests;
