//! In-memory index: extendible hashing in segments with SIMD fingerprints.
