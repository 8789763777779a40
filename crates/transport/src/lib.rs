//! Connections between clients and engines: shm and tcp.
