//! Pool map and layout of objects: pure functions.
