//! The yardstick of bandwidth over TCP: a bare stream between two threads of one process.

use crate::clock::monotonic_ns;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use types::{Code, Error, Result};

/// Bytes per second of a loopback stream, written and read `piece_bytes` at a time, `count`
/// pieces: from before the first write until after the last read.
pub fn bytes_per_s(piece_bytes: usize, count: u64) -> Result<f64> {
    let doing = |error| Error::io("streaming over loopback", error);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(doing)?;
    let address = listener.local_addr().map_err(doing)?;
    let sender = TcpStream::connect(address).map_err(doing)?;
    let (receiver, peer) = listener.accept().map_err(doing)?;
    if peer != sender.local_addr().map_err(doing)? {
        return Err(Error::new(Code::Io, "somebody else connected to the loopback stream"));
    }
    sender.set_nodelay(true).map_err(doing)?;
    let start_ns = monotonic_ns();
    let writer = std::thread::spawn(move || send(sender, piece_bytes, count));
    let received = receive(receiver, piece_bytes, count);
    let end_ns = monotonic_ns();
    match writer.join() {
        Ok(sent) => sent.map_err(doing)?,
        Err(_) => return Err(Error::new(Code::Io, "the sending thread panicked")),
    }
    received.map_err(doing)?;
    let seconds = end_ns.saturating_sub(start_ns).max(1) as f64 / 1e9;
    Ok(piece_bytes as f64 * count as f64 / seconds)
}

fn send(mut stream: TcpStream, piece_bytes: usize, count: u64) -> std::io::Result<()> {
    let piece = vec![0x5a; piece_bytes];
    for _ in 0..count {
        stream.write_all(&piece)?;
    }
    Ok(())
}

fn receive(mut stream: TcpStream, piece_bytes: usize, count: u64) -> std::io::Result<()> {
    let mut piece = vec![0; piece_bytes];
    for _ in 0..count {
        stream.read_exact(&mut piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_stream_carries_everything() {
        assert!(super::bytes_per_s(64 << 10, 20).unwrap() > 0.0);
    }
}
