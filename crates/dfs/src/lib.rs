//! POSIX namespace over objects.
