//! Entry points for fuzzing: what the client makes of bytes that come from targets. None may panic.

use types::CsumKind;

/// A reply with sums, for memory that it is said to have filled; the first byte says how the
/// rest is cut in memory and reply.
pub fn reply_sums(bytes: &[u8]) {
    let Some((cut, rest)) = bytes.split_first() else { return };
    let (room, reply) = rest.split_at((*cut as usize).min(rest.len()));
    for kind in CsumKind::ALL {
        let _ = crate::sums::check_reply(kind, reply, &[room], room.len());
    }
}

/// A reply, and the memory it speaks of, as [`reply_sums`] takes them.
pub fn reply_sums_seed() -> Vec<u8> {
    use types::sums::SumRun;
    use wire::obj::{BatchReply, BulkSums};
    let room = [7; 200];
    let kind = CsumKind::Crc32c;
    let mut sums = Vec::new();
    codec::push_sum(kind, &room[..50], &mut sums);
    let runs = vec![SumRun::Summed { bytes: 50, first: 50 }, SumRun::Bare { bytes: 150 }];
    let sums = BulkSums { kind, runs, sums: &sums, cells: Vec::new() };
    let reply = BatchReply { epoch: types::Epoch(1), ops: Vec::new(), sums };
    [&[room.len() as u8][..], &room, &wire::encode(&reply)].concat()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seed_is_a_good_reply() {
        let seed = super::reply_sums_seed();
        let (room, reply) = seed[1..].split_at(200);
        let kind = types::CsumKind::Crc32c;
        crate::sums::check_reply(kind, reply, &[room], 200).unwrap();
        super::reply_sums(&seed);
        let mut damaged = seed.clone();
        damaged[1] ^= 1;
        let (room, reply) = damaged[1..].split_at(200);
        let error = crate::sums::check_reply(kind, reply, &[room], 200).unwrap_err();
        assert_eq!(error.code, types::Code::Csum);
    }
}
