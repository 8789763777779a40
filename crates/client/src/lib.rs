//! Objects, arrays and transactions from the user's side.
