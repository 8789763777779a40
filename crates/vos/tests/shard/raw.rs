//! Stores on raw devices.
