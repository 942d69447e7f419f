//! Load generator and comparison with peers.
