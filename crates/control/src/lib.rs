//! Catalog, pool map authority, control service.
