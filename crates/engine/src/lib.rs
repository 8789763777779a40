//! Targets, request handling, transactions.
