//! Access patterns of IOR and mdtest, and reports.
