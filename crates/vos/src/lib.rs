//! Versioning object store of one target.
