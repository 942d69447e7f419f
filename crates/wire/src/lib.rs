//! Codecs of the wire protocols: pure bytes in and out.
