//! Entry points for fuzzing: what decodes bytes of a peer beside the frame header. None may
//! panic, whatever the bytes.

/// The list of memory ranges at the end of a body; the first four bytes are the header's count
/// of bulk bytes.
pub fn remote_trailer(bytes: &[u8]) {
    let Some((bulk_bytes, body)) = bytes.split_first_chunk::<4>() else { return };
    let mut body = body.to_vec();
    let _ = crate::remote::split_trailer(&mut body, u32::from_le_bytes(*bulk_bytes));
}

/// What a caller says to a challenge: the first bytes are that.
pub fn hello(bytes: &[u8]) {
    let Some((challenge, body)) = bytes.split_first_chunk::<32>() else { return };
    if let Ok((info, _)) = crate::accept::decode_hello(body, *challenge) {
        // Whatever it says, it is let in with the secret alone.
        assert!(!info.knows(b"a secret that no input has"));
    }
}

/// A valid input for [`hello`].
pub fn hello_seed() -> Vec<u8> {
    let challenge = [7; 32];
    let hello = wire::encode(&wire::hello::Hello {
        client: types::ClientId(1),
        service: wire::hello::Service::Control,
        nonce: [8; 32],
        job: "job",
        pid: 9,
        memory_word_address: 0,
        memory_word: 0,
    });
    let proof = wire::proof::of_caller(b"secret", &challenge, &hello);
    let body = wire::encode(&wire::hello::ProvenHello { hello: &hello, proof });
    [&challenge[..], &body].concat()
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
