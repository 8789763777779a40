//! Naive reference of the object store and the namespace, for tests.
