//! Entry points for fuzzing: what decodes bytes of a peer beside the frame header. None may
//! panic, whatever the bytes.

/// The list of memory ranges at the end of a body; the first four bytes are the header's count
/// of bulk bytes.
pub fn remote_trailer(bytes: &[u8]) {
    let Some((bulk_bytes, body)) = bytes.split_first_chunk::<4>() else { return };
    let mut body = body.to_vec();
    let _ = crate::remote::split_trailer(&mut body, u32::from_le_bytes(*bulk_bytes));
}

/// A valid input for [`remote_trailer`]: a body of three bytes, one range each way.
pub fn remote_trailer_seed() -> Vec<u8> {
    let range = |address| wire::hello::RemoteRange { address, bytes: 4096 };
    let ticket = crate::remote::Ticket { slot: 3, word: 0x29 };
    let mut out = 4096u32.to_le_bytes().to_vec();
    out.extend_from_slice(b"abc");
    let (read, write) = (range(0x1000), range(0x2000));
    crate::remote::append_trailer(&mut out, &ticket, [read].into_iter(), [write].into_iter());
    out
}
